//! Copying between callers' buffers and blocks: by the caller, or by workers on the blocks' nodes.
//!
//! What is worth a thought is what is large, and whole blocks where a node has limits (not what is
//! verified, merged or zeroed on the way). The policy says for each slice who copies
//! (`placement`); pieces for workers go first, so that they copy while the caller does its own
//! share. What workers wrote is fenced when they are done, and the record that names it comes
//! after.

use crate::core::Core;
use placement::{Access, Kind, PIECE_BYTES, Policy, Way};
use pmem::{Domain, InFlight};
use pool::{BLOCK_BYTES, BlockAddr, Emulated, Pool};
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};
use workers::{AtWork, PIECES_MAX, Piece, Settings, SliceSettings, SliceStats, Task, Workers};

const BLOCK: usize = BLOCK_BYTES as usize;
const PIECE: usize = PIECE_BYTES as usize;

/// Who copies, and the workers.
#[derive(Debug)]
pub struct Delegation {
    policy: Policy,
    /// Large pieces are worth a thought.
    thinks: bool,
    /// Small ones, too: of reads, and of writes.
    limits: [bool; 2],
    settings: Settings,
    /// Made when they are needed first.
    workers: OnceLock<Workers>,
}

/// The caller counts among those who copy at a slice, if they are counted.
#[derive(Debug)]
pub struct Turn<'d>(
    #[expect(dead_code, reason = "it counts for as long as it is there")] Option<AtWork<'d>>,
);

/// A run of bytes of a buffer that lie one behind the other on a slice.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Block that it begins in.
    pub addr: BlockAddr,
    /// Where in that block.
    pub at: usize,
    /// Where in the buffer.
    pub from: usize,
    /// Bytes.
    pub len: usize,
}

/// Who copies what.
#[derive(Default)]
struct Plan<'p> {
    theirs: SmallVec<[Piece<'p>; 16]>,
    own: SmallVec<[Piece<'p>; 16]>,
    /// The caller counts at the slices where it copies, where they have limits.
    turns: Turns<'p>,
}

/// The turns of a caller at slices that have limits.
pub type Turns<'p> = SmallVec<[AtWork<'p>; 4]>;

impl Delegation {
    /// That of a pool.
    pub fn new(pool: &Pool) -> Delegation {
        let (options, nodes) = (pool.options(), pool.nodes());
        let measured = || pool.calibration().and_then(|measured| measured.policy());
        let policy = options.policy.or_else(measured).unwrap_or_default();
        let policy = if nodes.are_apart() { policy } else { policy.on_one_node() };
        let shares = [Kind::Read, Kind::Write].iter().any(|kind| policy.shares(*kind));
        let slices = 0..pool.slices().len() as u8;
        // in the `sync` domain stores go to the page cache, which is on no node in particular
        let works = pool.domain() != Domain::Sync && options.workers != Some(0);
        let settings = |slice: u8| {
            let cpus = nodes.cpus_near(slice).to_vec();
            let usual = [policy.read, policy.write].map(|side| side.workers(cpus.len() as u32));
            let workers = options.workers.unwrap_or(usual[0].max(usual[1]) as u16);
            SliceSettings { cpus, workers, sides: [policy.read, policy.write] }
        };
        Delegation {
            thinks: works && (nodes.are_apart() || policy.has_limits() || shares),
            limits: [Kind::Read, Kind::Write].map(|kind| works && policy.minds(kind, BLOCK_BYTES)),
            policy,
            settings: Settings {
                slices: slices.map(settings).collect(),
                ..options.emulated.as_ref().map(played).unwrap_or_default()
            },
            workers: OnceLock::new(),
        }
    }

    /// Whether turns are counted.
    #[inline]
    fn counts(&self, kind: Kind) -> bool {
        match kind {
            Kind::Read => self.limits[0],
            Kind::Write => self.limits[1],
        }
    }

    /// Whether so many bytes are worth a thought.
    #[inline]
    pub fn thinks_about(&self, kind: Kind, bytes: usize) -> bool {
        self.thinks && self.policy.minds(kind, bytes as u64)
    }

    /// Bytes of the longest piece of so many that workers of a slice get.
    fn piece(&self, kind: Kind, slice: u8, bytes: u64) -> usize {
        let (workers, of) = (self.workers(), self.settings.slices.get(usize::from(slice)));
        let count = of.map_or(1, |slice| u32::from(slice.workers));
        self.policy.piece(kind, bytes, count, workers.waiting(slice, kind, bytes)) as usize
    }

