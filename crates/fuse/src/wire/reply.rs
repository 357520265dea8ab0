//! Replies, and the device that takes them.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::answers::{
    AttrAnswer, EntryAnswer, InitAnswer, LockAnswer, OffsetAnswer, OpenAnswer, OutHeader,
    SizeAnswer, SpaceAnswer, StatxAnswer,
};

/// Parts that a message has at most, its head among them.
const PARTS_MAX: usize = 4;

/// Takes replies and notifications to a kernel that another machine has.
pub trait Sink: Send + Sync + std::fmt::Debug {
    /// The answer to request `unique`: 0, or an errno, negative; and its parts. Where `unique` is
    /// 0, a notification, whose code stands for the error.
    ///
    /// # Errors
    /// Nobody takes it any more.
    fn take(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()>;
}

/// A connection to a kernel: replies and notifications go there.
#[derive(Debug)]
pub enum Channel {
    /// This machine's: requests are read from it, too.
    Device(OwnedFd),
    /// Another machine's.
    Away(Arc<dyn Sink>),
}

impl Channel {
    pub(crate) fn new(device: OwnedFd) -> Channel {
        Channel::Device(device)
    }

    /// Reads one request, which is the kernel's next, whole.
    pub(crate) fn read(&self, room: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Channel::Device(device) => rustix::io::read(device, room),
            Channel::Away(_) => Err(Errno::NODEV),
        }
    }

    /// Says one message, whole.
    pub(crate) fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        match self {
            Channel::Device(device) => Channel::write(device, unique, error, parts),
            Channel::Away(sink) => sink.take(unique, error, parts),
        }
    }

    /// Writes one message: the kernel takes it from one call.
    fn write(device: &OwnedFd, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        let len = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let head = OutHeader { len: len as u32, error, unique };
        let mut message = [IoSlice::new(&[]); PARTS_MAX];
        message[0] = IoSlice::new(head.as_bytes());
        for (slice, part) in message[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        debug_assert!(parts.len() < PARTS_MAX, "{} parts", parts.len());
        let message = &message[..=parts.len().min(PARTS_MAX - 1)];
        rustix::io::writev(device, message)?;
        Ok(())
    }
}

/// The place for the answer to one request. One that is dropped without an answer answers EIO, so
/// that nobody waits for ever.
#[must_use = "the caller waits for the answer"]
pub struct Reply<'c> {
    channel: &'c Arc<Channel>,
    unique: u64,
    answered: bool,
    note: Option<&'c dyn Fn(i32)>,
}

impl std::fmt::Debug for Reply<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Reply").field("unique", &self.unique).finish_non_exhaustive()
    }
}

