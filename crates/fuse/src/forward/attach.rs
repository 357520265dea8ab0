//! From service to service: who the mount is, and what it tells each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use client::Forwards;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wire::{Frame, Identity, MountAsk, NOTICE, Notice, Told};
use zerocopy::IntoBytes;

use super::locks::Tells;
use super::pending::Waiting;
use super::{Opens, Set, Shared, changes, opens};
use crate::kernel_pages::drop_as_told;
use crate::locks::Mirrored;
use crate::state::Memo;
use crate::wire::{Notifier, Reply, Request};
use crate::{Error, Result};

/// Pause after the first attempt to attach that failed; each one after that is longer.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Longest time that a service may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Open files that one frame tells of.
const OPENED_MAX: usize = 32 << 10;

/// Who the mount is to its services.
#[derive(Debug)]
pub(super) struct Who {
    memo: Memo,
    known: Mutex<Known>,
    /// Nobody knows what was asked for as who it was before.
    is_another: AtomicBool,
}

/// What is noted of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    identity: Option<Identity>,
    pool: Option<String>,
    turn: u32,
}

impl Who {
    /// As a forwarder before noted it.
    pub(super) fn open(memo: Memo) -> Result<Who> {
        let known = match memo.read()? {
            note if note.is_empty() => Known::default(),
            note => serde_json::from_slice(&note).map_err(|_| crate::state::FOREIGN)?,
        };
        let is_another = AtomicBool::new(false);
        Ok(Who { memo, known: Mutex::new(known), is_another })
    }

    /// Whether no service has said who it is.
    pub(super) fn is_nobody(&self) -> bool {
        self.known.lock().identity.is_none()
    }

    fn note(&self, known: Known) -> Result<()> {
        let note = serde_json::to_vec(&known).map_err(|error| Error::Session(error.into()))?;
        self.memo.write(&note)?;
        *self.known.lock() = known;
        Ok(())
    }
}

/// A connection, and the thread that hears what comes.
pub(super) type Heard = (Attached, JoinHandle<client::End>);

/// A connection to a service that was told all.
#[derive(Debug)]
pub(super) struct Attached {
    forwards: Arc<Forwards>,
    /// The service knows which requests were served before.
    knows: bool,
}

impl Shared {
    fn set(&self) -> Result<&Set> {
        self.set.get().ok_or(Error::Takeover("it is not connected"))
    }

    /// Attaches to the service, and tells it what it has to know.
    pub(super) fn attach(self: &Arc<Shared>, patience: Duration) -> Result<Heard> {
        let set = self.set()?;
        let known = set.who.known.lock().clone();
        let turn = known.turn + 1;
        let (path, capabilities) = (self.origin.path.clone(), set.capabilities);
        let ask = MountAsk { path, capabilities, turn };
        // where it is not taken for who it was, it is somebody new, of whom nothing is known
        if known.identity.is_none() && known.pool.is_some() {
            set.who.is_another.store(true, Ordering::SeqCst);
        }
        let attached = self.origin.attach(known.identity.clone(), ask, patience);
        if let Err(error @ client::Error::NotTakenBack(_)) = &attached {
            tracing::warn!("{error}");
            set.who.note(Known { identity: None, ..known.clone() })?;
        }
        let forwards = attached?;
        if known.pool.is_some_and(|pool| pool != forwards.pool) {
            let reason = "another pool is served there".to_owned();
            return Err(client::Error::NotTakenBack(reason).into());
        }
        let (identity, pool) = (Some(forwards.identity.clone()), Some(forwards.pool.clone()));
        set.who.note(Known { identity, pool, turn })?;
        let forwards = Arc::new(forwards);
        let (theirs, heard) = (self.clone(), forwards.clone());
        let hear = move || {
            let end = heard.hear(&mut |frame| theirs.heard(&heard, frame));
            theirs.links.lose(&heard);
            theirs.pending.iter().for_each(|pending| pending.wake());
            end
        };
        let thread = std::thread::Builder::new().name("ns-heard".to_owned()).spawn(hear);
        let thread = thread.map_err(Error::Session)?;
        if let Err(error) = tell_all(set, &forwards) {
            forwards.shut();
            drop(thread.join());
            return Err(error);
        }
        // until then it may have to try once more
        let knows = !set.who.is_another.swap(false, Ordering::SeqCst) && forwards.knows;
        Ok((Attached { forwards, knows }, thread))
    }

    /// Goes from service to service, until the forwarder ends.
    pub(super) fn run(self: Arc<Shared>, mut first: Option<Heard>) {
        let mut pause = PAUSE_MIN;
        while self.links.ends().is_none() {
            let heard = match first.take() {
                Some(heard) => Ok(heard),
                None => self.attach(PATIENCE),
            };
            match heard {
                Ok((Attached { forwards, knows }, thread)) => {
                    pause = PAUSE_MIN;
                    tracing::info!(is_new = forwards.answer.is_new, knows, "the service is there");
                    self.links.stands(&forwards, knows);
                    if thread.is_finished() {
                        self.links.lose(&forwards);
                    }
                    self.links.tell_until_lost(&forwards);
                    let _ = thread.join();
                    if let Some(set) = self.set.get() {
                        set.locks.lost();
                    }
                    tracing::info!("the service is away");
                }
                Err(error) => {
                    if pause == PAUSE_MIN {
                        tracing::info!("not attached so far: {error}");
                    }
                    self.links.pause(pause);
                    pause = (2 * pause).min(PAUSE_MAX);
                }
            }
            if self.links.is_late()
                && let Some(set) = self.set.get()
            {
                set.locks.give_up();
            }
        }
    }