    fn workers(&self) -> &Workers {
        self.workers.get_or_init(|| Workers::new(&self.settings))
    }

    /// Bytes that workers have read and written of a slice.
    pub fn moved(&self, slice: usize) -> [u64; 2] {
        self.workers.get().map_or([0; 2], |workers| workers.moved(slice))
    }

    /// What the workers of each slice did and do; nothing before there are any.
    pub fn stats(&self) -> Vec<SliceStats> {
        self.workers.get().map(Workers::stats).unwrap_or_default()
    }
}

/// How workers are set up where a machine is played: its time is stretched, and so is patience.
pub fn played(emulated: &Arc<dyn Emulated>) -> Settings {
    let slow = emulated.clone();
    Settings {
        patience: Some(workers::PATIENCE.mul_f64(emulated.stretch())),
        played: Some(workers::Played {
            stretch: emulated.stretch(),
            hand_over: Arc::new(move || slow.hand_over()),
        }),
        ..Settings::default()
    }
}

impl Core {
    /// The caller's turn to copy a little, where turns are counted: so many bytes of a slice that
    /// has limits. `None`: it is to be thought about, for others are there, or wait, or workers are
    /// asked even for that.
    #[inline]
    pub fn turn(&self, slice: u8, kind: Kind) -> Option<Turn<'_>> {
        match self.delegation.counts(kind) {
            true => self.counted_turn(slice, kind),
            false => Some(Turn(None)),
        }
    }

    #[inline(never)]
    fn counted_turn(&self, slice: u8, kind: Kind) -> Option<Turn<'_>> {
        let workers = self.delegation.workers();
        let waiting = workers.waiting(slice, kind, BLOCK_BYTES);
        let is_local = || {
            topology::refresh_cpu();
            self.is_local(slice)
        };
        let goes = self.delegation.policy.block_goes(kind, waiting, is_local);
        let enter = || workers.gauge(slice, kind)?.try_enter(1, BLOCK_BYTES);
        goes.then(enter).flatten().map(|turn| Turn(Some(turn)))
    }

    /// Whether the caller runs on the node of a slice, as far as is known.
    fn is_local(&self, slice: u8) -> bool {
        self.pool.nodes().is_local(topology::recent_cpu() as usize, slice)
    }

    /// Writes whole blocks, each to its place; gives their checksums. What workers wrote is fenced,
    /// the rest is in flight.
    pub fn copy_in(&self, addrs: &[BlockAddr], data: &[u8]) -> (InFlight, Vec<u32>) {
        let mut sums = vec![0; addrs.len()];
        let mut _turns = Turns::new();
        if self.delegation.thinks_about(Kind::Write, data.len()) {
            let mut plan = self.plan_copy(Kind::Write, runs(addrs));
            if plan.theirs.is_empty() {
                _turns = plan.turns;
            } else if let Ok(in_flight) =
                self.carry_out(&mut plan, &mut Task::write(data, &mut sums))
            {
                // only reading fails
                return (in_flight, sums);
            }
        }
        let mut in_flight = InFlight::none();
        for run in runs(addrs) {
            self.copied(Kind::Write, run.addr.slice(), run.len);
            let blocks = run.from / BLOCK..(run.from + run.len) / BLOCK;
            let bytes = &data[run.from..run.from + run.len];
            in_flight = in_flight.and(self.pool.write_blocks(run.addr, bytes, &mut sums[blocks]));
        }
        (in_flight, sums)
    }

    /// Reads these runs with the help of workers, if the policy is for it; else the caller is to
    /// do it, and has its turns. So it is, too, where memory cannot be read: then it is to be
    /// looked at block by block.
    pub fn read_runs(&self, runs: &[Run], buffer: &mut [u8]) -> (bool, Turns<'_>) {
        let mut plan = self.plan_copy(Kind::Read, runs.iter().copied());
        let is_read =
            !plan.theirs.is_empty() && self.carry_out(&mut plan, &mut Task::read(buffer)).is_ok();
        (is_read, plan.turns)
    }

    fn carry_out(&self, plan: &mut Plan<'_>, task: &mut Task<'_>) -> pmem::Result<InFlight> {
        for piece in &plan.own {
            self.copied(task.kind(), piece.slice, piece.len);
        }
        // who waits for workers has no turn: those of another slice may wait for that one
        let turns = std::mem::take(&mut plan.turns);
        let done = self.delegation.workers().copy(task, &plan.theirs, &plan.own, || drop(turns));
        for (slice, bytes) in task.taken_back() {
            self.copied(task.kind(), *slice, *bytes);
        }
        done
    }

    /// The caller itself copied so many bytes of a slice.
    #[inline]
    pub fn copied(&self, kind: Kind, slice: u8, bytes: usize) {
        self.traffic.count(&self.pool, slice, kind, bytes as u64);
    }

    /// Who copies what of these.
    fn plan_copy(&self, kind: Kind, runs: impl Iterator<Item = Run> + Clone) -> Plan<'_> {
        // a read may be the first that this thread does
        topology::refresh_cpu();
        // and the longest piece of each that workers get
        let mut slices: SmallVec<[(u8, u64, Option<usize>); 8]> = SmallVec::new();
        for run in runs.clone() {
            let slice = run.addr.slice();
            match slices.iter_mut().find(|(known, ..)| *known == slice) {
                Some((_, bytes, _)) => *bytes += run.len as u64,
                None => slices.push((slice, run.len as u64, None)),
            }
        }
        let mut plan = Plan::default();
        for (slice, bytes, piece) in &mut slices {
            let (way, turn) = self.decide(kind, *slice, *bytes);
            *piece = (way == Way::Delegate).then(|| self.delegation.piece(kind, *slice, *bytes));
            plan.turns.extend(turn);
        }
        let of = |run: &Run| slices.iter().find(|it| it.0 == run.addr.slice()).and_then(|it| it.2);
        let count: usize = runs.clone().filter_map(|run| Some(run.len.div_ceil(of(&run)?))).sum();
        for run in runs {
            let slice = run.addr.slice();
            // more than go at one time are no faster for being short
            let longest = |most: usize| if count > PIECES_MAX { PIECE } else { most };
            let (pieces, most) = match of(&run).map(longest) {
                Some(most) => (&mut plan.theirs, even(run.len, most)),
                None => (&mut plan.own, run.len.max(1)),
            };
            let mapping = &self.pool.slices()[usize::from(slice)].mapping;
            let at = run.addr.block() * BLOCK_BYTES + run.at as u64;
            for done in (0..run.len).step_by(most) {
                let (len, from) = (most.min(run.len - done), run.from + done);
                pieces.push(Piece { slice, mapping, at: at + done as u64, from, len });
            }
        }
        plan
    }

    /// Who copies so many bytes of a slice; the caller's turn there, where turns are counted.
    fn decide(&self, kind: Kind, slice: u8, bytes: u64) -> (Way, Option<AtWork<'_>>) {
        let policy = &self.delegation.policy;
        let workers = self.delegation.workers();
        let Some(gauge) = workers.gauge(slice, kind) else { return (Way::Direct, None) };
        let access = Access {
            kind,
            bytes,
            is_local: self.is_local(slice),
            active: gauge.before(bytes),
            waiting: workers.waiting(slice, kind, bytes),
            served: !workers.is_stalled(slice, kind),
        };
        let decision = policy.decide(&access);
        if decision.way == Way::Delegate || policy.side(kind).limit == placement::NO_LIMIT {
            return (decision.way, None);
        }
        let turns = policy.side(kind).turns(bytes);
        match gauge.try_enter(turns, bytes) {
            Some(turn) => (Way::Direct, Some(turn)),
            // somebody was faster
            None if access.served => (Way::Delegate, None),
            None => (Way::Direct, Some(gauge.enter(turns, bytes))),
        }
    }
}

/// Bytes of pieces of so many, all about as long and none longer than `most`: whole blocks.
fn even(bytes: usize, most: usize) -> usize {
    let count = bytes.div_ceil(most.max(BLOCK)).max(1);
    bytes.div_ceil(count).next_multiple_of(BLOCK).max(BLOCK)
}

/// Whole blocks that lie one behind the other, in a buffer and on a slice.
fn runs(addrs: &[BlockAddr]) -> impl Iterator<Item = Run> + Clone {
    let mut first = 0;
    std::iter::from_fn(move || {
        let addr = *addrs.get(first)?;
        let next = |(index, it): (usize, &BlockAddr)| it.bits() == addr.bits() + index as u64;
        let count = addrs[first..].iter().enumerate().take_while(|it| next(*it)).count();
        let run = Run { addr, at: 0, from: first * BLOCK, len: count * BLOCK };
        first += count;
        Some(run)
    })
}
