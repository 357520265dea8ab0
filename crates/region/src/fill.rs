//! Bringing pages: what faults, and its neighbours.

use crate::PAGE_BYTES;
use crate::page_states::{ABSENT, COLD, EVICTING, FILLING, INSTALLING, RESIDENT, STALE, WRITING};
use crate::region::Inner;
use crate::regions::Shared;
use crate::source::Source;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pages that are read together, and put in place: who waits for the first one goes on then.
pub const PAGES_TOGETHER: usize = 64;
/// Pages that are brought before the lead is handed on.
const PAGES_ALONE: usize = 32;

/// What the threads that serve faults wait for, and the lead: one of them has it, and waits; the
/// others wait for the lead. Who serves a fault for long hands it on before, and most of what he
/// is to bring. So a fault wakes one thread, and one that waits for a device is in nobody's way.
#[derive(Debug)]
pub struct Waiting {
    /// Rings for what is to be brought, and at the end.
    bell: OwnedFd,
    events: OwnedFd,
    lead: Mutex<()>,
    /// For whoever comes first, those that are wanted first in front.
    to_fill: Mutex<VecDeque<(Arc<Inner>, Piece)>>,
    is_ended: AtomicBool,
}

/// Pages that are FILLING, no more than are read together.
#[derive(Debug)]
struct Piece {
    pages: Range<usize>,
    /// One that is read with them, but is not put in place.
    mark: Option<usize>,
}

/// The lead, until it is handed on.
struct Lead<'w> {
    waiting: &'w Waiting,
    held: Option<MutexGuard<'w, ()>>,
    /// Others wait; else the thread brings what it is to load itself.
    serves: bool,
}

thread_local! {
    /// Where who brings pages for himself reads them.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Piece {
    fn new(pages: Range<usize>, mark: usize) -> Piece {
        let mark = Some(mark).filter(|mark| pages.contains(mark));
        Piece { pages, mark }
    }
}

impl Lead<'_> {
    fn hand_on(&mut self) {
        self.held = None;
    }
}

/// What a thread with the lead has heard.
enum Heard {
    End,
    Pages(Arc<Inner>, Piece),
    /// Or nothing.
    Fault,
}

impl Waiting {
    /// For faults that come from there.
    pub fn new(faults: &Source) -> rustix::io::Result<Waiting> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let bell = eventfd(0, flags)?;
        let events = epoll::create(CreateFlags::CLOEXEC)?;
        for (descriptor, is_bell) in [(faults.descriptor(), 0), (bell.as_fd(), 1)] {
            epoll::add(&events, descriptor, EventData::new_u64(is_bell), EventFlags::IN)?;
        }
        let (lead, to_fill, is_ended) =
            (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Ok(Waiting { bell, events, lead, to_fill, is_ended })
    }

    /// Ends all threads.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
        self.ring(1);
    }

    /// Pages that are FILLING are brought by whoever has time.
    fn hand_out(&self, region: &Arc<Inner>, pages: Range<usize>, mark: usize) {
        let mut to_fill = self.to_fill.lock();
        let before = to_fill.len();
        let pieces = pages.clone().step_by(PAGES_TOGETHER);
        let ends = |at: usize| at..pages.end.min(at + PAGES_TOGETHER);
        to_fill.extend(pieces.map(|at| (region.clone(), Piece::new(ends(at), mark))));
        let more = to_fill.len() - before;
        drop(to_fill);
        self.ring(more as u64);
    }

    fn ring(&self, times: u64) {
        // no room for more: it rings
        let _ = rustix::io::write(&self.bell, &times.to_ne_bytes());
    }

    /// Waits for something to do.
    fn wait(&self) -> Heard {
        let mut events = Vec::with_capacity(2);
        let heard = epoll::wait(&self.events, rustix::buffer::spare_capacity(&mut events), None);
        if heard.is_err() || events.iter().all(|event| event.data.u64() == 0) {
            return Heard::Fault;
        }
        if self.is_ended.load(Ordering::SeqCst) {
            return Heard::End;
        }
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        match self.to_fill.lock().pop_front() {
            Some((region, piece)) => Heard::Pages(region, piece),
            None => Heard::Fault,
        }
    }
}

