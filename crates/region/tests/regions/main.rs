//! Regions and transactions, end to end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod isolation;
mod room;
mod served;
mod signals;
mod sources;
mod unprivileged;

use fs::{Creation, FileSystem, Handle, Ino, NewNode};
use pool::{FormatOptions, OpenOptions, SliceSpec};
use region::{Error, Faults, PAGE_BYTES, Region, Regions, Settings};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;

struct TestPool {
    scratch: tempfile::TempDir,
}

impl TestPool {
    fn new(slice_bytes: u64, capacity_bytes: Option<u64>) -> TestPool {
        let memory = Path::new("/dev/shm");
        let scratch = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        TestPool::format(scratch, true, slice_bytes, capacity_bytes)
    }

    /// In plain files: in the `sync` domain.
    fn synced(slice_bytes: u64) -> TestPool {
        TestPool::format(tempfile::tempdir().unwrap(), false, slice_bytes, None)
    }

    fn format(
        scratch: tempfile::TempDir,
        process: bool,
        slice_bytes: u64,
        capacity_bytes: Option<u64>,
    ) -> TestPool {
        let pool = TestPool { scratch };
        let device = |bytes| SliceSpec { path: None, bytes: Some(bytes) };
        let options = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes,
            process,
            capacity: capacity_bytes.map(device).into_iter().collect(),
            ..FormatOptions::default()
        };
        fs::format(&pool.dir(), &options).unwrap();
        pool
    }

    fn dir(&self) -> PathBuf {
        self.scratch.path().join("pool")
    }

    fn open(&self) -> Arc<FileSystem> {
        Arc::new(FileSystem::open_pool(&self.dir(), &OpenOptions::default()).unwrap())
    }
}

fn make(fs: &FileSystem, name: &str) -> Arc<Handle> {
    let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let attr = fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, by).unwrap();
    fs.open(attr.ino).unwrap()
}

fn find(fs: &FileSystem, name: &str) -> Arc<Handle> {
    fs.open(fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino).unwrap()
}

/// Runs the body of the test of this name in a process that runs no other tests: what they have
/// locked when a child is forked stays locked there, and what this one takes they would miss.
fn alone(name: &str, body: impl FnOnce()) {
    const IS_ALONE: &str = "NEARSIDE_TEST_ALONE";
    if std::env::var_os(IS_ALONE).is_some() {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(IS_ALONE, "1").stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "see above");
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len).map(|_| random(&mut state) as u8).collect()
}

/// All ways in which faults can come here.
fn ways() -> Vec<Option<Faults>> {
    let pool = TestPool::new(16 * MIB, None);
    let fs = pool.open();
    let works = |way: &Option<Faults>| {
        Regions::new(&fs, &Settings { faults: *way, ..Settings::default() }).is_ok()
    };
    let ways: Vec<_> = [Some(Faults::All), Some(Faults::Own), Some(Faults::Signals)]
        .into_iter()
        .filter(works)
        .collect();
    assert!(!ways.is_empty(), "no way to serve faults here");
    ways
}

