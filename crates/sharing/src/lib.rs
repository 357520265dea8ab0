//! How processes share a pool: leases, lanes and copies, step by step.
//!
//! The service owns the pool. A process that is attached to it has a lane, memory in which it
//! stores records by itself, without asking anybody, as long as it holds leases of what they
//! write. The service folds them into its own log. When another one wants the bytes the lease is
//! recalled, and a holder that does not answer is fenced: whatever he is at. What processes read
//! they may have copies of, which the service takes away before it lets anybody else write.
//!
//! This is the protocol as docs/SHARING.md describes it, as five machines of steps: of each
//! process and of the service any step that it may take, in any order, with deaths, returns and
//! power cuts in between. The tests of this crate take all of them. It moves no bytes: what is
//! built on it comes above it.
//!
//! - [`lanes`]: who may write what, when a write has happened, what becomes of it when somebody
//!   dies or lies, and who gets a lease next.
//! - [`cache`]: what a process has read, and reads again from memory that the service stores.
//! - [`copies`]: what a process may read without asking. It takes from [`lanes`] that a write has
//!   happened when it is in the lane and the word was seen open.
//! - [`regions`]: what it may load without a look at anything. The same holds there.
//! - [`pages`]: the pages of a file that the kernels of mounts keep, and write back.
#![forbid(unsafe_code)]

pub mod cache;
pub mod copies;
pub mod few;
pub mod lanes;
pub mod machine;
pub mod pages;
pub mod regions;
pub mod story;
