//! Resilvering: a file that was away while its mirrored pool was changed gets all that it lacks,
//! while the pool is in use.
//!
//! What is written goes to the stale copy, too, from the start. So each piece is copied once while
//! others write, which may take something of theirs back, and compared once while nobody does:
//! from then on both copies stay the same.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::system::FileSystem;
use locks::futex::{Condvar, Mutex};
use pool::{BLOCK_BYTES, LOG_BLOCK};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that are copied at once, and compared while writers wait.
const PIECE_BYTES: u64 = 256 << 10;
/// Longest rest after a piece: it rests as long as the piece took.
const REST_MAX: Duration = Duration::from_millis(100);
/// How often who waits is told how far it is.
const LOOK: Duration = Duration::from_millis(50);

/// How far it is.
#[derive(Clone, Debug, Default)]
pub struct Resilvered {
    /// Bytes that are done.
    pub done: u64,
    /// Of how many.
    pub of: u64,
    /// Bytes that had to be copied.
    pub copied: u64,
    /// What can be read in no copy: it stays as it is.
    pub unreadable: Vec<String>,
    /// Whether it has ended, and why if not because all is done.
    pub ended: Option<std::result::Result<(), String>>,
}

/// Is told how many bytes are done, of how many, and ends a resilvering by returning false.
pub type EachResilvered<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// How far it is, and what is asked of it.
#[derive(Debug, Default)]
pub struct Resilvering {
    state: Mutex<State>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct State {
    so_far: Option<Resilvered>,
    stop: bool,
    /// Somebody waits: no rests.
    hurry: bool,
    /// Somebody does it.
    runs: bool,
}

impl Resilvering {
    /// How far it is; none where it has not begun.
    pub fn so_far(&self) -> Option<Resilvered> {
        self.state.lock().so_far.clone()
    }

    /// Begins, unless somebody is at it.
    fn begin(&self, of: u64) -> bool {
        let mut state = self.state.lock();
        let begins = !std::mem::replace(&mut state.runs, true);
        if begins {
            state.so_far = Some(Resilvered { of, ..Resilvered::default() });
        }
        begins
    }

    /// It has ended, or was stopped (none).
    fn end(&self, ended: Option<std::result::Result<(), String>>) {
        let mut state = self.state.lock();
        state.runs = false;
        state.so_far.get_or_insert_default().ended = ended;
    }

    /// Ends it, soon.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.told.notify_all();
    }

    /// Tells how far it is, and rests; false if it is to end.
    fn rest(&self, tell: impl FnOnce(&mut Resilvered), rest: Duration) -> bool {
        let mut state = self.state.lock();
        tell(state.so_far.get_or_insert_default());
        if !state.stop && !state.hurry && !rest.is_zero() {
            self.told.wait_for(&mut state, rest.min(REST_MAX));
        }
        !state.stop
    }

