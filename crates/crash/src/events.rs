//! What the engine did to its memory, in order: the recorder's events, owned, with marks between.

use crate::model::{LineId, lines};
use crate::turns::Turns;
use pmem::recorder::{Event as Told, EventKind, Recorder};
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};

/// One event of a trace.
#[derive(Clone, Debug)]
pub struct Event {
    /// Small number of the thread, 0 for marks.
    pub thread: u64,
    /// The file system call that the thread was in.
    pub call: &'static str,
    /// The line of the engine that asked for it.
    pub site: &'static Location<'static>,
    /// What happened.
    pub kind: Kind,
}

/// What happened. Offsets and lengths are bytes, `slice` is the mapping's number.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A store.
    Store {
        /// Where.
        slice: u32,
        /// Where.
        offset: u64,
        /// The bytes stored.
        data: Vec<u8>,
        /// Non-temporal: needs no flush.
        streamed: bool,
    },
    /// Lines on their way.
    Flush {
        /// Where.
        slice: u32,
        /// Where.
        offset: u64,
        /// How many bytes.
        len: usize,
    },
    /// What the thread stored past the caches or flushed before is durable.
    Fence,
    /// Everything stored to this slice before is durable.
    Sync {
        /// Which.
        slice: u32,
    },
    /// Operation number `.0` of the workload begins.
    Begin(usize),
    /// It has returned.
    End(usize),
}

impl Kind {
    /// The lines that it stores to.
    pub fn lines(&self) -> impl Iterator<Item = LineId> + use<> {
        let (slice, (first, end)) = match self {
            Kind::Store { slice, offset, data, .. } => {
                (*slice, lines(*offset as usize, data.len()))
            }
            _ => (0, (0, 0)),
        };
        (first..end).map(move |number| (slice, number))
    }

    /// What happened, where and how much, without the bytes: the same on every run.
    pub fn shape(&self) -> (&'static str, u32, u64, usize) {
        match self {
            Kind::Store { slice, offset, data, streamed: true } => {
                ("stream", *slice, *offset, data.len())
            }
            Kind::Store { slice, offset, data, .. } => ("store", *slice, *offset, data.len()),
            Kind::Flush { slice, offset, len } => ("flush", *slice, *offset, *len),
            Kind::Fence => ("fence", 0, 0, 0),
            Kind::Sync { slice } => ("sync", *slice, 0, 0),
            Kind::Begin(number) => ("begin", 0, 0, *number),
            Kind::End(number) => ("end", 0, 0, *number),
        }
    }
}

/// A recorder that keeps everything.
#[derive(Debug, Default)]
pub struct Trace {
    events: Mutex<Vec<Event>>,
    turns: Mutex<Option<Arc<Turns>>>,
}

impl Trace {
    /// Adds a mark.
    #[track_caller]
    pub fn mark(&self, kind: Kind) {
        self.push(Event { thread: 0, call: "", site: Location::caller(), kind });
    }

    /// Events so far.
    pub fn len(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of the events so far.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The events so far, taken out.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on threads take turns, or do not.
    pub fn take_turns(&self, turns: Option<Arc<Turns>>) {
        *self.turns.lock().unwrap_or_else(PoisonError::into_inner) = turns;
    }

    fn push(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Recorder for Trace {
    fn event(&self, told: Told<'_>) {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(turns) = turns {
            turns.event();
        }
        let slice = told.mapping;
        let kind = match told.kind {
            EventKind::Store { offset, data } => {
                Kind::Store { slice, offset, data: data.to_vec(), streamed: false }
            }
            EventKind::NtStore { offset, data } => {
                Kind::Store { slice, offset, data: data.to_vec(), streamed: true }
            }
            EventKind::Flush { offset, len } => Kind::Flush { slice, offset, len },
            EventKind::Fence => Kind::Fence,
            EventKind::Sync => Kind::Sync { slice },
        };
        self.push(Event { thread: told.thread, call: told.call, site: told.site, kind });
    }
}

/// Makes all stores of `events`: what the memory held at the end.
pub fn apply_all(events: &[Event], images: &mut [Vec<u8>]) {
    for event in events {
        if let Kind::Store { slice, offset, data, .. } = &event.kind {
            let at = *offset as usize;
            images[*slice as usize][at..at + data.len()].copy_from_slice(data);
        }
    }
}