#[test]
fn what_the_file_holds_is_loaded_and_what_is_committed() {
    for faults in ways() {
        let pool = TestPool::new(64 * MIB, None);
        let fs = pool.open();
        let file = make(&fs, "file");
        let data = pattern(1, 3 * MIB as usize);
        fs.write(&file, 0, &data).unwrap();
        let regions = Regions::new(&fs, &Settings { faults, ..Settings::default() }).unwrap();
        let region = Region::map(&regions, &file, 0, 4 * MIB).unwrap();
        let mut seen = vec![0; 4 * MIB as usize];
        region.load(0, &mut seen).unwrap();
        assert!(seen[..data.len()] == data[..]);
        assert!(seen[data.len()..].iter().all(|byte| *byte == 0));

        let mut tx = regions.begin().unwrap();
        tx.write(&region, 5, b"hello").unwrap();
        tx.put(&region, 8192, &77u64).unwrap();
        let mut own = [0; 9];
        tx.read(&region, 3, &mut own).unwrap();
        assert_eq!((&own[..2], &own[2..7]), (&data[3..5], &b"hello"[..]));
        assert_eq!(region.get::<u64>(8192).unwrap().to_ne_bytes(), data[8192..8200]);
        tx.commit().unwrap();
        assert_eq!(region.get::<u64>(8192).unwrap(), 77);
        region.load(5, &mut own[..5]).unwrap();
        assert_eq!(&own[..5], b"hello");

        let mut tx = regions.begin().unwrap();
        tx.put(&region, 8192, &78u64).unwrap();
        tx.abort();
        {
            let mut dropped = regions.begin().unwrap();
            dropped.put(&region, 8192, &79u64).unwrap();
        }
        assert_eq!(region.get::<u64>(8192).unwrap(), 77);
        // a pointer does as well
        let mut tx = regions.begin().unwrap();
        // SAFETY: inside the region.
        let address = unsafe { region.as_ptr().add(8192) };
        tx.write_at(address, &80u64.to_ne_bytes()).unwrap();
        tx.commit().unwrap();
        // SAFETY: an aligned word inside the region, which is mapped.
        assert_eq!(unsafe { address.cast::<u64>().read_volatile() }, 80);
        // behind the end of the file
        let mut tx = regions.begin().unwrap();
        tx.put(&region, 4 * MIB as usize - 8, &81u64).unwrap();
        tx.commit().unwrap();
        assert_eq!(fs.getattr(file.ino()).unwrap().size, 4 * MIB);
        assert_eq!(region.get::<u64>(4 * MIB as usize - 8).unwrap(), 81);
        drop((region, regions, file, fs));
        let fs = pool.open();
        let mut word = [0; 8];
        fs.read(&find(&fs, "file"), 8192, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 80);
    }
}

/// Changes through every call, while a region shows the file.
#[test]
fn whatever_changes_the_file_is_seen_when_the_call_has_returned() {
    let pool = TestPool::new(64 * MIB, None);
    let fs = pool.open();
    let file = make(&fs, "file");
    let regions = Regions::new(&fs, &Settings::default()).unwrap();
    let region = Region::map(&regions, &file, 0, 2 * MIB).unwrap();
    // a part of the same file, elsewhere
    let part = Region::map(&regions, &file, 64 << 10, MIB).unwrap();
    let mut shadow = vec![0; 2 * MIB as usize];
    let mut state = 5;
    for round in 0..1500u64 {
        let at = random(&mut state) as usize % (MIB as usize * 3 / 2);
        let data = pattern(round, 1 + random(&mut state) as usize % 9000);
        let end = at + data.len();
        match random(&mut state) % 6 {
            0 => {
                let size = fs::SetAttr { size: Some(at as u64), ..fs::SetAttr::default() };
                fs.setattr(file.ino(), &size).unwrap();
                shadow[at..].fill(0);
            }
            1 => {
                let (offset, len) = (at as u64, data.len() as u64);
                fs.fallocate(&file, fs::Fallocate::PunchHole, offset, len).unwrap();
                shadow[at..end].fill(0);
            }
            2 | 3 => {
                fs.write(&file, at as u64, &data).unwrap();
                shadow[at..end].copy_from_slice(&data);
            }
            _ => {
                let mut tx = regions.begin().unwrap();
                tx.write(&region, at, &data).unwrap();
                tx.write(&region, at / 2, &data[..data.len() / 2]).unwrap();
                tx.commit().unwrap();
                shadow[at..end].copy_from_slice(&data);
                shadow[at / 2..at / 2 + data.len() / 2].copy_from_slice(&data[..data.len() / 2]);
            }
        }
        let look = random(&mut state) as usize % (MIB as usize);
        let mut seen = vec![0; 20_000];
        region.load(look, &mut seen).unwrap();
        assert!(seen == shadow[look..look + 20_000], "round {round} at {look}");
        part.load(look % 900_000, &mut seen).unwrap();
        let from = (64 << 10) + look % 900_000;
        assert!(seen == shadow[from..from + 20_000], "round {round}, the part");
    }
}

