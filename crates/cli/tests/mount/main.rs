//! The mount as programs see it, end to end: the `nearside` command on a pool of plain files.
//!
//! Needs root and /dev/fuse; without them every test says so and passes. Every test has a pool
//! and a mount of its own and takes both away again, also when it panics.

#![allow(missing_docs, clippy::unwrap_used)]

mod access_rules;
mod attached_calls;
mod beside_ext4;
mod calls;
mod commands;
mod copiers;
mod endings;
mod keepers;
mod kills;
mod ordinary;
mod privileges;
mod programs;
mod races;
mod remote;
mod semantics;
mod shell;
mod strangers;
mod support;
mod takeover;
mod two_doors;
mod unmounts;
mod users;
