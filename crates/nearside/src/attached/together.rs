//! Reads of one moment.

use fs::Error as FsError;
use region::Seen;
use wire::{DATA_BYTES_MAX, Piece, Reply, Request};

use super::{Attached, nonsense};
use crate::Result;

/// Pieces of one call, at most, and files that are watched: they fit into a message.
const PIECES_MAX: usize = 384;
const WATCHED_MAX: usize = 256;
/// Bytes that one call brings, at most.
const BYTES_MAX: usize = DATA_BYTES_MAX - WATCHED_MAX * COUNT_BYTES * 2;
/// Of a file's number.
const COUNT_BYTES: usize = size_of::<u64>();
/// How often what takes several calls is read again, as some of it changes meanwhile.
const TRIES_MAX: u32 = 16;

const _: () = assert!(
    PIECES_MAX * 26 + WATCHED_MAX * 10 + 64 <= wire::MESSAGE_BYTES_MAX,
    "varints of each piece and file"
);

impl Attached {
    /// Reads places of files, each of which is among `files`, at one moment
    /// ([`region::Service::read_together`]).
    pub(crate) fn read_all(
        &self,
        places: &[(u64, u64, usize)],
        files: &[u64],
        buffer: &mut [u8],
    ) -> Result<Seen> {
        if files.len() > WATCHED_MAX {
            return Err(FsError::TooLong.into());
        }
        let calls = calls(places);
        for _ in 0..TRIES_MAX {
            let mut rest = &mut buffer[..];
            let mut all: Option<Seen> = None;
            for pieces in &calls {
                let len = pieces.iter().map(|piece| piece.len as usize).sum();
                let (now, others) = rest.split_at_mut(len);
                rest = others;
                let seen = self.read_pieces(pieces, files, now)?;
                all = Some(match all {
                    Some(first) if first.service == seen.service => {
                        Seen { after: seen.after, ..first }
                    }
                    // else what came before is of a time that is not comparable
                    Some(first) => Seen { after: Vec::new(), ..first },
                    None => seen,
                });
            }
            let seen = all.unwrap_or_default();
            if calls.len() <= 1 || seen.before == seen.after {
                return Ok(seen);
            }
        }
        Err(FsError::Conflict.into())
    }

    fn read_pieces(&self, pieces: &[Piece], files: &[u64], buffer: &mut [u8]) -> Result<Seen> {
        let (pieces, watched) = (pieces.to_vec(), files.to_vec());
        let mut answer = vec![0; 2 * files.len() * COUNT_BYTES + buffer.len()];
        let request = Request::ReadTogether { pieces, watched };
        let (Reply::Number(service), len) = self.exchange(&request, &[], &mut answer)? else {
            return Err(nonsense());
        };
        if len != answer.len() {
            return Err(nonsense());
        }
        let (counts, bytes) = answer.split_at(2 * files.len() * COUNT_BYTES);
        buffer.copy_from_slice(bytes);
        let words = counts.as_chunks::<COUNT_BYTES>().0.iter().map(|it| u64::from_le_bytes(*it));
        let mut before: Vec<u64> = words.collect();
        let after = before.split_off(files.len());
        Ok(Seen { service, before, after })
    }
}

/// The pieces of each call.
fn calls(places: &[(u64, u64, usize)]) -> Vec<Vec<Piece>> {
    let (mut calls, mut room) = (vec![Vec::new()], BYTES_MAX);
    for (file, mut offset, mut left) in places.iter().copied() {
        while left > 0 {
            if room == 0 || calls.last().is_some_and(|call| call.len() == PIECES_MAX) {
                calls.push(Vec::new());
                room = BYTES_MAX;
            }
            let now = left.min(room);
            if let Some(call) = calls.last_mut() {
                call.push(Piece { file, offset, len: now as u32 });
            }
            (offset, left, room) = (offset + now as u64, left - now, room - now);
        }
    }
    calls
}
