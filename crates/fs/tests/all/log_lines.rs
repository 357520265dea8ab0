//! Logs with lines of 256 bytes, as Optane DIMMs have them: chosen by the device or at format,
//! filled by every write, and read back like others.

use crate::common::{BY, TestPool, content, find, make, options, pattern};
use fs::{FileSystem, Ino, NewNode, XattrMode};
use pmem::recorder::{Event, EventKind, Recorder};
use pmem::{Domain, Mapping, Sysfs};
use pool::{Candidate, FormatOptions, OpenOptions, Superblock};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

const BYTES: usize = 4 << 20;
const LINE: u64 = 256;

/// A sysfs with a DIMM of this vendor below each of the block devices 259:0 and so on.
fn machine(vendors: &[&str]) -> (tempfile::TempDir, Sysfs) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let write = |path: String, text: String| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text + "\n").unwrap();
    };
    for (n, vendor) in vendors.iter().enumerate() {
        let region = format!("sys/devices/ndbus0/region{n}");
        write(format!("{region}/namespace{n}.0/block/pmem{n}/size"), "8192".to_owned());
        write(format!("{region}/mappings"), "1".to_owned());
        write(format!("{region}/mapping0"), format!("nmem{n},0,4194304,0"));
        write(format!("sys/bus/nd/devices/nmem{n}/nfit/vendor"), (*vendor).to_owned());
        let devices = root.join("sys/dev/block");
        std::fs::create_dir_all(&devices).unwrap();
        let device = format!("../../devices/ndbus0/region{n}/namespace{n}.0/block/pmem{n}");
        std::os::unix::fs::symlink(device, devices.join(format!("259:{n}"))).unwrap();
    }
    (directory, Sysfs { root })
}

/// Bytes of the lines of the logs of a pool that is made on these DIMMs.
fn lines(vendors: &[&str], asked: Option<u32>) -> fs::Result<Vec<u32>> {
    let (_directory, sysfs) = machine(vendors);
    let memory = |n: usize| {
        Mapping::memory_of_device(&vec![0; BYTES], Domain::CpuFlush, &sysfs, (259, n as u32))
    };
    let images = Arc::new(Images(Mutex::new(vec![vec![0; BYTES]; vendors.len()])));
    let mappings: Vec<Mapping> = (0..vendors.len()).map(|n| memory(n).unwrap()).collect();
    for (id, mapping) in (0..).zip(&mappings) {
        mapping.set_id(id);
        mapping.set_recorder(Some(images.clone()));
    }
    let options = FormatOptions { log_line_bytes: asked, ..options(vendors.len(), BYTES as u64) };
    fs::format_mappings(mappings, &options)?;
    let images = images.0.lock().unwrap().clone();
    let candidate = |image: &Vec<u8>| {
        let mapping = Mapping::memory_from(image, Domain::CpuFlush).unwrap();
        Candidate::from_mapping(Path::new("memory"), mapping, false).unwrap()
    };
    let candidates = images.iter().map(candidate).collect();
    let fs = FileSystem::open_candidates(candidates, &OpenOptions::default(), false)?;
    Ok(fs.info().slices.iter().map(|slice| slice.log_line_bytes).collect())
}

/// The bytes of the slices, as they are now.
struct Images(Mutex<Vec<Vec<u8>>>);

impl Recorder for Images {
    fn event(&self, event: Event<'_>) {
        if let EventKind::Store { offset, data } | EventKind::NtStore { offset, data } = event.kind
        {
            let images = &mut self.0.lock().unwrap();
            images[event.mapping as usize][offset as usize..][..data.len()].copy_from_slice(data);
        }
    }
}

#[test]
fn each_slice_takes_the_lines_of_its_dimms_unless_others_are_asked_for() {
    assert_eq!(lines(&["0x8089", "0x2c80", "0x8089"], None).unwrap(), [256, 64, 256]);
    assert_eq!(lines(&["0x8089", "0x2c80"], Some(64)).unwrap(), [64, 64]);
    assert_eq!(lines(&["0x8089", "0x2c80"], Some(256)).unwrap(), [256, 256]);
    for wrong in [0, 1, 63, 128, 512] {
        let error = lines(&["0x8089"], Some(wrong)).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
        assert!(error.to_string().contains("lines of 64 or 256 bytes"), "{error}");
    }
}

fn long_lines(slices: usize) -> FormatOptions {
    FormatOptions { log_line_bytes: Some(LINE as u32), ..options(slices, BYTES as u64) }
}

/// Changes of all sizes, the last one a small write.
fn work(fs: &FileSystem) {
    let file = make(fs, "file");
    fs.write(&file, 0, &pattern(1, 30_000)).unwrap();
    fs.setxattr(file.ino(), b"user.long", &pattern(2, 9000), XattrMode::Any).unwrap();
    fs.create(Ino::ROOT, b"dir", NewNode::Directory, BY).unwrap();
    for number in 0..200 {
        let small = pattern(number, 1 + number as usize * 5);
        fs.write(&file, number * 97, &small).unwrap();
    }
    fs.write(&file, 8192, &pattern(3, 4096)).unwrap();
    fs.write(&file, 77, b"the last").unwrap();
}

