//! What the parts that several threads share are made of, in one place: the model checker puts its
//! own here (`tests/loom_*.rs`).

pub use std::hint::spin_loop;
pub use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
