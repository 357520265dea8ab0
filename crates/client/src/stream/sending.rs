//! What goes to the service.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::PollFlags;
use wire::Frame;

use super::Stream;
use crate::bell;

/// Who waits for room looks again after that.
const ROOM_MAX: Duration = Duration::from_millis(100);

impl Stream {
    /// Sends a frame, whole.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&self, frame: Frame<'_>) -> std::io::Result<()> {
        self.send_behind(&mut self.sends.lock(), frame)
    }

    /// The same, behind what is to be sent together. Called by who holds it.
    pub(super) fn send_behind(
        &self,
        together: &mut Vec<u8>,
        frame: Frame<'_>,
    ) -> std::io::Result<()> {
        self.send_together(together)?;
        // each part of a long one is summed when the one before it is on its way
        frame.parts().try_for_each(|part| self.send_all(part.bytes(), &|sent| part.rest(sent)))
    }

    /// Sends what is to be sent together. Called by who holds it.
    pub(super) fn send_together(&self, together: &mut Vec<u8>) -> std::io::Result<()> {
        if together.is_empty() {
            return Ok(());
        }
        let sent = self.send_all(together.len(), &|sent| [&together[sent..], &[], &[]]);
        together.clear();
        sent
    }

    fn send_all<'b>(
        &self,
        all: usize,
        rest: &dyn Fn(usize) -> [&'b [u8]; 3],
    ) -> std::io::Result<()> {
        let mut sent = 0;
        while sent < all {
            match self.link.send(rest(sent)) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.await_room()?,
                Err(error) => return Err(error),
            }
        }
        while !self.link.flush()? {
            self.await_room()?;
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
        bell::wait(&self.link, wanted, ROOM_MAX)
    }
}
