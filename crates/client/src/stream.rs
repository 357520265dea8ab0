//! The process's side of a stream: calls that go over a network, and their answers.
//!
//! No thread reads for the others. Of those who wait for an answer one reads what comes, and puts
//! each answer where its caller finds it; when it has its own, another one goes on.

use std::io::IoSlice;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::{Decoder, Frame, Lost, SLOTS, Said, WORDS};

use crate::connection::End;

/// How long who reads looks without sleeping.
const LOOKS_FOR: Duration = Duration::from_micros(50);
/// Sleeps end after that, whatever should have ended them.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A connection over a network.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    /// Held while a frame is sent.
    sends: Mutex<()>,
    /// Held by who reads.
    reads: Mutex<Decoder>,
    answers: [Answer; SLOTS],
    /// Slots whose callers wait for who reads.
    waiting: Mutex<Vec<usize>>,
    /// What the service said by itself.
    said: Mutex<Vec<Vec<u8>>>,
    is_lost: AtomicBool,
}

/// What came for a slot.
#[derive(Debug, Default)]
struct Answer {
    came: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
    comes: Condvar,
}

impl Stream {
    /// Over a connected socket.
    pub fn new(socket: TcpStream) -> Stream {
        Stream {
            socket,
            sends: Mutex::default(),
            reads: Mutex::default(),
            answers: std::array::from_fn(|_| Answer::default()),
            waiting: Mutex::default(),
            said: Mutex::default(),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Says the first words, and waits for what is said to them.
    pub fn greet<M: DeserializeOwned>(
        &self,
        greeting: &impl Serialize,
        patience: Duration,
    ) -> std::io::Result<Option<M>> {
        let message = serde_json::to_vec(greeting)?;
        self.send(Frame { slot: WORDS, message: &message, data: &[] })?;
        let (mut reads, until) = (self.reads.lock(), Instant::now() + patience);
        loop {
            if let Some(words) = self.said.lock().pop() {
                return Ok(Some(serde_json::from_slice(&words)?));
            }
            if Instant::now() >= until {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            if self.read(&mut reads, until.saturating_duration_since(Instant::now())).is_err() {
                return Ok(None);
            }
        }
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
        Ok(len)
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
                None => {
                    let mut came = own.came.lock();
                    let is_waiting = self.waiting.lock().contains(&slot);
                    if came.is_none() && is_waiting && !self.is_lost.load(Ordering::SeqCst) {
                        own.comes.wait_for(&mut came, SLEEP_MAX);
                    }
                }
            }
            self.waiting.lock().retain(|it| *it != slot);
        }
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
        let received = match recv(&self.socket, reads.room(), RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) if wait.is_zero() => return Ok(false),
            Err(Errno::AGAIN) => {
                let mut events = [PollFd::new(&self.socket, PollFlags::IN)];
                let _ = poll(&mut events, Timespec::try_from(wait).ok().as_ref());
                return Ok(false);
            }
            Err(Errno::INTR) => return Ok(false),
            Err(_) => return Err(Lost),
            Ok((bytes, _)) => bytes,
        };
        if received == 0 {
            return Err(Lost);
        }
        reads.fill(received);
        while let Some(frame) = reads.frame().map_err(|_| Lost)? {
            match self.answers.get(usize::from(frame.slot)) {
                Some(answer) => {
                    *answer.came.lock() = Some((frame.message.to_vec(), frame.data.to_vec()));
                    answer.comes.notify_all();
                }
                None => self.said.lock().push(frame.message.to_vec()),
            }
        }
        reads.rest();
        Ok(true)
    }

    fn send(&self, frame: Frame<'_>) -> std::io::Result<()> {
        let head = frame.head();
        let _alone = self.sends.lock();
        let mut sent = 0;
        let all = head.len() + frame.message.len() + frame.data.len();
        while sent < all {
            let rest = frame.rest(&head, sent).map(IoSlice::new);
            let none = &mut SendAncillaryBuffer::default();
            match sendmsg(&self.socket, &rest, none, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(bytes) => sent += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.await_room()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until more can be sent. Meanwhile it reads: the service may be at sending, too.
    fn await_room(&self) -> std::io::Result<()> {
        if self.is_lost.load(Ordering::SeqCst) {
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        let mut wanted = PollFlags::OUT;
        if let Some(mut reads) = self.reads.try_lock() {
            wanted |= PollFlags::IN;
            let read = self.read(&mut reads, Duration::ZERO);
            drop(reads);
            self.hand_over();
            read.map_err(|_| std::io::ErrorKind::ConnectionReset)?;
        }
        let mut events = [PollFd::new(&self.socket, wanted)];
        let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        match poll(&mut events, Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the end of the connection.
    pub fn await_end(&self) -> End {
        loop {
            let mut events = [PollFd::new(&self.socket, PollFlags::RDHUP)];
            let heard = poll(&mut events, None);
            if heard.is_ok_and(|count| count > 0) || self.is_lost.load(Ordering::SeqCst) {
                break;
            }
        }
        let mut reads = self.reads.lock();
        while self.read(&mut reads, Duration::ZERO) == Ok(true) {}
        let said = self.said.lock();
        let ends = |words: &Vec<u8>| matches!(serde_json::from_slice(words), Ok(Said::Ends));
        if said.iter().any(ends) { End::InOrder } else { End::Broken }
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

    /// Ends it.
    pub fn shut(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
