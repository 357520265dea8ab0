//! Callers' buffers that are regions themselves: what is written from there, and who may not read
//! to there.

use super::{MIB, TestPool, make, pattern, ways};
use fs::{FileSystem, Handle, Write};
use region::{Isolation, PAGE_BYTES, Region, Regions, Settings};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Regions of a few pages only have to bring most of what is loaded anew.
fn small(fs: &Arc<FileSystem>, faults: Option<region::Faults>) -> Regions {
    Regions::new(fs, &Settings { faults, memory_bytes: 0 }).unwrap()
}

/// The bytes of a region.
fn bytes(region: &Region, at: usize, len: usize) -> &[u8] {
    assert!(at + len <= region.len());
    // SAFETY: inside the region, which is borrowed; nobody changes these bytes while they are read.
    unsafe { std::slice::from_raw_parts(region.as_ptr().add(at), len) }
}

/// Fails where this takes over two minutes: then it never ends.
#[track_caller]
fn ends(work: impl FnOnce() + Send + 'static) {
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || {
        work();
        tell.send(()).unwrap();
    });
    let ended = told.recv_timeout(Duration::from_secs(120));
    assert!(ended.is_ok() || thread.is_finished(), "it waits for itself");
    thread.join().unwrap();
}

#[track_caller]
fn holds(fs: &FileSystem, file: &Handle, region: &Region, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    assert_eq!(fs.read(file, 0, &mut found).unwrap(), expected.len());
    assert!(found == expected, "the file");
    region.load(0, &mut found).unwrap();
    assert!(found == expected, "the region");
}

/// Bytes of a transaction go into blocks under the lock that whoever brings the pages of that part
/// of the file waits for.
#[test]
fn a_commit_of_bytes_of_its_own_file_ends() {
    for faults in ways() {
        ends(move || {
            const PAGES: usize = 100;
            let pool = TestPool::new(32 * MIB, None);
            let fs = pool.open();
            let file = make(&fs, "file");
            let mut expected = pattern(3, PAGES * PAGE_BYTES);
            fs.write(&file, 0, &expected).unwrap();
            let regions = small(&fs, faults);
            let region = Region::map(&regions, &file, 0, expected.len() as u64).unwrap();
            let writes: Vec<Write<'_>> = (0..PAGES)
                .map(|page| Write {
                    file: &file,
                    offset: (page * PAGE_BYTES) as u64,
                    data: bytes(&region, page * PAGE_BYTES + 1000, 100),
                })
                .collect();
            fs.commit(&writes, &[]).unwrap();
            for page in expected.chunks_mut(PAGE_BYTES) {
                page.copy_within(1000..1100, 0);
            }
            holds(&fs, &file, &region, &expected);
        });
    }
}

/// The region changes as the write is told of: what is written is what it held before.
#[test]
fn bytes_of_a_region_are_written_over_their_own_file_as_they_were() {
    for faults in ways() {
        ends(move || {
            let pool = TestPool::new(64 * MIB, None);
            let fs = pool.open();
            let file = make(&fs, "file");
            let mut expected = pattern(4, 2 * MIB as usize);
            fs.write(&file, 0, &expected).unwrap();
            for regions in [small(&fs, faults), Regions::new(&fs, &by(faults)).unwrap()] {
                let region = Region::map(&regions, &file, 0, 4 * MIB).unwrap();
                region.load(0, &mut vec![0; MIB as usize]).unwrap();
                for (from, len, to) in [(0, MIB as usize, 4196), (100, 200, 0), (0, 5000, 4096)] {
                    fs.write(&file, to as u64, bytes(&region, from, len)).unwrap();
                    expected.copy_within(from..from + len, to);
                    holds(&fs, &file, &region, &expected);
                }
                // of which some will be where they come from
                let end = expected.len();
                let from = bytes(&region, end - 9000, 9100);
                assert_eq!(fs.append(&file, from).unwrap(), end as u64);
                expected.extend_from_within(end - 9000..);
                expected.resize(end + 9100, 0);
                holds(&fs, &file, &region, &expected);
            }
        });
    }
}

fn by(faults: Option<region::Faults>) -> Settings {
    Settings { faults, ..Settings::default() }
}

/// There the engine hands the bytes to the kernel, which does not wait for pages in every way.
#[test]
fn bytes_of_a_region_go_to_another_pool_in_the_sync_domain() {
    for faults in ways() {
        ends(move || {
            let (pool, plain) = (TestPool::new(32 * MIB, None), TestPool::synced(32 * MIB));
            let (fs, to_fs) = (pool.open(), plain.open());
            let (file, to) = (make(&fs, "file"), make(&to_fs, "file"));
            let expected = pattern(5, 5 * MIB as usize);
            fs.write(&file, 0, &expected).unwrap();
            let regions = small(&fs, faults);
            let region = Region::map(&regions, &file, 0, expected.len() as u64).unwrap();
            let mut done = 0;
            for len in [PAGE_BYTES, 100, 3 * PAGE_BYTES, 2 * MIB as usize + 5] {
                let from = bytes(&region, done, len);
                assert_eq!(to_fs.write(&to, done as u64, from).unwrap(), len);
                done += len;
            }
            let rest = bytes(&region, done, expected.len() - done);
            assert_eq!(to_fs.append(&to, rest).unwrap(), done as u64);
            let mut found = vec![0; expected.len()];
            assert_eq!(to_fs.read(&to, 0, &mut found).unwrap(), found.len());
            assert!(found == expected);
            to_fs.sync().unwrap();
        });
    }
}

#[test]
fn nobody_reads_into_a_region() {
    let pool = TestPool::new(32 * MIB, None);
    let fs = pool.open();
    let file = make(&fs, "file");
    fs.write(&file, 0, &pattern(6, 3 * PAGE_BYTES)).unwrap();
    let regions = Regions::new(&fs, &Settings::default()).unwrap();
    let region = Region::map(&regions, &file, 0, MIB).unwrap();
    let there = |len| {
        // SAFETY: addresses of the region; nothing is stored there, which is what is tried.
        unsafe { std::slice::from_raw_parts_mut(region.as_ptr().cast_mut().add(8), len) }
    };
    assert_eq!(fs.read(&file, 0, there(100)).unwrap_err().errno(), libc::EFAULT);
    for isolation in [Isolation::Committed, Isolation::Snapshot, Isolation::Serialisable] {
        let mut tx = regions.begin_with(isolation).unwrap();
        assert_eq!(tx.read(&region, 0, there(100)).unwrap_err().errno(), libc::EFAULT);
    }
    let address = region.as_ptr() as usize;
    drop(region);
    // memory that was a region's is any memory
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a mapping of its own, at a place where there is none.
    let page = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(address as *mut libc::c_void, PAGE_BYTES, access, flags, -1, 0)
    };
    if page as usize == address {
        // SAFETY: the mapping that was made just now.
        let buffer = unsafe { std::slice::from_raw_parts_mut(page.cast::<u8>(), PAGE_BYTES) };
        assert_eq!(fs.read(&file, 0, buffer).unwrap(), PAGE_BYTES);
    }
}
