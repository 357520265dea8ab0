//! Those who are connected, and are not attached so far.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use wire::Decoder;

use crate::service::Shared;

/// Time that a process has for its first words.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Processes that have said nothing so far, at most.
const GUESTS_MAX: usize = 256;
/// Pause after nobody could be let in.
const REFUSAL_PAUSE: Duration = Duration::from_millis(100);

/// One who has not said its first words so far.
pub struct Guest {
    pub socket: OwnedFd,
    /// What it has said of them over a stream.
    pub said: Decoder,
    since: Instant,
}

/// All of them, in the order in which they came.
pub struct Guests<'e> {
    /// Waits for their words.
    epoll: BorrowedFd<'e>,
    waiting: BTreeMap<u64, Guest>,
}

impl Guests<'_> {
    /// None so far.
    pub fn new(epoll: BorrowedFd<'_>) -> Guests<'_> {
        Guests { epoll, waiting: BTreeMap::new() }
    }

    /// Lets in who waits at the door.
    pub fn admit(&mut self, shared: &Shared, door: &impl AsFd) {
        loop {
            match accept_with(door, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.add(shared, socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // out of descriptors, say: whoever waits is let in when there are some
                    tracing::warn!("no process can attach for now: {error}");
                    return std::thread::sleep(REFUSAL_PAUSE);
                }
            }
        }
    }

    fn add(&mut self, shared: &Shared, socket: OwnedFd) {
        if self.waiting.len() >= GUESTS_MAX {
            // in favour of who may say something
            self.waiting.pop_first();
        }
        let number = shared.new_number();
        let data = EventData::new_u64(number);
        match epoll::add(self.epoll, &socket, data, EventFlags::IN | EventFlags::RDHUP) {
            Ok(()) => {
                let (said, since) = (Decoder::default(), Instant::now());
                self.waiting.insert(number, Guest { socket, said, since });
            }
            Err(error) => tracing::warn!("a process was not attached: {error}"),
        }
    }

    /// One who has said something; it is no guest any more.
    pub fn take(&mut self, number: u64) -> Option<Guest> {
        let guest = self.waiting.remove(&number)?;
        let _ = epoll::delete(self.epoll, &guest.socket);
        Some(guest)
    }

    /// One who has said something, and stays a guest.
    pub fn get(&mut self, number: u64) -> Option<&mut Guest> {
        self.waiting.get_mut(&number)
    }

    /// How long the one who has waited for longest still has.
    pub fn patience(&self) -> Option<Duration> {
        let (_, first) = self.waiting.first_key_value()?;
        Some(SILENCE_MAX.saturating_sub(first.since.elapsed()))
    }

    /// Sends those away who have said nothing for too long.
    pub fn lose_patience(&mut self) {
        let is_late = |guest: &Guest| guest.since.elapsed() >= SILENCE_MAX;
        while let Some(first) = self.waiting.first_entry().filter(|first| is_late(first.get())) {
            let _ = epoll::delete(self.epoll, first.remove().socket);
        }
    }
}
