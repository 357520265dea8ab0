//! The engine's public face.
#![forbid(unsafe_code)]
pub use fs::{self as files, FileSystem, Handle};
