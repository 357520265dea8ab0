//! Reading a lane that its process may store to at any time.
//!
//! It is read into memory of the service's own, by read(2): a process that makes its lane shorter
//! is no concern of the service's.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::record::{ALIGN, RECORD_MAX, Record, decode, len_said, place};
use crate::{Error, LANE_BYTES, Result};

/// Bytes that are read first: there is often one record, or none.
const FIRST: usize = 8 << 10;
/// Bytes that are read at a time when there are more.
const MORE: usize = 2 * RECORD_MAX;

/// A part of a lane, as it was when it was read.
#[derive(Debug, Default)]
pub(crate) struct Part {
    room: Vec<u8>,
    len: usize,
    from: u64,
}

impl Part {
    /// Reads so much from `from` on, not over the end of the lap.
    fn read(&mut self, lane: &File, from: u64, len: usize) -> Result<()> {
        let left = (LANE_BYTES - from % LANE_BYTES) as usize;
        let len = len.min(left);
        if self.room.len() < len {
            self.room.resize(len, 0);
        }
        self.from = from;
        let mut done = 0;
        while done < len {
            let at = from % LANE_BYTES + done as u64;
            match lane.read_at(&mut self.room[done..len], at) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read")(error)),
            }
        }
        // a lane that was cut short has no records there
        self.len = done;
        Ok(())
    }

    /// What was read from here on.
    fn rest(&self, at: u64) -> Option<&[u8]> {
        self.room[..self.len].get(usize::try_from(at.checked_sub(self.from)?).ok()?..)
    }

    /// Whether a record that is there would be in this part.
    fn would_hold(&self, position: u64) -> bool {
        let Some(rest) = self.rest(position).filter(|rest| rest.len() >= ALIGN) else {
            return false;
        };
        // what begins with no length is no record, however much is read of it
        len_said(rest).is_none_or(|len| len <= rest.len())
    }

    fn record(&self, seed: u32, position: u64) -> Option<Record<'_>> {
        decode(self.rest(position)?, seed, position)
    }
}

/// Where reading has come to, and how far it may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The next record's, or before it.
    pub position: u64,
    /// No record goes further: what is stored there was folded a lap ago.
    pub end: u64,
}

/// Calls `each` for the whole records from `from` on, until it says that it has enough: with the
/// record, and the position behind it. What it is given may be anything.
pub(crate) fn read(
    lane: &File,
    seed: u32,
    from: Place,
    part: &mut Part,
    each: &mut dyn FnMut(&Record<'_>, u64) -> bool,
) -> Result<()> {
    part.read(lane, from.position, FIRST)?;
    let (mut position, mut at) = (from.position, from.position);
    loop {
        if !part.would_hold(at) {
            part.read(lane, at, MORE)?;
        }
        let Some(record) = part.record(seed, at) else {
            // it may not have fitted in before the lap's end
            let next = position.next_multiple_of(LANE_BYTES);
            if next == at {
                return Ok(());
            }
            at = next;
            continue;
        };
        let behind = at + record.len as u64;
        if place(position, record.len) != at || behind > from.end || !each(&record, behind) {
            return Ok(());
        }
        (position, at) = (behind, behind);
    }
}
