//! Back-pressure: while blocks are written back slower than others take their places, those who
//! take them are slowed down, the more the less is left, so that nobody ever meets a full pool all
//! of a sudden and waits for as long as a device likes.
//!
//! Each slice has a pace of its own. Above a share of it that is in use (`from`), each block of it
//! that is taken costs a delay of
//! `cost * (used - from) / (all - used)`, where `cost` is what a block takes to be written back:
//! half-way to full, blocks are taken as fast as they are written back. What the tier has no room
//! for counts for nothing. All who take blocks pay one after another, however many they are. The
//! shape is that of ZFS's write throttle (Leventhal, "Tuning the OpenZFS write throttle", 2014).
//!
//! Who pays has ended his change: he holds no lock, and is in no gate.

use crate::brake::{Brake, SLEEP_MAX};
use crate::core::Core;
use crate::write_back::{SliceRoom, WriteBack};
use parking_lot::Mutex;
use pool::BlockAddr;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a block takes to be written back before that was measured: 200 MB/s.
const COST_FIRST_NS: u64 = 20_000;
/// How often the delay is reckoned anew.
const RECKON_EVERY: Duration = Duration::from_millis(2);
/// So many blocks a thread takes before it looks whether there are too many, while nobody is slowed
/// down.
const UNPAID_MAX: u32 = 64;

thread_local! {
    /// Blocks of each slice that this thread has taken and not paid for.
    static TAKEN: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// What those who take blocks of a slice are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pacing {
    /// Nothing.
    Off,
    /// Count them, and tell who writes back when there are too many.
    Watched,
    /// Pay for them.
    On,
}

/// How fast blocks of a slice may be taken.
#[derive(Debug)]
pub struct Pace {
    /// A `Pacing`.
    pacing: AtomicU8,
    /// Something was changed since that was asked last, in any slice.
    stirred: AtomicBool,
    /// What one takes to be written back, ns.
    cost_ns: AtomicU64,
    /// When some were written back last.
    wrote: Mutex<Option<Instant>>,
    /// Who pays.
    pub brake: Brake<Delay>,
}

/// What a block costs.
#[derive(Debug, Default)]
pub struct Delay {
    reckoned: Option<Instant>,
    each: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            pacing: AtomicU8::new(Pacing::Off as u8),
            stirred: AtomicBool::new(false),
            cost_ns: AtomicU64::new(COST_FIRST_NS),
            wrote: Mutex::default(),
            brake: Brake::default(),
        }
    }
}

impl Pace {
    /// Whether blocks are to be counted, and so many that are not paid for are enough to pay.
    fn is_due(&self, taken: u32) -> bool {
        let pacing = self.pacing.load(Ordering::Relaxed);
        taken > 0
            && (pacing == Pacing::On as u8
                || pacing == Pacing::Watched as u8 && taken >= UNPAID_MAX)
    }

    /// Something is changed.
    fn stir(&self) {
        // ordering: a hint. Only who changes it writes
        if !self.stirred.load(Ordering::Relaxed) {
            self.stirred.store(true, Ordering::Relaxed);
        }
    }

    /// Whether something was changed since this was called last, as far as it is seen: while the
    /// pacing is off nobody looks.
    pub fn was_stirred(&self) -> bool {
        self.stirred.swap(false, Ordering::Relaxed)
    }

    /// So many blocks were written back since then; others may have been meanwhile.
    pub fn wrote_back(&self, blocks: u64, begun: Instant) {
        let now = Instant::now();
        let last = self.wrote.lock().replace(now);
        let took = now - last.map_or(begun, |last| last.max(begun));
        let cost = took.as_nanos() as u64 / blocks.max(1);
        let before = self.cost_ns.load(Ordering::Relaxed);
        self.cost_ns.store((3 * before + cost) / 4, Ordering::Relaxed);
    }
}

/// What a block costs while `room` is what the slice has, and nobody is slowed down below
/// `from` percent; `below` blocks of the tier are free.
fn delay_of(room: SliceRoom, below: u64, from: u64, cost_ns: u64) -> Duration {
    let start = room.blocks * from / 100;
    // what the tier has no room for is not written back, however long somebody waits
    let over = room.used().saturating_sub(start).min(below);
    let left = room.blocks.saturating_sub(room.used()).max(1);
    Duration::from_nanos((u128::from(cost_ns) * u128::from(over) / u128::from(left)) as u64)
        .min(SLEEP_MAX)
}

