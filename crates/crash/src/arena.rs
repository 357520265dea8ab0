//! Memory in which one crash state after the other is opened, without a copy of any.
//!
//! It holds certain images. A look at a state puts that state's lines into it, opens it as often as
//! it likes, and then everything that was put or stored goes back, line by line.

use crate::attached::{self, Attached};
use crate::device::MappedDevice;
use crate::events::Trace;
use crate::images::{Images, Outcome, failed};
use crate::model::LineId;
use crate::watch::{Watch, Watched};
use fs::{FileSystem, Policy, Side, TakeOver, check_candidates};
use pmem::{Domain, Mapping, Memory};
use pool::{Atime, Candidate, Device, OpenOptions, Superblock};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use topology::Topology;

/// The memory of a pool's slices and devices.
#[derive(Debug)]
pub struct Arena {
    domain: Domain,
    /// Those of the slices, then those of the devices, and then those of a process.
    memories: Vec<Memory>,
    slices: usize,
    /// Where the process's begin.
    attached: Option<usize>,
    watched: Arc<Watched>,
    /// How often the machine was started since it held certain images.
    starts: AtomicU32,
    name: u32,
    machine: Arc<Topology>,
    /// Who copies; none: whoever calls.
    policy: Option<Policy>,
    files: Files,
}

/// Which files of a mirrored pool a crash leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Files {
    /// All, and all are current.
    #[default]
    All,
    /// All but one.
    Without(usize),
    /// All, of which some may be stale.
    Stale,
}

impl Files {
    /// What a check says of it.
    fn allows(self, what: &str) -> bool {
        match self {
            Files::All => false,
            Files::Without(_) => what.contains("the pool is degraded"),
            Files::Stale => what.contains("is stale"),
        }
    }
}

/// This machine, looked at once.
fn machine() -> Outcome<Arc<Topology>> {
    static MACHINE: OnceLock<Arc<Topology>> = OnceLock::new();
    match MACHINE.get() {
        Some(machine) => Ok(machine.clone()),
        None => {
            let machine = Topology::system().map_err(|error| failed("the machine")(&error))?;
            Ok(MACHINE.get_or_init(|| Arc::new(machine)).clone())
        }
    }
}

/// An error unless something failed, with words that name what is missing.
fn refused<T>(what: &str, done: fs::Result<T>, missing: &str) -> Outcome<()> {
    match done.map(drop).map_err(|error| error.to_string()) {
        Ok(()) => Err(format!("it can be {what}")),
        Err(error) if error.contains(missing) => Ok(()),
        Err(error) => Err(format!("{what}: it is not said what is missing: {error}")),
    }
}

/// Slices, and how to open them.
type Parts = (Vec<Candidate>, OpenOptions);

/// The devices in these mappings.
pub fn devices_in(mappings: Vec<Mapping>) -> Vec<Arc<dyn Device>> {
    let device = |mapping| Arc::new(MappedDevice::new(mapping)) as Arc<dyn Device>;
    mappings.into_iter().map(device).collect()
}

/// How many of the images are slices: the others are devices. All, if no superblock says so.
fn slices_in(images: &Images) -> usize {
    let first = images.first().map_or(&[][..], |image| &image[..image.len().min(512)]);
    let decoded = Superblock::decode(first, u64::MAX);
    decoded.map_or(images.len(), |superblock| superblock.slices.get() as usize)
}

fn options(arena: &Arena) -> OpenOptions {
    OpenOptions {
        // its page cache is made anew for each image
        memory_bytes: Some(4 << 20),
        atime: Atime::Never,
        machine: Some(arena.machine.clone()),
        policy: arena.policy,
        boot: Some(arena.boot()),
        ..OpenOptions::default()
    }
}

impl Arena {
    /// Memory of `domain` that holds `images`.
    pub fn new(domain: Domain, images: &Images) -> Outcome<Arena> {
        let memory = |image: &Vec<u8>| {
            let memory = Memory::new(image.len())?;
            memory.put(0, image);
            Ok(memory)
        };
        let memories: pmem::Result<_> = images.iter().map(memory).collect();
        let memories = memories.map_err(|error| failed("memory")(&error))?;
        static NAME: AtomicU32 = AtomicU32::new(1);
        let name = NAME.fetch_add(1, Ordering::Relaxed);
        let (watched, starts) = (Arc::default(), AtomicU32::new(0));
        let (machine, policy, files) = (machine()?, None, Files::All);
        let (slices, attached) = (slices_in(images), attached::begin_in(images));
        Ok(Arena {
            domain,
            memories,
            slices,
            attached,
            watched,
            starts,
            name,
            machine,
            policy,
            files,
        })
    }

