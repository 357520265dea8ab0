//! Memory for the frames of all streams together: no peers can make the service keep more.
//!
//! Short frames need none of it. Before more of a longer one is received its stream takes credit
//! for all of it, at once, so that no two wait for each other with a part each; where there is none
//! it waits in line, and nothing of it is looked at meanwhile. What of answers the other side does
//! not take counts, too; it is there already, so while there is too much of it no calls are served
//! that would make more. Nobody waits for ever: who holds credit for long while others wait loses
//! its connection, and with that the credit, and may come back over another one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};

/// Looks at who holds credit for too long, while somebody waits.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// Holds credit, and waits for it.
pub trait Holds: Send + Sync {
    /// Its number, which no other one has.
    fn number(&self) -> u64;
    /// Whose it is.
    fn user(&self) -> u32;
    /// It is to take nothing any more.
    fn is_closed(&self) -> bool;
    /// It was given what it waited for.
    fn go_on(&self);
    /// It is to lose its connection.
    fn break_off(&self, why: &dyn std::fmt::Display);
}

/// What all streams have together.
#[derive(Debug)]
pub struct Credit<H> {
    patience: Duration,
    state: Mutex<State<H>>,
    /// Somebody's calls may not be served.
    is_short: AtomicBool,
    /// Somebody waits.
    is_waited_for: AtomicBool,
    /// Rings when somebody begins to wait.
    alarm: OwnedFd,
}

#[derive(Debug)]
struct State<H> {
    bytes_max: usize,
    used: usize,
    /// Of it, by user.
    users: HashMap<u32, usize>,
    holders: HashMap<u64, Holder<H>>,
    waiting: VecDeque<Waiting<H>>,
}

#[derive(Debug)]
struct Holder<H> {
    of: Weak<H>,
    user: u32,
    /// For a frame that comes.
    coming: usize,
    /// It waited for that, and has not begun the frame.
    is_given: bool,
    /// Answers that are not taken.
    kept: usize,
    since: Instant,
}

/// Who waits for so much; 0: for there to be less than too much.
#[derive(Debug)]
struct Waiting<H> {
    of: Weak<H>,
    number: u64,
    user: u32,
    bytes: usize,
}

/// Why somebody cannot have what it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Short {
    /// Its user has a share, and has it.
    OfUser,
    /// There is no more of it.
    OfAll,
}

impl<H: Holds> Credit<H> {
    /// So many bytes, of which one user, root apart, has half at most. Who has some may keep it for
    /// `patience` while others wait.
    ///
    /// # Errors
    /// The kernel has no more descriptors.
    pub fn new(bytes_max: usize, patience: Duration) -> std::io::Result<Credit<H>> {
        let alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (holders, users, waiting) = Default::default();
        let state = Mutex::new(State { bytes_max, used: 0, users, holders, waiting });
        let (is_short, is_waited_for) = Default::default();
        Ok(Credit { patience, state, is_short, is_waited_for, alarm })
    }

    /// Has credit for one more frame, of so many bytes. False: it waits for it from now on, and has
    /// none; or it has ended.
    pub fn take(&self, of: &Arc<H>, bytes: usize) -> bool {
        let mut state = self.state.lock();
        if of.is_closed() {
            return false;
        }
        let has_it = state.holders.get_mut(&of.number()).filter(|holder| holder.coming >= bytes);
        if let Some(holder) = has_it {
            (holder.since, holder.is_given) = (Instant::now(), false);
            return true;
        }
        state.set(of, |holder| (holder.coming, holder.is_given) = (0, false));
        let has_turn = state.has_turn(of, bytes);
        match has_turn {
            true => state.set(of, |holder| holder.coming = bytes),
            false => self.wait(&mut state, of, bytes),
        }
        self.settle(state);
        has_turn
    }

    /// Whether calls of this one may be served now. False: it waits until they may.
    pub fn may_serve(&self, of: &Arc<H>) -> bool {
        // ordering: who misses it adds one answer
        if !self.is_short.load(Ordering::Relaxed) {
            return true;
        }
        let mut state = self.state.lock();
        if of.is_closed() {
            return false;
        }
        // one that was given credit while it waited begins its frame with that: the credit itself
        // may be what makes it short
        let is_given = state.holders.get(&of.number()).is_some_and(|holder| holder.is_given);
        let goes = is_given || state.shortage(of.user(), 0).is_none();
        if !goes {
            self.wait(&mut state, of, 0);
        }
        goes
    }

    /// Whether somebody waits, so that nobody is to keep what it does not need.
    pub fn is_waited_for(&self) -> bool {
        // ordering: it is looked at again and again
        self.is_waited_for.load(Ordering::Relaxed)
    }

    /// It needs no credit for frames that come.
    pub fn give_back(&self, of: &Arc<H>) {
        let mut state = self.state.lock();
        state.set(of, |holder| (holder.coming, holder.is_given) = (0, false));
        self.settle(state);
    }

    /// So much of its answers is kept from now on.
    pub fn keep(&self, of: &Arc<H>, bytes: usize) {
        let mut state = self.state.lock();
        let bytes = if of.is_closed() { 0 } else { bytes };
        state.set(of, |holder| {
            if holder.kept == 0 {
                holder.since = Instant::now();
            }
            holder.kept = bytes;
        });
        self.settle(state);
    }

    /// It has ended.
    pub fn forget(&self, number: u64) {
        let mut state = self.state.lock();
        state.waiting.retain(|other| other.number != number);
        if let Some(holder) = state.holders.remove(&number) {
            state.count(holder.user, holder.coming + holder.kept, 0);
        }
        self.settle(state);
    }

