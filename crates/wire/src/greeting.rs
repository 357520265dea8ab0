//! The first words of an attachment, as JSON, which every version can read.

use serde::{Deserialize, Serialize};

/// The version of all that follows the first words. Each change of a message moves it on.
pub const VERSION: u32 = 1;

/// What the socket is called in a pool's directory.
pub const SOCKET_NAME: &str = "attach.sock";

/// What a process says.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Greeting {
    /// The version that it speaks.
    pub version: u32,
    /// Who it is, 32 hexadecimal digits drawn at random: the same when it comes back.
    pub client: String,
}

/// What the service answers.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Welcome {
    /// With it come the memory for calls, and the bell.
    Attached {
        /// The pool's identity.
        pool: String,
        /// The service's process.
        process: u32,
    },
    /// It speaks another version.
    Version {
        /// Which.
        version: u32,
        /// The version of its program.
        program: String,
    },
    /// It takes no more processes, or not this one, for this reason.
    Refused(String),
}