    /// The same in another machine.
    pub fn in_machine(self, machine: Topology) -> Arena {
        Arena { machine: Arc::new(machine), ..self }
    }

    /// Its name, which no other has.
    pub fn name(&self) -> u32 {
        self.name
    }

    /// The same in the machine in which the arena of this name was opened first, and that has not
    /// been started again since: what a program stored there is there, synced or not.
    pub fn still_in(self, name: u32) -> Arena {
        Arena { name, ..self }
    }

    /// The same on two virtual nodes, with workers for all that is long and on another node.
    pub fn delegating(self) -> Outcome<Arena> {
        let machine = self.machine.with_virtual_nodes(2);
        let machine = Arc::new(machine.map_err(|error| failed("virtual nodes")(&error))?);
        let side = Side { delegate_remote: 0, ..Side::default() };
        Ok(Arena { machine, policy: Some(Policy { read: side, write: side }), ..self })
    }

    /// The same with these files.
    pub fn with(self, files: Files) -> Arena {
        Arena { files, ..self }
    }

    /// Puts bytes there, until [`restore`](Arena::restore).
    pub fn put(&self, slice: u32, offset: usize, data: &[u8]) {
        self.memories[slice as usize].put(offset, data);
        self.watched.note(slice, offset, data.len());
    }

    /// Puts bytes there to stay.
    pub fn settle(&self, slice: u32, offset: usize, data: &[u8]) {
        self.memories[slice as usize].put(offset, data);
    }

    /// Takes back everything that was put and stored; it held `images` before. Nothing is open.
    pub fn restore(&self, images: &Images) {
        for (slice, offset, len) in self.watched.take() {
            let image = &images[slice as usize];
            self.memories[slice as usize].put(offset, &image[offset..offset + len]);
        }
        self.starts.store(0, Ordering::Relaxed);
    }

    /// From now on notes which of these lines are read.
    pub fn watch(&self, lines: &BTreeSet<LineId>) {
        self.watched.ask(self.memories.iter().map(Memory::len), lines.iter());
    }

    /// Those of them that were read, in the order in which they were.
    pub fn take_read(&self) -> Vec<LineId> {
        self.watched.take_read()
    }

    /// Mappings of it; `trace` is told of every store.
    pub fn mappings(&self, trace: Option<&Arc<Trace>>) -> Outcome<Vec<Mapping>> {
        // One for all: a fence is told of once to each recorder.
        let watch = Arc::new(Watch { watched: self.watched.clone(), trace: trace.cloned() });
        let mapping = |(index, memory): (usize, &Memory)| {
            let mapping = memory.mapping(self.domain)?;
            mapping.set_id(index as u32);
            mapping.set_recorder(Some(watch.clone()));
            Ok(mapping)
        };
        let mappings: pmem::Result<_> = self.memories.iter().enumerate().map(mapping).collect();
        mappings.map_err(|error| failed("mapping memory")(&error))
    }

    /// Another start of the machine: no arena has had its id, but this one before it was restored.
    fn boot(&self) -> [u8; 16] {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let mut id = [0; 16];
        id[..4].copy_from_slice(&self.name.to_le_bytes());
        id[4..8].copy_from_slice(&start.to_le_bytes());
        id
    }

    /// The slices and devices, to be looked at, or not only.
    fn parts(&self, look: bool) -> Outcome<Parts> {
        self.parts_of(self.files, self.pool_and_process(None)?.0, look)
    }

    /// Mappings of the slices and devices, and those of what a process has.
    fn pool_and_process(
        &self,
        trace: Option<&Arc<Trace>>,
    ) -> Outcome<(Vec<Mapping>, Option<[Mapping; 2]>)> {
        let mut pool = self.mappings(trace)?;
        let process = self.attached.map(|first| pool.split_off(first));
        Ok((pool, process.and_then(|process| process.try_into().ok())))
    }

    /// The slices and devices, and how to open them.
    fn parts_of(&self, files: Files, mut mappings: Vec<Mapping>, look: bool) -> Outcome<Parts> {
        let devices = devices_in(mappings.split_off(self.slices.min(mappings.len())));
        let there = mappings.into_iter().enumerate();
        let candidates = there
            .filter(|(file, _)| files != Files::Without(*file))
            .map(|(_, mapping)| Candidate::from_mapping(Path::new("memory"), mapping, look))
            .collect::<pool::Result<_>>()
            .map_err(|error| failed("reading the superblock")(&error))?;
        Ok((candidates, OpenOptions { devices, ..options(self) }))
    }

