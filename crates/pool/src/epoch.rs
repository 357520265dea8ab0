//! Epochs of the `sync` domain: group commit.
//!
//! Completed syncs cut time into epochs. To close one:
//! 1. with the gate closed, a record is appended that lists where every lane ends, and where the
//!    record of the epoch before ends; what was freed so far is set aside;
//! 2. all slices are synced: the record, and all that it lists, with one sync;
//! 3. what was set aside may be used again.
//!
//! After a restart of the machine, recovery takes the newest epoch whose record is there and all of
//! whose records and data match their checksums; a sync that completed is such, and what came
//! after it is dropped whole. So what survives is a prefix of history.
//!
//! An epoch is closed only after the sync of the one before has ended: its record says that all of
//! that one is on the medium (`closed_epochs.rs`).
//!
//! Callers that ask while a sync is under way share the next one.

use crate::error::Result;
use crate::pool::Pool;
use crate::record::{KIND_EPOCH, Record, RecordBuffer};
use locks::futex::{Condvar, Mutex};
use pmem::InFlight;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a lane ended when an epoch was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// The slice.
    pub slice: u8,
    /// The lane.
    pub lane: u16,
    /// Sequence number of its chunk.
    pub chunk: u64,
    /// Bytes used in the chunk.
    pub used: u32,
}

/// Bytes of an entry of an epoch's payload: its kind, and a place in a lane.
const ENTRY_BYTES: usize = 16;
/// Where a lane ended.
const ENTRY_TAIL: u8 = 1;
/// Where the record of the epoch before ends. It lies behind all tails; earlier builds wrote none,
/// and read no further than the tails.
const ENTRY_BEFORE: u8 = 2;

/// The group commit of one pool.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    turn: Mutex<Turn>,
    done: Condvar,
    /// Syncs that closed one.
    syncs: AtomicU64,
}

#[derive(Debug, Default)]
struct Turn {
    asked: u64,
    completed: u64,
    running: bool,
    /// The last epoch that was closed and synced.
    last: Option<SyncedEpoch>,
}

#[derive(Debug)]
struct SyncedEpoch {
    /// Where the lanes ended behind its record.
    covered: Vec<Tail>,
    /// Where its record ends.
    end: Option<Tail>,
    /// Stamp of its record: those of later ones are higher, in whichever lane.
    stamp: u64,
}

impl Pool {
    /// Syncs of the medium that closed an epoch.
    pub fn syncs(&self) -> u64 {
        self.epochs.syncs.load(Ordering::Relaxed)
    }

    /// Everything that returned before is on the medium when this returns. `LogFull`: a checkpoint
    /// must come first (and does the same).
    pub fn sync_epoch(&self) -> Result<()> {
        let mut turn = self.epochs.turn.lock();
        turn.asked += 1;
        let ticket = turn.asked;
        loop {
            if turn.completed >= ticket {
                return self.check_writable();
            }
            if !turn.running {
                break;
            }
            self.epochs.done.wait(&mut turn);
        }
        turn.running = true;
        let target = turn.asked;
        let last = turn.last.take();
        drop(turn);
        let result = self.close_epoch(last);
        let mut turn = self.epochs.turn.lock();
        turn.running = false;
        let result = result.map(|synced| {
            turn.completed = target;
            turn.last = Some(synced);
        });
        drop(turn);
        self.epochs.done.notify_all();
        result
    }

    fn tails(&self) -> Vec<Tail> {
        let of_slice = |(slice, log): (usize, &crate::log::SliceLog)| {
            log.tails().into_iter().map(move |(lane, chunk, used)| Tail {
                slice: slice as u8,
                lane,
                chunk,
                used,
            })
        };
        self.slices.iter().map(|slice| &slice.log).enumerate().flat_map(of_slice).collect()
    }

    fn close_epoch(&self, last: Option<SyncedEpoch>) -> Result<SyncedEpoch> {
        let closed = self.close_gate();
        self.check_writable()?;
        let before = self.tails();
        let (after, end) = match last {
            Some(last) if last.covered == before => return Ok(last),
            Some(last) => (last.stamp, last.end),
            None => (0, None),
        };
        let mut record = RecordBuffer::new(KIND_EPOCH, 0);
        for tail in &before {
            record.push(&encode(ENTRY_TAIL, tail));
        }
        if let Some(end) = &end {
            record.push(&encode(ENTRY_BEFORE, end));
        }
        // behind what this caller wrote: one page of the medium for both
        let (mut lane, slice) = self.lane();
        let (stamp, _) = lane.append(&slice.mapping, &mut record, after, InFlight::none())?;
        drop(lane);
        let freed = self.reclaim.take_open_epoch();
        let covered = self.tails();
        drop(closed);
        self.sync()?;
        self.epochs.syncs.fetch_add(1, Ordering::Relaxed);
        self.reclaim.epoch_closed(freed);
        // with the gate closed nothing else was appended
        let end = covered.iter().find(|tail| !before.contains(tail)).copied();
        Ok(SyncedEpoch { covered, end, stamp })
    }
}

