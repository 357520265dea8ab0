//! What is to be copied, and copying it: the only `unsafe` of this crate.
//!
//! A caller lends its buffer, piece by piece, to whoever takes the piece's request. The pointers
//! stay good because [`Task`] borrows what they point to, and the call that holds it does not
//! return before all pieces of its job are done; and no two threads use one byte because a piece is
//! claimed once (`slots.rs`) and pieces do not overlap (`Task::request`, `are_apart`).
//!
//! What a ring holds is believed, so rings of requests with pointers are this process's alone.

use crate::ring::WORDS;
use crate::slots::PieceId;
use placement::Kind;
use pmem::{InFlight, Mapping};
use smallvec::SmallVec;
use std::marker::PhantomData;

// pieces of one mapping are copied by several threads at one time
const _: fn() = || {
    fn shared<T: Sync>() {}
    shared::<Mapping>();
};

/// Bytes that have one checksum.
pub const BLOCK_BYTES: usize = 4096;

/// A piece of a task: a run of bytes that lie one behind the other in a slice.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'m> {
    /// The slice.
    pub slice: u8,
    /// Its memory.
    pub mapping: &'m Mapping,
    /// Where in it.
    pub at: u64,
    /// Where in the buffer.
    pub from: usize,
    /// Bytes.
    pub len: usize,
}

/// What one call copies: a buffer that is lent to whoever copies pieces of it.
#[derive(Debug)]
pub struct Task<'b> {
    kind: Kind,
    bytes: *mut u8,
    len: usize,
    /// Where the checksum of each block goes that is written.
    sums: *mut u32,
    /// What its caller copied of pieces that were for workers.
    taken_back: SmallVec<[(u8, usize); 2]>,
    lent: PhantomData<&'b mut [u8]>,
}

/// A piece as it goes through a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub id: PieceId,
    pub kind: Kind,
    mapping: *const Mapping,
    at: u64,
    bytes: *mut u8,
    pub len: usize,
    sums: *mut u32,
}

impl<'b> Task<'b> {
    /// `data`, whole blocks, is written; `sums` gets the checksum of each.
    pub fn write(data: &'b [u8], sums: &'b mut [u32]) -> Task<'b> {
        assert_eq!(data.len(), sums.len() * BLOCK_BYTES, "whole blocks, a sum for each");
        let bytes = data.as_ptr().cast_mut(); // never written through: its kind says so
        Task {
            kind: Kind::Write,
            bytes,
            len: data.len(),
            sums: sums.as_mut_ptr(),
            taken_back: SmallVec::new(),
            lent: PhantomData,
        }
    }

    /// `buffer` is read into.
    pub fn read(buffer: &'b mut [u8]) -> Task<'b> {
        let (bytes, len) = (buffer.as_mut_ptr(), buffer.len());
        let (sums, taken_back) = (std::ptr::null_mut(), SmallVec::new());
        Task { kind: Kind::Read, bytes, len, sums, taken_back, lent: PhantomData }
    }

    /// Which way.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Slices and bytes of pieces that were for workers, and that the caller copied after all:
    /// since none came in time, or had a place for them, or could copy them.
    pub fn taken_back(&self) -> &[(u8, usize)] {
        &self.taken_back
    }

    /// The caller copies this piece, which was for workers.
    pub(crate) fn take_back(&mut self, piece: &Piece<'_>) {
        self.taken_back.push((piece.slice, piece.len));
    }

    /// Copies a piece by the calling thread. No other piece that somebody copies meanwhile overlaps
    /// it: see [`are_apart`].
    pub(crate) fn copy(&mut self, piece: &Piece<'_>) -> pmem::Result<InFlight> {
        let id = PieceId { slot: 0, piece: 0, generation: 0 };
        let request = self.request(piece, id, &mut 0);
        // SAFETY: the task's borrow goes on while it is used here; no other thread has the piece.
        unsafe { request.copy() }
    }

    /// What asks for a piece, which begins where those before it ended, at `*end`, or behind.
    pub(crate) fn request(&self, piece: &Piece<'_>, id: PieceId, end: &mut usize) -> Request {
        let fits = piece.from >= *end
            && piece.from.checked_add(piece.len).is_some_and(|to| to <= self.len)
            && (self.kind == Kind::Read || (piece.from | piece.len).is_multiple_of(BLOCK_BYTES));
        assert!(fits, "pieces lie in the buffer one behind the other");
        *end = piece.from + piece.len;
        // in the buffer, as checked; a read has no sums
        let sums = match self.kind {
            Kind::Read => self.sums,
            Kind::Write => self.sums.wrapping_add(piece.from / BLOCK_BYTES),
        };
        Request {
            id,
            kind: self.kind,
            mapping: piece.mapping,
            at: piece.at,
            bytes: self.bytes.wrapping_add(piece.from),
            len: piece.len,
            sums,
        }
    }
}

