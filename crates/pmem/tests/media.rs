//! Memory that fails while it is mapped: an error of the range, no end of the process.
#![cfg(feature = "recorder")]
#![allow(clippy::unwrap_used)]

use pmem::{Error, MapOptions, Mapping, fence};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tempfile::TempDir;

const PAGES: usize = 16;
const BYTES: usize = PAGES * 4096;

/// A mapped file in shared memory, each byte the number of its page.
fn mapped() -> (TempDir, File, Mapping) {
    let directory = TempDir::new_in("/dev/shm").unwrap();
    let path = directory.path().join("slice");
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 4096) as u8).collect();
    std::fs::write(&path, bytes).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mapping = Mapping::open(&path, &MapOptions { process: true, ..MapOptions::default() });
    (directory, file, mapping.unwrap())
}

/// Every way to read `len` bytes at `offset`.
fn reads(mapping: &Mapping, offset: u64, len: usize) -> Vec<Result<(), Error>> {
    let mut buffer = vec![0; len];
    vec![
        mapping.read(offset, &mut buffer),
        mapping.read_crc(offset, &mut buffer).map(drop),
        mapping.crc(offset, len).map(drop),
        mapping.crc_difference(offset, &buffer, 0).map(drop),
        mapping.read_u64(offset / 8 * 8).map(drop),
    ]
}

#[test]
fn a_load_that_fails_is_an_error_of_its_range_until_it_is_written() {
    let (_directory, file, mapping) = mapped();
    mapping.poison(5 * 4096, 4096).unwrap();
    mapping.poison(9 * 4096, 2 * 4096).unwrap();
    assert_eq!(mapping.bad_ranges(), [], "nobody has met them");
    for at in [5 * 4096, 5 * 4096 + 4000] {
        for read in reads(&mapping, at, 96) {
            assert!(matches!(read, Err(Error::Media { offset: 20_480, len: 4096 })), "{read:?}");
        }
    }
    assert_eq!(mapping.bad_ranges(), [(20_480, 4096)]);
    let mut across = vec![0; 3 * 4096];
    assert!(mapping.read(8 * 4096, &mut across).is_err());
    assert_eq!(across[..4096], vec![8; 4096], "what could be read");
    assert_eq!(mapping.bad_ranges(), [(20_480, 4096), (36_864, 8192)]);
    for page in [0, 4, 6, 8, 11] {
        assert!(reads(&mapping, page * 4096, 4096).iter().all(Result::is_ok), "page {page}");
    }
    // a page that is written is whole again, and what is stored lies in the file
    fence(mapping.write(5 * 4096 + 100, &[7; 200]));
    assert!(reads(&mapping, 5 * 4096, 4096).iter().all(Result::is_ok));
    let mut found = vec![1; 4096];
    file.read_exact_at(&mut found, 5 * 4096).unwrap();
    let mut expected = vec![0; 4096];
    expected[100..300].fill(7);
    assert_eq!(found, expected);
    assert_eq!(mapping.bad_ranges(), [(36_864, 8192)]);
    assert!(!mapping.broken());
    drop(mapping);
    let (_directory, _file, next) = mapped();
    assert_eq!(next.bad_ranges(), [], "where it was mapped something else may be");
}

#[test]
fn threads_that_meet_the_same_failure_all_see_it() {
    let (_directory, _file, mapping) = mapped();
    for round in 0..PAGES as u64 {
        mapping.poison(round * 4096, 4096).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let read = mapping.read(round * 4096 + 8, &mut [0; 64]);
                    assert!(matches!(read, Err(Error::Media { .. })), "{read:?}");
                });
            }
        });
    }
    assert_eq!(mapping.bad_ranges(), [(0, BYTES as u64)]);
}

