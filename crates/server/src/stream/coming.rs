//! Long frames: the credit that they take, and where their data goes as it comes.

use std::sync::Arc;

use fs::Arrival;
use wire::{Begins, Decoder, Pieces, SLOTS};

use super::{Incoming, Serves, Stream};

/// What a long frame has.
#[derive(Debug, Default)]
pub struct Long {
    /// Credit, for one that comes or for the next.
    pub has_credit: bool,
    /// One comes: its data is collected, or goes where it belongs.
    pub comes: bool,
    pub arrival: Option<Arrival>,
}

/// Hears of long frames while some are decoded.
pub struct Coming<'s> {
    pub stream: &'s Arc<Stream>,
    pub long: &'s mut Long,
    pub serves: &'s mut dyn Serves,
    /// There is no credit now for the one that begins.
    pub waits: bool,
}

impl Pieces for Coming<'_> {
    fn begins(&mut self, slot: u16, message: &[u8], data: usize) -> Begins {
        let long = &mut *self.long;
        long.has_credit = self.stream.peer.credit.take(self.stream, message.len() + data);
        if !long.has_credit {
            self.waits = true;
            return Begins::NotYet;
        }
        long.comes = true;
        // what nobody asks in a slot is nothing to be served
        let is_call = usize::from(slot) < SLOTS;
        long.arrival = is_call.then(|| self.serves.begin(message, data)).flatten();
        if long.arrival.is_some() { Begins::InPieces } else { Begins::Whole }
    }

    fn piece(&mut self, data: &[u8]) -> Option<u32> {
        self.long.arrival.as_mut()?.put(data)
    }
}

impl Stream {
    /// Whether more may be taken and served. What comes already has its credit. Who waits gives
    /// back what it has for frames to come: others wait for that, and itself.
    pub(super) fn may_go_on(self: &Arc<Self>, incoming: &mut Incoming) -> bool {
        let goes_on = incoming.long.comes || self.peer.credit.may_serve(self);
        if !goes_on {
            self.give_back(&mut incoming.decoder, &mut incoming.long);
        }
        goes_on
    }

    /// A frame was served. What a long one had is kept for the next while nobody needs it.
    pub(super) fn done_with_one(self: &Arc<Self>, Incoming { decoder, long }: &mut Incoming) {
        long.comes = false;
        if self.peer.credit.is_waited_for() && long.has_credit {
            self.give_back(decoder, long);
        }
    }

    /// Gives back what a long frame would have.
    pub(super) fn give_back(self: &Arc<Self>, decoder: &mut Decoder, long: &mut Long) {
        decoder.shrink();
        if std::mem::take(&mut long.has_credit) {
            self.peer.credit.give_back(self);
        }
    }
}
