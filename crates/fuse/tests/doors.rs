//! Two doors to one pool at once, the library and a mount: what one changed, the other sees.
//!
//! Needs root and /dev/fuse; without them the tests say so and pass.

#![allow(missing_docs, clippy::unwrap_used)]

mod lockers;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockers::Locker;
use nearside::{FormatOptions, LockKind, Pool, SliceSpec};
use nearside_fuse::{Mount, MountOptions, mount, mounts};
use nix::sys::signal::Signal;

struct Doors {
    pool: Pool,
    mount: Option<Mount>,
    root: tempfile::TempDir,
}

impl Doors {
    fn open() -> Option<Doors> {
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if !nix::unistd::geteuid().is_root() || device.is_err() {
            println!("skipped: mounting takes root and /dev/fuse");
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("mnt")).unwrap();
        let options = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: 32 << 20,
            process: true,
            ..FormatOptions::default()
        };
        Pool::format(root.path().join("pool"), &options).unwrap();
        let pool = Pool::open(root.path().join("pool")).unwrap();
        let mount = mount(pool.fs().clone(), &root.path().join("mnt"), &MountOptions::default());
        Some(Doors { pool, mount: Some(mount.unwrap()), root })
    }

    /// A path in the mount.
    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join("mnt").join(name)
    }

    /// Locks that were asked for so far; one that waits was asked for, too.
    fn locks_asked(&self) -> u64 {
        let calls = self.pool.fs().meter().counts(|_| true);
        calls.iter().find(|call| call.name == "lock").map_or(0, |call| call.count)
    }

    fn finish(mut self) {
        let mount = self.mount.take().unwrap();
        let dir = mount.dir().to_owned();
        mount.unmount().unwrap();
        mount.wait().unwrap();
        assert_eq!(mounts::at(&dir).unwrap(), None);
        self.pool.close().unwrap();
    }
}

#[test]
fn names_come_and_go_on_both_sides() {
    let Some(doors) = Doors::open() else { return };
    for round in 0..20 {
        let name = format!("f{}", round % 3);
        assert!(!doors.at(&name).exists());
        doors.pool.write(&name, "library").unwrap();
        assert_eq!(std::fs::read(doors.at(&name)).unwrap(), b"library");
        doors.pool.rename(&name, "moved").unwrap();
        assert!(!doors.at(&name).exists());
        assert_eq!(std::fs::read_dir(doors.at("")).unwrap().count(), 1);
        std::fs::remove_file(doors.at("moved")).unwrap();
        assert!(!doors.pool.exists("moved").unwrap());
        assert_eq!(std::fs::read_dir(doors.at("")).unwrap().count(), 0);
    }
    doors.finish();
}

#[test]
fn bytes_and_sizes_are_seen_through_descriptors_that_stay_open() {
    let Some(doors) = Doors::open() else { return };
    let inside = doors.pool.create_file("f").unwrap();
    let mut outside =
        std::fs::OpenOptions::new().read(true).append(true).open(doors.at("f")).unwrap();
    for round in 0..20u8 {
        inside.append(&[round; 100]).unwrap();
        let mut got = [0; 100];
        outside.read_exact(&mut got).unwrap();
        assert_eq!(got, [round; 100]);
        outside.write_all(&[round + 100; 50]).unwrap();
        inside.read_exact_at(&mut got[..50], u64::from(round) * 150 + 100).unwrap();
        assert_eq!(got[..50], [round + 100; 50]);
        assert_eq!(std::fs::metadata(doors.at("f")).unwrap().size(), u64::from(round) * 150 + 150);
    }
    inside.write_all_at(b"changed in place", 0).unwrap();
    assert!(std::fs::read(doors.at("f")).unwrap().starts_with(b"changed in place"));
    inside.set_len(3).unwrap();
    assert_eq!(std::fs::read(doors.at("f")).unwrap(), b"cha");
    doors.pool.set_permissions("f", 0o600).unwrap();
    assert_eq!(std::fs::metadata(doors.at("f")).unwrap().mode() & 0o7777, 0o600);
    drop(outside);
    doors.finish();
}