#[test]
fn a_file_that_is_cut_short_under_its_mapping_is_an_error_behind_its_end() {
    let (_directory, file, mapping) = mapped();
    file.set_len(3 * 4096).unwrap();
    let mut all = vec![0xEE; BYTES];
    assert!(matches!(mapping.read(0, &mut all), Err(Error::Media { offset: 12_288, .. })));
    assert!(mapping.read(0, &mut all[..3 * 4096]).is_ok());
    assert_eq!(all[2 * 4096..3 * 4096], vec![2; 4096]);
}

/// A plain file in the domain `sync` is written through its descriptor.
#[test]
fn what_is_written_through_the_file_is_seen_again() {
    let directory = TempDir::new_in("/dev/shm").unwrap();
    let path = directory.path().join("slice");
    std::fs::write(&path, [3; 8192]).unwrap();
    let mapping = Mapping::open(&path, &MapOptions::default()).unwrap();
    mapping.poison(4096, 4096).unwrap();
    assert!(mapping.read(5000, &mut [0; 8]).is_err());
    fence(mapping.write(5000, &[9; 8]));
    let mut found = [0; 16];
    mapping.read(4996, &mut found).unwrap();
    assert_eq!(found, [3, 3, 3, 3, 9, 9, 9, 9, 9, 9, 9, 9, 3, 3, 3, 3]);
    assert_eq!(mapping.bad_ranges(), []);
}

/// Where the signal was handled by somebody before, what is not about a mapping goes there; and
/// where nobody did, the process ends by it.
#[test]
fn what_is_about_other_memory_ends_the_process_as_before() {
    const VARIABLE: &str = "NEARSIDE_TEST_SIGBUS";
    if std::env::var_os(VARIABLE).is_some() {
        let (_directory, _file, mapping) = mapped();
        mapping.poison(0, 4096).unwrap();
        assert!(mapping.read(0, &mut [0; 8]).is_err());
        let empty = tempfile::tempfile().unwrap();
        // SAFETY: the kernel picks unused addresses; the load ends this process, which is there for
        // that.
        unsafe {
            let (shared, descriptor) = (libc::MAP_SHARED, std::os::fd::AsRawFd::as_raw_fd(&empty));
            let none = std::ptr::null_mut();
            let page = libc::mmap(none, 4096, libc::PROT_READ, shared, descriptor, 0);
            assert_ne!(page, libc::MAP_FAILED);
            page.cast::<u8>().read_volatile();
        }
        unreachable!("the signal was swallowed");
    }
    let test = "what_is_about_other_memory_ends_the_process_as_before";
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(VARIABLE, "1")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGBUS));
}

/// Tells a test that it runs again, in a process of its own: signals and what is lost are the
/// process's.
const ALONE: &str = "NEARSIDE_TEST_ALONE";

/// Runs `act` in a process of its own, as the test `name`; it must come to its end.
fn alone(name: &str, act: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return act();
    }
    let out = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}: {said}", out.status);
}

static CAUGHT: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
/// A page that other memory's owner knows how to mend.
static OTHERS: AtomicUsize = AtomicUsize::new(0);

