//! Where the pages of a copy are.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::copies::PAGE;
use crate::stream::Stream;

/// Where the pages of a copy are.
#[derive(Debug)]
pub enum Place {
    /// In memory of the service's, which the process has mapped.
    Here(File),
    /// With a process of another machine, which does in order what it is told by this stream. To
    /// tell it something is as good as done: whoever asks over that stream what came of a change
    /// hears of the change before.
    There(Arc<Stream>, u64),
}

impl Place {
    /// Takes pages away.
    pub fn punch(&self, pages: &Range<u64>) {
        match self {
            Place::Here(memory) => {
                let bytes = (pages.end - pages.start) * PAGE;
                if let Err(error) = shm::punch(memory, pages.start * PAGE, bytes) {
                    // nobody but this service can seal the memory, or make it another one
                    tracing::error!("a page of a process's copy cannot be taken away: {error}");
                }
            }
            Place::There(stream, copy) => stream.tell_gone(*copy, pages.clone()),
        }
    }

    /// Stores bytes into pages that are there. False: these are to go.
    pub fn store(&self, at: u64, data: &[u8]) -> bool {
        match self {
            Place::Here(memory) => memory.write_all_at(data, at).is_ok(),
            Place::There(stream, copy) => stream.tell_written(*copy, at, data),
        }
    }
}
