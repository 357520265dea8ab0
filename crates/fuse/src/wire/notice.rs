//! What a server tells the kernel unasked.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::answers::{InvalEntry, InvalInode};
use super::{Channel, opcode};

/// Tells the kernel to forget.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Channel>);

impl Notifier {
    pub(crate) fn new(channel: Arc<Channel>) -> Notifier {
        Notifier(channel)
    }

    /// The device of this machine's kernel.
    pub(crate) fn device(&self) -> Option<BorrowedFd<'_>> {
        match &*self.0 {
            Channel::Device(device) => Some(device.as_fd()),
            Channel::Away(_) => None,
        }
    }

    /// Forget the attributes of inode `ino`, and its pages from byte `offset` on (`len` bytes, 0
    /// for all); a negative offset leaves the pages. ENOENT: the kernel does not know it.
    pub fn inval_inode(&self, ino: u64, offset: i64, len: i64) -> io::Result<()> {
        let what = InvalInode { ino, offset, len };
        self.0.send(0, opcode::NOTIFY_INVAL_INODE, &[what.as_bytes()])
    }

    /// Forget what `name` in directory `parent` stands for.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        let what = InvalEntry { parent, name_bytes: name.len() as u32, flags: 0 };
        self.0.send(0, opcode::NOTIFY_INVAL_ENTRY, &[what.as_bytes(), name, b"\0"])
    }
}
