//! Crash states of the engine, explored.
//!
//! A workload runs once, under a recorder that sees every store, flush and fence (`recording`). A
//! model of the hardware then says which images a power cut could have left (`model`), a budget
//! which of them to look at (`select`), and each is opened, checked, compared with what the calls
//! promised, and used (`verify`). `explore` puts these together.
//!
//! Images that agree in everything that is read of them are looked at once (`memo`). What recovery
//! stores is recorded, too, and crashed (`inside`).
//!
//! Two operations run at once where threads take turns at every store (`turns`, `pairs`).
#![forbid(unsafe_code)]

pub mod adequacy;
pub mod arena;
pub mod attached;
pub mod attributes;
pub mod catalog;
pub mod chain;
pub mod core;
pub mod device;
pub mod events;
pub mod explore;
pub mod faults;
pub mod flipped;
pub mod flips;
pub mod images;
pub mod inside;
pub mod memo;
pub mod mended;
pub mod migrations;
pub mod model;
pub mod moves;
pub mod mutant;
pub mod pairs;
pub mod plan;
pub mod points;
pub mod recording;
pub mod report;
pub mod requests;
pub mod rng;
pub mod run;
pub mod select;
pub mod shrink;
pub mod snapshot;
pub mod start;
pub mod transactions;
pub mod turns;
pub mod unfinished;
pub mod verify;
pub mod watch;
pub mod world;
