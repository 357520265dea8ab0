//! What `Pool::for_caller` allows: each rule by hand, and beside the kernel's own.
//!
//! `beside_the_kernel` makes the same random calls, by several users, on a pool and on a tmpfs, and
//! compares what each call answers and leaves. It has to be root for that; the cases by hand need
//! not.

#![allow(missing_docs, clippy::unwrap_used)]

mod attributes;
mod beside_the_kernel;
mod history;
mod kernel_side;
mod lists;
mod names;
mod opening;
mod pool_side;
mod pools;
mod races;
mod set_id;
mod support;
