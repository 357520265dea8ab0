//! The process's side of a stream: calls that go over a network, and their answers.
//!
//! No thread reads for the others. Of those who wait for an answer one reads what comes, and puts
//! each answer where its caller finds it; when it has its own, another one goes on. Where there are
//! copies, of which the service may speak at any time, who waits for the end reads, too.

mod ending;
mod sending;

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use locks::futex::EventCount;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::net::connect_unspec;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::{Broken, Decoder, Distrust, Frame, Link, Lost, NOTICE, SLOTS, Said, WORDS};

use crate::connection::End;
use crate::kept::Kept;
use crate::{Error, bell, secured};

/// How long who reads looks without sleeping.
const LOOKS_FOR: Duration = Duration::from_micros(50);
/// Bytes of frames that wait to be sent together.
const TOGETHER_BYTES_MAX: usize = 32 << 10;
/// Room of more bytes than a short frame has is used again.
const SPARE_BYTES_MIN: usize = 32 << 10;
/// Sleeps end after that, whatever should have ended them.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A connection over a network.
#[derive(Debug)]
pub struct Stream {
    link: Link,
    /// Frames that are to be sent together; held while any is sent.
    sends: Mutex<Vec<u8>>,
    /// Held by who reads.
    reads: Mutex<Decoder>,
    answers: [Answer; SLOTS],
    /// Slots whose callers wait for who reads.
    waiting: Mutex<Vec<usize>>,
    /// Room that a long answer came in.
    spare: Mutex<Vec<u8>>,
    /// What the service said by itself.
    said: Mutex<Vec<Vec<u8>>>,
    /// Copies of which the service says what becomes of them.
    kept: Kept,
    /// There are some.
    has_kept: AtomicBool,
    /// Rings for who waits for the end: there is something to read.
    bell: OwnedFd,
    is_lost: AtomicBool,
    /// The service's address, for people.
    address: String,
    /// Why one of the sides does not trust the other.
    distrust: OnceLock<Error>,
}

/// What came for a slot.
#[derive(Debug, Default)]
struct Answer {
    came: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
    comes: EventCount,
}

impl Stream {
    /// Over a connection, whose other side has said who it is.
    pub fn new(link: Link, address: String) -> std::io::Result<Stream> {
        Ok(Stream {
            link,
            sends: Mutex::default(),
            reads: Mutex::default(),
            answers: std::array::from_fn(|_| Answer::default()),
            waiting: Mutex::default(),
            spare: Mutex::default(),
            said: Mutex::default(),
            kept: Kept::default(),
            has_kept: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_lost: AtomicBool::new(false),
            address,
            distrust: OnceLock::new(),
        })
    }

