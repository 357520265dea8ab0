//! What moved to be near, as it is told.

use nearside::files::Moves;
use serde::{Deserialize, Serialize};

use crate::size::show;
use crate::stats::nanos;

/// What moved since the server began, and what is to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveFacts {
    /// Threads that went to their data.
    pub threads: u64,
    /// Threads that are held there.
    pub threads_held: u64,
    /// Parts of files that went to their readers.
    pub data: u64,
    /// Parts that wait.
    pub data_waiting: u64,
    /// What all that was expected to gain beyond what it cost, ns.
    pub gain_ns: u64,
}

impl From<&Moves> for MoveFacts {
    fn from(moves: &Moves) -> MoveFacts {
        MoveFacts {
            threads: moves.threads,
            threads_held: moves.threads_held,
            data: moves.data,
            data_waiting: moves.data_waiting,
            gain_ns: moves.gain_ns,
        }
    }
}

impl MoveFacts {
    /// What was moved since `old`.
    pub fn since(self, old: MoveFacts) -> MoveFacts {
        MoveFacts {
            threads: self.threads.saturating_sub(old.threads),
            data: self.data.saturating_sub(old.data),
            gain_ns: self.gain_ns.saturating_sub(old.gain_ns),
            ..self
        }
    }

    /// For people; so many bytes of data it was.
    pub fn line(self, bytes: u64) -> String {
        format!(
            "{} parts of files went to their readers, {}; {} wait; {} threads went to data, {} are \
             held; {} gained",
            self.data,
            show(bytes),
            self.data_waiting,
            self.threads,
            self.threads_held,
            nanos(self.gain_ns),
        )
    }
}
