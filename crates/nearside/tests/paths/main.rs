//! What calls of the library do, on a pool that this process has open. (The service has the same
//! cases made by a process that is attached.)

#![allow(missing_docs, clippy::unwrap_used)]

mod cases;
mod locks;
mod regions;
mod scratch;
