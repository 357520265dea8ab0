//! Requests that are served again after a kill: each is done once, whatever the kill cut off, and
//! what clients held without a name is there.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod door;
mod history;
mod kill;
mod orphans;
mod parts;
mod script;
