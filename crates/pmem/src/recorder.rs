//! The crash recorder's hook: every store, flush, fence and sync, as it happens.
//!
//! Only with the cargo feature `recorder`; without it no trace of this module is compiled.
//!
//! Applying the stores in order to the image from before gives the image after. A store is
//! recorded before it is made; a flush, a fence and a sync after. Fences are those that order
//! something: a fence of a thread that has stored nothing since its last one is not recorded.
//! Each event has its site: the line outside this crate that asked for it.

use crate::mapping::Mapping;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Is told what happens. Called on the thread that does it; it may block that thread.
pub trait Recorder: Send + Sync {
    /// One event.
    fn event(&self, event: Event<'_>);

    /// `len` bytes at `offset` of a mapping are about to be read.
    fn read(&self, mapping: u32, offset: u64, len: usize) {
        let _ = (mapping, offset, len);
    }
}

/// What happened, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// Small number of the thread, from 1.
    pub thread: u64,
    /// Number that [`Mapping::set_id`] gave, or [`EVERY_MAPPING`] for fences.
    pub mapping: u32,
    /// The call that the thread is in, as [`set_call`] said; empty before.
    pub call: &'static str,
    /// The line of the engine that asked for it.
    pub site: &'static Location<'static>,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// The mapping of a fence, which orders stores to all of them.
pub const EVERY_MAPPING: u32 = u32::MAX;

/// What happened. Offsets and lengths are bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind<'a> {
    /// An ordinary store: durable at any time, for certain once flushed and fenced.
    Store {
        /// Where.
        offset: u64,
        /// The bytes stored.
        data: &'a [u8],
    },
    /// A non-temporal store of whole lines: durable at any time, for certain once fenced.
    NtStore {
        /// Where.
        offset: u64,
        /// The bytes stored.
        data: &'a [u8],
    },
    /// The lines that hold these bytes are on their way. Only in domains that flush.
    Flush {
        /// Where.
        offset: u64,
        /// How many bytes; the lines that hold them are flushed whole.
        len: usize,
    },
    /// Stores and flushes of this thread before it are done.
    Fence,
    /// Everything stored to this mapping before it is on the medium.
    Sync,
}

impl EventKind<'_> {
    /// The same, `by` bytes further on.
    fn moved(mut self, by: u64) -> Self {
        match &mut self {
            EventKind::Store { offset, .. }
            | EventKind::NtStore { offset, .. }
            | EventKind::Flush { offset, .. } => *offset += by,
            EventKind::Fence | EventKind::Sync => {}
        }
        self
    }
}

/// A mapping's wire to its recorder, the same for all its parts.
#[derive(Default)]
pub(crate) struct Tap {
    recorder: RwLock<Option<Arc<dyn Recorder>>>,
    id: AtomicU32,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Mapping {
    /// Sets who is told of this mapping's events, or nobody.
    pub fn set_recorder(&self, recorder: Option<Arc<dyn Recorder>>) {
        *self.tap.recorder.write().unwrap_or_else(PoisonError::into_inner) = recorder;
    }

    /// Sets the number that this mapping goes by in events (0 at first).
    pub fn set_id(&self, id: u32) {
        self.tap.id.store(id, Ordering::Relaxed);
    }

    fn recorder(&self) -> Option<Arc<dyn Recorder>> {
        self.tap.recorder.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells of a read, about to be made.
    pub(crate) fn record_read(&self, offset: u64, len: usize) {
        if let Some(recorder) = self.recorder() {
            recorder.read(self.tap.id.load(Ordering::Relaxed), self.file_offset + offset, len);
        }
    }

    #[track_caller]
    pub(crate) fn record(&self, kind: EventKind<'_>) {
        let Some(recorder) = self.recorder() else { return };
        if kind != EventKind::Sync {
            expect_fence(&recorder);
        }
        let kind = kind.moved(self.file_offset);
        recorder.event(event(self.tap.id.load(Ordering::Relaxed), kind));
    }
}

thread_local! {
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    static CALL: Cell<&'static str> = const { Cell::new("") };
    static BLIND: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
    static COMPARED: RefCell<BTreeMap<&'static Location<'static>, bool>> =
        const { RefCell::new(BTreeMap::new()) };
    /// Who is to be told of this thread's next fence.
    static UNFENCED: RefCell<Vec<Arc<dyn Recorder>>> = const { RefCell::new(Vec::new()) };
}

/// From now on, on this thread, the checksums compared at this site fit, whatever they are.
pub fn set_blind(site: Option<&'static Location<'static>>) {
    BLIND.set(site);
}

/// Where checksums were compared on this thread since the last call of this, and whether one did
/// not fit there.
pub fn take_compared() -> BTreeMap<&'static Location<'static>, bool> {
    COMPARED.take()
}

/// What who compared checksums is told.
#[track_caller]
pub(crate) fn compared(fits: bool) -> bool {
    let site = Location::caller();
    COMPARED.with_borrow_mut(|compared| *compared.entry(site).or_default() |= !fits);
    fits || BLIND.get() == Some(site)
}

/// Says which file system call this thread is in, from now on.
pub fn set_call(call: &'static str) {
    CALL.set(call);
}

/// The file system call that this thread is in.
pub fn call() -> &'static str {
    CALL.get()
}

#[track_caller]
fn event(mapping: u32, kind: EventKind<'_>) -> Event<'_> {
    let (thread, site) = (THREAD.with(|thread| *thread), Location::caller());
    Event { thread, mapping, call: call(), site, kind }
}

fn expect_fence(recorder: &Arc<dyn Recorder>) {
    UNFENCED.with_borrow_mut(|unfenced| {
        if !unfenced.iter().any(|other| Arc::ptr_eq(other, recorder)) {
            unfenced.push(Arc::clone(recorder));
        }
    });
}

/// Tells of a fence, just made.
#[track_caller]
pub(crate) fn fenced() {
    // Taken out first: a recorder may use mappings of its own.
    for recorder in UNFENCED.take() {
        recorder.event(event(EVERY_MAPPING, EventKind::Fence));
    }
}
