//! Locks that write down who held them.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::Instant;

/// A lock that was held.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Where in the source it was asked for.
    pub site: &'static Location<'static>,
    /// Which one it was.
    pub address: usize,
    /// Nobody else could have it.
    pub exclusive: bool,
    /// When it was had.
    pub from: Instant,
    /// When it was given back.
    pub to: Instant,
}

thread_local! {
    /// What the thread held since it began to watch; none: it does not.
    static TRACE: RefCell<Option<Vec<Held>>> = const { RefCell::new(None) };
}

/// From now on the calling thread's locks are written down.
pub fn begin() {
    TRACE.set(Some(Vec::new()));
}

/// What it held since, in the order in which it gave them back; it goes on.
pub fn take() -> Vec<Held> {
    TRACE.with_borrow_mut(|trace| trace.as_mut().map(std::mem::take).unwrap_or_default())
}

/// A lock that is held, if anybody watches.
#[derive(Debug)]
struct Watch(Option<(&'static Location<'static>, usize, bool, Instant)>);

impl Watch {
    #[track_caller]
    fn new<T: ?Sized>(lock: &T, exclusive: bool) -> Watch {
        let site = Location::caller();
        // a thread that ends watches no more
        let watched = TRACE.try_with(|trace| trace.borrow().is_some()).unwrap_or(false);
        let address = std::ptr::from_ref(lock).cast::<()>().addr();
        Watch(watched.then(|| (site, address, exclusive, Instant::now())))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some((site, address, exclusive, from)) = self.0 else { return };
        let held = Held { site, address, exclusive, from, to: Instant::now() };
        let _ = TRACE.try_with(|trace| trace.borrow_mut().iter_mut().for_each(|it| it.push(held)));
    }
}

/// A mutex.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

/// A reader-writer lock.
#[derive(Debug, Default)]
pub struct RwLock<T>(parking_lot::RwLock<T>);

macro_rules! guard {
    ($what:literal, $name:ident, $inner:ident $(, $mutable:ident)?) => {
        #[doc = $what]
        #[derive(Debug)]
        pub struct $name<'l, T> {
            // before the lock is given back
            _watch: Watch,
            guard: parking_lot::$inner<'l, T>,
        }

        impl<T> Deref for $name<'_, T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.guard
            }
        }

        $(impl<T> DerefMut for $name<'_, T> {
            fn deref_mut(&mut self) -> &mut T {
                let $mutable = &mut self.guard;
                $mutable
            }
        })?
    };
}

guard!("A mutex that is locked.", MutexGuard, MutexGuard, guard);
guard!("A lock that is held with others.", RwLockReadGuard, RwLockReadGuard);
guard!("A lock that is held alone.", RwLockWriteGuard, RwLockWriteGuard, guard);

impl<T> Mutex<T> {
    /// Not locked.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// Waits for it.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { guard: self.0.lock(), _watch: Watch::new(self, true) }
    }

    /// If nobody has it.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.0.try_lock()?;
        Some(MutexGuard { guard, _watch: Watch::new(self, true) })
    }
}

impl<T> RwLock<T> {
    /// Not locked.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(parking_lot::RwLock::new(value))
    }

    /// Waits for it, with others.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { guard: self.0.read(), _watch: Watch::new(self, false) }
    }

    /// If nobody has it alone.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let guard = self.0.try_read()?;
        Some(RwLockReadGuard { guard, _watch: Watch::new(self, false) })
    }

    /// Waits for it, alone.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard { guard: self.0.write(), _watch: Watch::new(self, true) }
    }
}
