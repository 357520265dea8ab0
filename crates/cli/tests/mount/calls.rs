//! System calls that shells do not make.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, FallocateFlags, OFlag, RenameFlags, copy_file_range, fallocate, renameat2,
};
use nix::unistd::{Whence, lseek};

use crate::remote::Remote;
use crate::support::{Scratch, has};

/// Opens a file to read and write, and makes it if need be.
pub fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
    renameat2(AT_FDCWD, from, AT_FDCWD, to, flags)
}

#[test]
fn rename_has_all_its_modes() {
    let Some(scratch) = Scratch::mounted() else { return };
    let (a, b) = (scratch.mnt().join("a"), scratch.mnt().join("b"));
    std::fs::write(&a, "a").unwrap();
    std::fs::create_dir(&b).unwrap();
    let no_replace = RenameFlags::RENAME_NOREPLACE;
    assert_eq!(rename(&a, &b, no_replace), Err(Errno::EEXIST));
    rename(&a, &b, RenameFlags::RENAME_EXCHANGE).unwrap();
    assert!(a.is_dir());
    assert_eq!(std::fs::read(&b).unwrap(), b"a");
    let missing = scratch.mnt().join("c");
    assert_eq!(rename(&a, &missing, RenameFlags::RENAME_EXCHANGE), Err(Errno::ENOENT));
    assert_eq!(rename(&a, &a.join("in"), RenameFlags::empty()), Err(Errno::EINVAL));
    assert_eq!(rename(&b, &a, RenameFlags::empty()), Err(Errno::EISDIR));
    rename(&b, &missing, no_replace).unwrap();
    assert_eq!(std::fs::read(&missing).unwrap(), b"a");
    rename(&missing, &b, RenameFlags::RENAME_WHITEOUT).unwrap();
    assert_eq!(std::fs::read(&b).unwrap(), b"a");
    let left = std::fs::symlink_metadata(&missing).unwrap();
    assert!(left.file_type().is_char_device());
    assert_eq!((left.rdev(), left.uid()), (0, nix::unistd::geteuid().as_raw()));
    scratch.finish();
}

/// FUSE can have an open cut the file at once; then the program would lose its pages first.
#[test]
fn a_program_that_runs_is_not_cut() {
    let Some(scratch) = Scratch::mounted() else { return };
    let program = scratch.mnt().join("program");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let bytes = std::fs::metadata(&program).unwrap().len();
    let mut running = std::process::Command::new(&program).arg("60").spawn().unwrap();
    for how in [OFlag::O_WRONLY, OFlag::O_RDWR, OFlag::O_TRUNC, OFlag::O_WRONLY | OFlag::O_TRUNC] {
        let opened = nix::fcntl::open(&program, how, nix::sys::stat::Mode::empty());
        assert_eq!(opened.err(), Some(Errno::ETXTBSY), "{how:?}");
        assert_eq!(std::fs::metadata(&program).unwrap().len(), bytes, "{how:?}");
    }
    assert!(running.try_wait().unwrap().is_none());
    running.kill().unwrap();
    running.wait().unwrap();
    scratch.finish();
}

#[test]
fn what_is_reserved_can_be_written_when_there_is_nothing_else_left() {
    let Some(scratch) = Scratch::mounted() else { return };
    let [one, two, three] = ["one", "two", "three"].map(|name| open(&scratch.mnt().join(name)));
    fallocate(&one, FallocateFlags::empty(), 0, 3_000_000).unwrap();
    let mut at = 0;
    for bytes in [1 << 24, 1 << 18, 4096] {
        while fallocate(&two, FallocateFlags::FALLOC_FL_KEEP_SIZE, at, bytes).is_ok() {
            at += bytes;
        }
    }
    // a few blocks may lie ready for writes
    let write =
        |block: u64| three.write_all_at(&[1; 4096], block * 4096).and_then(|()| three.sync_all());
    let refused = (0..1000).find_map(|block| write(block).err()).unwrap();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
    for round in 1..4u8 {
        (0..3_000_000)
            .step_by(60_000)
            .for_each(|at| one.write_all_at(&[round; 60_000], at).unwrap());
        one.sync_all().unwrap();
    }
    let mut content = Vec::new();
    (&one).read_to_end(&mut content).unwrap();
    assert!(content == [3; 3_000_000]);
    drop((one, two, three));
    scratch.finish();
}