/// Serves faults until it is to stop.
pub fn serve(shared: &Shared, waiting: &Waiting) {
    let mut buffer = vec![0; PAGES_TOGETHER * PAGE_BYTES];
    loop {
        let mut lead = Lead { waiting, held: Some(waiting.lead.lock()), serves: true };
        while lead.held.is_some() {
            match waiting.wait() {
                Heard::End => return,
                Heard::Pages(region, piece) => {
                    lead.hand_on();
                    region.fill_all(piece, &mut buffer, &mut lead);
                }
                Heard::Fault => {
                    let Some(address) = shared.faults.next() else { continue };
                    let address = address as usize;
                    match shared.find(address) {
                        Some(region) => {
                            let page = (address - region.addresses().start) / PAGE_BYTES;
                            region.bring(page, &mut buffer, &mut lead);
                        }
                        // it went meanwhile
                        None => shared.faults.let_go(address),
                    }
                }
            }
        }
    }
}

impl Inner {
    /// Somebody waits for a page.
    fn bring(self: &Arc<Inner>, page: usize, buffer: &mut [u8], lead: &mut Lead<'_>) {
        loop {
            let state = self.pages.get(page);
            match state {
                ABSENT => {
                    if self.pages.change(page, ABSENT, FILLING) {
                        return self.fill(page, 1, buffer, lead);
                    }
                }
                EVICTING => std::thread::yield_now(),
                RESIDENT | COLD | WRITING if self.memory.is_guarded() => {
                    // it is not taken away meanwhile
                    if state != WRITING && self.pages.change(page, state, WRITING) {
                        return self.show(page);
                    }
                    std::thread::yield_now();
                }
                // another thread is at it, and wakes whoever waits
                FILLING | STALE | INSTALLING => return,
                _ => return self.wake(page..page + 1),
            }
        }
    }

    /// Shows a page of guarded memory that is this thread's, and there.
    fn show(&self, page: usize) {
        let at = page * PAGE_BYTES;
        let shown = self.shared.show(&self.memory, at, PAGE_BYTES);
        self.pages.set(page, RESIDENT);
        match shown {
            Ok(()) => self.wake(page..page + 1),
            Err(error) => {
                tracing::error!("a page of a region cannot be put in place: {error}");
                self.shared.faults.refuse(&self.memory, at);
            }
        }
    }

    fn wake(&self, pages: Range<usize>) {
        let (at, bytes) = (pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES);
        self.shared.faults.wake(&self.memory, at, bytes);
    }

