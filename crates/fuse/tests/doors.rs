//! Two doors to one pool at once, the library and a mount: what one changed, the other sees.
//!
//! Needs root and /dev/fuse; without them the tests say so and pass.

#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use nearside::{FormatOptions, Pool, SliceSpec};
use nearside_fuse::{Mount, MountOptions, mount, mounts};

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
/// and keeps single pages (so O_DIRECT here); and all of these in smaller pieces where it allows
/// fewer than 256 pages in a request (kernels before 4.20, fs.fuse.max_pages_limit).
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
