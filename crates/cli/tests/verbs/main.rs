//! The verbs that work on a pool without a mount, end to end: the `nearside` command on pools of
//! plain files.

#![allow(missing_docs, clippy::unwrap_used)]

mod copies;
mod lists;
mod names;
mod removals;
mod support;
