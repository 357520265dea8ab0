//! What goes to the other side, and what of it has to wait.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll::{self, EventData, EventFlags};
use wire::{Frame, NOTICE, OfCopy, UNSENT_BYTES_MAX};

use super::Stream;
use super::gone::Gone;
use crate::credit::Holds;

/// What the kernel has not taken so far, or is to take together.
#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// More is about to come.
    pub is_corked: bool,
    /// Goes before anything else that is not kept so far.
    gone: Gone,
}

impl Outgoing {
    /// What is gone is to be sent.
    fn take_gone(&mut self) {
        for told in self.gone.take() {
            let message = encoded(&told);
            let frame = Frame { slot: NOTICE, message: &message, data: &[] };
            self.bytes.extend_from_slice(&frame.bytes());
        }
    }
}

fn encoded(told: &OfCopy) -> Vec<u8> {
    wire::encode(told, Vec::new()).unwrap_or_default()
}

/// Calls that came together are answered together, up to so many, and so many bytes.
pub const TOGETHER: usize = 16;
const TOGETHER_BYTES_MAX: usize = 64 << 10;
/// Bytes of one change that are sent to those who have them mapped.
const TOLD_BYTES_MAX: usize = 4096;

impl Stream {
    pub(super) fn send(self: &Arc<Self>, frame: Frame<'_>) {
        let mut outgoing = self.outgoing.lock();
        if !self.is_closed() {
            self.send_held(&mut outgoing, frame);
        }
    }

    fn send_held(self: &Arc<Self>, outgoing: &mut Outgoing, frame: Frame<'_>) {
        outgoing.take_gone();
        for part in frame.parts() {
            let mut sent = 0;
            if outgoing.bytes.is_empty() && !outgoing.is_corked {
                match self.link.send(part.rest(0)) {
                    Ok(bytes) => sent = bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // it has gone, and its end is heard elsewhere
                    Err(_) => return,
                }
            }
            part.rest(sent).iter().for_each(|part| outgoing.bytes.extend_from_slice(part));
        }
        let waits = outgoing.is_corked && outgoing.bytes.len() < TOGETHER_BYTES_MAX;
        if !waits {
            self.send_on(outgoing);
        }
    }

    /// Pages of a copy are there from now on. It is part of a call's answer.
    pub fn put_pages(self: &Arc<Self>, copy: u64, page: u64, data: &[u8]) {
        let message = encoded(&OfCopy::Pages { copy, page });
        self.send(Frame { slot: NOTICE, message: &message, data });
    }

    /// Bytes were written where a copy has its pages. False: they are not sent, as nothing is taken
    /// now, or they are too many: the pages are to go instead.
    pub fn tell_written(self: &Arc<Self>, copy: u64, at: u64, data: &[u8]) -> bool {
        let mut outgoing = self.outgoing.lock();
        if data.len() > TOLD_BYTES_MAX || self.is_behind() {
            return false;
        }
        if !self.is_closed() {
            let message = encoded(&OfCopy::Written { copy, at });
            self.send_held(&mut outgoing, Frame { slot: NOTICE, message: &message, data });
        }
        true
    }

    /// Pages of a copy have gone: told before anything that is sent later.
    pub fn tell_gone(self: &Arc<Self>, copy: u64, pages: Range<u64>) {
        let mut outgoing = self.outgoing.lock();
        if self.is_closed() {
            return;
        }
        outgoing.gone.add(copy, pages);
        if !self.is_behind() && !outgoing.is_corked {
            outgoing.take_gone();
            self.send_on(&mut outgoing);
        }
    }

    /// Sends what was answered together.
    pub(super) fn uncork(self: &Arc<Self>) {
        let mut outgoing = self.outgoing.lock();
        outgoing.is_corked = false;
        outgoing.take_gone();
        if !self.is_closed() {
            self.send_on(&mut outgoing);
        }
    }

    /// Sends what is kept, as far as the kernel takes it.
    fn send_on(self: &Arc<Self>, outgoing: &mut Outgoing) {
        let Outgoing { bytes, sent, gone, .. } = outgoing;
        while *sent < bytes.len()
            && let Ok(more) = self.link.send([&bytes[*sent..], &[], &[]])
        {
            *sent += more;
        }
        let was_behind = self.is_behind();
        if *sent == bytes.len() && self.link.flush().is_ok_and(|all| all) {
            if was_behind || bytes.capacity() > TOGETHER_BYTES_MAX {
                *bytes = Vec::new();
            }
            bytes.clear();
            *sent = 0;
            if was_behind {
                self.is_behind.store(false, Ordering::Relaxed);
                self.peer.credit.keep(self, 0);
            }
            if !gone.is_empty() {
                outgoing.take_gone();
                self.send_on(outgoing);
            }
            return;
        }
        self.is_behind.store(true, Ordering::Relaxed);
        let unsent = if self.link.transport().has_sent_all() { 0 } else { UNSENT_BYTES_MAX };
        self.peer.credit.keep(self, bytes.len() + unsent);
        // one that is not waited for yet is, with this, when it is
        self.listen(EventFlags::OUT);
    }

    /// Its bell is heard from now on, when this happens.
    pub(super) fn listen(&self, flags: EventFlags) {
        let transport = self.link.transport();
        let flags = if transport.rings_for_both() { EventFlags::IN } else { flags };
        if !transport.may_sleep() {
            transport.ring();
        }
        let (bell, data) = (transport.bell(), EventData::new_u64(self.peer.number));
        let _ = epoll::modify(&*self.peer.bells, bell, data, flags | EventFlags::ONESHOT);
    }

    /// Sends what was kept, as far as the kernel takes it.
    pub(super) fn send_more(self: &Arc<Self>) {
        if !self.is_behind() {
            return;
        }
        let mut outgoing = self.outgoing.lock();
        if !self.is_closed() {
            self.send_on(&mut outgoing);
        }
    }

    /// Whether the other side takes its answers slower than they come.
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }
}
