//! Measuring what the memory of a pool can do: copies from its node, from another one, and by
//! workers, by size and by threads.
//!
//! They are made on free blocks of one slice, which nothing names: a crash in the middle leaves a
//! pool as it was. Nodes are taken to be alike.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::system::FileSystem;

use placement::{Calibration, Kind, Place, Point};
use pmem::Mapping;
use pool::{BLOCK_BYTES, Extent};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};
use workers::{Piece, Settings, SliceSettings, Task, Workers};

/// Bytes of copies that are measured.
const SIZES: [u64; 3] = [4 << 10, 32 << 10, SPOT_BYTES];
/// Numbers of threads.
const THREADS: [u32; 11] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64];
/// Bytes that lie one behind the other: the largest copy.
const SPOT_BYTES: u64 = 256 << 10;
const SPOT_BLOCKS: u64 = SPOT_BYTES / BLOCK_BYTES;
/// Spots that are used: more than caches hold.
const SPOTS: u64 = 512;
/// No more than this part of what is free.
const FREE_PART: u64 = 4;
/// Fewest spots that say anything.
const SPOTS_MIN: usize = 4;
/// Longest and shortest time of a measurement.
const TIME: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];
/// Bytes between two looks at the clock.
const LOOK_BYTES: u64 = 16 << 10;
/// Workers that are asked.
const WORKERS: usize = 4;
const MIB: f64 = 1048576.0;

/// Told how many measurements are made, of how many; false: stop.
pub type EachMeasured<'e> = &'e mut dyn FnMut(u64, u64) -> bool;

/// The slice that is measured, from where.
struct Bench<'b> {
    mapping: &'b Mapping,
    /// Where the spots begin.
    spots: Vec<u64>,
    /// CPUs of its node, and of another one.
    cpus: [Vec<u32>; 2],
    workers: Workers,
    /// A machine is played: its time for one second at hand.
    stretch: Option<f64>,
}

/// Blocks that are given back.
struct Borrowed<'c> {
    core: &'c Core,
    extents: Vec<Extent>,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.core.pool.reclaim().give_extents(&mut self.extents);
    }
}

/// Where threads wait until all are there, or one cannot be.
#[derive(Default)]
struct Gate {
    expected: u32,
    arrived: AtomicU32,
    opens: OnceLock<bool>,
}

impl Gate {
    fn shut(&self) {
        let _ = self.opens.set(false);
    }

    fn pass(&self) -> Result<()> {
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == self.expected {
            let _ = self.opens.set(true);
        }
        match *self.opens.wait() {
            true => Ok(()),
            false => Err(Error::NotPermitted("so many threads cannot be started")),
        }
    }
}

/// What was measured, and on how many bytes: less than caches hold says little.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// What.
    pub calibration: Calibration,
    /// Bytes of free blocks that were copied to and from.
    pub bytes: u64,
}

impl FileSystem {
    /// Measures for about so long; none: it was stopped.
    ///
    /// # Errors
    /// `NoSpace` where too little is free, and what reading says.
    pub fn calibrate(&self, time: Duration, each: EachMeasured<'_>) -> Result<Option<Measured>> {
        let core = &self.core;
        core.pool.check_writable()?;
        let borrowed = core.borrow_blocks()?;
        let bench = Bench::new(core, &borrowed.extents);
        if bench.spots.len() < SPOTS_MIN {
            return Err(Error::NoSpace);
        }
        bench.touch();
        let plan = bench.plan();
        let each_time = (time / plan.len() as u32).clamp(TIME[0], TIME[1]);
        let mut points = Vec::new();
        for (index, (kind, place, bytes, threads)) in plan.iter().copied().enumerate() {
            if !each(index as u64, plan.len() as u64) {
                return Ok(None);
            }
            let rate = bench.rate(kind, place, bytes, threads, each_time)?;
            points.push(Point { kind, place, bytes, threads, rate });
        }
        each(plan.len() as u64, plan.len() as u64);
        let topology = core.pool.nodes().topology();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let calibration = Calibration {
            nodes: topology.node_count(),
            cpus: topology.all_cpus().len() as u32,
            taken: since.as_secs(),
            points,
        };
        Ok(Some(Measured { calibration, bytes: bench.spots.len() as u64 * SPOT_BYTES }))
    }

