//! A pool on an emulated machine, and callers all over it.

use crate::error::{Error, Result, io};
use crate::lab::OWNER;
use crate::options::Options;
use crate::scratch::Scratch;
use emulate::Emulation;
use fs::{FileSystem, Handle, Ino, Layout, NewNode, Policy};
use placement::{Costs, Kind, Levers, Machine};
use pool::{FormatOptions, OpenOptions, SliceSpec};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

const SLICE_BYTES: u64 = 512 << 20;
const MIB: f64 = 1048576.0;
const BEGINS: u8 = 0;
const COUNTS: u8 = 1;
const ENDS: u8 = 2;
/// Of a run that is not counted: until all callers are at work.
const WARM_UP: f64 = 0.25;

/// The machine that a file describes, or one that comes along by its name.
///
/// # Errors
/// The file cannot be read, or describes none.
pub fn machine(named: &Path) -> Result<Machine> {
    let known = sim::KNOWN.iter().find(|(name, _)| named.as_os_str() == *name);
    let text = match known {
        Some((_, text)) => (*text).to_owned(),
        None => std::fs::read_to_string(named).map_err(io(named))?,
    };
    Ok(sim::parse(&text)?)
}

/// What is played.
#[derive(Clone, Debug)]
pub struct Play {
    /// The machine.
    pub machine: Machine,
    /// Seconds at hand for one of its seconds.
    pub stretch: f64,
    /// Slices of the pool, on a node each.
    pub slices: u32,
    /// Of the files.
    pub layout: Layout,
    /// Bytes of a stripe; none: the pool's own choice.
    pub stripe_bytes: Option<u64>,
    /// Files, one of each caller.
    pub callers: u32,
    /// Nodes that callers are on, from the first.
    pub on_nodes: u32,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// From call to call a caller goes on by so many units: what lies behind each other is one
    /// access for an emulated memory.
    pub step: u64,
    /// Who copies.
    pub policy: Policy,
    /// Workers of a slice; none: as the policy says.
    pub workers: Option<u16>,
    /// What moves.
    pub levers: Levers,
    /// The first node that callers are on.
    pub from_node: u32,
    /// The files are made on this node, and laid nowhere in particular afterwards.
    pub made_on: Option<u16>,
}

/// A pool on an emulated machine.
pub struct Stage {
    fs: FileSystem,
    files: Vec<Arc<Handle>>,
    emulation: Arc<Emulation>,
    play: Play,
    /// What workers had written before.
    written_before: u64,
    _scratch: Scratch,
}

impl Stage {
    /// With its files written; the machine's memory answers at once meanwhile.
    pub fn new(options: &Options, play: &Play) -> Result<Stage> {
        let scratch = Scratch::new(options.dir())?;
        let dir = scratch.path().join("pool");
        let format = FormatOptions {
            slices: vec![SliceSpec::default(); play.slices as usize],
            slice_bytes: SLICE_BYTES,
            virtual_nodes: Some(play.machine.nodes),
            process: true,
            stripe_bytes: play.stripe_bytes,
            ..FormatOptions::default()
        };
        fs::format(&dir, &format)?;
        let emulation = Emulation::new(play.machine.clone(), play.stretch)?;
        let open = OpenOptions {
            emulated: Some(emulation.clone()),
            policy: Some(play.policy),
            workers: play.workers,
            costs: Some(Costs::of(&play.machine, &play.policy)),
            levers: play.levers,
            ..OpenOptions::default()
        };
        let fs = FileSystem::open_pool(&dir, &open)?;
        let data = vec![0x5A; play.file_bytes as usize];
        let file = |index: u32| {
            let name = format!("file {index}");
            let ino = fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, OWNER)?.ino;
            fs.set_layout(ino, play.made_on.map_or(play.layout, Layout::Node))?;
            let file = fs.open(ino)?;
            // twice: nothing is verified first, or has its first place, later
            for _ in 0..2 {
                fs.write(&file, 0, &data)?;
            }
            if play.made_on.is_some() {
                fs.set_layout(ino, play.layout)?;
            }
            Ok(file)
        };
        let files = (0..play.callers).map(file).collect::<Result<Vec<_>>>()?;
        let mut read = data;
        files.iter().try_for_each(|file| fs.read(file, 0, &mut read).map(|_| ()))?;
        let play = play.clone();
        let mut stage = Stage { fs, files, emulation, play, written_before: 0, _scratch: scratch };
        stage.written_before = stage.written_by_workers();
        Ok(stage)
    }

    /// What so many callers move of their files in calls of `unit` bytes, in MiB/s of the machine's
    /// time: one call behind the other, for so long at hand.
    pub fn run(&self, callers: u32, kind: Kind, unit: u64, at_hand: Duration) -> Result<f64> {
        let stage = AtomicU8::new(BEGINS);
        self.emulation.start();
        let rates: Result<Vec<f64>> = std::thread::scope(|scope| {
            let caller = |index: u32| {
                let stage = &stage;
                move || self.call(index, kind, unit, stage)
            };
            let threads: Vec<_> = (0..callers).map(|index| scope.spawn(caller(index))).collect();
            std::thread::sleep(at_hand.mul_f64(WARM_UP));
            stage.store(COUNTS, Ordering::Relaxed);
            std::thread::sleep(at_hand.mul_f64(1.0 - WARM_UP));
            stage.store(ENDS, Ordering::Relaxed);
            // nobody waits for what is left
            self.emulation.stop();
            threads.into_iter().map(|it| it.join().map_err(|_| Error::Panicked)?).collect()
        });
        Ok(rates?.into_iter().sum())
    }

    /// One caller; what it moved from its first call that counts to its last one, MiB/s.
    fn call(&self, index: u32, kind: Kind, unit: u64, stage: &AtomicU8) -> Result<f64> {
        let (nodes, cpus) = (self.play.on_nodes, self.play.machine.cpus);
        let node = (self.play.from_node + index % nodes) % self.play.machine.nodes;
        topology::assume_cpu(node * cpus + index / nodes % cpus);
        let file = &self.files[index as usize % self.files.len()];
        let mut data = vec![index as u8; unit as usize];
        let (mut at, mut calls, mut first, mut last) = (0, 0u64, None, None);
        loop {
            match kind {
                Kind::Read => drop(self.fs.read(file, at, &mut data)?),
                Kind::Write => drop(self.fs.write(file, at, &data)?),
            }
            at = (at + unit * self.play.step) % (self.play.file_bytes / unit * unit);
            match stage.load(Ordering::Relaxed) {
                BEGINS => (),
                COUNTS if first.is_none() => first = Some(Instant::now()),
                COUNTS => (calls, last) = (calls + 1, Some(Instant::now())),
                _ => break,
            }
        }
        let Some((first, last)) = first.zip(last) else { return Err(Error::TooShort) };
        let took = self.emulation.machine_time(last - first);
        Ok((calls * unit) as f64 / MIB / took.as_secs_f64())
    }

    /// What moved.
    pub fn moves(&self) -> Option<fs::Moves> {
        self.fs.moves()
    }

    /// Bytes that workers wrote in runs.
    pub fn written_by_workers(&self) -> u64 {
        let slices = self.fs.stats().slices;
        let all: u64 = slices.iter().map(|slice| slice.workers.written_bytes).sum();
        all - self.written_before
    }
}
