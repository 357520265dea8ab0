//! Those who are connected, and are not attached so far.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::shared::Shared;

/// Time that a process has for its first words.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Processes that have said nothing so far, at most.
const GUESTS_MAX: usize = 256;
/// Pause after nobody could be let in.
const REFUSAL_PAUSE: Duration = Duration::from_millis(100);

/// Those who have not said their first words so far, in the order in which they came.
pub struct Guests<'e, G> {
    /// Waits for their words.
    epoll: BorrowedFd<'e>,
    waiting: BTreeMap<u64, (G, Instant)>,
}

impl<G: AsFd> Guests<'_, G> {
    /// None so far.
    pub fn new(epoll: BorrowedFd<'_>) -> Guests<'_, G> {
        Guests { epoll, waiting: BTreeMap::new() }
    }

    /// Lets in who waits at the door, as what `receive` makes of each; none: not this one.
    pub fn admit(
        &mut self,
        shared: &Shared,
        door: &impl AsFd,
        mut receive: impl FnMut(OwnedFd) -> Option<G>,
    ) {
        loop {
            match accept_with(door, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => drop(receive(socket).map(|guest| self.add(shared, guest))),
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

    /// Has one wait for its words.
    pub fn add(&mut self, shared: &Shared, guest: G) {
        if self.waiting.len() >= GUESTS_MAX {
            // in favour of who may say something
            self.waiting.pop_first();
        }
        let number = shared.new_number();
        let data = EventData::new_u64(number);
        match epoll::add(self.epoll, &guest, data, EventFlags::IN | EventFlags::RDHUP) {
            Ok(()) => drop(self.waiting.insert(number, (guest, Instant::now()))),
            Err(error) => tracing::warn!("a process was not attached: {error}"),
        }
    }

    /// One who has said something; it is no guest any more.
    pub fn take(&mut self, number: u64) -> Option<G> {
        let (guest, _) = self.waiting.remove(&number)?;
        let _ = epoll::delete(self.epoll, &guest);
        Some(guest)
    }

    /// Nobody was heard for so long.
    pub fn forgive(&mut self, time: Duration) {
        self.waiting.values_mut().for_each(|(_, since)| *since += time);
    }

    /// How many there are of some kind.
    pub fn count(&self, is_one: impl Fn(&G) -> bool) -> usize {
        self.waiting.values().filter(|(guest, _)| is_one(guest)).count()
    }

    /// One who has said something, and stays a guest.
    pub fn get(&mut self, number: u64) -> Option<&mut G> {
        self.waiting.get_mut(&number).map(|(guest, _)| guest)
    }

    /// How long the one who has waited for longest still has.
    pub fn patience(&self) -> Option<Duration> {
        let (_, (_, since)) = self.waiting.first_key_value()?;
        Some(SILENCE_MAX.saturating_sub(since.elapsed()))
    }

    /// Sends those away who have said nothing for too long.
    pub fn lose_patience(&mut self) {
        let is_late = |(_, since): &(G, Instant)| since.elapsed() >= SILENCE_MAX;
        while let Some(first) = self.waiting.first_entry().filter(|first| is_late(first.get())) {
            let _ = epoll::delete(self.epoll, first.remove().0);
        }
    }
}
