//! The verbs that work on a pool, mounted or not, and those that watch a mounted one: the
//! `nearside` command on pools of plain files, end to end.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod benches;
mod browser;
mod calibrates;
mod control;
mod copies;
mod formats;
mod full_disk;
mod installs;
mod lists;
mod live_check;
mod manual;
mod names;
mod networks;
mod page;
mod places;
mod readme;
mod regions;
mod removals;
mod repairs;
mod resilvers;
mod returns;
mod scrubs;
mod services;
mod simulates;
mod stops;
mod support;
mod terminal;
mod tiers;
mod traces;
mod trees;
mod versions;
mod watching;