/// A kill loses nothing, and what is found again is the same as in a log of short lines.
#[test]
fn a_pool_with_long_lines_is_recovered_after_a_kill() {
    for slices in [1, 2] {
        let mut pool = TestPool::with(&long_lines(slices));
        let fs = pool.start_alone();
        work(&fs);
        let before = content(&fs, &find(&fs, "file"));
        let logged = fs.log_bytes_written();
        assert!(logged.is_multiple_of(LINE) && logged > 200 * LINE, "{logged} bytes");
        pool.kill();
        drop(fs);
        pool.assert_clean();
        for _ in 0..2 {
            let fs = pool.start_alone();
            let file = find(&fs, "file");
            assert!(content(&fs, &file) == before);
            let long = fs.getxattr(file.ino(), b"user.long").unwrap();
            assert!(long == pattern(2, 9000));
            assert!(fs.info().slices.iter().all(|slice| slice.log_line_bytes == 256));
            fs.write(&file, 0, b"t").unwrap();
            fs.write(&file, 0, &before[..1]).unwrap();
            pool.kill();
        }
        pool.assert_clean();
    }
}

/// The stores to the log of the first slice, as they come.
#[derive(Default)]
struct Stores(Mutex<Vec<(u64, usize)>>);

impl Recorder for Stores {
    fn event(&self, event: Event<'_>) {
        if let EventKind::Store { offset, data } | EventKind::NtStore { offset, data } = event.kind
        {
            self.0.lock().unwrap().push((offset, data.len()));
        }
    }
}

/// Every store to the log begins at a line and is whole lines, in each domain, chunks' headers and
/// epochs included: no DIMM has to read the rest of a line first.
#[test]
fn every_write_to_a_log_of_long_lines_fills_lines() {
    for domain in [Domain::Process, Domain::CpuFlush, Domain::CpuCache, Domain::Sync] {
        let images = Arc::new(Images(Mutex::new(vec![vec![0; BYTES]])));
        let mapping = Mapping::memory(BYTES, domain).unwrap();
        mapping.set_recorder(Some(images.clone()));
        fs::format_mappings(vec![mapping], &long_lines(1)).unwrap();
        let image = std::mem::take(&mut images.0.lock().unwrap()[0]);
        let mapping = Mapping::memory_from(&image, domain).unwrap();
        let stores = Arc::new(Stores::default());
        mapping.set_recorder(Some(stores.clone()));
        let candidate = Candidate::from_mapping(Path::new("memory"), mapping, false).unwrap();
        let superblock = candidate.superblock;
        let log = 16 * 4096..superblock.data_block_first() * 4096;
        let options = OpenOptions::default();
        let fs = FileSystem::open_candidates(vec![candidate], &options, false).unwrap();
        work(&fs);
        fs.sync().unwrap();
        fs.checkpoint().unwrap();
        work_again(&fs);
        fs.sync().unwrap();
        let written = fs.log_bytes_written();
        drop(fs);
        let stores = stores.0.lock().unwrap();
        let to_log: Vec<_> = stores.iter().filter(|(offset, _)| log.contains(offset)).collect();
        for (offset, len) in &to_log {
            let (offset, len) = (*offset, *len as u64);
            assert!(offset.is_multiple_of(LINE), "{len} bytes at {offset}");
            assert!(len.is_multiple_of(LINE) && len > 0, "{len} bytes at {offset}");
        }
        let chunk_bytes = u64::from(superblock.chunk_bytes.get());
        let is_header = |offset: u64| (offset - log.start).is_multiple_of(chunk_bytes);
        let headers = to_log.iter().filter(|(offset, _)| is_header(*offset)).count() as u64;
        assert!(headers > 2, "some chunks were taken");
        let bytes: usize = to_log.iter().map(|(_, len)| len).sum();
        assert_eq!(bytes as u64, written + headers * LINE, "{domain}: nothing else is in the log");
    }
}

fn work_again(fs: &FileSystem) {
    let file = find(fs, "file");
    for number in 0..100 {
        fs.write(&file, number * 97, &pattern(number, 40)).unwrap();
    }
}

/// Changes the superblock, both copies, and makes its checksum fit.
fn change(pool: &TestPool, change: impl Fn(&mut Superblock)) {
    let path = &crate::common::slices(&pool.dir())[0];
    let bytes = std::fs::read(path).unwrap();
    let mut superblock = Superblock::decode(&bytes, bytes.len() as u64).unwrap();
    change(&mut superblock);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    for at in [0, bytes.len() as u64 - 4096] {
        file.write_all_at(superblock.seal().as_bytes(), at).unwrap();
    }
}

/// Superblocks from before there were long lines have a 0 there.
#[test]
fn a_pool_from_before_there_were_long_lines_opens_with_all_that_is_in_its_log() {
    let mut pool = TestPool::new(1, BYTES as u64);
    let fs = pool.start_alone();
    work(&fs);
    let before = content(&fs, &find(&fs, "file"));
    pool.kill();
    drop(fs);
    change(&pool, |superblock| {
        assert_eq!((superblock.log_line_bytes.get(), superblock.features.get()), (64, 0));
        superblock.log_line_bytes = U32::new(0);
    });
    pool.assert_clean();
    let fs = pool.start_alone();
    assert!(content(&fs, &find(&fs, "file")) == before);
    assert_eq!(fs.info().slices[0].log_line_bytes, 64);
}

#[test]
fn a_superblock_with_lines_of_another_length_is_damaged() {
    for (bytes, features) in [(128, 0), (512, 1), (1 << 31, 1)] {
        let pool = TestPool::new(1, BYTES as u64);
        change(&pool, |superblock| {
            superblock.log_line_bytes = U32::new(bytes);
            superblock.features = U64::new(features);
        });
        let error = FileSystem::open_pool(&pool.dir(), &pool.open).map(|_| ()).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
        for words in ["both superblocks are damaged", "log_line_bytes makes no sense"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
