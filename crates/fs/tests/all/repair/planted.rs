//! A pool whose files say on each block whose it is, and what must hold after a repair.

use crate::common::{BY, TestPool, content, slices};
use fs::{
    Error, FileKind, FileSystem, Finding, Ino, NewNode, RepairReport, repair, repair_candidates,
};
use pmem::{Domain, Mapping};
use pool::{Candidate, OpenOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use topology::Topology;

pub const BLOCK: usize = 4096;
pub const SLICES: usize = 2;
pub const SLICE_BYTES: u64 = 4 << 20;
const DIRS: u64 = 4;
const FILES: u64 = 60;
/// Files in all.
pub const ALL: u64 = DIRS * FILES;

/// The bytes of the slices.
pub type Images = Vec<Vec<u8>>;

/// A block of a file: its number, the block's, and bytes that follow from both.
fn block(file: u64, number: u64) -> Vec<u8> {
    let words = (0..BLOCK as u64 / 8).map(|at| match at {
        0 => file,
        1 => number,
        at => (file * 7919 + number * 31 + at).wrapping_mul(0x9E37_79B9_7F4A_7C15),
    });
    words.flat_map(u64::to_le_bytes).collect()
}

/// What a small file holds.
fn small(file: u64) -> Vec<u8> {
    block(file, 77)[..40 + file as usize].to_vec()
}

fn blocks_of(file: u64) -> u64 {
    1 + file % 3
}

/// Plants directories of files, with names so long that the trees have many pages.
pub fn plant(fs: &FileSystem) {
    for dir in 0..DIRS {
        // what a thread makes is at home on the slice near its CPU
        std::thread::scope(|scope| {
            scope.spawn(|| plant_dir(fs, dir)).join().unwrap();
        });
    }
}

/// The CPUs that this thread may run on.
fn cpus() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1024).filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// A pool on a machine of two CPUs at least: where there is one, it passes for two.
fn on_two_cpus(mut pool: TestPool) -> TestPool {
    if cpus().len() < 2 {
        pool.open.machine = Some(Arc::new(Topology::described(1, 2).unwrap()));
    }
    pool
}

/// Runs this thread on one of the CPUs that it may run on.
pub fn pin(number: u64) {
    let cpus = cpus();
    if cpus.len() < 2 {
        return topology::assume_cpu((number % 2) as u32);
    }
    let mut own = rustix::thread::CpuSet::new();
    own.set(cpus[number as usize % cpus.len()]);
    rustix::thread::sched_setaffinity(None, &own).unwrap();
}

fn plant_dir(fs: &FileSystem, dir: u64) {
    pin(dir);
    {
        let name = format!("dir{dir}");
        let parent = fs.create(Ino::ROOT, name.as_bytes(), NewNode::Directory, BY).unwrap().ino;
        for file in dir * FILES..(dir + 1) * FILES {
            let name = format!("{file:04}-{}", "x".repeat(90));
            let attr = fs.create(parent, name.as_bytes(), NewNode::File, BY).unwrap();
            let handle = fs.open(attr.ino).unwrap();
            for number in 0..blocks_of(file) {
                let at = number * BLOCK as u64;
                assert_eq!(fs.write(&handle, at, &block(file, number)).unwrap(), BLOCK);
            }
            if file % 3 == 0 {
                // its bytes lie in the tree, or in the log
                let name = format!("{file:04}-small");
                let attr = fs.create(parent, name.as_bytes(), NewNode::File, BY).unwrap();
                let bytes = small(file);
                let handle = fs.open(attr.ino).unwrap();
                assert_eq!(fs.write(&handle, 0, &bytes).unwrap(), bytes.len());
            }
        }
    }
}

/// The images of a pool with files, closed or killed.
pub fn images(closed: bool) -> Images {
    let mut pool = on_two_cpus(TestPool::new(SLICES, SLICE_BYTES));
    let fs = pool.start_alone();
    plant(&fs);
    if closed {
        fs.close().unwrap();
    } else {
        pool.kill();
    }
    drop(fs);
    read(&pool.dir())
}

