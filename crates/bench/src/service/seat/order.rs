//! What one who takes part is told.

use crate::remote::wire::Work;
use crate::ycsb::Mix;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// What it is to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Make a pool of one slice of so many bytes and open it; serve it, if asked.
    Own { dir: PathBuf, bytes: u64, serves: bool },
    /// Attach to the service of a pool.
    Attach { dir: PathBuf },
    /// Open a file of the pool, made so long and full where it is not there, in the place of the
    /// last one.
    File { name: String, bytes: u64 },
    /// Map a file of its own, in the place of a pool's.
    Bare { path: PathBuf },
    /// Make durable writes of so many bytes.
    Write { bytes: usize, count: u64 },
    /// Make durable writes of so many bytes that do not wait for each other.
    WritePipelined { bytes: usize, count: u64 },
    /// Read so many bytes, again and again.
    Read { bytes: usize, count: u64 },
    /// Make one durable write, right behind calls of another kind.
    WriteBehindCalls { bytes: usize },
    /// Map the file if it is not, and load all of it.
    Map,
    /// Commit transactions of one write of so many bytes to what is mapped.
    Commit { bytes: usize, count: u64 },
    /// Read and write records of so many bytes in what is mapped, for so long.
    Mix { mix: Mix, bytes: usize, turn: Duration, seed: u64 },
    /// Wait until its other threads do nothing.
    Rest,
    /// Run on this CPU alone, and what it starts from now on.
    Pin { cpu: u32 },
    /// Show these credentials when it listens or attaches over a network.
    Credentials { dir: PathBuf },
    /// Serve its pool on loopback, too; the answer's count is the port.
    Listen,
    /// Answer messages on loopback; the answer's count is the port.
    Answer { work: Work },
    /// Send messages of so many bytes to a port on loopback, each answered with so many.
    Exchange { port: u16, bytes: usize, answers: usize, count: u64 },
    /// Have Redis at a port set a value of so many bytes.
    Set { port: u16, bytes: usize, count: u64 },
    /// Attach so often, at once.
    AttachMany { dir: PathBuf, count: usize },
}
