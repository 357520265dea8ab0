//! How many copies there are, and how many of their pages: no more than is set.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::copies::PAGE;

/// Copies of all: each takes a descriptor of the service's.
const ALL_MAX: usize = 8192;
/// Of these, copies of one user, root apart.
const OF_USER_MAX: usize = 2048;

/// Has pages that can be taken away.
pub trait Evicts: std::fmt::Debug + Send + Sync {
    /// Takes a page away, if it is the one of this stamp.
    fn evict(&self, page: u64, stamp: u64);
}

/// What all copies share, and all read caches.
#[derive(Debug)]
pub struct Room {
    pages_max: usize,
    /// Pages that are there.
    present: AtomicUsize,
    stamp: AtomicU64,
    /// In the order in which they came; some are gone already.
    queue: Mutex<VecDeque<Came>>,
    /// Copies, by user.
    users: Mutex<HashMap<u32, usize>>,
}

/// A page that came: it is the one that has this stamp, or gone.
#[derive(Debug)]
struct Came {
    of: Weak<dyn Evicts>,
    page: u64,
    stamp: u64,
}

/// One of so many copies, until it is dropped.
#[derive(Debug)]
pub struct Counted {
    room: Arc<Room>,
    user: u32,
}

impl Room {
    /// For pages of so many bytes.
    pub fn new(bytes: u64) -> Arc<Room> {
        Arc::new(Room {
            pages_max: usize::try_from(bytes / PAGE).unwrap_or(usize::MAX).max(1),
            present: AtomicUsize::new(0),
            stamp: AtomicU64::new(1),
            queue: Mutex::default(),
            users: Mutex::default(),
        })
    }

    /// Bytes of pages that are there.
    pub fn bytes(&self) -> u64 {
        self.present.load(Ordering::Relaxed) as u64 * PAGE
    }

    pub fn count(self: &Arc<Room>, user: u32) -> Option<Counted> {
        let mut users = self.users.lock();
        let (all, own) = (users.values().sum::<usize>(), users.get(&user).copied().unwrap_or(0));
        if all >= ALL_MAX || user != 0 && own >= OF_USER_MAX {
            return None;
        }
        users.insert(user, own + 1);
        Some(Counted { room: self.clone(), user })
    }

    /// Takes pages away until so many can come.
    pub fn make(&self, pages: usize) {
        // what is taken is noted when it comes: a few more than are set may be there for a moment
        while self.present.load(Ordering::Relaxed) + pages > self.pages_max {
            let Some(first) = self.queue.lock().pop_front() else { return };
            first.go();
        }
    }

    /// A page came. The caller has its copy's pages.
    pub fn add(&self, of: Weak<dyn Evicts>, page: u64) -> u64 {
        self.present.fetch_add(1, Ordering::Relaxed);
        let stamp = self.stamp.fetch_add(1, Ordering::Relaxed);
        self.queue.lock().push_back(Came { of, page, stamp });
        stamp
    }

    pub fn gone(&self, pages: usize) {
        self.present.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Of pages that went by themselves the queue forgets those that came long ago.
    pub fn tidy(&self) {
        loop {
            let mut queue = self.queue.lock();
            if queue.len() <= self.pages_max.saturating_mul(2).saturating_add(1024) {
                return;
            }
            let first = queue.pop_front();
            drop(queue);
            if let Some(first) = first {
                first.go();
            }
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut users = self.room.users.lock();
        if let Some(count) = users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.user);
            }
        }
    }
}

impl Came {
    /// It goes, if it is there still.
    fn go(&self) {
        if let Some(of) = self.of.upgrade() {
            of.evict(self.page, self.stamp);
        }
    }
}
