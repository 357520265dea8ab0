//! What a keeper and its server say to each other.

use serde::{Deserialize, Serialize};
pub use wire::Channel;

/// What a keeper says to its server.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ToServer {
    /// Open the pool and serve. With it come the lock of the pool, if it has one, the socket where
    /// processes attach, if they may, and, for one that takes over, the connection to the kernel.
    Start {
        /// Whether the first descriptor is the pool's lock.
        has_lock: bool,
        /// Whether the next one is the socket.
        #[serde(default)]
        has_door: bool,
        /// Whether the next one is the socket where those of other machines attach.
        #[serde(default)]
        has_port: bool,
        /// Whether the others are the connection that a server before this one had.
        takes_over: bool,
    },
    /// Stop at a point where no call is half served, and end: the next server goes on there.
    HandOver,
}

/// What a server says to its keeper.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ToKeeper {
    /// It runs, and waits for its start.
    Hello {
        /// The program's version.
        version: String,
    },
    /// With it come the descriptors to keep for the next server.
    Keep,
    /// The mount answers.
    Ready,
    /// It could not start, for this reason.
    Failed(String),
    /// The mount has gone and the pool is closed, or closing failed for this reason.
    Ended(Option<String>),
}