    /// Opens and recovers; `trace` is told of every store, those of recovery included.
    pub fn open(&self, trace: Option<&Arc<Trace>>) -> Outcome<FileSystem> {
        self.take_over(trace, &TakeOver::default())
    }

    /// The same where a server was killed.
    pub fn take_over(&self, trace: Option<&Arc<Trace>>, asked: &TakeOver) -> Outcome<FileSystem> {
        let (pool, process) = self.pool_and_process(trace)?;
        let fs = self.open_pool(pool, asked)?;
        process.map_or(Ok(()), |process| attached::recover(&fs, process))?;
        Ok(fs)
    }

    /// Opens it, and attaches a new process if it has memory for one.
    pub fn attach(&self, trace: &Arc<Trace>) -> Outcome<(FileSystem, Option<Attached>)> {
        let (pool, process) = self.pool_and_process(Some(trace))?;
        let fs = self.open_pool(pool, &TakeOver::default())?;
        let Some(process) = process else { return Ok((fs, None)) };
        // what the service reads of a lane is nothing that it stores
        let read = self.memories.last().map(|memory| memory.mapping(self.domain));
        let read = read.transpose().map_err(|error| failed("mapping a lane")(&error))?;
        let attached = read.map(|read| Attached::new(&fs, process, read)).transpose()?;
        Ok((fs, attached))
    }

    fn open_pool(&self, mappings: Vec<Mapping>, asked: &TakeOver) -> Outcome<FileSystem> {
        let (candidates, options) = self.parts_of(self.files, mappings, false)?;
        FileSystem::take_over_candidates(candidates, &options, asked, false)
            .map_err(|error| failed("open")(&error))
    }

    /// The files of which each can be done without.
    pub fn spare_files(&self) -> Outcome<Range<usize>> {
        let (candidates, _) = self.parts(true)?;
        let is_mirrored = candidates.iter().all(|candidate| candidate.superblock.is_mirrored());
        let all = self.files == Files::All && is_mirrored;
        Ok(0..if all { candidates.len() } else { 0 })
    }

    /// Opens it without one of the files, only to look.
    pub fn look_without(&self, file: usize) -> Outcome<FileSystem> {
        let (candidates, options) =
            self.parts_of(Files::Without(file), self.pool_and_process(None)?.0, true)?;
        let options = OpenOptions { read_only: true, ..options };
        FileSystem::open_candidates(candidates, &options, false)
            .map_err(|error| failed(&format!("open without file {file}"))(&error))
    }

    /// Slices: the first of its memories.
    pub fn slices(&self) -> usize {
        self.slices
    }

    /// Devices below the slices.
    pub fn devices(&self) -> usize {
        self.attached.unwrap_or(self.memories.len()).saturating_sub(self.slices)
    }

    /// An error unless the pool is refused without this device, by name, and nothing is stored.
    pub fn refused_without(&self, device: usize) -> Outcome<()> {
        let changes = self.watched.count();
        let parts = |look: bool| {
            let (candidates, options) = self.parts(look)?;
            let there = options.devices.iter().enumerate().filter(|(index, _)| *index != device);
            let devices = there.map(|(_, device)| device.clone()).collect();
            Ok::<Parts, String>((candidates, OpenOptions { read_only: look, devices, ..options }))
        };
        let name = format!("device {device} of the capacity tier");
        for look in [true, false] {
            let (candidates, options) = parts(look)?;
            let opened = FileSystem::open_candidates(candidates, &options, false);
            refused(&format!("opened without {name}"), opened, &name)?;
        }
        let (candidates, options) = parts(true)?;
        let checked = check_candidates(candidates, &options);
        refused(&format!("checked without {name}"), checked, &name)?;
        match self.watched.count() == changes {
            true => Ok(()),
            false => Err(format!("a pool that was refused without {name} is not as it was")),
        }
    }

    /// An error unless `check` finds nothing.
    pub fn check(&self) -> Outcome<()> {
        let (candidates, options) = self.parts(true)?;
        let report =
            check_candidates(candidates, &options).map_err(|error| failed("check")(&error))?;
        let findings = report.findings.iter().filter(|finding| !self.files.allows(&finding.what));
        let findings: Vec<String> = findings.map(|f| format!("{}: {}", f.place, f.what)).collect();
        if findings.is_empty() {
            return Ok(());
        }
        let some = findings.iter().take(5).cloned().collect::<Vec<_>>().join("; ");
        Err(format!("check found {}: {some}", findings.len()))
    }
}