#[test]
fn a_dropped_mount_is_gone_and_the_pool_goes_on() {
    let Some(mut doors) = Doors::open() else { return };
    std::fs::write(doors.at("f"), "x").unwrap();
    drop(doors.mount.take());
    assert!(!doors.at("f").exists());
    assert_eq!(doors.pool.read("f").unwrap(), b"x");
    doors.pool.close().unwrap();
}

/// Bytes of the largest request, and so the mount's atomic limit.
const REQUEST_BYTES: usize = 1 << 20;
/// New patterns that each reader waits for.
const PATTERNS: u32 = 250;

/// A buffer of one request that begins at a page: elsewhere it would touch one page more than a
/// request has, and the kernel would make two of it.
struct Request {
    room: Vec<u8>,
    start: usize,
}

impl Request {
    fn new() -> Request {
        let room = vec![0; REQUEST_BYTES + 4096];
        let start = room.as_ptr().align_offset(4096);
        Request { room, start }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.room[self.start..][..REQUEST_BYTES]
    }
}

/// A reader, counted until it ends, also by a panic.
struct Reader<'r>(&'r AtomicU32);

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reader<'_> {
    /// Reads until it has met enough new patterns; each read must be of one.
    fn watch(self, read: impl Fn(&mut [u8])) {
        let mut request = Request::new();
        let (mut last, mut met) = (0, 0);
        while met < PATTERNS {
            let bytes = request.bytes();
            read(bytes);
            let first = bytes[0];
            let other = bytes.iter().position(|byte| *byte != first);
            assert_eq!(other, None, "a mix of two writes");
            met += u32::from(first != last);
            last = first;
        }
    }
}

/// One request is one record: readers at both doors see all of a write of 1 MiB or nothing.
///
/// What the kernel may split, and then promises nothing of the whole: calls of more than 1 MiB;
/// direct calls whose buffer does not begin at a page; calls through the page cache, which reads
/// and keeps single pages, where there are no other doors (so O_DIRECT here); and all of these in
/// smaller pieces where it allows fewer than 256 pages in a request (kernels before 4.20,
/// fs.fuse.max_pages_limit).
#[test]
fn a_write_of_one_request_is_never_seen_in_part() {
    let Some(doors) = Doors::open() else { return };
    let inside = doors.pool.create_file("f").unwrap();
    inside.write_all_at(&vec![0; REQUEST_BYTES], 0).unwrap();
    let direct = || -> File {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_DIRECT).open(doors.at("f")).unwrap()
    };
    let (writers, outside) = ([direct(), direct()], direct());
    let readers = AtomicU32::new(2);
    std::thread::scope(|threads| {
        for (number, writer) in writers.iter().enumerate() {
            let readers = &readers;
            threads.spawn(move || {
                let mut request = Request::new();
                // odd numbers are of one writer, even ones of the other
                let mut pattern = number as u8;
                while readers.load(Ordering::Relaxed) > 0 {
                    pattern = pattern.wrapping_add(2);
                    request.bytes().fill(pattern);
                    writer.write_all_at(request.bytes(), 0).unwrap();
                }
            });
        }
        let [one, other] = [Reader(&readers), Reader(&readers)];
        let (outside, inside) = (&outside, &inside);
        threads.spawn(move || one.watch(|bytes| outside.read_exact_at(bytes, 0).unwrap()));
        threads.spawn(move || other.watch(|bytes| inside.read_exact_at(bytes, 0).unwrap()));
    });
    drop((writers, outside, inside));
    doors.finish();
}

/// Bytes of a few pages.
const PAGES_BYTES: usize = 4 * 4096;
/// How long callers go on.
const A_WHILE: Duration = Duration::from_secs(2);