/// The images of a closed pool in which a little was changed after a checkpoint.
pub fn images_after_more() -> Images {
    let pool = on_two_cpus(TestPool::new(SLICES, SLICE_BYTES));
    let fs = pool.start_alone();
    plant(&fs);
    fs.checkpoint().unwrap();
    let dir = fs.lookup(Ino::ROOT, b"dir0").unwrap().ino;
    fs.create(dir, b"later", NewNode::File, BY).unwrap();
    let other = fs.lookup(Ino::ROOT, b"dir1").unwrap().ino;
    fs.create(other, b"later", NewNode::File, BY).unwrap();
    fs.close().unwrap();
    drop(fs);
    read(&pool.dir())
}

pub fn read(dir: &Path) -> Images {
    slices(dir).iter().map(|path| std::fs::read(path).unwrap()).collect()
}

pub fn candidates(images: &Images) -> Vec<Candidate> {
    let of = |image: &Vec<u8>| {
        let mapping = Mapping::memory_from(image, Domain::Process).unwrap();
        Candidate::from_mapping(Path::new("memory"), mapping, false).unwrap()
    };
    images.iter().map(of).collect()
}

/// Pages of the trees that are there twice, by what they hold: slice and block of each.
pub fn pairs(images: &Images) -> Vec<[(usize, usize); 2]> {
    let mut found: BTreeMap<&[u8], Vec<(usize, usize)>> = BTreeMap::new();
    for (slice, image) in images.iter().enumerate() {
        for (number, bytes) in image.chunks(BLOCK).enumerate() {
            if bytes.starts_with(b"NSTP") {
                found.entry(bytes).or_default().push((slice, number));
            }
        }
    }
    found.into_values().filter_map(|places| places.try_into().ok()).collect()
}

pub fn damage(images: &mut Images, (slice, number): (usize, usize)) {
    images[slice][number * BLOCK..(number + 1) * BLOCK].fill(0xA5);
}

/// Repairs a copy of these images, and looks at what comes of it.
pub fn repaired(images: &Images) -> (RepairReport, Came) {
    let memories = candidates(images);
    let (report, images) = {
        // the engine has the mappings while it repairs; what it leaves is read back from files
        let dir = crate::common::scratch();
        for (index, image) in images.iter().enumerate() {
            std::fs::write(dir.path().join(format!("slice.{index}")), image).unwrap();
        }
        drop(memories);
        let open = |path: &std::path::PathBuf| Candidate::open(path, false).unwrap();
        let paths = slices(dir.path());
        let report = repair_candidates(paths.iter().map(open).collect()).unwrap();
        (report, read(dir.path()))
    };
    let left: Vec<&Finding> = report.left.iter().filter(|f| !is_data(f)).collect();
    assert!(left.is_empty(), "{left:?}\n{report:?}");
    let came = use_up(&images);
    (report, came)
}

/// Repairs the pool in its files; gives what was done, and the pool, which nothing is wrong with.
pub fn mended(pool: &TestPool) -> (Vec<String>, FileSystem) {
    mended_but_for(pool, &[])
}

/// The same, but for the files at these paths: they cannot be read afterwards, and nothing else is
/// wrong.
pub fn mended_but_for(pool: &TestPool, paths: &[&str]) -> (Vec<String>, FileSystem) {
    let tried = repair(&pool.dir(), &mut |_, _| ()).unwrap().expect("something is wrong");
    let report = tried.report().clone();
    tried.write(&pool.dir().join("repair.undo")).unwrap();
    for findings in [&report.left, &pool.check().findings] {
        let mut found: Vec<&str> = findings.iter().filter_map(|it| it.path.as_deref()).collect();
        found.dedup();
        assert_eq!(found, paths, "{findings:?}");
        assert!(findings.iter().all(|it| it.path.is_some() && is_data(it)), "{report:?}");
    }
    (said(&report.done), pool.start_alone())
}

/// What is known of a file in doubt.
pub fn older_copy(fs: &FileSystem, ino: Ino) -> Vec<u8> {
    let aside = fs.lookup(Ino::ROOT, b"lost+found").unwrap().ino;
    let older = fs.lookup(aside, b"older").unwrap().ino;
    let copy = fs.lookup(older, format!("#{}", ino.0).as_bytes()).unwrap().ino;
    content(fs, &fs.open(copy).unwrap())
}

