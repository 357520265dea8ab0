//! All tests of whole pools: one program, which is linked once.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod attached;
mod canary;
mod common;
mod delegated;
mod faults;
mod flips;
mod lanes;
mod log;
mod mirrors;
mod published;
mod requests;
mod single;
mod tiers;
