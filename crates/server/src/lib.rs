//! The service: owns a pool, and serves processes that attach to it.
//!
//! ```text
//! listener   a thread: lets processes in, and sees them go
//! remote     a thread, where it is asked for: lets in who comes over a network
//! rights     what those may do who come over a network
//! gate       who is let in there by certificate, as files say that can change
//! access     the file that says what each of them may do
//! exports    what sessions may not ask for that only read
//! fabrics    from a socket to a fabric
//! guests     who is connected and has not said so far what it wants
//! identity   who a process is, and what it had open, for the next service
//! holders    who has locks, for the next service
//! idleness   that nobody is attached
//! grace      the time in which those who were attached to a dead service come back
//! session    one process: what it has open, what it asks through, whom the kernel says it is
//! lost       whose connection is lost: what they have open stays for a while
//! mount      mounts of other machines: whoever serves them is told what comes
//! line       what it asks through: memory for calls, or a stream over a network
//! credit     memory for what comes over streams, of all together
//! stations   where sessions are served: near the network card by which they come, or anywhere
//! worker     a few threads: each looks after the sessions that rang, until they are silent
//! copies     what processes have mapped: memory that they load from
//! room       how many of them there may be, and how many of their pages
//! serve      what a call means: one of the library's
//! once       that a call which is sent again is made once
//! ```
//!
//! Nothing that a process says is believed: messages are looked at in copies, numbers of files are
//! its own session's, and what it may do is what its user and groups may. What a session has ends
//! with its socket, which the kernel closes when the process ends, however that comes about.
#![forbid(unsafe_code)]

mod access;
mod beside;
mod bounds;
mod cache_calls;
mod copies;
mod credit;
mod data;
mod door;
mod error;
mod exports;
mod fabrics;
mod gate;
mod given_up;
mod grace;
mod guests;
mod holders;
mod identity;
mod idleness;
mod lane_calls;
mod leases;
mod line;
mod listener;
mod lock_wait;
mod lost;
mod mount;
mod new_nodes;
mod once;
mod open;
mod opened;
mod options;
mod place;
mod read_cache;
mod remote;
mod rights;
mod room;
mod serve;
mod service;
mod session;
mod shared;
#[cfg(test)]
mod simulation;
mod slow;
mod stations;
mod stream;
mod transact;
mod worker;
mod xattrs;

/// What the file is called in a pool's directory that one service tells the next of processes with.
pub const ATTACHED_NAME: &str = "nearside.attached";

pub use access::Nonsense as AccessNonsense;
pub use door::Door;
pub use error::{Error, Result};
pub use gate::Secured;
pub use idleness::Idleness;
pub use mount::{MountOf, Mounts};
pub use options::Options;
pub use rights::{Rights, Squash};
pub use service::Service;
pub use wire::PORT;
