//! The engine's locks: `parking_lot`'s, and [`futex`] for threads that wait for a condition.
//!
//! With the feature `trace` `parking_lot`'s can be watched: a thread that asks for it gets a list
//! of what it locked, where in the source, from when to when. Two looks at the clock a lock are
//! the price, so no build for use has it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod futex;
#[cfg(feature = "trace")]
mod traced;

#[cfg(not(feature = "trace"))]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(feature = "trace")]
pub use traced::{Held, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, begin, take};
