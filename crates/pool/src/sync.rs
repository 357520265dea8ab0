//! What the parts that several threads share are made of, in one place: the model checker puts its
//! own here (`tests/loom_*.rs`).

pub use crossbeam_epoch as epoch;
pub use locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub use std::thread::{sleep, yield_now};
pub use topology::recent_cpu;
