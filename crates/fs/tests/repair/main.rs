//! Repair: whatever is damaged, all that can be read comes back, nothing is made up, and what
//! comes back is a pool like any other.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod damage;
mod files;
mod maps;
mod names;
mod planted;
mod roots;
#[path = "../common/values.rs"]
mod values;