/// Words go up only; pages come and go meanwhile, and whoever loads one never sees an older one.
#[test]
fn loads_never_go_back_while_pages_come_and_go() {
    ways().into_iter().for_each(loads_never_go_back);
}

fn loads_never_go_back(faults: Option<Faults>) {
    const PAGES: usize = 2048;
    let pool = TestPool::new(64 * MIB, None);
    let fs = pool.open();
    let file = make(&fs, "file");
    fs.write(&file, 0, &vec![0; PAGES * PAGE_BYTES]).unwrap();
    // one in eight pages has room
    let settings = Settings { memory_bytes: MIB, faults };
    let regions = Regions::new(&fs, &settings).unwrap();
    let region = &Region::map(&regions, &file, 0, (PAGES * PAGE_BYTES) as u64).unwrap();
    let (regions, done) = (&regions, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = |first: usize| {
            let mut state = first as u64 + 9;
            for round in 1..6000u64 {
                // each has pages of its own
                let page = (random(&mut state) as usize % PAGES) & !1 | first;
                let mut tx = regions.begin().unwrap();
                tx.put(region, page * PAGE_BYTES + 16, &round).unwrap();
                tx.commit().unwrap();
                assert_eq!(region.get::<u64>(page * PAGE_BYTES + 16).unwrap(), round);
            }
        };
        let writers = [0, 1].map(|first| scope.spawn(move || writer(first)));
        // one loads pages, one several of them at once, which need not be brought for it
        let reader = |at_once: usize| {
            let mut seen = vec![0u64; PAGES];
            let mut state = 77 + at_once as u64;
            let mut bytes = vec![0; at_once * PAGE_BYTES];
            while !done.load(Ordering::Relaxed) {
                let first = random(&mut state) as usize % (PAGES - at_once);
                region.load(first * PAGE_BYTES, &mut bytes).unwrap();
                let words = bytes.chunks_exact(PAGE_BYTES).map(|page| &page[16..24]);
                for (page, word) in (first..).zip(words) {
                    let now = u64::from_ne_bytes(word.try_into().unwrap());
                    assert!(now >= seen[page], "page {page}: {now} after {}", seen[page]);
                    seen[page] = now;
                    let again = region.get::<u64>(page * PAGE_BYTES + 16).unwrap();
                    assert!(again >= now, "page {page}: {again} after {now}");
                }
            }
        };
        let readers = [1, 3].map(|at_once| scope.spawn(move || reader(at_once)));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    let info = regions.info();
    room::assert_within(&info);
    assert!(region.resident_pages() > 100 && info.passed_bytes > 0, "{info:?}");
}

#[test]
fn a_region_larger_than_dram_and_slices_is_what_was_committed() {
    ways().into_iter().for_each(a_large_region_is_what_was_committed);
}

fn a_large_region_is_what_was_committed(faults: Option<Faults>) {
    let pool = TestPool::new(16 * MIB, Some(160 * MIB));
    let fs = pool.open();
    let file = make(&fs, "file");
    let settings = Settings { memory_bytes: 8 * MIB, faults };
    let regions = Regions::new(&fs, &settings).unwrap();
    let len = 64 * MIB as usize;
    let region = Region::map(&regions, &file, 0, len as u64).unwrap();
    let mut shadow = vec![0; len];
    let mut state = 21;
    for round in 0..4000u64 {
        let data = pattern(
            round,
            1 + random(&mut state) as usize % [64, 4096, 30_000][round as usize % 3],
        );
        let at = random(&mut state) as usize % (len - data.len());
        let mut tx = regions.begin().unwrap();
        tx.write(&region, at, &data).unwrap();
        tx.commit().unwrap();
        shadow[at..at + data.len()].copy_from_slice(&data);
        let look = random(&mut state) as usize % (len - 5000);
        let mut seen = [0; 5000];
        region.load(look, &mut seen).unwrap();
        assert!(seen[..] == shadow[look..look + 5000], "round {round}");
    }
    let mut seen = vec![0; len];
    region.load(0, &mut seen).unwrap();
    assert!(seen == shadow);
    let info = regions.info();
    room::assert_within(&info);
    drop((region, regions, file, fs));
    assert!(fs::check(&pool.dir()).unwrap().findings.is_empty());
}

#[test]
fn what_cannot_be_is_refused() {
    let pool = TestPool::new(16 * MIB, None);
    let other_pool = TestPool::new(16 * MIB, None);
    let (fs, other_fs) = (pool.open(), other_pool.open());
    let (file, other) = (make(&fs, "file"), make(&other_fs, "file"));
    let regions = Regions::new(&fs, &Settings::default()).unwrap();
    let others = Regions::new(&other_fs, &Settings::default()).unwrap();
    let map = |offset, bytes| Region::map(&regions, &file, offset, bytes).map(drop).unwrap_err();
    assert!(matches!(map(0, 0), Error::Length));
    assert!(matches!(map(100, 4096), Error::Alignment));
    assert!(matches!(map(4096, fs::FILE_BYTES_MAX), Error::Length));
    assert!(matches!(map(u64::MAX - 4095, 4096), Error::Length));
    let dir = fs.open(Ino::ROOT).unwrap();
    assert!(matches!(Region::map(&regions, &dir, 0, 4096).unwrap_err(), Error::Kind));
    // as large as a file can be
    let huge = Region::map(&regions, &file, 0, fs::FILE_BYTES_MAX - 4096).unwrap();
    let at = huge.len() - 8;
    let mut tx = regions.begin().unwrap();
    tx.put(&huge, at, &5u64).unwrap();
    tx.commit().unwrap();
    assert_eq!(huge.get::<u64>(at).unwrap(), 5);

    let region = Region::map(&regions, &file, 0, 10_000).unwrap();
    let foreign = Region::map(&others, &other, 0, 4096).unwrap();
    let mut tx = regions.begin().unwrap();
    assert!(matches!(tx.write(&region, 9_999, b"12"), Err(Error::Outside)));
    assert!(matches!(tx.write(&region, usize::MAX, b"12"), Err(Error::Outside)));
    assert!(matches!(tx.write(&foreign, 0, b"12"), Err(Error::OtherPool)));
    assert!(matches!(tx.write_at(foreign.as_ptr(), b"12"), Err(Error::Outside)));
    assert!(matches!(tx.write_at(std::ptr::null(), b"12"), Err(Error::Outside)));
    // behind the last byte that was asked for, though the page goes on
    let behind = region.as_ptr().wrapping_add(10_000);
    assert!(matches!(tx.write_at(behind, b"1"), Err(Error::Outside)));
    assert!(matches!(region.load(9_999, &mut [0; 2]), Err(Error::Outside)));
    let errnos = [Error::Length, Error::Outside, Error::OtherPool].map(|it| it.errno());
    assert_eq!(errnos, [libc::EINVAL, libc::EFAULT, libc::EXDEV]);
    // after the region is gone, a pointer is none any more
    let address = region.as_ptr();
    drop(region);
    assert!(matches!(tx.write_at(address, b"1"), Err(Error::Outside)));
}

/// Others write into the same leaf of the file without a pause: whoever loads gets his page.
#[test]
fn loads_are_served_while_neighbours_change_all_the_time() {
    const BYTES: u64 = 512 << 10;
    let pool = TestPool::new(64 * MIB, None);
    let fs = pool.open();
    let file = make(&fs, "file");
    fs.write(&file, 0, &vec![1; BYTES as usize]).unwrap();
    let (fs, file, done) = (&fs, &file, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for writer in 0..3u64 {
            scope.spawn(move || {
                let mut round = 0u64;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    fs.write(file, writer * 4096 + 8, &round.to_le_bytes()).unwrap();
                }
            });
        }
        for faults in ways().into_iter().cycle().take(30) {
            let regions = Regions::new(fs, &Settings { faults, ..Settings::default() }).unwrap();
            let region = Region::map(&regions, file, 0, BYTES).unwrap();
            for page in 0..BYTES as usize / PAGE_BYTES {
                assert_eq!(region.get::<u8>(page * PAGE_BYTES).unwrap(), 1);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
