//! The first words of an attachment, as JSON, which every version can read.

use serde::{Deserialize, Serialize};

use crate::mount::{MountAnswer, MountAsk};

/// The version of all that follows the first words. Each change of a message moves it on.
pub const VERSION: u32 = 11;

/// What the socket is called in a pool's directory.
pub const SOCKET_NAME: &str = "attach.sock";

/// What a process says.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Greeting {
    /// The version that it speaks.
    pub version: u32,
    /// Who it is, if a service attached it before and then ended.
    #[serde(default)]
    pub returns: Option<Identity>,
    /// It asks what a kernel asks of a mount, and nothing else.
    #[serde(default)]
    pub mount: Option<MountAsk>,
    /// It is to go on over a fabric, by which the first words come again; this is where it is.
    #[serde(default)]
    pub fabric: Option<FabricPlace>,
}

/// Where a side is on a fabric.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct FabricPlace {
    /// The kind of fabric.
    pub provider: String,
    /// The name of its endpoint there, in hexadecimal digits.
    pub address: String,
    /// What it drew at random for this connection, in hexadecimal digits.
    pub nonce: String,
}

/// What a service says who a process is. It is the process's secret: whoever shows it, and is of
/// the same user, is taken for that process by the next service.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Identity {
    /// Who it is, 32 hexadecimal digits that the service drew at random.
    pub client: String,
    /// The number of the service that said so, or took it back, among those of the pool.
    pub service: u64,
    /// Shows that a service of this pool said so: 32 hexadecimal digits.
    pub proof: String,
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
        /// Who it is from now on.
        identity: Identity,
        /// Of one that comes back: whether it is known which of its calls were made. If not, it
        /// does not send those again that change something.
        knows: bool,
        /// Of one that has a mount.
        #[serde(default)]
        mount: Option<MountAnswer>,
    },
    /// It goes on over a fabric, where this is its place. Nothing follows over this connection,
    /// whose end is the end.
    Fabric(FabricPlace),
    /// It speaks another version.
    Version {
        /// Which.
        version: u32,
        /// The version of its program.
        program: String,
    },
    /// It takes no more processes, or not this one, for this reason.
    Refused(String),
    /// It does not take this process for the one that it says to be, for this reason.
    Stranger(String),
}

/// What the service says after that.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// A lane that the process asked for: with this come the lane and its words.
    Lane {
        /// How durable it is, by the name of the domain.
        domain: String,
    },
    /// A copy that the process asked for: with this comes its memory.
    Copy {
        /// Its number.
        copy: u64,
    },
    /// A read cache that the process asked for: with this come its memory, and the word that says
    /// as long as this service owns the pool.
    Cache,
    /// It ends, and none follows it.
    Ends,
}