    /// Ends the connections of those who keep others waiting for too long. Gives the time until
    /// that is to be looked at again; `None`: when the alarm rings.
    pub fn end_overdue(&self) -> Option<Duration> {
        if !self.is_waited_for() {
            return None;
        }
        let state = self.state.lock();
        let mut overdue = HashMap::new();
        for waiting in &state.waiting {
            let short = state.shortage(waiting.user, waiting.bytes);
            let late = state.holders.iter().filter(|(_, holder)| {
                let is_in_the_way = match short {
                    Some(Short::OfAll) => true,
                    Some(Short::OfUser) => holder.user == waiting.user,
                    None => false,
                };
                is_in_the_way && holder.since.elapsed() >= self.patience
            });
            overdue.extend(late.map(|(number, holder)| (*number, holder.of.clone())));
            if short == Some(Short::OfAll) {
                break;
            }
        }
        drop(state);
        for holder in overdue.values().filter_map(Weak::upgrade) {
            holder.break_off(&"it is slow, and others need the memory that it holds");
        }
        Some(LOOKS_EVERY)
    }

    /// Rings when somebody begins to wait.
    pub fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    /// Bytes that are held.
    pub fn used(&self) -> usize {
        self.state.lock().used
    }

    fn wait(&self, state: &mut State<H>, of: &Arc<H>, bytes: usize) {
        let (number, user) = (of.number(), of.user());
        if state.waiting.iter().any(|other| other.number == number) {
            // another worker has it wait
            return;
        }
        state.waiting.push_back(Waiting { of: Arc::downgrade(of), number, user, bytes });
        if !self.is_waited_for.swap(true, Ordering::Relaxed) {
            let _ = rustix::io::write(&self.alarm, &1u64.to_ne_bytes());
        }
    }

    /// Gives those who wait what is there now.
    fn settle(&self, mut state: MutexGuard<'_, State<H>>) {
        let granted = state.grant();
        self.is_waited_for.store(!state.waiting.is_empty(), Ordering::Relaxed);
        self.is_short.store(state.is_short(), Ordering::Relaxed);
        // the last of one may be dropped, which forgets it
        drop(state);
        granted.iter().for_each(|of| of.go_on());
    }
}

impl<H: Holds> State<H> {
    /// Why so much more is too much; 0: why there is too much already.
    fn shortage(&self, user: u32, bytes: usize) -> Option<Short> {
        let fits = |used: usize, most: usize| match bytes {
            0 => used < most,
            // one frame always has its turn
            _ => used == 0 || used + bytes <= most,
        };
        let of_user = self.users.get(&user).copied().unwrap_or(0);
        match () {
            () if user != 0 && !fits(of_user, self.bytes_max / 2) => Some(Short::OfUser),
            () if !fits(self.used, self.bytes_max) => Some(Short::OfAll),
            () => None,
        }
    }

    /// Whether somebody's calls may not be served.
    fn is_short(&self) -> bool {
        let is_short = |(user, used): (&u32, &usize)| *user != 0 && *used >= self.bytes_max / 2;
        self.used >= self.bytes_max || self.users.iter().any(is_short)
    }

    /// Whether there is so much for this one, and nobody waits for it who came before.
    fn has_turn(&self, of: &Arc<H>, bytes: usize) -> bool {
        let goes_first = |other: &Waiting<H>| {
            other.user == of.user() || self.shortage(other.user, other.bytes) == Some(Short::OfAll)
        };
        !self.waiting.iter().any(goes_first) && self.shortage(of.user(), bytes).is_none()
    }

    /// Takes those out of the line for whom there is enough.
    fn grant(&mut self) -> Vec<Arc<H>> {
        let (mut granted, mut short, mut at) = (Vec::new(), HashSet::new(), 0);
        while let Some(waiting) = self.waiting.get(at) {
            // who is longer in line has it first
            match self.shortage(waiting.user, waiting.bytes) {
                Some(Short::OfAll) => break,
                _ if short.contains(&waiting.user) => at += 1,
                Some(Short::OfUser) => {
                    short.insert(waiting.user);
                    at += 1;
                }
                None => {
                    let Some(Waiting { of, bytes, .. }) = self.waiting.remove(at) else { break };
                    let Some(of) = of.upgrade() else { continue };
                    self.set(&of, |holder| {
                        holder.coming = holder.coming.max(bytes);
                        holder.is_given |= bytes > 0;
                    });
                    granted.push(of);
                }
            }
        }
        granted
    }

    fn set(&mut self, of: &Arc<H>, change: impl FnOnce(&mut Holder<H>)) {
        let (number, user) = (of.number(), of.user());
        let holder = self.holders.entry(number).or_insert_with(|| Holder {
            of: Arc::downgrade(of),
            user,
            coming: 0,
            is_given: false,
            kept: 0,
            since: Instant::now(),
        });
        let before = holder.coming + holder.kept;
        change(holder);
        let after = holder.coming + holder.kept;
        if after == 0 {
            self.holders.remove(&number);
        }
        self.count(user, before, after);
    }

    fn count(&mut self, user: u32, before: usize, after: usize) {
        self.used = self.used - before + after;
        let of_user = self.users.entry(user).or_default();
        *of_user = *of_user - before + after;
        if *of_user == 0 {
            self.users.remove(&user);
        }
    }
}

#[cfg(test)]
#[path = "credit_tests.rs"]
mod tests;
