//! Bits that a medium lost: each of an image, one at a time. What comes of it is an error, or
//! nothing at all; never another answer.
//!
//! Only lines that opening, checking or reading everything looks at are flipped: in the others a
//! bit changes nothing.

use crate::arena::Arena;
use crate::catalog::{SYNC, named};
use crate::explore::STATE_LINE;
use crate::flipped::misfits;
use crate::images::{Images, Outcome, Shape, failed};
use crate::model::{Changed, LINE, LineId, Model};
use crate::mutant::{Mutant, Site};
use crate::points::points;
use crate::recording::Recorder;
use crate::rng::Rng;
use crate::select::telling;
use crate::snapshot::Snapshot;
use crate::verify::guarded;
use fs::FileSystem;
use pmem::Domain;
use pool::PoolInfo;
use std::collections::BTreeSet;

/// A pool that nobody has open, and what it shows.
#[derive(Debug)]
pub struct Closed {
    arena: Arena,
    images: Images,
    shows: Shown,
    /// Where it was killed: what it showed before the last call, and the lines that this stored to.
    /// A bit that flips there makes of the record one that a crash tore: the call never was.
    last: Option<(Snapshot, BTreeSet<LineId>)>,
    /// The lines that are looked at.
    lines: Vec<LineId>,
}

/// What can be seen of a pool: everything in it, and what it says of itself.
type Shown = (Snapshot, String);

fn shown(fs: &FileSystem) -> Outcome<Shown> {
    let space = fs.statfs();
    let info = PoolInfo { notes: Vec::new(), ..fs.info() };
    Ok((Snapshot::of(fs)?, format!("{space:?} {info:?}")))
}

/// What came of the flips.
#[derive(Clone, Debug, Default)]
pub struct Flips {
    /// Bits that were flipped.
    pub bits: u64,
    /// Of these, bits that were seen to be wrong.
    pub seen: u64,
    /// Of these, bits that nothing depends on, or that were told from a copy.
    pub harmless: u64,
    /// Everything else, in words.
    pub violations: Vec<String>,
}

impl Closed {
    /// The usual tree, in a pool of this shape; on the devices is what can be there.
    pub fn new(shape: &Shape) -> Outcome<Closed> {
        let mut recorder = Recorder::new(shape, 0)?;
        recorder.plant()?;
        if shape.devices > 0 {
            recorder.move_all()?;
        }
        Closed::of(shape, recorder.close()?, None)
    }

    /// The same, killed after some changes that are in the log.
    pub fn killed(shape: &Shape) -> Outcome<Closed> {
        let mut recorder = Recorder::new(shape, 0)?;
        recorder.plant()?;
        recorder.world.fs.checkpoint().map_err(|error| failed("checkpoint")(&error))?;
        let (mut before, mut events) = (Snapshot::default(), 0);
        for name in KILLED {
            let op = named(name)?;
            (before, events) = (Snapshot::of(&recorder.world.fs)?, recorder.events().len());
            recorder.world.at_home(op.run).map_err(|error| failed(name)(&error))?;
        }
        let stored = recorder.events()[events..].iter().flat_map(|e| e.kind.lines()).collect();
        Closed::of(shape, recorder.images(), Some((before, stored)))
    }

    fn of(
        shape: &Shape,
        images: Images,
        last: Option<(Snapshot, BTreeSet<LineId>)>,
    ) -> Outcome<Closed> {
        let arena = Arena::new(shape.domain, &images)?;
        let shows = shown(&arena.open(None)?)?;
        arena.restore(&images);
        let all = images.iter().zip(0..).flat_map(|(image, slice)| {
            (0..(image.len() / LINE) as u64).map(move |number| (slice, number))
        });
        arena.watch(&all.collect());
        let mut closed = Closed { arena, images, shows, last, lines: Vec::new() };
        if let Some(what) = closed.look(None)? {
            return Err(format!("without a flip: {what}"));
        }
        let read: BTreeSet<LineId> = closed.arena.take_read().into_iter().collect();
        closed.arena.restore(&closed.images);
        closed.lines = read.into_iter().collect();
        Ok(closed)
    }

    /// Bits that can be flipped.
    pub fn bits(&self) -> u64 {
        (self.lines.len() * LINE * 8) as u64
    }

    /// The bits of a line of the files that this pool has, by its number in them.
    pub fn bits_of_line(&self, number: u64) -> impl Iterator<Item = u64> {
        let is_it = move |line: &&LineId| line.1 == number;
        let found = self.lines.iter().enumerate().filter(move |(_, line)| is_it(line));
        let bits = (LINE * 8) as u64;
        found.flat_map(move |(place, _)| place as u64 * bits..(place as u64 + 1) * bits)
    }

    /// Flips these of them, each alone.
    pub fn flip(&self, bits: impl Iterator<Item = u64>, mutant: Option<Mutant>) -> Flips {
        pmem::recorder::set_blind(mutant.and_then(Mutant::blind));
        let mut flips = Flips::default();
        for bit in bits {
            let place = self.flip_bit(bit);
            flips.bits += 1;
            match self.look(Some(self.lines[bit as usize / (LINE * 8)])) {
                Ok(None) => flips.harmless += 1,
                Ok(Some(_)) => flips.seen += 1,
                Err(what) => flips.violations.push(format!("{place}: {what}")),
            }
            self.arena.restore(&self.images);
            if flips.violations.len() >= VIOLATIONS_MAX {
                break;
            }
        }
        pmem::recorder::set_blind(None);
        flips
    }