fn mend_others(which: usize) {
    CAUGHT[which].fetch_add(1, Ordering::Relaxed);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let (page, protection) = (OTHERS.load(Ordering::Relaxed), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the page is this test's own mapping.
    unsafe { libc::mmap(page as *mut _, 4096, protection, flags, -1, 0) };
}

extern "C" fn with_information(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's pointer is valid during the handler.
    let page = unsafe { (*info).si_addr() as usize } & !4095;
    assert_eq!(page, OTHERS.load(Ordering::Relaxed));
    mend_others(0);
}

extern "C" fn without_information(_: i32) {
    mend_others(1);
}

fn handle(signal: i32, handler: usize, flags: i32) {
    // SAFETY: an all-zero sigaction is a valid value; the handlers have the signatures that the
    // flags say.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Whoever handled the signals before, with or without what the kernel says of them, still gets
/// those that are about its own memory, and no others.
#[test]
fn signals_about_other_memory_go_to_whoever_handled_them_before() {
    alone("signals_about_other_memory_go_to_whoever_handled_them_before", || {
        handle(libc::SIGBUS, with_information as *const () as usize, libc::SA_SIGINFO);
        handle(libc::SIGSEGV, without_information as *const () as usize, 0);
        let (_directory, _file, mapping) = mapped();
        mapping.poison(0, 4096).unwrap();
        assert!(mapping.read(0, &mut [0; 8]).is_err());
        fence(mapping.write(0, &[1; 8]));
        mapping.read(0, &mut [0; 8]).unwrap();
        assert_eq!(CAUGHT.each_ref().map(|count| count.load(Ordering::Relaxed)), [0, 0]);
        let empty = tempfile::tempfile().unwrap();
        let map = |protection, flags, descriptor| {
            // SAFETY: the kernel picks unused addresses.
            let page =
                unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, descriptor, 0) };
            assert_ne!(page, libc::MAP_FAILED);
            OTHERS.store(page as usize, Ordering::Relaxed);
            page.cast::<u8>()
        };
        let behind_the_end = map(libc::PROT_READ, libc::MAP_SHARED, empty.as_raw_fd());
        // SAFETY: the handler puts memory there.
        assert_eq!(unsafe { behind_the_end.read_volatile() }, 0);
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let read_only = map(libc::PROT_READ, anonymous, -1);
        // SAFETY: as above.
        unsafe { read_only.write_volatile(7) };
        assert_eq!(CAUGHT.each_ref().map(|count| count.load(Ordering::Relaxed)), [1, 1]);
    });
}

/// A file in memory that is cut short and can never grow again: what cannot be mended.
fn sealed_behind(pages: usize, options: &MapOptions) -> (File, Mapping) {
    // SAFETY: it makes a descriptor, which is nobody else's.
    let file = unsafe {
        let descriptor = libc::memfd_create(c"slice".as_ptr(), libc::MFD_ALLOW_SEALING);
        assert!(descriptor >= 0);
        File::from_raw_fd(descriptor)
    };
    file.write_all_at(&[5; BYTES], 0).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mapping = Mapping::open(path.as_ref(), options).unwrap();
    file.set_len(pages as u64 * 4096).unwrap();
    // SAFETY: it changes the seals of the descriptor.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_GROW) };
    assert_eq!(sealed, 0);
    (file, mapping)
}

/// The store goes nowhere, the program goes on, and whoever made it can tell.
#[test]
fn a_store_to_memory_that_cannot_be_made_whole_is_lost_and_told() {
    alone("a_store_to_memory_that_cannot_be_made_whole_is_lost_and_told", || {
        let options = MapOptions { process: true, ..MapOptions::default() };
        let (_file, mapping) = sealed_behind(10, &options);
        let (_other_file, other) = sealed_behind(10, &options);
        fence(mapping.write(9 * 4096, &[1; 4096]));
        assert!(!mapping.broken());
        for page in [10, 12] {
            fence(mapping.write(page * 4096 + 8, &[1; 64]));
            assert!(mapping.broken() && !other.broken());
        }
        let mut found = [0; 4096];
        mapping.read(9 * 4096, &mut found).unwrap();
        assert_eq!(found, [1; 4096]);
    });
}

/// What is stored privately needs no medium: any memory takes it.
#[test]
fn a_private_store_to_memory_that_fails_is_kept() {
    let options = MapOptions { private: true, process: true, ..MapOptions::default() };
    let (_file, mapping) = sealed_behind(10, &options);
    assert!(mapping.read(11 * 4096, &mut [0; 8]).is_err());
    fence(mapping.write(11 * 4096 + 8, &[7; 8]));
    let mut found = [1; 24];
    mapping.read(11 * 4096, &mut found).unwrap();
    assert_eq!(found[..8], [0; 8]);
    assert_eq!(found[8..16], [7; 8]);
    assert!(!mapping.broken());
    assert_eq!(mapping.bad_ranges(), []);
}
