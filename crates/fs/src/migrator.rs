//! The thread that moves data to its readers (`observer.rs` says which), a leaf at a time.
//!
//! While others use the pool it rests for most of the time, so that what it takes from them is a
//! twentieth, or little more. Before each leaf it looks whether moving still pays.

use crate::core::Core;
use crate::decided::{Decided, Moving, Outcome};
use crate::known::Known;
use crate::leaf::{LEAF_BLOCKS, Leaf};
use crate::migrate::Migrated;
use crate::types::Ino;
use locks::futex::{Condvar, Mutex};
use placement::{Kind, Lever};
use pool::BLOCK_BYTES;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Leaves that wait at most.
const ASKS_MAX: usize = 1024;
/// While others are at work it rests so many times as long as it worked.
const RESTS: u32 = 19;
/// Longest rest, also after what took long, as one that waited for a checkpoint.
const REST_MAX: Duration = Duration::from_millis(500);

/// A leaf that is to move.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The file.
    pub ino: Ino,
    /// Which leaf of it.
    pub index: u64,
    /// The slice to which it goes.
    pub to: u8,
    /// Bytes of an access to it, of which it was found that they take too long.
    pub bytes: u64,
    /// What that gains, ns.
    pub gain_ns: f32,
    /// It goes there because the memory where it is has no time left.
    pub balances: bool,
}

/// What is to move.
#[derive(Debug, Default)]
pub struct Migrator {
    state: Mutex<State>,
    asked: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    /// Somebody serves.
    serves: bool,
    waiting: VecDeque<Ask>,
    /// Those that wait, or move just now.
    known: HashSet<(Ino, u64)>,
}

impl Migrator {
    /// Asks for a leaf to be moved, if it is not to be already; false if too many wait, or nobody
    /// serves.
    pub fn ask(&self, ask: Ask) -> bool {
        let mut state = self.state.lock();
        if !state.serves || state.waiting.len() >= ASKS_MAX {
            return false;
        }
        if state.known.insert((ask.ino, ask.index)) {
            state.waiting.push_back(ask);
            self.asked.notify_one();
        }
        true
    }

    /// Waits for what is next; `None`: it is to end.
    fn next(&self) -> Option<Ask> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            if let Some(ask) = state.waiting.pop_front() {
                return Some(ask);
            }
            self.asked.wait(&mut state);
        }
    }

    fn done(&self, ask: &Ask) {
        self.state.lock().known.remove(&(ask.ino, ask.index));
    }

    /// Rests, unless it is to end.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        // who asks wakes him, too
        while !state.stop && !self.asked.wait_until(&mut state, until).timed_out() {}
    }

    /// Ends who serves.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.asked.notify_all();
    }

    /// Leaves that wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }
}

impl Core {
    /// Starts the thread that moves data, if data is to move.
    pub fn start_migrator(self: &Arc<Core>) -> crate::Result<Option<JoinHandle<()>>> {
        let Some(known) = self.observer.known().filter(|it| it.process.data != Lever::Off) else {
            return Ok(None);
        };
        known.migrator.state.lock().serves = true;
        let core = self.clone();
        crate::system::spawn("ns-mover", move || core.run_migrator()).map(Some)
    }

    /// Ends that thread, and lets all threads go that have moved.
    pub fn end_moves(&self) {
        if let Some(known) = self.observer.known() {
            known.migrator.stop();
            known.movers.let_go();
        }
    }

    fn run_migrator(&self) {
        let Some(known) = self.observer.known() else { return };
        let mut moved_before = self.all_moved_bytes();
        let mut last_error: Option<String> = None;
        while let Some(ask) = known.migrator.next() {
            let began = Instant::now();
            let done = self.migrate_asked(known, &ask);
            // once for each reason: as long as it is there, others fail for it, too
            if let Err(error) = done
                && last_error.as_ref() != Some(&error.to_string())
            {
                last_error = Some(error.to_string());
                tracing::warn!("moving data of inode {} to slice {}: {error}", ask.ino.0, ask.to);
            }
            known.migrator.done(&ask);
            let moved = self.all_moved_bytes();
            // what it moved itself is in no account
            if moved != moved_before && known.process.data == Lever::On {
                known.migrator.rest((began.elapsed() * RESTS).min(REST_MAX));
            }
            moved_before = moved;
        }
    }

    fn all_moved_bytes(&self) -> u64 {
        (0..self.pool.slices().len()).flat_map(|slice| self.moved_bytes(slice)).sum()
    }

    /// Moves what was asked for, if it still pays.
    fn migrate_asked(&self, known: &Known, ask: &Ask) -> crate::Result<()> {
        let Some(inode) = self.inode_to_cool(ask.ino)? else { return Ok(()) };
        let Some(leaf) = inode.map.cached(ask.index) else { return Ok(()) };
        let lever = known.levers_of(&inode).data;
        if lever == Lever::Off {
            return Ok(());
        }
        let heat = leaf.lost();
        let first = |leaf: &Leaf| leaf.slices().find(|slice| *slice != ask.to);
        let Some(from) = first(&leaf) else { return Ok(()) };
        let whole = leaf.room() as u64 * BLOCK_BYTES;
        let takes = |slice, is_local| known.takes(Kind::Read, ask.bytes, slice, is_local);
        let access_ns = [takes(from, false), takes(ask.to, true)];
        let copying = known.copying(whole, [from, ask.to], access_ns);
        let now = known.now();
        if heat.settles(&known.data, now) {
            // it was asked for twice
            return Ok(());
        }
        let pays = match ask.balances {
            true => known.balances([from, ask.to]),
            false => known.data.moves(&heat, &copying, now).is_ok(),
        };
        let pays = pays && heat.node() == u32::from(ask.to);
        let mut failed = Ok(());
        let (outcome, bytes) = match (pays, lever) {
            (false, _) => (Outcome::Cancelled, whole),
            (true, Lever::On) => {
                self.move_near(ask.to);
                let all = ask.index * LEAF_BLOCKS..(ask.index + 1) * LEAF_BLOCKS;
                match self.migrate_leaf(&inode, ask.index, &all, ask.to) {
                    Ok(Migrated { moved: 0, .. }) => (Outcome::Refused, whole),
                    Ok(Migrated { moved, .. }) => {
                        inode.moved.store(true, Ordering::Relaxed);
                        (Outcome::Moved, moved * BLOCK_BYTES)
                    }
                    Err(error) => {
                        failed = Err(error);
                        (Outcome::Refused, whole)
                    }
                }
            }
            (true, _) => (Outcome::Reported, whole),
        };
        // there may be another in its place
        if let Some(leaf) = inode.map.cached(ask.index) {
            let mut heat = heat;
            heat.moved(&known.data, now);
            leaf.set_lost(heat);
        }
        known.decisions.push(Decided {
            at: SystemTime::now(),
            ino: ask.ino,
            moving: Moving::Data { offset: ask.index * LEAF_BLOCKS * BLOCK_BYTES, bytes },
            from,
            to: ask.to,
            gain_ns: ask.gain_ns,
            costs_ns: copying.ns + copying.others_ns,
            outcome,
        });
        failed
    }
}