    /// Which checksums do not fit with each of these bits flipped, alone.
    pub fn misfits(&self, bits: impl Iterator<Item = u64>) -> Vec<(u64, BTreeSet<Site>)> {
        let misfits = bits.map(|bit| {
            self.flip_bit(bit);
            let _ = misfits();
            let _ = self.look(None);
            self.arena.restore(&self.images);
            (bit, misfits())
        });
        misfits.collect()
    }

    /// Whether it opens and shows what it should with each of these bits flipped, alone.
    pub fn opens_with_each_bit(
        &self,
        mut bits: impl Iterator<Item = u64>,
        mutant: Option<Mutant>,
    ) -> bool {
        pmem::recorder::set_blind(mutant.and_then(Mutant::blind));
        let all_open = bits.all(|bit| {
            self.flip_bit(bit);
            let shown = guarded(|| shown(&self.arena.open(None)?));
            self.arena.restore(&self.images);
            shown.is_ok_and(|shown| shown == self.shows)
        });
        pmem::recorder::set_blind(None);
        all_open
    }

    /// Flips a bit until the arena is restored; gives its place.
    fn flip_bit(&self, bit: u64) -> String {
        let (slice, number) = self.lines[bit as usize / (LINE * 8)];
        let at = number as usize * LINE + bit as usize / 8 % LINE;
        self.arena.put(slice, at, &[self.images[slice as usize][at] ^ 1 << (bit % 8)]);
        format!("slice {slice}, byte {at:#x}, bit {}", bit % 8)
    }

    /// What was seen to be wrong, or an error where something was that should have been seen.
    fn look(&self, flipped: Option<LineId>) -> Outcome<Option<String>> {
        let torn = |shown: &Shown| {
            let last = self.last.as_ref().zip(flipped);
            last.is_some_and(|((before, stored), line)| {
                shown.0 == *before && stored.contains(&line)
            })
        };
        guarded(|| {
            let checked = self.arena.check().err();
            let shown = self.arena.open(None).and_then(|fs| shown(&fs));
            match (checked, shown) {
                (_, Ok(shown)) if torn(&shown) => Ok(Some("the last call never was".to_owned())),
                (_, Ok(shown)) if shown != self.shows => {
                    let differs = shown.0.difference(&self.shows.0);
                    Err(format!("another answer: {differs} {} or {}", shown.1, self.shows.1))
                }
                (None, Err(what)) => Err(format!("check finds nothing, but: {what}")),
                (checked, shown) => Ok(checked.or(shown.err())),
            }
        })
    }
}

/// In the `sync` domain, after a crash that lost an older record than it kept: each bit of what a
/// slice says of who wrote it last. Whether it can be believed or not, the pool opens with what was
/// synced at least. Gives what was wrong.
pub fn unreadable_state(mutant: Option<Mutant>) -> Outcome<Vec<String>> {
    let shape = Shape { slices: 1, domain: Domain::Sync, ..Shape::SMALL };
    let mut recorder = Recorder::new(&shape, 0)?;
    recorder.plant()?;
    recorder.begin()?;
    for name in ["create", SYNC, "mkdir", "link", "symlink"] {
        let op = named(name)?;
        recorder.op(&op)?.map_err(|error| failed(name)(&error))?;
    }
    let recording = recorder.finish("an unreadable state".to_owned());
    let mut violations = Vec::new();
    pmem::recorder::set_blind(mutant.and_then(Mutant::blind));
    let done = points(&recording, &mut |model, _, under| {
        if under.done == recording.settled.len() {
            let units = model.in_flight();
            for kept in telling(&units, 24, &mut Rng::new(7)) {
                let changed = model.changed(&kept);
                violations.extend(state_bits(model, &changed, &under.legal(&recording)));
            }
        }
        true
    });
    pmem::recorder::set_blind(None);
    done.map(|()| violations)
}

/// What was wrong with each bit of the state flipped, apart from what else has changed.
fn state_bits(model: &Model, changed: &[Changed], legal: &[&Snapshot]) -> Vec<String> {
    let flip = |bit: usize| {
        let mut line = model.line((0, STATE_LINE));
        line[bit / 8] ^= 1 << (bit % 8);
        let flipped = [changed, &[((0, STATE_LINE), line)]].concat();
        let shown = |arena: &Arena| guarded(|| Snapshot::of(&arena.open(None)?));
        match model.with(&flipped, shown) {
            Ok(shown) if legal.contains(&&shown) => None,
            Ok(_) => Some(format!("bit {bit} of the state: an illegal state")),
            Err(what) => Some(format!("bit {bit} of the state: {what}")),
        }
    };
    (0..48 * 8).filter_map(flip).collect()
}

/// What is in the log of a pool that was killed. Nothing is changed in place: what is lost of such
/// bytes shows itself.
const KILLED: [&str; 6] = ["mkdir", "overwrite", "link", "setxattr-large", "truncate-up", "append"];
/// Violations after which the rest is left.
const VIOLATIONS_MAX: usize = 5;
