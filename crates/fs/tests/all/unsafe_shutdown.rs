//! Memory that counts its unsafe shutdowns: when it has counted since a pool was opened, what was
//! fenced is no longer trusted.

use fs::{Creation, FileSystem, Ino, NewNode};
use pmem::recorder::{Event, EventKind, Recorder};
use pmem::{Domain, Mapping, Sysfs};
use pool::{Candidate, FormatOptions, OpenOptions, SliceSpec};
use std::path::Path;
use std::sync::{Arc, Mutex};

const BYTES: usize = 4 << 20;
const STATE: usize = 3 * 4096;
const BY: Creation = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };

/// A sysfs with one region of one DIMM, below the block device 259:0.
struct Dimm {
    directory: tempfile::TempDir,
}

impl Dimm {
    fn new(count: u64) -> Dimm {
        let dimm = Dimm { directory: tempfile::tempdir().unwrap() };
        dimm.write("sys/devices/ndbus0/region0/namespace0.0/block/pmem0/size", "8192");
        dimm.write("sys/devices/ndbus0/region0/mappings", "1");
        dimm.write("sys/devices/ndbus0/region0/mapping0", "nmem0,0,4194304,0");
        let blocks = dimm.directory.path().join("sys/dev/block");
        std::fs::create_dir_all(&blocks).unwrap();
        let device = "../../devices/ndbus0/region0/namespace0.0/block/pmem0";
        std::os::unix::fs::symlink(device, blocks.join("259:0")).unwrap();
        dimm.counts(count);
        dimm
    }

    fn counts(&self, count: u64) {
        self.write("sys/bus/nd/devices/nmem0/nfit/dirty_shutdown", &count.to_string());
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn candidates(&self, image: &[u8], domain: Domain, after: &Arc<Image>) -> Vec<Candidate> {
        let sysfs = Sysfs { root: self.directory.path().canonicalize().unwrap() };
        let mapping = Mapping::memory_of_device(image, domain, &sysfs, (259, 0)).unwrap();
        *after.0.lock().unwrap() = image.to_vec();
        mapping.set_recorder(Some(after.clone()));
        vec![Candidate::from_mapping(Path::new("memory"), mapping, false).unwrap()]
    }
}

/// The bytes of the memory, as they are now.
#[derive(Default)]
struct Image(Mutex<Vec<u8>>);

impl Recorder for Image {
    fn event(&self, event: Event<'_>) {
        let (EventKind::Store { offset, data } | EventKind::NtStore { offset, data }) = event.kind
        else {
            return;
        };
        let mut image = self.0.lock().unwrap();
        image[offset as usize..][..data.len()].copy_from_slice(data);
    }
}

/// A pool's memory and its DIMM.
struct Machine {
    dimm: Dimm,
    domain: Domain,
    image: Vec<u8>,
}

impl Machine {
    fn new(domain: Domain) -> Machine {
        let options = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: BYTES as u64,
            ..FormatOptions::default()
        };
        let mapping = Mapping::memory(BYTES, domain).unwrap();
        let image = Arc::new(Image(Mutex::new(vec![0; BYTES])));
        mapping.set_recorder(Some(image.clone()));
        fs::format_mappings(vec![mapping], &options).unwrap();
        let image = image.0.lock().unwrap().clone();
        Machine { dimm: Dimm::new(7), domain, image }
    }

    fn open(&self, after: &Arc<Image>) -> fs::Result<FileSystem> {
        let candidates = self.dimm.candidates(&self.image, self.domain, after);
        FileSystem::open_candidates(candidates, &OpenOptions::default(), false)
    }

    /// Works on the pool; then the machine restarts, `closed` or not.
    fn works(&mut self, closed: bool, work: impl Fn(&FileSystem)) {
        let after = Arc::new(Image::default());
        let fs = self.open(&after).unwrap();
        work(&fs);
        if closed {
            fs.close().unwrap();
        }
        self.image = after.0.lock().unwrap().clone();
        self.image[STATE + 8..STATE + 24].copy_from_slice(&[0xAB; 16]);
        let crc = pmem::crc32c(0, &self.image[STATE..STATE + 44]);
        self.image[STATE + 44..STATE + 48].copy_from_slice(&crc.to_le_bytes());
    }

    /// Bytes on the medium that some file holds; one of them changes.
    fn loses(&mut self, content: &[u8]) {
        let at = self.image.windows(content.len()).position(|bytes| bytes == content).unwrap();
        self.image[at + content.len() / 2] ^= 1;
    }

    fn findings(&self) -> Vec<String> {
        let candidates = self.dimm.candidates(&self.image, self.domain, &Arc::default());
        let report = fs::check_candidates(candidates, &OpenOptions::default()).unwrap();
        report.findings.into_iter().map(|finding| finding.what).collect()
    }
}

fn block(seed: u8) -> Vec<u8> {
    (0..4096u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed).collect()
}

fn create(fs: &FileSystem, name: &str, seed: u8) {
    let attr = fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
    write(fs, attr.ino, seed);
}

fn write(fs: &FileSystem, ino: Ino, seed: u8) {
    let handle = fs.open(ino).unwrap();
    assert_eq!(fs.write(&handle, 0, &block(seed)).unwrap(), 4096);
}