fn encode(kind: u8, place: &Tail) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0u8; ENTRY_BYTES];
    bytes[0] = kind;
    bytes[1] = place.slice;
    bytes[2..4].copy_from_slice(&place.lane.to_le_bytes());
    bytes[4..8].copy_from_slice(&place.used.to_le_bytes());
    bytes[8..16].copy_from_slice(&place.chunk.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(u8, Tail)> {
    let place = Tail {
        slice: bytes[1],
        lane: u16::from_le_bytes(bytes[2..4].try_into().ok()?),
        used: u32::from_le_bytes(bytes[4..8].try_into().ok()?),
        chunk: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
    };
    Some((bytes[0], place))
}

/// The tails that an epoch's record lists, and where the record of the epoch before ends if it says
/// so.
pub fn decode_payload(payload: &[u8]) -> (Vec<Tail>, Option<Tail>) {
    let mut entries = payload.chunks_exact(ENTRY_BYTES).filter_map(decode).peekable();
    let mut tails = Vec::new();
    while let Some((_, tail)) = entries.next_if(|(kind, _)| *kind == ENTRY_TAIL) {
        tails.push(tail);
    }
    let before = entries.next().filter(|(kind, _)| *kind == ENTRY_BEFORE);
    (tails, before.map(|(_, place)| place))
}

/// Whether a record is one of an epoch that was closed with these tails.
pub fn is_until(record: &Record, tails: &[Tail]) -> bool {
    tails.iter().any(|tail| {
        (tail.slice, tail.lane) == (record.slice, record.lane)
            && (record.chunk, record.position) < (tail.chunk, tail.used)
    })
}

/// The records of an epoch that was closed with these tails.
pub fn records_until<'r>(records: &'r [Record], tails: &[Tail]) -> Vec<&'r Record> {
    records.iter().filter(|record| is_until(record, tails)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::KIND_CHANGE;
    use crate::tree::Key;
    use crate::{BlockAddr, Candidate, DataBlocks, FormatOptions, OpenOptions};
    use crate::{SliceBatch, SliceSpec};
    use pmem::{Domain, Mapping};
    use std::path::Path;

    const BYTES: usize = 4 << 20;

    struct NoBlocks;

    impl DataBlocks for NoBlocks {
        fn data_blocks(&self, _: &Key, _: &[u8], _: &mut dyn FnMut(BlockAddr)) {}
    }

    fn open(mapping: Mapping) -> Result<(Pool, crate::Recovery)> {
        let candidate = Candidate::from_mapping(Path::new("memory"), mapping, false)?;
        Pool::open_candidates(vec![candidate], &OpenOptions::default())
    }

    fn append(pool: &Pool) -> Result<()> {
        let mut record = RecordBuffer::new(KIND_CHANGE, 0);
        let (mut lane, slice) = pool.lane();
        lane.append(&slice.mapping, &mut record, 0, InFlight::none()).map(|_| ())
    }

    /// What a medium holds from before is no part of a new log.
    #[test]
    fn the_logs_area_is_written_at_format() -> Result<()> {
        let mapping = Mapping::memory_from(&[0x5A; BYTES], Domain::Sync)?;
        let options = FormatOptions { slice_bytes: BYTES as u64, ..FormatOptions::default() };
        crate::format_mappings(std::slice::from_ref(&mapping), &options)?;
        let (pool, _) = open(mapping)?;
        let slice = &pool.slices[0];
        let mut log = vec![1; slice.superblock.log_bytes.get() as usize];
        let first = crate::superblock::LOG_BLOCK * crate::superblock::BLOCK_BYTES;
        slice.mapping.read(first, &mut log)?;
        assert!(log.iter().all(|byte| *byte == 0));
        Ok(())
    }

    /// A sync returned while a checkpoint folded: its epoch lists where the lanes ended before the
    /// cut, too. After the roots had switched, recovery missed those records, and took the epoch,
    /// and what was synced with it, for lost.
    #[test]
    fn an_epoch_closed_while_a_checkpoint_folds_is_believed_before_and_after_the_roots()
    -> Result<()> {
        let mapping = Mapping::memory(BYTES, Domain::Sync)?;
        let options = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: BYTES as u64,
            ..FormatOptions::default()
        };
        crate::format_mappings(std::slice::from_ref(&mapping), &options)?;
        let (pool, _) = open(mapping)?;
        let image = |pool: &Pool| -> Result<Mapping> {
            let mut bytes = vec![0; BYTES];
            pool.slices[0].mapping.read(0, &mut bytes)?;
            Ok(Mapping::memory_from(&bytes, Domain::Sync)?)
        };
        let synced = |mapping: Mapping| -> Result<usize> {
            let (_pool, recovery) = open(mapping)?;
            let Some(epoch) = recovery.whole_epochs().into_iter().next() else { return Ok(0) };
            let records = records_until(&recovery.records, &epoch.tails);
            Ok(records.iter().filter(|record| record.kind == KIND_CHANGE).count())
        };
        append(&pool)?;
        let closed = pool.close_gate();
        let cut = pool.cut(&closed, 1);
        drop(closed);
        append(&pool)?;
        append(&pool)?;
        pool.sync_epoch()?;
        assert_eq!(synced(image(&pool)?)?, 3, "with the roots before");
        pool.commit(cut, &[SliceBatch::default()], &NoBlocks)?;
        assert_eq!(synced(image(&pool)?)?, 2, "with the new roots");
        Ok(())
    }
}
