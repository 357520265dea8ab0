//! loom's locks and atomics with the faces of those that the pool is made of.

#[allow(unused_imports)] // each model has those that its file asks for
pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
#[allow(unused_imports)]
pub use loom::thread::yield_now;

/// A lock that cannot be poisoned.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// A lock that cannot be poisoned.
#[derive(Debug, Default)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }

    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read().ok()
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }
}