/// Its records are sealed but for the last, which names no data.
fn two_files(fs: &FileSystem) {
    topology::pin_current_thread(&topology::allowed_cpus().unwrap()[..1]).unwrap();
    create(fs, "first", 1);
    create(fs, "second", 2);
    fs.create(Ino::ROOT, b"last", NewNode::File, BY).unwrap();
}

fn read(fs: &FileSystem, name: &str) -> fs::Result<Vec<u8>> {
    let handle = fs.open(fs.lookup(Ino::ROOT, name.as_bytes())?.ino)?;
    let mut content = vec![0; 4096];
    fs.read(&handle, 0, &mut content)?;
    Ok(content)
}

fn notes(fs: &FileSystem) -> usize {
    fs.info().notes.iter().filter(|note| note.contains("unsafe-shutdown count")).count()
}

#[test]
fn a_restart_that_the_memory_did_not_count_is_trusted() {
    let mut machine = Machine::new(Domain::CpuFlush);
    machine.works(false, two_files);
    assert!(machine.findings().is_empty());
    // Data of a sealed record is not looked at when the pool is opened.
    machine.loses(&block(1));
    let fs = machine.open(&Arc::default()).unwrap();
    assert_eq!((notes(&fs), read(&fs, "second").unwrap()), (0, block(2)));
    assert!(read(&fs, "first").is_err());
}

#[test]
fn a_counted_shutdown_is_told_once_and_what_is_whole_is_there() {
    for domain in [Domain::CpuFlush, Domain::CpuCache] {
        let mut machine = Machine::new(domain);
        machine.works(false, two_files);
        machine.dimm.counts(8);
        let found = machine.findings();
        assert!(found.len() == 1 && found[0].contains("may be missing"), "{found:?}");
        machine.works(false, |fs| {
            assert_eq!(notes(fs), 1, "{domain}");
            assert_eq!(read(fs, "first").unwrap(), block(1));
            assert_eq!(read(fs, "second").unwrap(), block(2));
        });
        // The pool knows of it now.
        assert_eq!(notes(&machine.open(&Arc::default()).unwrap()), 0, "{domain}");
        assert!(machine.findings().is_empty());
    }
}

#[test]
fn data_that_a_counted_shutdown_lost_is_damage() {
    let mut machine = Machine::new(Domain::CpuFlush);
    machine.works(false, two_files);
    machine.loses(&block(1));
    machine.dimm.counts(8);
    let error = machine.open(&Arc::default()).unwrap_err();
    assert_eq!(error.errno(), libc::EIO);
    assert!(error.to_string().contains("unsafe shutdown"), "{error}");
    assert!(machine.findings().iter().any(|what| what.contains("unsafe shutdown")));
}

#[test]
fn a_block_that_was_overwritten_and_used_again_is_no_damage() {
    let mut machine = Machine::new(Domain::CpuFlush);
    machine.works(false, |fs| {
        two_files(fs);
        let ino = fs.lookup(Ino::ROOT, b"first").unwrap().ino;
        // More writes than the pool has free blocks, of which no checkpoint takes the records away.
        (0..200).for_each(|seed| write(fs, ino, seed));
    });
    machine.dimm.counts(8);
    let fs = machine.open(&Arc::default()).unwrap();
    assert_eq!((notes(&fs), read(&fs, "first").unwrap()), (1, block(199)));
}

/// The record of the whole block no longer fits what lies there: the later one says why.
#[test]
fn a_block_that_was_changed_in_place_since_is_no_damage() {
    let mut machine = Machine::new(Domain::CpuFlush);
    machine.works(false, |fs| {
        two_files(fs);
        let handle = fs.open(fs.lookup(Ino::ROOT, b"first").unwrap().ino).unwrap();
        fs.write(&handle, 700, b"in place").unwrap();
        fs.create(Ino::ROOT, b"really last", NewNode::File, BY).unwrap();
    });
    machine.dimm.counts(8);
    let fs = machine.open(&Arc::default()).unwrap();
    let mut expected = block(1);
    expected[700..708].copy_from_slice(b"in place");
    assert_eq!((notes(&fs), read(&fs, "first").unwrap()), (1, expected));
    // of the other file a block is damaged all the same
    machine.loses(&block(2));
    assert!(machine.open(&Arc::default()).unwrap_err().to_string().contains("unsafe shutdown"));
}

#[test]
fn a_closed_pool_lost_nothing_unless_the_caches_were_trusted() {
    for (domain, told) in [(Domain::CpuFlush, 0), (Domain::CpuCache, 1)] {
        let mut machine = Machine::new(domain);
        machine.works(true, two_files);
        machine.dimm.counts(9);
        assert_eq!(machine.findings().len(), told, "{domain}");
        let fs = machine.open(&Arc::default()).unwrap();
        assert_eq!((notes(&fs), read(&fs, "first").unwrap()), (told, block(1)), "{domain}");
    }
}

#[test]
fn a_count_that_fell_or_went_away_says_nothing() {
    let mut machine = Machine::new(Domain::CpuFlush);
    machine.works(false, two_files);
    machine.dimm.counts(3);
    assert_eq!(notes(&machine.open(&Arc::default()).unwrap()), 0);
    machine.dimm.write("sys/devices/ndbus0/region0/mappings", "0");
    assert_eq!(notes(&machine.open(&Arc::default()).unwrap()), 0);
}