    /// Keeps what was measured in the pool, for when it is opened again.
    ///
    /// # Errors
    /// What the medium says.
    pub fn keep_calibration(&self, calibration: &Calibration) -> Result<()> {
        self.core.pool.check_writable()?;
        Ok(self.core.pool.keep_calibration(calibration)?)
    }

    /// Keeps nothing of what was measured.
    ///
    /// # Errors
    /// What the medium says.
    pub fn forget_calibration(&self) -> Result<()> {
        self.core.pool.check_writable()?;
        Ok(self.core.pool.forget_calibration()?)
    }

    /// What was measured of this machine, as the pool has it.
    pub fn calibration(&self) -> Option<Calibration> {
        self.core.pool.calibration()
    }
}

impl Core {
    /// Free blocks of the first slice.
    fn borrow_blocks(&self) -> Result<Borrowed<'_>> {
        let mut borrowed = Borrowed { core: self, extents: Vec::new() };
        self.pool.reclaim().allocate(self.blocks_to_borrow(), 0, &mut borrowed.extents)?;
        Ok(borrowed)
    }

    fn blocks_to_borrow(&self) -> u64 {
        let free = self.pool.slices().first().map_or(0, |slice| slice.info().blocks_free);
        (free / FREE_PART).min(SPOTS * SPOT_BLOCKS)
    }
}