/// Whether each block of a file is an error.
pub fn reads_as_error(fs: &FileSystem, ino: Ino) -> bool {
    let mut bytes = vec![0; BLOCK];
    let handle = fs.open(ino).unwrap();
    let size = fs.getattr(ino).unwrap().size;
    (0..size.max(1)).step_by(BLOCK).all(|at| fs.read(&handle, at, &mut bytes).is_err())
}

/// Findings as lines.
pub fn said(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{}: {}", finding.place, finding.what)).collect()
}

/// How many lines say this.
pub fn told(lines: &[String], what: &str) -> usize {
    lines.iter().filter(|line| line.contains(what)).count()
}

/// Damaged data stays so.
fn is_data(finding: &Finding) -> bool {
    finding.what.starts_with("the data at")
}

/// What came back.
#[derive(Debug, Default)]
pub struct Came {
    /// Files of which some blocks are there, wherever.
    pub files: BTreeMap<u64, u64>,
    /// Blocks that are errors.
    pub errors: u64,
    /// Files without any block that can be read.
    pub unknown: u64,
    /// In lost+found.
    pub aside: u64,
    /// Small files that are as they were.
    pub small: u64,
}

/// Reads all, and removes all: then it is as empty as a new pool.
fn use_up(images: &Images) -> Came {
    let fs = FileSystem::open_candidates(candidates(images), &OpenOptions::default(), false);
    let fs = fs.unwrap();
    let mut came = Came::default();
    let entries = list(&fs, Ino::ROOT);
    fs.create(Ino::ROOT, b"new", NewNode::File, BY).unwrap();
    let new = fs.open(fs.lookup(Ino::ROOT, b"new").unwrap().ino).unwrap();
    fs.write(&new, 0, &block(99_999, 0)).unwrap();
    drop(new);
    fs.unlink(Ino::ROOT, b"new").unwrap();
    for (name, ino, kind) in entries {
        if name == b"lost+found" {
            came.aside = list(&fs, ino).len() as u64;
        }
        remove(&fs, Ino::ROOT, &name, (ino, kind), &mut came);
    }
    fs.close().unwrap();
    drop(fs);
    came
}

fn list(fs: &FileSystem, dir: Ino) -> Vec<(Vec<u8>, Ino, FileKind)> {
    let mut entries = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        entries.push((entry.name.clone(), entry.ino, entry.kind));
        true
    })
    .unwrap();
    entries.retain(|(name, ..)| name != b"." && name != b"..");
    entries
}

fn remove(fs: &FileSystem, dir: Ino, name: &[u8], (ino, kind): (Ino, FileKind), came: &mut Came) {
    if kind == FileKind::Directory {
        for (name, child, kind) in list(fs, ino) {
            remove(fs, ino, &name, (child, kind), came);
        }
        fs.rmdir(dir, name).unwrap();
        return;
    }
    let handle = fs.open(ino).unwrap();
    let size = fs.getattr(ino).unwrap().size;
    let mut own = None;
    if size > 0 && size < BLOCK as u64 {
        let mut bytes = vec![0; size as usize];
        match fs.read(&handle, 0, &mut bytes) {
            Ok(_) => {
                let file = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert!(bytes == small(file), "a small file holds something else");
                came.small += 1;
            }
            Err(_) => came.errors += 1,
        }
    }
    for number in 0..size / BLOCK as u64 {
        let mut bytes = vec![0; BLOCK];
        match fs.read(&handle, number * BLOCK as u64, &mut bytes) {
            Ok(read) => {
                let file = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert_eq!(*own.get_or_insert(file), file, "blocks of two files");
                let whole = read == BLOCK && bytes == block(file, number);
                assert!(whole, "block {number} of file {file} is not what was written");
                *came.files.entry(file).or_default() += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Damaged(_) | Error::Pool(_)), "{error:?}");
                came.errors += 1;
            }
        }
    }
    came.unknown += u64::from(own.is_none() && size >= BLOCK as u64);
    drop(handle);
    fs.unlink(dir, name).unwrap();
}

impl Came {
    /// Everything is there.
    pub fn is_all(&self) -> bool {
        self.files.len() as u64 == ALL
            && self.files.iter().all(|(file, blocks)| *blocks == blocks_of(*file))
            && (self.errors, self.unknown, self.aside) == (0, 0, 0)
            && self.small == ALL.div_ceil(3)
    }
}
