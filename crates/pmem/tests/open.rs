//! What can be mapped, what is refused, and what the refusal says.
#![allow(clippy::unwrap_used)]

use pmem::{Domain, Error, MapOptions, Mapping, Medium, Sysfs, fence};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

const SYNC: MapOptions = MapOptions { read_only: false, process: false, private: false };
const PROCESS: MapOptions = MapOptions { read_only: false, process: true, private: false };
const READ_ONLY: MapOptions = MapOptions { read_only: true, process: false, private: false };

fn allocated(directory: &Path, name: &str, len: usize) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, vec![0; len]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    path
}

fn refusal(path: &Path) -> Error {
    Mapping::open(path, &SYNC).unwrap_err()
}

#[test]
fn a_plain_file_is_mapped_in_the_sync_domain_and_keeps_what_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = allocated(directory.path(), "slice", 10_000);
    {
        let mapping = Mapping::open(&path, &SYNC).unwrap();
        assert_eq!((mapping.len(), mapping.domain()), (10_000, Domain::Sync));
        assert_eq!((mapping.medium(), mapping.node()), (Medium::File, None));
        assert_eq!((mapping.line_bytes(), mapping.unsafe_shutdown_count()), (64, None));
        assert!(!mapping.read_only());
        fence(mapping.write(9_990, &[7; 10]));
        mapping.sync().unwrap();
        assert!(mapping.read(9_990, &mut [0; 11]).is_err());
    }
    assert_eq!(fs::read(&path).unwrap()[9_989..], [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
    let mapping = Mapping::open(&path, &PROCESS).unwrap();
    assert_eq!(mapping.domain(), Domain::Process);
}

#[test]
fn a_file_in_use_names_its_holder() {
    let directory = tempfile::tempdir().unwrap();
    let path = allocated(directory.path(), "slice", 4096);
    let held = Mapping::open(&path, &SYNC).unwrap();
    let error = refusal(&path);
    assert_eq!(error.errno(), libc::EBUSY);
    let Error::Busy { holder: Some(ref holder), .. } = error else { panic!("{error}") };
    assert_eq!(holder.pid, std::process::id());
    let command = fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(holder.command, command.trim_end());
    assert!(error.to_string().contains(&format!("process {}", holder.pid)), "{error}");
    drop(held);
    Mapping::open(&path, &SYNC).unwrap();
}

#[test]
fn another_process_in_the_way_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = allocated(directory.path(), "slice", 4096);
    let mut command = std::process::Command::new("sleep");
    command.arg("60").stdin(File::open(&path).unwrap());
    // SAFETY: flock may be called between fork and exec, and touches no memory.
    unsafe {
        command.pre_exec(|| match libc::flock(0, libc::LOCK_EX) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let mut child = command.spawn().unwrap();
    // The lock belongs to the open file that the child's input shares with the command's.
    drop(command);
    let error = refusal(&path);
    child.kill().unwrap();
    child.wait().unwrap();
    let Error::Busy { holder: Some(ref holder), .. } = error else { panic!("{error}") };
    assert_eq!((holder.pid, holder.command.as_str()), (child.id(), "sleep"));
    assert!(error.to_string().contains(&format!("sleep (process {})", holder.pid)), "{error}");
    Mapping::open(&path, &SYNC).unwrap();
}

#[test]
fn readers_share_and_exclude_a_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = allocated(directory.path(), "slice", 4096);
    let first = Mapping::open(&path, &READ_ONLY).unwrap();
    let second = Mapping::open(&path, &READ_ONLY).unwrap();
    assert!(first.read_only());
    assert!(matches!(refusal(&path), Error::Busy { .. }));
    first.sync().unwrap();
    drop((first, second));
    let writer = Mapping::open(&path, &SYNC).unwrap();
    assert!(matches!(Mapping::open(&path, &READ_ONLY), Err(Error::Busy { .. })));
    drop(writer);
}

#[test]
#[should_panic(expected = "read-only")]
fn a_store_to_a_read_only_mapping_panics() {
    let directory = tempfile::tempdir().unwrap();
    let path = allocated(directory.path(), "slice", 4096);
    let mapping = Mapping::open(&path, &READ_ONLY).unwrap();
    let _ = mapping.write(0, &[1]);
}

#[test]
fn an_empty_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = allocated(directory.path(), "slice", 0);
    let error = refusal(&path);
    assert!(matches!(error, Error::Empty { .. }), "{error}");
    assert_eq!(error.errno(), libc::EINVAL);
}

#[test]
fn a_missing_file_says_so() {
    let error = refusal(Path::new("/nowhere/slice"));
    assert_eq!(error.errno(), libc::ENOENT);
    assert!(error.to_string().contains("/nowhere/slice"), "{error}");
}

#[test]
fn what_is_no_memory_is_refused_by_its_kind() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: the name ends in a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let socket = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, kind) in [
        (directory.path(), "a directory"),
        (&fifo, "a FIFO"),
        (&socket, "a socket"),
        (Path::new("/dev/null"), "a character device"),
    ] {
        for options in [SYNC, READ_ONLY] {
            let error = Mapping::open(path, &options).unwrap_err();
            assert!(matches!(error, Error::NotMappable { .. }), "{error}");
            assert!(error.to_string().contains(kind), "{error}");
            assert_eq!(error.errno(), libc::ENODEV);
        }
    }
}

/// On the file system of the sources, which is no tmpfs.
#[test]
fn a_file_with_holes_is_refused_in_the_sync_domain_only() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("slice");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let error = refusal(&path);
    let Error::Sparse { allocated_bytes, size_bytes, .. } = error else { panic!("{error}") };
    assert!(allocated_bytes < size_bytes && size_bytes == 1 << 20);
    Mapping::open(&path, &READ_ONLY).unwrap();
    Mapping::open(&path, &PROCESS).unwrap();
}

#[test]
fn a_file_with_holes_in_memory_is_filled() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = directory.path().join("slice");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let mapping = Mapping::open(&path, &SYNC).unwrap();
    assert_eq!(mapping.domain(), Domain::Sync);
    use std::os::unix::fs::MetadataExt;
    assert!(path.metadata().unwrap().blocks() * 512 >= 1 << 20);
}

#[test]
fn a_sysfs_of_ones_own_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = allocated(directory.path(), "slice", 4096);
    let sysfs = Sysfs { root: directory.path().to_owned() };
    // A plain file asks sysfs nothing.
    assert_eq!(Mapping::open_with(&path, &SYNC, &sysfs).unwrap().domain(), Domain::Sync);
}

#[test]
fn an_image_comes_back_as_it_went_in() {
    let image: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
    let mapping = Mapping::memory_from(&image, Domain::CpuFlush).unwrap();
    assert_eq!((mapping.domain(), mapping.medium()), (Domain::CpuFlush, Medium::Memory));
    assert_eq!(mapping.copy_image(), image);
    assert!(Mapping::memory(0, Domain::CpuFlush).is_err());
}
