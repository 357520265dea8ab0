//! Doors that go through the kernel in other ways than by read(2) and write(2): mappings, pipes,
//! libaio and io_uring.
//!
//! | module | what it has |
//! |---|---|
//! | `mapping` | a file that is mapped, where a fault is an error and no signal |
//! | `mapped_files` | loads, and stores that are synced, by mappings |
//! | `pipes` | sendfile and splice, from a file and to it |
//! | `queued_files`, `aio`, `uring` | reads and writes past the kernel's pages, by a queue |
#![allow(unsafe_code)]

mod aio;
pub mod mapped_files;
mod mapping;
pub mod pipes;
pub mod queued_files;
mod uring;
