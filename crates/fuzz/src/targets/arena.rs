//! Memory in which one image after the other is used: a pool that is always the same at first,
//! with something else in place of a few of its bytes.

use crate::image::{BLOCK, Image, Kind, Part, ROOT, STATE, STATE_AT};
use crate::place::Place;
use fs::{Creation, Fallocate, FileSystem, Ino, NewNode, SetAttr, XattrMode};
use pmem::{Domain, Memory};
use pool::{Atime, Candidate, FormatOptions, OpenOptions};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use topology::Topology;

const BYTES: usize = 1 << 20;
const BY: Creation = Creation { mode: 0o644, umask: 0o022, uid: 7, gid: 8 };
/// The id of the boot in which pools are opened.
const BOOT: [u8; 16] = [0xB0; 16];
/// When all that the base holds was made, ns since 1970.
const TIME: i64 = 1 << 60;
/// A list with a named user, in the kernel's format.
pub const LIST: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 232, 3, 0, 0, 4, 0, 5, 0, 255, 255,
    255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

/// How a pool was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Closed.
    Closed,
    /// Open when its process was killed.
    Killed,
    /// Open in a boot that is over.
    Crashed,
}

impl Left {
    /// Each for some numbers.
    pub fn of(number: u8) -> Left {
        [Left::Closed, Left::Killed, Left::Crashed, Left::Killed][usize::from(number & 3)]
    }

    /// The state that says so.
    pub fn state(self) -> [u8; STATE] {
        let mut state = [0; STATE];
        state[..8].copy_from_slice(b"NSSTATE1");
        let boot = if self == Left::Crashed { [0xAB; 16] } else { BOOT };
        state[8..24].copy_from_slice(&boot);
        state[24] = u8::from(self != Left::Closed);
        let crc = pmem::crc32c(0, &state[..STATE - 4]);
        state[STATE - 4..].copy_from_slice(&crc.to_le_bytes());
        state
    }
}

/// The memory.
#[derive(Debug)]
pub struct Arena {
    memory: Memory,
    domain: Domain,
    base: Image,
    parts: Vec<Part>,
    machine: Arc<Topology>,
    /// What is not as in the base, bytes: start and length.
    changed: Vec<(usize, usize)>,
}

fn machine() -> Arc<Topology> {
    static MACHINE: OnceLock<Arc<Topology>> = OnceLock::new();
    let look = || Arc::new(Topology::system().unwrap_or_else(|error| panic!("{error}")));
    MACHINE.get_or_init(look).clone()
}

/// Does it on one CPU: which blocks and which lane a change takes depends on where it runs, and
/// what an input means on what the base is.
pub fn on_one_cpu<T>(run: impl FnOnce() -> T) -> T {
    let cpus = topology::allowed_cpus().unwrap_or_default();
    let _ = topology::pin_current_thread(&cpus[..cpus.len().min(1)]);
    let done = run();
    let _ = topology::pin_current_thread(&cpus);
    done
}

impl Arena {
    /// Memory that holds the base: one slice, closed, in the domain `process`, all of whose trees
    /// have one page.
    pub fn new() -> Arena {
        Arena::of(Domain::Process)
    }

    /// The same in another domain.
    pub fn of(domain: Domain) -> Arena {
        let made = || -> fs::Result<Arena> {
            let memory = Memory::new(BYTES).map_err(pool::Error::from)?;
            let (base, parts) = (Image { slices: Vec::new(), devices: Vec::new() }, Vec::new());
            let (machine, changed) = (machine(), Vec::new());
            let mut arena = Arena { memory, domain, base, parts, machine, changed };
            fs::stop_clock(Some(TIME));
            let options = FormatOptions { identity: Some(7), ..FormatOptions::default() };
            fs::format_mappings(vec![arena.mapping()?], &options)?;
            let fs = arena.open(false)?;
            populate(&fs)?;
            fs.close()?;
            drop(fs);
            arena.base = arena.image();
            arena.parts = arena.base.parts();
            Ok(arena)
        };
        on_one_cpu(made).unwrap_or_else(|error| panic!("the base cannot be made: {error}"))
    }