/// Whether no two of these overlap in the buffer, both in the order in which they lie there.
pub(crate) fn are_apart(some: &[Piece<'_>], others: &[Piece<'_>]) -> bool {
    let (mut some, mut others) = (some.iter().peekable(), others.iter().peekable());
    let mut end = 0;
    loop {
        let next = match (some.peek(), others.peek()) {
            (Some(one), Some(other)) if one.from <= other.from => some.next(),
            (Some(_), None) => some.next(),
            (_, Some(_)) => others.next(),
            (None, None) => return true,
        };
        let Some(piece) = next else { return true };
        if piece.from < end {
            return false;
        }
        end = piece.from.saturating_add(piece.len);
    }
}

impl Request {
    /// The word that holds the length.
    pub const LEN_WORD: usize = 4;

    /// One that nobody serves, of so many bytes.
    #[cfg(test)]
    pub fn of_length(len: usize) -> Request {
        let id = PieceId { slot: 0, piece: 0, generation: 0 };
        let (mapping, bytes) = (std::ptr::null(), std::ptr::null_mut());
        Request { id, kind: Kind::Write, mapping, at: 0, bytes, len, sums: std::ptr::null_mut() }
    }

    /// As words of a ring.
    pub fn encode(&self) -> [u64; WORDS] {
        let id = u64::from(self.id.generation) << 32
            | u64::from(self.id.slot) << 16
            | u64::from(self.id.piece) << 1
            | u64::from(self.kind == Kind::Write);
        [
            id,
            self.mapping.expose_provenance() as u64,
            self.at,
            self.bytes.expose_provenance() as u64,
            self.len as u64,
            self.sums.expose_provenance() as u64,
            0,
        ]
    }

    /// The request that a ring of this process held.
    pub fn decode(words: &[u64; WORDS]) -> Request {
        let [id, mapping, at, bytes, len, sums, _] = *words;
        Request {
            id: PieceId {
                slot: (id >> 16) as u16,
                piece: (id as u16) >> 1,
                generation: (id >> 32) as u32,
            },
            kind: if id & 1 == 1 { Kind::Write } else { Kind::Read },
            mapping: std::ptr::with_exposed_provenance(mapping as usize),
            at,
            bytes: std::ptr::with_exposed_provenance_mut(bytes as usize),
            len: len as usize,
            sums: std::ptr::with_exposed_provenance_mut(sums as usize),
        }
    }

    /// Copies. What was written is in flight: to be fenced by this thread. An error: the memory
    /// cannot be read.
    ///
    /// # Safety
    /// The task's borrow goes on, and this thread alone has claimed the piece, and not copied it.
    pub unsafe fn copy(&self) -> pmem::Result<InFlight> {
        // SAFETY: the piece borrowed the mapping from before the task's job began until it is over,
        // which it is not, as this piece is not done.
        let mapping = unsafe { &*self.mapping };
        match self.kind {
            Kind::Read => {
                // SAFETY: inside the buffer that the task borrows mutably, as `Task::request`
                // checked; this thread alone has the piece, and no other piece overlaps it.
                let buffer = unsafe { std::slice::from_raw_parts_mut(self.bytes, self.len) };
                mapping.read_own(self.at, buffer).map(|()| InFlight::none())
            }
            Kind::Write => {
                // SAFETY: inside the data that the task borrows, as `Task::request` checked.
                let data = unsafe { std::slice::from_raw_parts(self.bytes, self.len) };
                let blocks = self.len / BLOCK_BYTES;
                // SAFETY: one for each block of the data (`Task::write`), of which this thread
                // alone has those of this piece.
                let sums = unsafe { std::slice::from_raw_parts_mut(self.sums, blocks) };
                Ok(mapping.write_blocks(self.at, data, sums))
            }
        }
    }
}
