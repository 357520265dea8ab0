//! Doors that go through the kernel in other ways than by read(2) and write(2): mappings, pipes,
//! libaio and io_uring.
//!
//! | module | what it has |
//! |---|---|
//! | `file_mapping` | a file that is mapped, where a fault is an error and no signal |
//! | `mapped_files` | loads, and stores that are synced, by mappings |
//! | `pipe_files` | sendfile and splice, from a file and to it |
//! | `queued_files` | reads and writes past the kernel's pages, by a queue |
//! | `aio_queue`, `io_uring_queue` | the two kinds of queues |
#![allow(unsafe_code)]

mod aio_queue;
mod file_mapping;
mod io_uring_queue;
pub mod mapped_files;
pub mod pipe_files;
pub mod queued_files;
