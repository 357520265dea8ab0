//! Reading a lane that its process may store to at any time.
//!
//! It is read into memory of the service's own, by read(2): a process that makes its lane shorter
//! is no concern of the service's. What was read is not read again: a record that was whole then is
//! what its process stored, whatever it has stored there since.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::record::{ALIGN, RECORD_MAX, Record, decode, len_said, place};
use crate::{Error, LANE_BYTES, Result};

/// Bytes that are read first: there is often one record, or none.
const FIRST: usize = 8 << 10;
/// Bytes that are read at a time when there are more: any record lies in so many.
const MORE: usize = RECORD_MAX;

/// A part of a lane, as it was when it was read.
#[derive(Debug, Default)]
pub(crate) struct Part {
    room: Vec<u8>,
    len: usize,
    from: u64,
}

impl Part {
    /// What is before `position` is not wanted any more.
    fn begin(&mut self, position: u64) {
        let rest = self.rest(position).map_or(0, <[u8]>::len);
        self.room.copy_within(self.len - rest..self.len, 0);
        (self.from, self.len) = (position, rest);
    }

    /// Nothing of it is wanted.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Reads so much from `at` on, which lies in the part or at its end; not over the end of the
    /// lap.
    fn read(&mut self, lane: &File, at: u64, len: usize) -> Result<()> {
        let len = len.min((LANE_BYTES - at % LANE_BYTES) as usize);
        let from = (at - self.from) as usize;
        if self.room.len() < from + len {
            self.room.resize(from + len, 0);
        }
        let mut done = 0;
        while done < len {
            let place = at % LANE_BYTES + done as u64;
            match lane.read_at(&mut self.room[from + done..from + len], place) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read")(error)),
            }
        }
        // a lane that was cut short has no records there
        self.len = from + done;
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

    /// Bytes of a record that was found here; none, if they are not here any more.
    pub(crate) fn bytes(&self, positions: &Range<u64>) -> &[u8] {
        let len = (positions.end - positions.start) as usize;
        self.rest(positions.start).and_then(|rest| rest.get(..len)).unwrap_or_default()
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

/// Calls `each` for the whole records from `from` on, until it says that it has enough, and no
/// further than to the end of a lap: with the record, where it is, and the position behind it. What
/// it is given may be anything. Their bytes stay in `part`.
pub(crate) fn read(
    lane: &File,
    seed: u32,
    from: Place,
    part: &mut Part,
    each: &mut dyn FnMut(&Record<'_>, u64, u64) -> bool,
) -> Result<()> {
    part.begin(from.position);
    let (mut position, mut at) = (from.position, from.position);
    // where this call last read on, and how much, or up to the lap's end
    let mut last = None;
    loop {
        if let Some(record) = part.record(seed, at) {
            let behind = at + record.len as u64;
            if place(position, record.len) != at || behind > from.end || !each(&record, at, behind)
            {
                return Ok(());
            }
            (position, at) = (behind, behind);
            continue;
        }
        let is_read = |read: (u64, usize)| read == (at, MORE) || part.would_hold(at);
        if !last.is_some_and(is_read) {
            // it is not here, or what is here was there before it
            let is_first = part.len == 0 && position == from.position;
            let len = if is_first && last != Some((at, FIRST)) { FIRST } else { MORE };
            part.read(lane, at, len)?;
            last = Some((at, len));
            continue;
        }
        // it may not have fitted in before the lap's end
        let next = position.next_multiple_of(LANE_BYTES);
        if next == at || position != from.position {
            return Ok(());
        }
        at = next;
        part.begin(at);
    }
}