    fn mapping(&self) -> pool::Result<pmem::Mapping> {
        Ok(self.memory.mapping(self.domain)?)
    }

    /// The image that it began with.
    pub fn base(&self) -> &Image {
        &self.base
    }

    /// The structures of the base.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Where the base's root lies, of the last checkpoint.
    pub fn root_at(&self) -> usize {
        let roots = self.parts.iter().filter(|part| part.kind == Kind::Root);
        let last = roots.max_by_key(|root| self.base.number(0, root.at + 24, 8));
        last.map_or(BLOCK, |root| root.at)
    }

    /// Puts bytes there, until [`restore`](Arena::restore).
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.memory.put(at, bytes);
        self.changed.push((at, bytes.len()));
    }

    /// Puts a root there, and its second copy, with a checksum that fits.
    pub fn put_root(&mut self, at: usize, root: &[u8]) {
        let mut root = root[..ROOT - 8].to_vec();
        root.extend_from_slice(&pmem::crc32c(0, &root).to_le_bytes());
        self.put(at, &root);
        self.put(at + crate::image::ROOT_COPY, &root);
    }

    /// Says how the pool was left.
    pub fn leave(&mut self, left: Left) {
        self.put(STATE_AT, &left.state());
    }

    /// Whatever was opened here may have stored anywhere.
    pub fn was_written(&mut self) {
        self.changed = vec![(0, BYTES)];
    }

    /// Makes it the base again. Nothing is open.
    pub fn restore(&mut self) {
        for (at, len) in std::mem::take(&mut self.changed) {
            self.memory.put(at, self.base.get(0, at, len).unwrap_or_default());
        }
    }
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

impl Place for Arena {
    fn image(&self) -> Image {
        let image = self.mapping().map(|mapping| mapping.copy_image());
        Image { slices: vec![image.unwrap_or_default()], devices: Vec::new() }
    }

    fn checksum(&self) -> u32 {
        self.mapping().ok().and_then(|mapping| mapping.crc(0, BYTES).ok()).unwrap_or_default()
    }

    fn candidates(&self, read_only: bool) -> pool::Result<Vec<Candidate>> {
        let path = Path::new("slice.000");
        Ok(vec![Candidate::from_mapping(path, self.mapping()?, read_only)?])
    }

    fn options(&self) -> OpenOptions {
        OpenOptions {
            memory_bytes: Some(4 << 20),
            atime: Atime::Never,
            machine: Some(self.machine.clone()),
            boot: Some(BOOT),
            ..OpenOptions::default()
        }
    }
}

/// One of everything that a pool holds, in trees of a page each.
fn populate(fs: &FileSystem) -> fs::Result<()> {
    let new = |parent, name: &[u8], node| fs.create(parent, name, node, BY).map(|attr| attr.ino);
    let dir = new(Ino::ROOT, b"dir", NewNode::Directory)?;
    let file = new(dir, b"file", NewNode::File)?;
    let small = new(dir, b"small", NewNode::File)?;
    let other = new(Ino::ROOT, b"other", NewNode::File)?;
    new(Ino::ROOT, b"link", NewNode::Symlink(b"dir/file"))?;
    new(dir, b"fifo", NewNode::Special(fs::FileKind::Fifo, 0))?;
    fs.link(file, Ino::ROOT, b"again")?;
    let (file, other) = (fs.open(file)?, fs.open(other)?);
    fs.write(&file, 0, &[0xF1; 3 * BLOCK])?;
    fs.copy((&file, 0), (&other, 0), BLOCK as u64)?;
    let keep_size = Fallocate::Allocate { keep_size: true };
    fs.fallocate(&other, keep_size, 2 * BLOCK as u64, 3 * BLOCK as u64)?;
    fs.write(&*fs.open(small)?, 10, b"few bytes over a hole")?;
    fs.setxattr(small, b"user.name", b"value", XattrMode::Any)?;
    fs.setxattr(dir, b"system.posix_acl_default", &LIST, XattrMode::Any)?;
    fs.setxattr(small, b"system.posix_acl_access", &LIST, XattrMode::Any)?;
    fs.setattr(small, &SetAttr { uid: Some(1000), ..SetAttr::default() })?;
    Ok(())
}
