//! `libnearside`: the library for programs in C, with `nv.h`, the interface of vNVML's paper.
//!
//! Every call answers 0 or a count, or an errno as a negative number; it may be made from any
//! thread; and nothing unwinds into its caller. What is open is named by a number that is never
//! used again: who uses one after closing it gets EBADF, and no harm is done.
//!
//! `unsafe` is for what callers promise: that strings end, and that buffers have the lengths that
//! they say.

mod answer;
mod dir;
mod file;
mod nv;
mod pool;
mod region;
mod strerror;
mod table;