impl<'b> Bench<'b> {
    fn new(core: &'b Core, extents: &[Extent]) -> Bench<'b> {
        let (nodes, options) = (core.pool.nodes(), core.pool.options());
        let own = extents.iter().filter(|extent| extent.addr.slice() == 0);
        let spots = own.flat_map(|extent| {
            let first = extent.addr.block();
            let count = extent.count / SPOT_BLOCKS;
            (0..count).map(move |spot| (first + spot * SPOT_BLOCKS) * BLOCK_BYTES)
        });
        let local = nodes.cpus_near(0).to_vec();
        let mut other = nodes.topology().all_cpus();
        // those of one node, if there are others
        let far = other.iter().find(|cpu| !nodes.is_local(**cpu as usize, 0)).copied();
        let node = far.and_then(|cpu| nodes.topology().node_of_cpu(cpu));
        other.retain(|cpu| node.is_some() && nodes.topology().node_of_cpu(*cpu) == node);
        let count = local.len().min(WORKERS) as u16;
        let slice =
            SliceSettings { cpus: local.clone(), workers: count, ..SliceSettings::default() };
        let played = options.emulated.as_ref().map(crate::delegate::played);
        Bench {
            mapping: &core.pool.slices()[0].mapping,
            spots: spots.collect(),
            cpus: [local, other],
            workers: Workers::new(&Settings { slices: vec![slice], ..played.unwrap_or_default() }),
            stretch: options.emulated.as_ref().map(|emulated| emulated.stretch()),
        }
    }

    /// What is measured, in its order.
    fn plan(&self) -> Vec<(Kind, Place, u64, u32)> {
        let mut plan = Vec::new();
        for place in [Place::Local, Place::Remote, Place::Delegated] {
            let cpus = self.cpus_of(place).len() as u32;
            for threads in THREADS.into_iter().filter(|threads| *threads <= cpus) {
                for bytes in SIZES {
                    plan.extend(
                        [Kind::Read, Kind::Write].map(|kind| (kind, place, bytes, threads)),
                    );
                }
            }
        }
        plan
    }

    /// CPUs that copies of a place are made or asked from.
    fn cpus_of(&self, place: Place) -> &[u32] {
        match place {
            Place::Local => &self.cpus[0],
            Place::Remote => &self.cpus[1],
            Place::Delegated if self.cpus[1].is_empty() => &self.cpus[0],
            Place::Delegated => &self.cpus[1],
        }
    }

    /// Once over all: no page fault is left for a measurement.
    fn touch(&self) {
        let data = vec![0x5A; SPOT_BYTES as usize];
        for spot in &self.spots {
            let _ = pmem::fence(self.mapping.write(*spot, &data));
        }
    }

    /// What so many threads move together, MiB/s.
    fn rate(
        &self,
        kind: Kind,
        place: Place,
        bytes: u64,
        threads: u32,
        time: Duration,
    ) -> Result<f64> {
        let gate = Gate { expected: threads, ..Gate::default() };
        let rates: Result<Vec<f64>> = std::thread::scope(|scope| {
            let spawn = |index: u32| {
                let gate = &gate;
                let run = move || self.copy_for(kind, place, (bytes, index), gate, time);
                std::thread::Builder::new().spawn_scoped(scope, run)
            };
            let all: std::io::Result<Vec<_>> = (0..threads).map(spawn).collect();
            if all.is_err() {
                // nobody waits for those that could not be started
                gate.shut();
            }
            let rate = |thread: std::thread::ScopedJoinHandle<'_, Result<f64>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            all.map_err(|_| Error::NotPermitted("so many threads cannot be started"))?
                .into_iter()
                .map(rate)
                .collect()
        });
        Ok(rates?.into_iter().sum())
    }

    /// One thread.
    fn copy_for(
        &self,
        kind: Kind,
        place: Place,
        (bytes, index): (u64, u32),
        gate: &Gate,
        time: Duration,
    ) -> Result<f64> {
        let cpus = self.cpus_of(place);
        let cpu = cpus[index as usize % cpus.len()];
        match self.stretch {
            Some(_) => topology::assume_cpu(cpu),
            // where it cannot be, what is measured is what is there
            None => drop(topology::pin_current_thread(&[cpu])),
        }
        topology::refresh_cpu();
        let mut data = vec![index as u8; bytes as usize];
        let mut sums = vec![0; (bytes / BLOCK_BYTES) as usize];
        let parts = SPOT_BYTES / bytes;
        // threads begin apart from each other
        let first = u64::from(index) * 7919;
        gate.pass()?;
        let (began, mut copies) = (Instant::now(), 0u64);
        loop {
            for _ in 0..(LOOK_BYTES / bytes).max(1) {
                // over all spots before it comes to the next part of one: no cache holds that
                let spots = self.spots.len() as u64;
                let spot = self.spots[((copies + first) % spots) as usize];
                let at = spot + ((copies + first) / spots % parts) * bytes;
                self.copy(kind, place, at, &mut data, &mut sums)?;
                copies += 1;
            }
            let took = began.elapsed();
            if took >= time {
                let rate = (copies * bytes) as f64 / MIB / took.as_secs_f64();
                return Ok(rate * self.stretch.unwrap_or(1.0));
            }
        }
    }

    fn copy(
        &self,
        kind: Kind,
        place: Place,
        at: u64,
        data: &mut [u8],
        sums: &mut [u32],
    ) -> Result<()> {
        let pieces = [Piece { slice: 0, mapping: self.mapping, at, from: 0, len: data.len() }];
        match (place, kind) {
            (Place::Delegated, Kind::Read) => {
                let _ = self
                    .workers
                    .copy(&mut Task::read(data), &pieces, &[], || ())
                    .map_err(pool::Error::from)?;
            }
            (Place::Delegated, Kind::Write) => {
                let _ = self
                    .workers
                    .copy(&mut Task::write(data, sums), &pieces, &[], || ())
                    .map_err(pool::Error::from)?;
            }
            (_, Kind::Read) => self.mapping.read_own(at, data).map_err(pool::Error::from)?,
            (_, Kind::Write) => {
                let _ = pmem::fence(self.mapping.write_blocks(at, data, sums));
            }
        }
        Ok(())
    }
}
