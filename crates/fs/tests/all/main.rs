//! All tests of whole pools: one program, which is linked once.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod accessed;
mod acl;
mod bad_input;
mod calibrate;
mod check_live;
mod commit;
mod common;
mod copies;
mod counts;
mod directories;
mod faults;
mod fences;
mod first;
mod full;
mod log_lines;
mod log_pace;
mod long_records;
mod media;
mod migrate;
mod million;
mod mirrors;
mod model;
mod repair;
mod requests;
mod scrub;
mod slices;
mod stored_pages;
mod stress;
mod sync_crash;
mod tier;
mod trace;
mod two_owners;
mod unnamed;
mod unsafe_shutdown;
mod values;