#[test]
fn ranges_are_reserved_punched_and_zeroed() {
    let Some(scratch) = Scratch::mounted() else { return };
    let file = open(&scratch.mnt().join("f"));
    fallocate(&file, FallocateFlags::empty(), 0, 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, 200_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    assert_eq!(file.metadata().unwrap().blocks(), 200_000u64.div_ceil(4096) * 8);
    let too_much = fallocate(&file, FallocateFlags::empty(), 0, 1 << 40);
    assert_eq!(too_much, Err(Errno::ENOSPC));
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    file.write_all_at(&[7; 100_000], 0).unwrap();
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, punch, 4_000, 60_000).unwrap();
    fallocate(&file, FallocateFlags::FALLOC_FL_ZERO_RANGE, 90_000, 20_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 110_000);
    let mut content = vec![1; 110_000];
    file.read_exact_at(&mut content, 0).unwrap();
    for (at, byte) in content.iter().enumerate() {
        let zero = (4_000..64_000).contains(&at) || at >= 90_000;
        assert_eq!(*byte, if zero { 0 } else { 7 }, "at {at}");
    }
    let collapse = FallocateFlags::FALLOC_FL_COLLAPSE_RANGE;
    assert_eq!(fallocate(&file, collapse, 0, 4096), Err(Errno::EOPNOTSUPP));
    drop(file);
    scratch.finish();
}

#[test]
fn data_and_holes_are_found() {
    let Some(scratch) = Scratch::mounted() else { return };
    let file = open(&scratch.mnt().join("f"));
    file.write_all_at(&[1; 4096], 1 << 20).unwrap();
    file.set_len(4 << 20).unwrap();
    assert_eq!(lseek(&file, 0, Whence::SeekData).unwrap(), 1 << 20);
    assert_eq!(lseek(&file, 1 << 20, Whence::SeekHole).unwrap(), (1 << 20) + 4096);
    assert_eq!(lseek(&file, 2 << 20, Whence::SeekData), Err(Errno::ENXIO));
    assert_eq!(lseek(&file, 4 << 20, Whence::SeekHole), Err(Errno::ENXIO));
    drop(file);
    scratch.finish();
}

#[test]
fn copy_file_range_copies_and_stops_at_the_end() {
    let Some(scratch) = Scratch::mounted() else { return };
    let (from, to) = (open(&scratch.mnt().join("from")), open(&scratch.mnt().join("to")));
    let content: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    from.write_all_at(&content, 0).unwrap();
    let (mut source, mut target) = (1_000, 500);
    while copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 1 << 30).unwrap() > 0 {}
    assert_eq!((source, target), (3_000_000, 2_999_500));
    let mut copied = vec![0; 2_999_000];
    to.read_exact_at(&mut copied, 500).unwrap();
    assert!(copied == content[1_000..]);
    drop((from, to));
    scratch.finish();
}

#[test]
fn times_before_1970_and_far_away_are_kept() {
    use nix::sys::stat::{UtimensatFlags, utimensat};
    use nix::sys::time::TimeSpec;
    let Some(scratch) = Scratch::mounted() else { return };
    let path = scratch.mnt().join("f");
    std::fs::write(&path, "").unwrap();
    for (seconds, nanos) in [(-2, 800_000_000), (-1, 1), (-5, 0), (0, 7), (4_000_000_000, 9)] {
        let time = TimeSpec::new(seconds, nanos);
        utimensat(AT_FDCWD, &path, &time, &time, UtimensatFlags::FollowSymlink).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (seconds, nanos));
        assert_eq!((metadata.atime(), metadata.atime_nsec()), (seconds, nanos));
    }
    scratch.finish();
}

/// With a finer clock for one than for the other, what was written after a touch looked older.
#[test]
fn a_touch_and_the_write_after_it_go_by_one_clock() {
    use nix::sys::stat::{UtimensatFlags, utimensat};
    use nix::sys::time::TimeSpec;
    let Some(scratch) = Scratch::mounted() else { return };
    let (touched, written) = (scratch.mnt().join("touched"), scratch.mnt().join("written"));
    std::fs::write(&touched, "").unwrap();
    let now = TimeSpec::UTIME_NOW;
    for _ in 0..20 {
        utimensat(AT_FDCWD, &touched, &now, &now, UtimensatFlags::FollowSymlink).unwrap();
        std::fs::write(&written, "x").unwrap();
        let (before, after) = (touched.metadata().unwrap(), written.metadata().unwrap());
        assert!(before.modified().unwrap() <= after.modified().unwrap());
        assert_eq!(before.modified().unwrap(), before.accessed().unwrap());
    }
    scratch.finish();
}

/// The kernel opens fifos itself, and tells the server of no O_PATH descriptor.
#[test]
fn what_is_removed_while_in_use_keeps_its_attributes() {
    use nix::sys::stat::Mode;
    use std::os::unix::fs::OpenOptionsExt;
    let Some(scratch) = Scratch::mounted() else { return };
    let path = |name| scratch.mnt().join(name);
    nix::unistd::mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
    std::fs::create_dir(path("dir")).unwrap();
    for name in ["file", "other", "replaced", "twice"] {
        std::fs::write(path(name), name).unwrap();
    }
    std::fs::hard_link(path("twice"), path("again")).unwrap();
    let names = ["dir", "file", "replaced", "twice"];
    let held =
        |name| OpenOptions::new().read(true).custom_flags(nix::libc::O_PATH).open(path(name));
    let mut files: Vec<File> = names.map(|name| held(name).unwrap()).into();
    files.push(open(&path("fifo")));
    let before: Vec<_> = files.iter().map(|file| file.metadata().unwrap()).collect();
    std::fs::remove_dir(path("dir")).unwrap();
    std::fs::rename(path("other"), path("replaced")).unwrap();
    for name in ["fifo", "file", "twice"] {
        std::fs::remove_file(path(name)).unwrap();
    }
    for (file, before) in files.iter().zip(before) {
        let after = file.metadata().unwrap();
        assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
        assert_eq!(after.nlink(), u64::from(before.nlink() == 2 && before.is_file()));
    }
    let fifo = files.last().unwrap();
    fifo.set_permissions(std::fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fifo.metadata().unwrap().mode() & 0o7777, 0o640);
    let listing = scratch.sh("mkdir gone; cd gone; rmdir ../gone; ls -a; stat -c %h .");
    assert_eq!(listing, "0\n");
    drop(files);
    scratch.finish();
}