impl<'c> Reply<'c> {
    pub(crate) fn new(channel: &'c Arc<Channel>, unique: u64) -> Reply<'c> {
        Reply { channel, unique, answered: false, note: None }
    }

    /// Tells `note` the errno of the answer, 0 for none, just before it is sent.
    pub(crate) fn noting(mut self, note: &'c dyn Fn(i32)) -> Reply<'c> {
        self.note = Some(note);
        self
    }

    /// Sends the answer; false if nobody takes it any more.
    fn send(&mut self, errno: i32, parts: &[&[u8]]) -> bool {
        self.answered = true;
        if let Some(note) = self.note {
            note(errno);
        }
        let error = match self.channel.send(self.unique, -errno, parts) {
            Ok(()) => return true,
            Err(error) => error,
        };
        match error.raw_os_error() {
            // Nobody waits for it any more: the caller was killed, the mount is gone, or it was
            // answered by a server that ended before it could note that.
            Some(libc::ENOENT | libc::ENODEV) => {}
            // The kernel does not take such an answer to this request; it gets one that it takes.
            Some(libc::EINVAL) if errno == 0 => {
                tracing::error!(unique = self.unique, "a reply was refused");
                self.send(libc::EIO, &[]);
            }
            _ => tracing::error!(%error, "a reply could not be sent"),
        }
        false
    }

    /// Done; there is nothing to tell.
    pub fn done(mut self) {
        self.send(0, &[]);
    }

    /// Refused, with this errno.
    pub fn error(mut self, errno: i32) {
        self.send(errno, &[]);
    }

    /// These bytes.
    pub fn bytes(mut self, bytes: &[u8]) {
        self.send(0, &[bytes]);
    }

    /// No answer, where the protocol has none.
    pub fn nothing(mut self) {
        self.answered = true;
    }

    /// The answer comes later, from any thread.
    pub fn later(mut self) -> LateReply {
        self.answered = true;
        LateReply::new(self.channel.clone(), self.unique)
    }

    fn value<T: IntoBytes + Immutable>(mut self, value: &T) -> bool {
        self.send(0, &[value.as_bytes()])
    }

    /// An inode that a name stands for.
    pub fn entry(self, entry: &EntryAnswer) {
        self.value(entry);
    }

    /// There is no such name, which the kernel may remember for `validity`.
    pub fn no_entry(self, valid: std::time::Duration) {
        let validity = super::Validity::of(valid);
        self.value(&EntryAnswer { validity, ..EntryAnswer::new_zeroed() });
    }

    /// Attributes.
    pub fn attributes(self, attributes: &AttrAnswer) {
        self.value(attributes);
    }

    /// Attributes for statx(2).
    pub fn statx(self, attributes: &StatxAnswer) {
        self.value(attributes);
    }

    /// An open file. False: nobody will close it, for nobody takes the answer any more.
    pub fn opened(self, handle: u64, flags: u32) -> bool {
        self.value(&OpenAnswer { handle, flags, padding: 0 })
    }

    /// A new inode that was opened at once. False as for [`opened`](Self::opened).
    pub fn created(mut self, entry: &EntryAnswer, handle: u64, flags: u32) -> bool {
        let opened = OpenAnswer { handle, flags, padding: 0 };
        self.send(0, &[entry.as_bytes(), opened.as_bytes()])
    }

    /// Bytes written, or the bytes of a value for which no room was offered.
    pub fn size(self, size: u32) {
        self.value(&SizeAnswer { size, padding: 0 });
    }

    /// An offset in a file, or bytes copied where the answer has 64 bits.
    pub fn offset(self, offset: u64) {
        self.value(&OffsetAnswer { offset });
    }

    /// Space.
    pub fn space(self, space: &SpaceAnswer) {
        self.value(space);
    }

    /// A lock.
    pub fn lock(self, lock: &LockAnswer) {
        self.value(lock);
    }

    /// What was agreed on.
    pub(crate) fn agreed(self, agreed: &InitAnswer) {
        self.value(agreed);
    }
}

/// The place for the answer to a request that takes longer than a thread can wait. One that is
/// dropped without an answer answers EIO.
#[derive(Debug)]
#[must_use = "the caller waits for the answer"]
pub struct LateReply {
    /// Nothing when there is nothing left to say.
    channel: Option<Arc<Channel>>,
    unique: u64,
}

impl LateReply {
    pub(crate) fn new(channel: Arc<Channel>, unique: u64) -> LateReply {
        LateReply { channel: Some(channel), unique }
    }

    /// Done, or refused with this errno.
    pub fn answer(mut self, errno: Option<i32>) {
        self.send(errno);
    }

    /// What another machine's engine answers: 0, or an errno, and the bytes.
    /// False if nobody takes it any more.
    pub(crate) fn forward(mut self, errno: i32, bytes: &[u8]) -> bool {
        let Some(channel) = self.channel.take() else { return false };
        let parts: &[&[u8]] = if errno == 0 { &[bytes] } else { &[] };
        Reply::new(&channel, self.unique).send(errno, parts)
    }

    /// The answer is another server's.
    pub fn leave(mut self) {
        self.channel = None;
    }

    fn send(&mut self, errno: Option<i32>) {
        let Some(channel) = self.channel.take() else { return };
        let reply = Reply::new(&channel, self.unique);
        match errno {
            None => reply.done(),
            Some(errno) => reply.error(errno),
        }
    }
}

impl Drop for LateReply {
    fn drop(&mut self) {
        self.send(Some(libc::EIO));
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.send(libc::EIO, &[]);
        }
    }
}