    /// Waits for who does it.
    fn wait(&self, each: EachResilvered<'_>) {
        loop {
            let mut state = self.state.lock();
            state.hurry = true;
            self.told.notify_all();
            let Some(so_far) = &state.so_far else { return };
            let (done, of) = (so_far.done, so_far.of);
            if !state.runs || state.stop {
                return;
            }
            drop(state);
            if !each(done, of) {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Core {
    /// Brings all stale copies up to date, as it goes; with rests where nobody waits for it.
    pub fn resilver(&self, mut each: Option<EachResilvered<'_>>) {
        let slices = self.pool.stale_slices();
        let bytes = |slice: &usize| self.pool.slices()[*slice].superblock.bytes();
        let of = slices.iter().map(bytes).sum();
        if slices.is_empty() || !self.resilvering.begin(of) {
            // what has ended is not waited for
            if let Some(each) = each {
                self.resilvering.wait(each);
            }
            return;
        }
        let ended = self.resilver_slices(&slices, &mut each);
        if let Err(error) = &ended {
            tracing::error!("bringing stale files up to date: {error}");
        }
        let ended = match ended {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error.to_string())),
        };
        self.resilvering.end(ended);
    }

    /// False if it was stopped.
    fn resilver_slices(
        &self,
        slices: &[usize],
        each: &mut Option<EachResilvered<'_>>,
    ) -> Result<bool> {
        for slice in slices {
            let end = self.pool.slices()[*slice].superblock.bytes();
            for from in (0..end).step_by(PIECE_BYTES as usize) {
                let began = Instant::now();
                let piece = from..end.min(from + PIECE_BYTES);
                let (copied, unreadable) = self.resilver_piece(*slice, &piece)?;
                let rest = if each.is_none() { began.elapsed() } else { Duration::ZERO };
                let mut goes_on = true;
                let tell = |so_far: &mut Resilvered| {
                    so_far.done += piece.end - piece.start;
                    so_far.copied += copied;
                    so_far.unreadable.extend(unreadable);
                    goes_on = each.as_mut().is_none_or(|each| each(so_far.done, so_far.of));
                };
                if !self.resilvering.rest(tell, rest) || !goes_on {
                    return Ok(false);
                }
            }
        }
        let unreadable = self.resilvering.so_far().map_or(0, |so_far| so_far.unreadable.len());
        if unreadable > 0 {
            return Err(Error::Damaged(format!(
                "{unreadable} blocks can be read in no copy: what was away stays stale; nearside \
                 check says what they belong to"
            )));
        }
        let _one = self.checkpointing.lock();
        self.pool.check_writable()?;
        let _closed = self.pool.close_gate();
        self.pool.all_copied()?;
        Ok(true)
    }

    /// Bytes that had to be copied, and what could not be read.
    fn resilver_piece(&self, slice: usize, piece: &Range<u64>) -> Result<(u64, Vec<String>)> {
        let len = (piece.end - piece.start) as usize;
        // if it cannot be read, or is not free any more, that is seen the second time
        let copied = match self.is_free(slice, piece) {
            true => 0,
            false => self.pool.copy_to_stale(slice, piece.start, len).unwrap_or(0),
        };
        let _one = self.checkpointing.lock();
        self.pool.check_writable()?;
        let _closed = self.pool.close_gate();
        if self.is_free(slice, piece) {
            return Ok((copied as u64, Vec::new()));
        }
        if let Ok(again) = self.pool.copy_to_stale(slice, piece.start, len) {
            return Ok((copied.max(again) as u64, Vec::new()));
        }
        let (mut copied, mut unreadable) = (0, Vec::new());
        for block in piece.clone().step_by(BLOCK_BYTES as usize) {
            match self.pool.copy_to_stale(slice, block, BLOCK_BYTES as usize) {
                Ok(bytes) => copied += bytes as u64,
                Err(error) => unreadable.push(format!("slice {slice}, byte {block}: {error}")),
            }
        }
        Ok((copied, unreadable))
    }

    /// Whether nothing that counts lies there: whoever takes the blocks writes them whole.
    fn is_free(&self, slice: usize, piece: &Range<u64>) -> bool {
        let slice = &self.pool.slices()[slice];
        piece.start > LOG_BLOCK * BLOCK_BYTES
            && slice.space.all_free(piece.start / BLOCK_BYTES..piece.end / BLOCK_BYTES)
    }
}

impl FileSystem {
    /// How far the stale copies of a mirrored pool are brought up to date; none where there were
    /// none, or nobody began.
    pub fn resilvered(&self) -> Option<Resilvered> {
        self.core.resilvering.so_far()
    }

    /// Brings the stale copies of a mirrored pool up to date, or waits for the thread that does so,
    /// which then hurries; and says how that went. None where nothing is stale.
    pub fn resilver(&self, each: EachResilvered<'_>) -> Option<Resilvered> {
        self.core.resilver(Some(each));
        self.resilvered()
    }
}

/// Makes the missing file of a slice of a mirrored pool anew; see [`pool::replace_file`].
pub fn replace_slice(
    dir: &Path,
    slice: usize,
    path: Option<&Path>,
    each: EachResilvered<'_>,
) -> Result<()> {
    Ok(pool::replace_file(dir, slice, path, each)?)
}
