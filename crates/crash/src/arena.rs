//! Memory in which one crash state after the other is opened, without a copy of any.
//!
//! It holds certain images. A look at a state puts that state's lines into it, opens it as often as
//! it likes, and then everything that was put or stored goes back, line by line.

use crate::events::Trace;
use crate::images::{Images, Outcome, failed};
use fs::{FileSystem, TakeOver, check_candidates};
use pmem::recorder::{Event, EventKind, Recorder};
use pmem::{Domain, Mapping, Memory};
use pool::{Atime, Candidate, OpenOptions};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use topology::Topology;

/// The memory of a pool's slices.
#[derive(Debug)]
pub struct Arena {
    memories: Vec<Memory>,
    changed: Arc<Changed>,
}

/// What is not as it was: slice, first byte, bytes.
#[derive(Debug, Default)]
struct Changed(Mutex<Vec<(u32, usize, usize)>>);

/// Is told of every store, and tells a trace if there is one.
struct Watch {
    changed: Arc<Changed>,
    trace: Option<Arc<Trace>>,
}

impl Changed {
    fn note(&self, slice: u32, offset: usize, len: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((slice, offset, len));
    }

    fn take(&self) -> Vec<(u32, usize, usize)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Recorder for Watch {
    fn event(&self, told: Event<'_>) {
        if let EventKind::Store { offset, data } | EventKind::NtStore { offset, data } = told.kind {
            self.changed.note(told.mapping, offset as usize, data.len());
        }
        if let Some(trace) = &self.trace {
            trace.event(told);
        }
    }
}

fn options() -> Outcome<OpenOptions> {
    static MACHINE: OnceLock<Arc<Topology>> = OnceLock::new();
    let machine = match MACHINE.get() {
        Some(machine) => machine.clone(),
        None => {
            let machine = Topology::system().map_err(|error| failed("the machine")(&error))?;
            MACHINE.get_or_init(|| Arc::new(machine)).clone()
        }
    };
    Ok(OpenOptions {
        memory_bytes: Some(64 << 20),
        atime: Atime::Never,
        machine: Some(machine),
        ..OpenOptions::default()
    })
}

impl Arena {
    /// Memory that holds `images`.
    pub fn new(images: &Images) -> Outcome<Arena> {
        let memory = |image: &Vec<u8>| {
            let memory = Memory::new(image.len())?;
            memory.put(0, image);
            Ok(memory)
        };
        let memories: pmem::Result<_> = images.iter().map(memory).collect();
        let memories = memories.map_err(|error| failed("memory")(&error))?;
        Ok(Arena { memories, changed: Arc::default() })
    }

    /// Puts bytes there, until [`restore`](Arena::restore).
    pub fn put(&self, slice: u32, offset: usize, data: &[u8]) {
        self.memories[slice as usize].put(offset, data);
        self.changed.note(slice, offset, data.len());
    }

    /// Puts bytes there to stay.
    pub fn settle(&self, slice: u32, offset: usize, data: &[u8]) {
        self.memories[slice as usize].put(offset, data);
    }

    /// Takes back everything that was put and stored; it held `images` before. Nothing is open.
    pub fn restore(&self, images: &Images) {
        for (slice, offset, len) in self.changed.take() {
            let image = &images[slice as usize];
            self.memories[slice as usize].put(offset, &image[offset..offset + len]);
        }
    }

    /// Mappings of it; `trace` is told of every store.
    pub fn mappings(&self, trace: Option<&Arc<Trace>>) -> Outcome<Vec<Mapping>> {
        // One for all: a fence is told of once to each recorder.
        let watch = Arc::new(Watch { changed: self.changed.clone(), trace: trace.cloned() });
        let mapping = |(index, memory): (usize, &Memory)| {
            let mapping = memory.mapping(Domain::CpuFlush)?;
            mapping.set_id(index as u32);
            mapping.set_recorder(Some(watch.clone()));
            Ok(mapping)
        };
        let mappings: pmem::Result<_> = self.memories.iter().enumerate().map(mapping).collect();
        mappings.map_err(|error| failed("mapping memory")(&error))
    }

    fn candidates(&self, trace: Option<&Arc<Trace>>, look: bool) -> Outcome<Vec<Candidate>> {
        self.mappings(trace)?
            .into_iter()
            .map(|mapping| Candidate::from_mapping(Path::new("memory"), mapping, look))
            .collect::<pool::Result<_>>()
            .map_err(|error| failed("reading the superblock")(&error))
    }

    /// Opens and recovers; `trace` is told of every store, those of recovery included.
    pub fn open(&self, trace: Option<&Arc<Trace>>) -> Outcome<FileSystem> {
        self.take_over(trace, &TakeOver::default())
    }

    /// The same where a server was killed.
    pub fn take_over(&self, trace: Option<&Arc<Trace>>, asked: &TakeOver) -> Outcome<FileSystem> {
        let candidates = self.candidates(trace, false)?;
        FileSystem::take_over_candidates(candidates, &options()?, asked, false)
            .map_err(|error| failed("open")(&error))
    }

    /// An error unless `check` finds nothing.
    pub fn check(&self) -> Outcome<()> {
        let report = check_candidates(self.candidates(None, true)?, &options()?)
            .map_err(|error| failed("check")(&error))?;
        if report.findings.is_empty() {
            return Ok(());
        }
        let findings: Vec<String> =
            report.findings.iter().take(5).map(|f| format!("{}: {}", f.place, f.what)).collect();
        Err(format!("check found {}: {}", report.findings.len(), findings.join("; ")))
    }
}