    /// Brings those of these pages, no more than are read together, that are absent: for who is
    /// about to load from all of them, and would wait for a thread that brings them one part after
    /// the other.
    pub fn bring_all(self: &Arc<Inner>, pages: Range<usize>, waiting: &Waiting) {
        let is_absent = |page: &usize| self.pages.get(*page) == ABSENT;
        let Some(first) = pages.clone().find(is_absent) else { return };
        // where there is no room for them, they would go again before he comes to them
        if pages.len() > self.shared.window_pages() {
            return;
        }
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(PAGES_TOGETHER * PAGE_BYTES, 0);
            let mut lead = Lead { waiting, held: None, serves: false };
            for page in first..pages.end {
                if is_absent(&page) && self.pages.change(page, ABSENT, FILLING) {
                    self.fill(page, pages.end - page, buffer, &mut lead);
                }
            }
        });
    }

    /// Brings a page that is this thread's to bring, so many as `least` says with it, and others
    /// that seem wanted.
    fn fill(self: &Arc<Inner>, page: usize, least: usize, buffer: &mut [u8], lead: &mut Lead<'_>) {
        self.shared.counts.waits.fetch_add(1, Ordering::Relaxed);
        let wanted = self.reading.next(page, least, self.shared.window_pages());
        if wanted.pages.start > page {
            self.fill_all(Piece::new(page..page + 1, usize::MAX), buffer, lead);
            // nobody waits for these
            let pages = self.take(wanted.pages.start, wanted.pages.end);
            return lead.waiting.hand_out(self, pages, wanted.mark);
        }
        let all = page..self.take(page + 1, wanted.pages.end).end;
        let own = page..all.end.min(page + PAGES_TOGETHER);
        if own.end < all.end {
            lead.waiting.hand_out(self, own.end..all.end, wanted.mark);
        }
        if own.len() > PAGES_ALONE {
            lead.hand_on();
        }
        self.fill_all(Piece::new(own, wanted.mark), buffer, lead);
    }

    /// Pages from this one on that are absent, which are this thread's to bring now.
    pub fn take(&self, first: usize, end: usize) -> Range<usize> {
        let mut at = first;
        while at < end.min(self.pages.len()) && self.pages.change(at, ABSENT, FILLING) {
            at += 1;
        }
        first..at
    }

    /// Brings pages.
    fn fill_all(&self, piece: Piece, buffer: &mut [u8], lead: &mut Lead<'_>) {
        let Piece { pages: mut left, mark } = piece;
        let end = left.start + self.shared.take_room(left.len());
        if end < left.end {
            self.leave(end..left.end);
            left.end = end;
        }
        while !left.is_empty() {
            if self.is_gone.load(Ordering::Relaxed) {
                return self.give_up(left);
            }
            left = self.fill_run(left, mark, buffer, lead);
        }
    }

    /// Reads these pages and puts in place those that did not change meanwhile; gives the others.
    fn fill_run(
        &self,
        pages: Range<usize>,
        mark: Option<usize>,
        buffer: &mut [u8],
        lead: &mut Lead<'_>,
    ) -> Range<usize> {
        let bytes = &mut buffer[..pages.len() * PAGE_BYTES];
        let offset = self.offset + (pages.start * PAGE_BYTES) as u64;
        if let Err(error) = self.read_file(offset, bytes, &mut || lead.hand_on()) {
            return self.fail(pages, &error, lead);
        }
        // in runs: as long as they are whole
        let mut at = pages.start;
        while at < pages.end {
            let first = at;
            while at < pages.end && mark != Some(at) && self.pages.change(at, FILLING, INSTALLING) {
                at += 1;
            }
            if first < at {
                let of = |page: usize| (page - pages.start) * PAGE_BYTES;
                self.install(first, &bytes[of(first)..of(at)]);
            }
            if mark != Some(at) {
                break;
            }
            if at < pages.end {
                // what is read is in memory: whoever comes here waits for no device
                self.give_up(at..at + 1);
                at += 1;
            }
        }
        // their bytes changed since they were read, or perhaps those of others before them
        for page in at..pages.end {
            self.pages.change(page, STALE, FILLING);
        }
        at..pages.end
    }

    /// Puts pages in place that are INSTALLING. What cannot be put there is absent again, and who
    /// waits for it tries again: or is told by a signal, if that cannot work either.
    fn install(&self, first: usize, bytes: &[u8]) {
        let count = bytes.len() / PAGE_BYTES;
        let mut done = 0;
        // counted before somebody can see them, and unmap the region for it
        self.resident.fetch_add(count, Ordering::Relaxed);
        while done < count {
            let rest = &bytes[done * PAGE_BYTES..];
            let at = (first + done) * PAGE_BYTES;
            let copied = self.shared.put(&self.memory, at, rest);
            let pages = copied.as_ref().map_or(0, |bytes| bytes / PAGE_BYTES);
            (done..done + pages).for_each(|page| self.pages.set(first + page, RESIDENT));
            self.shared.counts.brought.fetch_add(pages as u64, Ordering::Relaxed);
            self.shared.faults.settled(&self.memory, at, pages * PAGE_BYTES);
            done += pages;
            if pages == 0 {
                // a page that cannot be loaded from, or no memory: that one is left
                if !self.is_gone.load(Ordering::Relaxed) {
                    tracing::error!("a page of a region cannot be put in place: {copied:?}");
                }
                let page = first + done;
                // whatever is there is not what the file holds
                drop(self.memory.drop_pages(page * PAGE_BYTES, PAGE_BYTES));
                self.shared.gone(self, 1);
                match self.memory.is_guarded() {
                    true => self.refuse(page),
                    false => self.leave(page..page + 1),
                }
                done += 1;
            }
        }
    }

    /// These pages, which were this thread's and had room, are absent again.
    fn give_up(&self, pages: Range<usize>) {
        self.shared.give_back(pages.len());
        self.leave(pages);
    }

    /// These pages, which were this thread's, are absent again; who waits for them asks again.
    pub fn leave(&self, pages: Range<usize>) {
        pages.clone().for_each(|page| self.pages.set(page, ABSENT));
        self.wake(pages);
    }

    /// The bytes cannot be read. Of several pages, each is tried by itself; whoever loads from one
    /// that cannot is ended by a signal: there is no other answer to a load.
    fn fail(&self, pages: Range<usize>, error: &fs::Error, lead: &Lead<'_>) -> Range<usize> {
        if !lead.serves {
            // he loads from them all the same, and then somebody serves him
            let end = pages.end;
            self.give_up(pages);
            return end..end;
        }
        if pages.len() > 1 {
            self.give_up(pages.start + 1..pages.end);
            return pages.start..pages.start + 1;
        }
        tracing::error!(
            "a page of a region cannot be read ({error}): file offset {}",
            self.offset + (pages.start * PAGE_BYTES) as u64
        );
        self.shared.give_back(1);
        self.refuse(pages.start);
        pages.end..pages.end
    }

    /// A page, which was this thread's, is absent again, and who waits for it is told by a signal.
    fn refuse(&self, page: usize) {
        self.pages.set(page, ABSENT);
        self.shared.faults.refuse(&self.memory, page * PAGE_BYTES);
    }
}
