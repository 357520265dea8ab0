//! A change that was refused for want of space: what is missing is looked for, and it tries again.

use crate::core::{Core, dirty_max};
use crate::error::{Error, Result};
use pmem::Domain;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often, at most, a change waits for a checkpoint before it gives up.
const REFUSALS_MAX: u16 = 100;

/// How often it waits for blocks to move to a tier: others may take what that made room of, again
/// and again.
const ROUNDS_MAX: u16 = 10_000;

/// How often in a row nothing could be moved to a capacity tier that has room: what lies in the
/// slices may have been on the way there, or changed meanwhile.
const IDLE_MAX: u16 = 8;

/// How often nothing was moved, but readers held blocks, which were waited for.
const READERS_MAX: u16 = 16;

/// How often a change was refused, and whether all free blocks were gathered for it.
#[derive(Debug, Default)]
pub struct Refusals {
    count: u16,
    /// How often for want of room in slices, and not in the log.
    for_room: u16,
    gathered: bool,
    idle: Idle,
}

/// How often in a row nothing was moved to the capacity tier.
#[derive(Debug, Default)]
struct Idle {
    count: u16,
    /// Blocks that anybody had moved at the last look.
    moved: u64,
    /// How often there were blocks that readers held.
    readers: u16,
}

impl Core {
    /// After a change was refused with `error`: what was missing is there, and it may try again.
    #[cold]
    pub fn make_way(&self, refusals: &mut Refusals, error: Arc<pool::Error>) -> Result<()> {
        use pool::Error::{Away, Lent, LogFull, NoSpace};
        if let Away(addr) = *error {
            return self.fetch(&crate::away::wanted_with(addr));
        }
        let makes_room = self.tier.is_some() && matches!(*error, Lent | NoSpace);
        let (count, most) = match makes_room {
            true => (&mut refusals.for_room, ROUNDS_MAX),
            false => (&mut refusals.count, REFUSALS_MAX),
        };
        *count += 1;
        let is_full = matches!(*error, LogFull | NoSpace | Lent);
        match *error {
            _ if is_full && *count > most => Err(Error::NoSpace),
            LogFull => {
                self.log_pace.brake.waits();
                self.wait_for_checkpoint()
            }
            _ if makes_room => self.make_room(refusals),
            Lent if refusals.gathered => self.await_loan(),
            NoSpace if refusals.gathered => Err(Error::NoSpace),
            Lent | NoSpace => {
                // what waits for an epoch, a reader or a checkpoint may be just what is missing
                refusals.gathered = true;
                self.gather()
            }
            _ => Err(Error::Pool(error)),
        }
    }

    /// Lets go of copies, or moves blocks to the capacity tier, to make room in the slices.
    fn make_room(&self, refusals: &mut Refusals) -> Result<()> {
        if self.let_go_of_copies() > 0 {
            // in the `sync` domain they are free when that is durable
            if self.pool.domain() == Domain::Sync {
                return self.gather();
            }
            self.pool.reclaim().gather_all();
            return Ok(());
        }
        self.write_back.waits.fetch_add(1, Ordering::Relaxed);
        match self.moves_some(&mut refusals.idle)? {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }

    /// Waits for blocks to be moved, and for those that this sets free. Counts in `idle` how often
    /// in a row nothing was; false: that is all that can be waited for.
    fn moves_some(&self, idle: &mut Idle) -> Result<bool> {
        self.wait_for_write_back()?;
        // who helps may have moved what who was asked found no more
        let moved = self.write_back.blocks.load(Ordering::Relaxed);
        let has_moved = std::mem::replace(&mut idle.moved, moved) != moved;
        let is_busy = !has_moved && self.write_back.is_busy();
        self.gather()?;
        if has_moved {
            idle.count = 0;
        } else if self.pool.reclaim().waits_for_readers() && idle.readers < READERS_MAX {
            // one that stands still keeps what others have moved
            idle.readers += 1;
        } else if !is_busy {
            idle.count += 1;
        }
        let hopeless = self.is_full_below() || self.write_back.is_idle();
        Ok(idle.count <= if hopeless { 1 } else { IDLE_MAX })
    }

    /// Where there is a capacity tier, waits until so many blocks of the slices are free, or
    /// nothing more can be moved: for a change that takes many at once, and would begin anew each
    /// time that a few more are. The caller holds nothing.
    pub fn make_room_for(&self, blocks: u64) -> Result<()> {
        let has_room = || {
            let (all, free) = self.pool.slice_blocks();
            self.tier.is_none() || blocks <= free || blocks > all
        };
        let mut idle = Idle::default();
        for _ in 0..ROUNDS_MAX {
            if has_room() {
                break;
            }
            match self.let_go_of_copies() {
                0 if !self.moves_some(&mut idle)? => break,
                0 => {}
                _ => self.gather()?,
            }
        }
        Ok(())
    }

    /// Waits for what is lent to come back.
    fn await_loan(&self) -> Result<()> {
        if self.pool.reclaim().held() > 0 {
            return self.gather();
        }
        // others are writing into it
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    /// Brings all free blocks back to where they can be taken from.
    fn gather(&self) -> Result<()> {
        self.wait_for_checkpoint()?;
        self.sync()?;
        self.pool.reclaim().gather_all();
        self.pool.slices().iter().for_each(|slice| slice.space.least_reserve());
        self.dirty_max.store(dirty_max(&self.pool), Ordering::Relaxed);
        Ok(())
    }
}
