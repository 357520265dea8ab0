//! Who waits for the end of a connection, and reads what is said by itself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use wire::{Lost, Said};

use super::{SLEEP_MAX, Stream};
use crate::connection::End;
use crate::kept::Kept;

const IN: PollFlags = PollFlags::IN;

impl Stream {
    /// Waits for the end of the connection.
    pub fn await_end(&self) -> End {
        loop {
            // ordering: who makes it so rings after that
            let hears = self.has_kept.load(Ordering::Relaxed);
            let (transport, of_bell) = (self.link.transport(), PollFd::new(&self.bell, IN));
            if hears && !transport.may_sleep() {
                self.read_on();
                match self.is_lost.load(Ordering::SeqCst) {
                    true => break,
                    false => continue,
                }
            }
            let of_carrier = transport.bell();
            let wanted = if hears { IN } else { PollFlags::empty() };
            let of_carrier = PollFd::new(&of_carrier, wanted);
            let mut events = [PollFd::new(&self.link, PollFlags::RDHUP), of_bell, of_carrier];
            let _ = poll(&mut events, None);
            let [link, bell, came] = events.map(|event| event.revents());
            if !bell.is_empty() {
                let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            }
            let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
            if link.intersects(ends) || self.is_lost.load(Ordering::SeqCst) {
                break;
            }
            if !bell.is_empty() || !came.is_empty() {
                self.read_on();
            }
        }
        let mut reads = self.reads.lock();
        // what came before it; by a fabric it may come a moment later
        while self.read(&mut reads, SLEEP_MAX).is_ok() {}
        let said = self.said.lock();
        let ends = |words: &Vec<u8>| matches!(serde_json::from_slice(words), Ok(Said::Ends));
        if said.iter().any(ends) { End::InOrder } else { End::Broken }
    }

    /// Reads what has come.
    fn read_on(&self) {
        let mut reads = self.reads.lock();
        while match self.read(&mut reads, Duration::ZERO) {
            Ok(has_more) => has_more,
            Err(Lost) => {
                self.lose();
                false
            }
        } {}
        drop(reads);
        self.hand_over();
    }

    /// What the service says of the copies of this connection.
    pub fn kept(&self) -> &Kept {
        if !self.has_kept.swap(true, Ordering::Relaxed) {
            self.ring();
        }
        &self.kept
    }

    /// Who waits for the end is to look.
    pub(super) fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}