#[test]
fn a_write_past_the_largest_file_is_refused() {
    let Some(scratch) = Scratch::mounted() else { return };
    let file = open(&scratch.mnt().join("f"));
    let error = file.write_at(b"x", 1 << 60).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::EFBIG as i32));
    let long = scratch.mnt().join("n".repeat(256));
    assert_eq!(File::create(long).unwrap_err().raw_os_error(), Some(Errno::ENAMETOOLONG as i32));
    File::create(scratch.mnt().join("n".repeat(255))).unwrap();
    drop(file);
    scratch.finish();
}

/// Readers and writers of one file at once: every 64 KiB read is one writer's, never a mix.
#[test]
fn a_write_is_seen_whole_by_direct_readers() {
    use std::os::unix::fs::OpenOptionsExt;
    const BYTES: usize = 64 << 10;
    let Some(scratch) = Scratch::mounted() else { return };
    let path = scratch.mnt().join("f");
    std::fs::write(&path, vec![0; BYTES]).unwrap();
    std::thread::scope(|threads| {
        for writer in 1..=2u8 {
            let path = &path;
            threads.spawn(move || {
                let file = open(path);
                for turn in 0..200u8 {
                    file.write_all_at(&vec![writer.wrapping_mul(turn); BYTES], 0).unwrap();
                }
            });
        }
        let direct = OpenOptions::new().read(true).custom_flags(nix::libc::O_DIRECT).open(&path);
        let direct = direct.unwrap();
        for _ in 0..200 {
            // Direct reads want an aligned buffer: take a page-aligned part of a larger one.
            let mut room = vec![0u8; BYTES + 4096];
            let start = room.as_ptr().align_offset(4096);
            let bytes = &mut room[start..start + BYTES];
            direct.read_exact_at(bytes, 0).unwrap();
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a mixture of two writes");
        }
    });
    scratch.finish();
}

#[test]
fn what_one_descriptor_writes_another_reads() {
    let Some(scratch) = Scratch::mounted() else { return };
    let path = scratch.mnt().join("f");
    let (mut one, mut other) = (open(&path), open(&path));
    for turn in 0..50u8 {
        one.write_all(&[turn; 3_000]).unwrap();
        let mut got = [0; 3_000];
        other.read_exact(&mut got).unwrap();
        assert_eq!(got, [turn; 3_000]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), (u64::from(turn) + 1) * 3_000);
    }
    drop((one, other));
    scratch.finish();
}

/// Who looks at a file's times, and again after a change, must see that it changed, however soon.
const TIMES: &str = r#"
import os, sys
f = os.open("times-" + sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_APPEND)
changes = {
    "write": lambda n: os.pwrite(f, b"x", 0),
    "large": lambda n: os.pwrite(f, b"x" * 100000, 0),
    "append": lambda n: os.write(f, b"x"),
    "truncate": lambda n: os.ftruncate(f, n),
    "chmod": lambda n: os.fchmod(f, 0o600 + n % 64),
}
for name, change in changes.items():
    same = 0
    for n in range(200):
        before = os.fstat(f)
        change(n)
        after = os.fstat(f)
        same += before.st_ctime_ns >= after.st_ctime_ns
        if name != "chmod":
            same += before.st_mtime_ns >= after.st_mtime_ns
    print(name, same)
made = os.stat(".")
open("another-" + sys.argv[1], "w").close()
print("directory", int(made.st_mtime_ns >= os.stat(".").st_mtime_ns))
"#;

#[test]
fn a_change_shows_in_the_times_however_soon_somebody_looks() {
    if !has("python3") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    let remote = Remote::with_own_mount(&["--squash=none"]).unwrap();
    let far = remote.scratch.mnt();
    remote.mount_on(&far, &remote.address);
    for (number, dir) in [scratch.mnt(), remote.own(), far].iter().enumerate() {
        let mut command = Command::new("timeout");
        command.args(["180", "python3", "-c", TIMES, &number.to_string()]).current_dir(dir);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.lines().count() == 6 && said.lines().all(|it| it.ends_with(" 0")), "{said}");
    }
    remote.stop();
    scratch.finish();
}
