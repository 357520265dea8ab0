//! What happens to the memory of an arena: which bytes are stored, and which lines are read.

use crate::events::Trace;
use crate::model::{LINE, LineId, lines};
use pmem::recorder::{Event, EventKind, Recorder};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What has happened to it.
#[derive(Debug, Default)]
pub struct Watched {
    /// What is not as it was: slice, first byte, bytes.
    changes: Mutex<Vec<(u32, usize, usize)>>,
    read: Mutex<Read>,
}

/// Which of certain lines were read.
#[derive(Debug, Default)]
struct Read {
    /// A bit for each line of each slice: it is asked for, and neither read nor overwritten yet.
    open: Vec<Vec<u64>>,
    lines: Vec<LineId>,
}

/// Is told of every store and read, and tells a trace of stores if there is one.
pub struct Watch {
    /// Where it is noted.
    pub watched: Arc<Watched>,
    /// Who is told.
    pub trace: Option<Arc<Trace>>,
}

impl Read {
    /// Closes the lines from `first` on and below `end`; notes those that were open, if they are
    /// read.
    fn close(&mut self, slice: u32, (first, end): (u64, u64), is_read: bool) {
        let Some(bits) = self.open.get_mut(slice as usize) else { return };
        for number in first..end {
            let Some(word) = bits.get_mut(number as usize / 64) else { return };
            let bit = 1 << (number % 64);
            if *word & bit != 0 {
                *word &= !bit;
                if is_read {
                    self.lines.push((slice, number));
                }
            }
        }
    }
}

impl Watched {
    fn changes(&self) -> MutexGuard<'_, Vec<(u32, usize, usize)>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was put there.
    pub fn note(&self, slice: u32, offset: usize, len: usize) {
        self.changes().push((slice, offset, len));
    }

    /// How much was stored and put there since it was last taken.
    pub fn count(&self) -> usize {
        self.changes().len()
    }

    /// What was stored and put there: slice, first byte, bytes.
    pub fn take(&self) -> Vec<(u32, usize, usize)> {
        std::mem::take(&mut *self.changes())
    }

    /// From now on notes which of these lines are read, of slices of so many bytes.
    pub fn ask<'l>(
        &self,
        bytes: impl Iterator<Item = usize>,
        lines: impl Iterator<Item = &'l LineId>,
    ) {
        let mut read = self.read();
        read.open = bytes.map(|bytes| vec![0; bytes.div_ceil(LINE * 64)]).collect();
        read.lines.clear();
        for (slice, number) in lines {
            read.open[*slice as usize][*number as usize / 64] |= 1 << (number % 64);
        }
    }

    /// Those of them that were read, in the order in which they were.
    pub fn take_read(&self) -> Vec<LineId> {
        let mut read = self.read();
        read.open.clear();
        std::mem::take(&mut read.lines)
    }
}

impl Recorder for Watch {
    fn event(&self, told: Event<'_>) {
        if let EventKind::Store { offset, data } | EventKind::NtStore { offset, data } = told.kind {
            let (offset, end) = (offset as usize, offset as usize + data.len());
            self.watched.note(told.mapping, offset, data.len());
            let whole = ((offset.div_ceil(LINE)) as u64, (end / LINE) as u64);
            self.watched.read().close(told.mapping, whole, false);
        }
        if let Some(trace) = &self.trace {
            trace.event(told);
        }
    }

    fn read(&self, mapping: u32, offset: u64, len: usize) {
        self.watched.read().close(mapping, lines(offset as usize, len), true);
    }
}