    /// Something came.
    fn heard(self: &Arc<Shared>, forwards: &Forwards, frame: Frame<'_>) {
        let Some(set) = self.set.get() else { return };
        if frame.slot == NOTICE {
            return match wire::decode::<Notice>(frame.message) {
                Ok(Notice::Locked(unique, errno)) => {
                    if set.locks.ended(unique, errno) {
                        self.links.tell_later(Told::Heard(unique));
                    }
                }
                Ok(Notice::Pages(number)) => self.drop_pages(set, number, frame.data),
                Ok(notice) => set.noticed(notice, frame.data),
                Err(_) => forwards.shut(),
            };
        }
        let Some(pending) = self.pending.get(usize::from(frame.slot)) else { return };
        let Some(Waiting { reply, opens }) = pending.take() else { return };
        match frame.message.try_into().map(i32::from_le_bytes) {
            // there is no answer to it
            Err(_) => reply.leave(),
            Ok(errno) => {
                let opened = if errno == 0 { set.note_opened(opens, frame.data) } else { None };
                let is_taken = reply.forward(errno, frame.data);
                if let (false, Some((number, ino))) = (is_taken, opened) {
                    set.opened.remove(number);
                    self.links.tell_later(Told::Close(number, ino));
                }
            }
        }
        pending.done();
    }

    /// Has the kernel drop pages, and says when it has; another thread waits for that.
    fn drop_pages(self: &Arc<Shared>, set: &Set, number: u64, notice: &[u8]) {
        let (notifier, shared) = (Notifier::new(set.channel.clone()), Arc::downgrade(self));
        set.pages.give("ns-pages", (number, notice.to_vec()), || {
            move |(number, notice): (u64, Vec<u8>)| {
                if let Err(error) = drop_as_told(&notifier, &notice) {
                    tracing::warn!(%error, "a service says which pages to drop");
                }
                if let Some(shared) = shared.upgrade() {
                    shared.links.tell_later(Told::Forgot(number));
                }
            }
        });
    }

    /// Sends a request, and waits until it is answered.
    pub(super) fn forward(&self, request: &Request<'_>, reply: Reply<'_>) {
        let (slot, count) = request.turn;
        let Some(pending) = self.pending.get(slot) else { return reply.error(libc::EIO) };
        pending.begin(Waiting { reply: reply.later(), opens: opens(request) });
        let (head, data) =
            request.bytes.split_at(request.bytes.len().min(wire::REQUEST_HEAD_BYTES));
        let message = [&count.to_le_bytes(), head].concat();
        let mut first = if request.again { Some(0) } else { None };
        loop {
            let link = self.links.wait();
            let first = link.as_ref().map(|link| *first.get_or_insert(link.number));
            let is_unknown = |unknown| first.is_some_and(|first| first < unknown);
            let Some(link) = link.filter(|link| !is_unknown(link.unknown) || !changes(request))
            else {
                if let Some(waiting) = pending.take() {
                    waiting.reply.answer(Some(libc::EIO));
                    pending.done();
                }
                return;
            };
            if link.forwards.send(slot, &message, data).is_err() {
                link.forwards.shut();
            }
            if pending.wait(|| self.links.is_lost(link.number)) {
                return;
            }
        }
    }
}

/// Tells a service what it has to know before any request.
fn tell_all(set: &Set, forwards: &Arc<Forwards>) -> Result<()> {
    let is_new = forwards.answer.is_new;
    if is_new {
        for part in set.opened.all().chunks(OPENED_MAX) {
            forwards.tell(&Told::Opened, part.as_bytes())?;
        }
    }
    let forwards: Arc<dyn Tells> = forwards.clone();
    set.locks.tell_all(&forwards, &set.owed, is_new)
}

impl Set {
    fn noticed(&self, notice: Notice, data: &[u8]) {
        match notice {
            // these are the caller's
            Notice::Locked(..) | Notice::Pages(_) => {}
            Notice::Journal => self.locks.mirror(Mirrored::More(data)),
            Notice::Journals => self.locks.mirror(Mirrored::All(data)),
            Notice::Kernel(code) => {
                if let Err(error) = self.channel.send(0, code, &[data]) {
                    // ENOENT: the kernel did not know it.
                    tracing::debug!(%error, "a notification");
                }
            }
        }
    }

    /// Notes what an answer opens or closes; gives what is open from now on.
    fn note_opened(&self, opens: Opens, data: &[u8]) -> Option<(u64, u64)> {
        /// Bytes of an entry, behind which stands what is open.
        const ENTRY_BYTES: usize = size_of::<crate::wire::EntryAnswer>();
        let word = |at: usize| {
            let bytes = data.get(at..at + size_of::<u64>())?;
            bytes.try_into().ok().map(u64::from_ne_bytes)
        };
        let (number, ino) = match opens {
            Opens::Nothing => return None,
            Opens::Closes(number) => {
                self.opened.remove(number);
                return None;
            }
            Opens::Node(ino) => (word(0)?, ino),
            Opens::New => (word(ENTRY_BYTES)?, word(0)?),
        };
        self.opened.add(number, ino);
        Some((number, ino))
    }
}