fn ordinary(doors: &Doors) -> File {
    File::options().read(true).write(true).open(doors.at("f")).unwrap()
}

/// Numbers of 8 bytes, all alike: of one write.
#[track_caller]
fn number(bytes: &[u8]) -> u64 {
    let mixed = bytes.chunks(8).find(|chunk| *chunk != &bytes[..8]);
    assert_eq!(mixed, None, "a mix of two writes");
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// Found by histories: the kernel kept pages, looked at the attributes once and read what it lacked
/// later, so that a read was of several moments; and a read at the mount saw what a write there had
/// stored to the kernel's pages, and the pool had not.
#[test]
fn what_one_call_changes_is_seen_at_one_moment() {
    let Some(doors) = Doors::open() else { return };
    let inside = doors.pool.create_file("f").unwrap();
    inside.write_all_at(&[0; PAGES_BYTES], 0).unwrap();
    let until = Instant::now() + A_WHILE;
    std::thread::scope(|threads| {
        for by_library in [true, false] {
            let (doors, inside, range) = (&doors, &inside, u64::from(by_library) << 20);
            inside.write_all_at(&[0; PAGES_BYTES], range).unwrap();
            threads.spawn(move || {
                let outside = ordinary(doors);
                for number in 1u64.. {
                    let bytes = number.to_le_bytes().repeat(PAGES_BYTES / 8);
                    match by_library {
                        true => inside.write_all_at(&bytes, range).unwrap(),
                        false => outside.write_all_at(&bytes, range).unwrap(),
                    }
                    if Instant::now() > until {
                        break;
                    }
                }
            });
            threads.spawn(move || {
                let (outside, mut bytes) = (ordinary(doors), vec![0; PAGES_BYTES]);
                while Instant::now() < until {
                    outside.read_exact_at(&mut bytes, range).unwrap();
                    let seen = number(&bytes);
                    inside.read_exact_at(&mut bytes, range).unwrap();
                    assert!(number(&bytes) >= seen, "{seen} was seen, and is not there");
                    let seen = number(&bytes);
                    outside.read_exact_at(&mut bytes, range).unwrap();
                    assert!(number(&bytes) >= seen, "{seen} was there, and is not seen");
                }
            });
        }
    });
    drop(inside);
    doors.finish();
}

/// A mapping and calls at either side, while the file is open at the mount.
#[test]
fn a_mapping_and_calls_are_one_memory() {
    use std::os::fd::AsRawFd as _;
    let Some(doors) = Doors::open() else { return };
    let inside = doors.pool.create_file("f").unwrap();
    inside.write_all_at(&[1; PAGES_BYTES], 0).unwrap();
    let outside = ordinary(&doors);
    let script = "import mmap, os, sys\n\
        f = os.open(f'/proc/{sys.argv[1]}/fd/{sys.argv[2]}', os.O_RDWR)\n\
        shared = mmap.mmap(f, 16384)\n\
        assert shared[5000:5004] == bytes([1]) * 4\n\
        shared[5000:5004] = b'here'\n\
        assert os.pread(f, 4, 5000) == b'here'\n\
        os.pwrite(f, b'there', 9000)\n\
        assert shared[9000:9005] == b'there' and shared[5000:5004] == b'here'\n\
        shared.flush()";
    let (process, number) = (std::process::id().to_string(), outside.as_raw_fd().to_string());
    let mut python = std::process::Command::new("python3");
    let status = python.args(["-c", script, &process, &number]).status().unwrap();
    assert!(status.success());
    let mut bytes = [0; 5];
    inside.read_exact_at(&mut bytes, 9000).unwrap();
    assert_eq!(&bytes, b"there");
    inside.read_exact_at(&mut bytes[..4], 5000).unwrap();
    assert_eq!(&bytes[..4], b"here");
    drop((inside, outside));
    doors.finish();
}

/// What one locks, the other cannot, whoever comes through which door.
#[test]
fn locks_hold_between_the_library_and_programs() {
    let Some(doors) = Doors::open() else { return };
    let inside = doors.pool.create_file("f").unwrap();
    let [mut one, mut other] = [(); 2].map(|()| Locker::new(&doors.at("f")));
    inside.lock(LockKind::Write, 0..10).unwrap();
    one.refused("posix f sh 9 1 now", libc::EAGAIN);
    assert_eq!(one.ask("holder f ex 0 0"), format!("ex 0 10 {}", std::process::id()));
    one.done("posix f ex 10 0 now");
    assert!(!inside.try_lock(LockKind::Read, 1 << 40..).unwrap());
    // The whole file is another lock than its bytes.
    one.done("flock f ex now");
    other.refused("flock f sh now", libc::EAGAIN);
    other.begin("posix f ex 5 1 wait");
    inside.unlock(..).unwrap();
    assert_eq!(other.answer(), "ok");
    assert!(!inside.try_lock(LockKind::Write, 5..6).unwrap());
    // POSIX: whatever descriptor of the file a process closes, its locks there go.
    other.open("again", &doors.at("f"));
    other.done("close again");
    assert!(inside.try_lock(LockKind::Write, 5..6).unwrap());
    // The end of a process ends its locks of both kinds.
    one.kill();
    inside.lock(LockKind::Write, ..).unwrap();
    inside.unlock(..).unwrap();
    other.done("flock f ex wait");
    drop((inside, other));
    doors.finish();
}

/// The locks of an open file description end with it, not with its process's other closes.
#[test]
fn locks_of_open_files_end_with_their_last_close() {
    let Some(doors) = Doors::open() else { return };
    let inside = doors.pool.create_file("f").unwrap();
    let mut locker = Locker::new(&doors.at("f"));
    locker.open("own", &doors.at("f"));
    locker.done("ofd own ex 0 10 now");
    locker.refused("ofd f sh 0 1 now", libc::EAGAIN);
    locker.done("close f");
    assert!(!inside.try_lock(LockKind::Read, 0..1).unwrap());
    locker.done("close own");
    inside.lock(LockKind::Write, 0..1).unwrap();
    drop((inside, locker));
    doors.finish();
}

/// A wait ends with a signal, and with the death of who waits; it leaves nothing behind.
#[test]
fn waits_end_with_signals() {
    let Some(doors) = Doors::open() else { return };
    let inside = doors.pool.create_file("f").unwrap();
    inside.lock(LockKind::Write, ..).unwrap();
    for command in ["posix f ex 0 1 wait", "ofd f sh 5 5 wait"] {
        let mut locker = Locker::new(&doors.at("f"));
        for _ in 0..20 {
            let before = doors.locks_asked();
            locker.begin(command);
            while doors.locks_asked() == before {
                std::thread::yield_now();
            }
            locker.signal(Signal::SIGUSR1);
            assert_eq!(locker.answer(), "errno 4", "{command}");
        }
        locker.begin(command);
        // Returns only when it has ended, which it cannot while the kernel waits for an answer.
        locker.kill();
    }
    inside.unlock(..).unwrap();
    inside.lock(LockKind::Write, ..).unwrap();
    drop(inside);
    doors.finish();
}

#[test]
fn waits_in_a_circle_are_refused() {
    let Some(doors) = Doors::open() else { return };
    doors.pool.write("g", "").unwrap();
    let [mut one, mut other] = [(); 2].map(|()| Locker::new(&doors.at("f")));
    one.open("g", &doors.at("g"));
    other.open("g", &doors.at("g"));
    one.done("posix f ex 0 1 now");
    other.done("posix g ex 0 1 now");
    let before = doors.locks_asked();
    one.begin("posix g ex 0 1 wait");
    while doors.locks_asked() == before {
        std::thread::yield_now();
    }
    other.refused("posix f sh 0 1 wait", libc::EDEADLK);
    other.kill();
    assert_eq!(one.answer(), "ok");
    drop(one);
    doors.finish();
}
