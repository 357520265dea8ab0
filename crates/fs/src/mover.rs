//! Threads that go to their data: the calling thread is held to the CPUs of a slice's node, those
//! of them on which its program lets it run. It is let go when nobody has the file open any more
//! for which it went, and by who closes the pool; and never where its program has given it other
//! CPUs since. Threads that it starts meanwhile begin where it is held, and are not known here.

use crate::core::Core;
use crate::decided::{Decided, Moving, Outcome};
use crate::inode::Inode;
use crate::known::Known;
use crate::pressure::Pressure;
use crate::types::Ino;
use parking_lot::Mutex;
use placement::{Lever, Room, Trail};
use pmem::Process;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Threads that are held, by their numbers.
type Threads = Arc<Mutex<HashMap<u32, Held>>>;

/// Threads that have moved, and where they were let run before.
#[derive(Debug, Default)]
pub struct Movers {
    threads: Threads,
    /// What runs on CPUs.
    pressure: Pressure,
}

/// A thread that is held to some CPUs.
#[derive(Clone, Debug)]
struct Held {
    /// Where it was let run before,
    before: Vec<u32>,
    /// and is now.
    to: Vec<u32>,
    /// The slice that it was near at first.
    home: u8,
    /// The file for which it went last.
    ino: Ino,
    /// It was let go.
    is_free: Arc<AtomicBool>,
}

/// What a thread knows of its having moved.
struct Own {
    movers: Threads,
    home: u8,
    /// It was let go, by whoever.
    is_free: Arc<AtomicBool>,
    /// A child of this process has no such thread.
    process: Process,
}

impl Drop for Own {
    fn drop(&mut self) {
        // the thread ends: its number may be another's soon
        if self.process.is_here() {
            self.take();
        }
    }
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// What a thread knows, unless it ends just now and knows nothing any more.
fn with_own<T>(act: impl FnOnce(&mut Option<Own>) -> T) -> Option<T> {
    OWN.try_with(|own| act(&mut own.borrow_mut())).ok()
}

impl Movers {
    /// The slice where the calling thread would be, had it not moved; it is near this one.
    pub fn home(&self, near: u8) -> u8 {
        let home = with_own(|own| {
            // ordering: who is let go just now may be taken for who was held
            let is_held = |own: &&mut Own| {
                Arc::ptr_eq(&own.movers, &self.threads) && !own.is_free.load(Ordering::Relaxed)
            };
            own.as_mut().filter(is_held).map(|own| own.home)
        });
        home.flatten().unwrap_or(near)
    }

    /// Lets those threads go that went for this file: nobody has it open any more.
    pub fn closed(&self, ino: Ino) {
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            return;
        }
        for (thread, held) in threads.extract_if(|_, held| held.ino == ino) {
            held.let_go(thread);
        }
    }

    /// Lets all go.
    pub fn let_go(&self) {
        for (thread, held) in self.threads.lock().drain() {
            held.let_go(thread);
        }
    }

    /// How many are held.
    pub fn held(&self) -> usize {
        self.threads.lock().len()
    }

    /// Holds the calling thread, which is near a slice, to those of these CPUs on which its program
    /// lets it run; false if there are none.
    fn hold(&self, process: Process, ino: Ino, near: u8, cpus: &[u32]) -> topology::Result<bool> {
        let thread = topology::current_thread();
        let is = topology::allowed_cpus()?;
        // it may have come here for another file, or for one of another pool
        let Some(old) = with_own(Option::take) else { return Ok(false) };
        let is_same = old.as_ref().is_some_and(|own| Arc::ptr_eq(&own.movers, &self.threads));
        let held = old.and_then(|own| own.take()).filter(|held| held.to == is);
        let home = held.as_ref().filter(|_| is_same).map_or(near, |held| held.home);
        let before = held.map_or(is, |held| held.before);
        let to: Vec<u32> = before.iter().copied().filter(|cpu| cpus.contains(cpu)).collect();
        if to.is_empty() {
            topology::pin_current_thread(&before)?;
            return Ok(false);
        }
        if let Err(error) = topology::pin_current_thread(&to) {
            topology::pin_current_thread(&before)?;
            return Err(error);
        }
        let is_free = Arc::new(AtomicBool::new(false));
        let held = Held { before, to, home, ino, is_free: is_free.clone() };
        self.threads.lock().insert(thread, held);
        with_own(|own| *own = Some(Own { movers: self.threads.clone(), home, is_free, process }));
        Ok(true)
    }
}

impl Own {
    /// What is noted of the calling thread.
    fn take(&self) -> Option<Held> {
        self.movers.lock().remove(&topology::current_thread())
    }
}

impl Held {
    /// Lets a thread run where it was let before, if nobody has changed that since.
    fn let_go(self, thread: u32) {
        self.is_free.store(true, Ordering::Relaxed);
        let is = topology::allowed_cpus_of(thread);
        if is.is_ok_and(|is| is == self.to)
            && let Err(error) = topology::pin_thread(thread, &self.before)
        {
            tracing::warn!("a thread that went to its data stays there: {error}");
        }
    }
}

impl Core {
    /// Whether the calling thread goes to where its last accesses were.
    #[cold]
    pub fn consider_going(&self, known: &Known, inode: &Inode, cpu: u32, trail: &mut Trail) {
        let (ino, lever) = (inode.ino, known.levers_of(inode).threads);
        let (nodes, to) = (self.pool.nodes(), trail.node() as u8);
        let near = nodes.near(cpu as usize);
        let cpus = nodes.cpus_near(to);
        let now = known.now();
        if lever == Lever::Off {
            return trail.put_off(&known.threads, now);
        }
        let mut room = Room {
            busy: known.busy(to),
            busy_here: known.busy(near),
            threads: 0,
            cpus: cpus.len() as u32,
            is_allowed: true,
        };
        // what costs a look at the system comes when all else is for it
        if known.threads.moves(trail, &room, now).is_err() {
            return;
        }
        room.threads = known.movers.pressure.running(cpus);
        let (gain_ns, outcome) = match (known.threads.moves(trail, &room, now), lever) {
            (Err(_), _) => return trail.put_off(&known.threads, now),
            (Ok(gain_ns), Lever::Report) => (gain_ns, Outcome::Reported),
            (Ok(gain_ns), _) if self.pool.options().emulated.is_some() => {
                cpus.first().into_iter().for_each(|cpu| topology::assume_cpu(*cpu));
                (gain_ns, Outcome::Moved)
            }
            (Ok(gain_ns), _) => match known.movers.hold(self.process, ino, near, cpus) {
                Ok(true) => (gain_ns, Outcome::Moved),
                Ok(false) | Err(_) => (gain_ns, Outcome::Refused),
            },
        };
        trail.moved(&known.threads, now);
        let decided = Decided {
            at: SystemTime::now(),
            ino,
            moving: Moving::Thread,
            from: near,
            to,
            gain_ns,
            costs_ns: known.threads.costs_ns,
            outcome,
        };
        match outcome {
            Outcome::Moved => known.movers.pressure.comes(cpus),
            _ => trail.put_off(&known.threads, now),
        }
        known.decisions.push(decided);
    }
}