impl WriteBack {
    /// What those who take blocks of a slice are to do from now on. One thread says so for each.
    pub fn set_pace(&self, slice: usize, pacing: Pacing) {
        // ordering: a hint
        let before = self.slices[slice].pace.pacing.swap(pacing as u8, Ordering::Relaxed);
        match (before == Pacing::Off as u8, pacing == Pacing::Off) {
            (true, false) => self.paced.fetch_add(1, Ordering::Relaxed),
            (false, true) => self.paced.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// The share of a slice's blocks, in percent, that may be in use before those who take some are
    /// slowed down.
    pub fn percent_unpaid(&self) -> u64 {
        (self.percent() + 100) / 2
    }

    /// Whether blocks of any slice are to be counted.
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.paced.load(Ordering::Relaxed) > 0
    }

    /// Time that changes were delayed by in all.
    pub fn delayed(&self) -> Duration {
        self.slices.iter().map(|slice| slice.pace.brake.slept()).sum()
    }
}

impl Core {
    /// The thread has taken these blocks of slices.
    #[inline]
    pub fn count_taken(&self, blocks: &[BlockAddr]) {
        if self.write_back.is_paced() {
            self.note_taken(blocks);
        }
    }

    #[cold]
    fn note_taken(&self, blocks: &[BlockAddr]) {
        TAKEN.with_borrow_mut(|taken| {
            for addr in blocks.iter().filter(|addr| addr.device().is_none()) {
                let slice = usize::from(addr.slice());
                if taken.len() <= slice {
                    taken.resize(slice + 1, 0);
                }
                taken[slice] += 1;
            }
        });
    }

    /// Pays for the blocks that the thread has taken. It holds nothing.
    #[cold]
    pub fn pay(&self) {
        for (slice, own) in self.write_back.slices.iter().enumerate() {
            own.pace.stir();
            let due = TAKEN.with_borrow_mut(|taken| {
                taken.get_mut(slice).filter(|taken| own.pace.is_due(**taken)).map(std::mem::take)
            });
            if let Some(taken) = due {
                self.pay_for(slice, taken);
            }
        }
    }

    fn pay_for(&self, slice: usize, taken: u32) {
        let pace = &self.write_back.slices[slice].pace;
        let mut presses = false;
        pace.brake.pay(|delay, now| {
            if delay.reckoned.is_none_or(|reckoned| now - reckoned > RECKON_EVERY) {
                let from = self.write_back.percent_unpaid();
                let below = self.pool.devices().iter().map(|device| device.space.free()).sum();
                let cost = pace.cost_ns.load(Ordering::Relaxed);
                delay.each = delay_of(self.room_in(slice), below, from, cost);
                delay.reckoned = Some(now);
                presses = !delay.each.is_zero();
            }
            delay.each * taken
        });
        if presses {
            self.write_back.signals.press(slice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay_ns(used: u64) -> u128 {
        let room = SliceRoom { blocks: 1000, free: 1000 - used, copies: 0 };
        delay_of(room, 5000, 60, 10_000).as_nanos()
    }

    #[test]
    fn the_delay_grows_from_none_to_what_holds_everybody_up() {
        assert_eq!([0, 300, 600].map(delay_ns), [0, 0, 0]);
        assert_eq!(delay_ns(800), 10_000, "half-way, as fast as it is written back");
        assert!((601..1000).all(|used| delay_ns(used) < delay_ns(used + 1)));
        assert_eq!(delay_ns(1000), 4_000_000);
        let full = SliceRoom { blocks: 1000, free: 0, copies: 0 };
        assert_eq!(delay_of(full, 0, 60, 10_000), Duration::ZERO, "there is nothing to wait for");
        let clean = SliceRoom { blocks: 1000, free: 0, copies: 500 };
        assert_eq!(delay_of(clean, 5000, 60, 10_000), Duration::ZERO, "copies are in nobody's way");
    }
}