    /// Says the first words, and waits for what is said to them.
    pub fn greet<M: DeserializeOwned>(
        &self,
        greeting: &impl Serialize,
        patience: Duration,
    ) -> std::io::Result<Option<M>> {
        let message = serde_json::to_vec(greeting)?;
        let sent = self.send(Frame { slot: WORDS, message: &message, data: &[] });
        let (mut reads, until) = (self.reads.lock(), Instant::now() + patience);
        if let Err(error) = sent {
            // who trusts nobody says why, and closes the connection
            while self.read(&mut reads, Duration::ZERO) == Ok(true) {}
            return if self.distrust.get().is_some() { Ok(None) } else { Err(error) };
        }
        loop {
            if let Some(words) = self.said.lock().pop() {
                return Ok(Some(serde_json::from_slice(&words)?));
            }
            if Instant::now() >= until {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            if self.read(&mut reads, until.saturating_duration_since(Instant::now())).is_err() {
                if reads.is_of_tls() {
                    let _ = self.distrust.set(Error::Encrypted(self.address.clone()));
                }
                return Ok(None);
            }
        }
    }

    /// Why it ended, if one of the sides does not trust the other.
    pub fn distrust(&self) -> Option<&Error> {
        self.distrust.get()
    }

    /// Asks in a slot that is the caller's alone meanwhile, and waits for the answer: its message
    /// goes to `answer`, and its data to the beginning of `into`.
    ///
    /// # Errors
    /// The service has gone before it answered.
    pub fn ask(
        &self,
        slot: usize,
        (message, data): (&[u8], &[u8]),
        answer: &mut Vec<u8>,
        into: &mut [u8],
    ) -> Result<usize, Lost> {
        *self.answers[slot].came.lock() = None;
        self.send(Frame { slot: slot as u16, message, data }).map_err(|_| self.lose())?;
        let (message, data) = self.await_answer(slot)?;
        *answer = message;
        let len = data.len().min(into.len());
        into[..len].copy_from_slice(&data[..len]);
        if data.capacity() > SPARE_BYTES_MIN {
            *self.spare.lock() = data;
        }
        Ok(len)
    }

    /// Asks in a slot that is the caller's alone until it has [awaited](Stream::await_answer) the
    /// answer. What is asked goes with more that is, or when somebody waits for its answer.
    ///
    /// # Errors
    /// The service has gone.
    pub fn begin(&self, slot: usize, (message, data): (&[u8], &[u8])) -> Result<(), Lost> {
        *self.answers[slot].came.lock() = None;
        let mut together = self.sends.lock();
        let frame = Frame { slot: slot as u16, message, data };
        if frame.is_long() {
            return self.send_behind(&mut together, frame).map_err(|_| self.lose());
        }
        for part in frame.parts() {
            part.rest(0).iter().for_each(|bytes| together.extend_from_slice(bytes));
        }
        let sent = match together.len() >= TOGETHER_BYTES_MAX {
            true => self.send_together(&mut together),
            false => Ok(()),
        };
        sent.map_err(|_| self.lose())
    }

    /// Waits for the answer to what was [begun](Stream::begin) in this slot.
    ///
    /// # Errors
    /// The service has gone before it answered.
    pub fn await_answer_to_begun(&self, slot: usize) -> Result<Vec<u8>, Lost> {
        // what is to be sent together goes when all that came is taken
        if let Some((message, _)) = self.answers[slot].came.lock().take() {
            return Ok(message);
        }
        let sent = self.send_together(&mut self.sends.lock());
        sent.map_err(|_| self.lose())?;
        Ok(self.await_answer(slot)?.0)
    }

    fn await_answer(&self, slot: usize) -> Result<(Vec<u8>, Vec<u8>), Lost> {
        let outcome = self.read_or_wait(slot);
        self.hand_over();
        outcome
    }

    fn read_or_wait(&self, slot: usize) -> Result<(Vec<u8>, Vec<u8>), Lost> {
        let own = &self.answers[slot];
        loop {
            if let Some(answer) = own.came.lock().take() {
                return Ok(answer);
            }
            if self.is_lost.load(Ordering::SeqCst) {
                return Err(Lost);
            }
            // before it looks whether somebody reads, who looks at the list after that
            self.waiting.lock().push(slot);
            match self.reads.try_lock() {
                Some(reads) => self.read_until(own, reads),
                None => own.comes.sleep_if(|| self.waits_for(slot), SLEEP_MAX),
            }
            self.waiting.lock().retain(|it| *it != slot);
        }
    }

    /// Whether the slot's caller waits for another one to read its answer.
    fn waits_for(&self, slot: usize) -> bool {
        let came = self.answers[slot].came.lock();
        let is_waiting = self.waiting.lock().contains(&slot);
        came.is_none() && is_waiting && !self.is_lost.load(Ordering::SeqCst)
    }

    /// Reads until this answer is there.
    fn read_until(&self, own: &Answer, mut reads: MutexGuard<'_, Decoder>) {
        let mut since = Instant::now();
        while own.came.lock().is_none() && !self.is_lost.load(Ordering::SeqCst) {
            let wait = if since.elapsed() < LOOKS_FOR { Duration::ZERO } else { SLEEP_MAX };
            match self.read(&mut reads, wait) {
                Err(Lost) => drop(self.lose()),
                Ok(true) => since = Instant::now(),
                Ok(false) => std::hint::spin_loop(),
            }
        }
        // what is decrypted already nobody else hears of
        if self.has_kept.load(Ordering::Relaxed) && self.link.is_encrypted() {
            self.ring();
        }
    }

    /// Has one who waits read, where nobody does: whoever reads does this afterwards, and so does
    /// who was told to read and need not.
    fn hand_over(&self) {
        if self.reads.is_locked() {
            return;
        }
        let next = self.waiting.lock().pop();
        if let Some(next) = next.map(|slot| &self.answers[slot]) {
            // it sleeps, or has not looked yet whether it is on the list
            drop(next.came.lock());
            next.comes.notify_all();
        }
    }

    /// Reads what has come, and waits for something so long at most. False: nothing came.
    fn read(&self, reads: &mut Decoder, wait: Duration) -> Result<bool, Lost> {
        // what long answers come in is used again
        reads.reuse(|| std::mem::take(&mut self.spare.lock()));
        self.read_to(reads, wait, &mut |reads| {
            let Some(frame) = reads.frame()? else { return Ok(false) };
            if frame.slot == NOTICE {
                let makes_sense = self.kept.hear(frame.message, frame.data);
                return if makes_sense { Ok(true) } else { Err(Broken::Slot) };
            }
            let message = frame.message.to_vec();
            let Some(answer) = self.answers.get(usize::from(frame.slot)) else {
                self.said.lock().push(message);
                return Ok(true);
            };
            let short = if frame.is_long() { Vec::new() } else { frame.data.to_vec() };
            let data = reads.take_data().unwrap_or(short);
            *answer.came.lock() = Some((message, data));
            answer.comes.notify_all();
            Ok(true)
        })
    }

    /// The same; `take` takes each frame, and says whether there was one.
    fn read_to(
        &self,
        reads: &mut Decoder,
        wait: Duration,
        take: &mut dyn FnMut(&mut Decoder) -> Result<bool, Broken>,
    ) -> Result<bool, Lost> {
        let received = match self.link.receive(reads.room()) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                if let Some(why) = Distrust::of(&error) {
                    let _ = self.distrust.set(secured::distrust(&self.address, why));
                    return Err(self.break_off());
                }
                if error.kind() == ErrorKind::InvalidData {
                    tracing::warn!("the connection to {} is ended: {error}", self.address);
                    return Err(self.break_off());
                }
                return Err(Lost);
            }
            Err(_) => {
                if !wait.is_zero() {
                    let _ = bell::wait(&self.link, PollFlags::IN, wait);
                }
                return Ok(false);
            }
            Ok(bytes) => bytes,
        };
        if received == 0 {
            return Err(Lost);
        }
        reads.fill(received);
        while take(reads).map_err(|_| self.break_off())? {}
        // room for a frame stays for the next one
        reads.shrink();
        Ok(true)
    }

    /// Reads all that comes until the end of the connection, and gives each frame to `take`.
    pub fn hear(&self, take: &mut dyn FnMut(Frame<'_>)) -> End {
        let mut ends = End::Broken;
        let mut reads = self.reads.lock();
        let heard = &mut |reads: &mut Decoder| {
            match reads.frame()? {
                None => return Ok(false),
                Some(Frame { slot: WORDS, message, .. })
                    if matches!(serde_json::from_slice(message), Ok(Said::Ends)) =>
                {
                    ends = End::InOrder;
                }
                Some(frame) => take(frame),
            }
            Ok(true)
        };
        while !self.is_lost.load(Ordering::SeqCst) {
            if self.read_to(&mut reads, SLEEP_MAX, heard).is_err() {
                break;
            }
        }
        ends
    }

    /// The service has gone: ends all calls, those to come as well.
    pub fn lose(&self) -> Lost {
        self.is_lost.store(true, Ordering::SeqCst);
        self.shut();
        for answer in &self.answers {
            // who has just looked whether it is lost sleeps by now
            drop(answer.came.lock());
            answer.comes.notify_all();
        }
        Lost
    }

    /// What came makes no sense. The connection is reset, so that the service takes that for a loss
    /// and not for the end of this process, and keeps what it has open.
    fn break_off(&self) -> Lost {
        let _ = connect_unspec(&self.link);
        Lost
    }

    /// Ends it.
    pub fn shut(&self) {
        self.link.transport().shut();
    }

    /// The connection alone, on which nothing is under way.
    pub fn into_link(self) -> Link {
        self.link
    }
}
