//! A directory that the service has open for this process.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use fs::Ino;
use wire::{Entry, Reply, Request};

use super::{Attached, nonsense};
use crate::{DirEntry, Metadata, Result};

/// An open directory.
#[derive(Debug)]
pub(crate) struct AttachedDir {
    attached: Attached,
    number: u64,
    /// How far it was read.
    cookie: u64,
}

impl AttachedDir {
    pub(crate) fn new(attached: Attached, number: u64) -> AttachedDir {
        AttachedDir { attached, number, cookie: 0 }
    }

    /// Refuses a forked child.
    pub(crate) fn own(&self) -> Result<()> {
        self.attached.own()
    }

    pub(crate) fn metadata(&self) -> Result<Metadata> {
        match self.attached.ask(&Request::FileAttributes(self.number))? {
            Reply::Attributes(attributes) => Ok(attributes.into()),
            _ => Err(nonsense()),
        }
    }

    /// The next entries; none at the end.
    pub(crate) fn next_entries(&mut self) -> Result<Vec<DirEntry>> {
        let request = Request::ReadDirectory(self.number, self.cookie);
        let (reply, said) = self.attached.reply_and_bytes(&request)?;
        let Reply::Number(cookie) = reply else { return Err(nonsense()) };
        self.cookie = cookie;
        let entries: Vec<Entry> = wire::decode(&said).map_err(|_| nonsense())?;
        let entry =
            |Entry { name, ino, kind }| DirEntry::new(OsString::from_vec(name), Ino(ino), kind);
        Ok(entries.into_iter().map(entry).collect())
    }
}

impl Drop for AttachedDir {
    fn drop(&mut self) {
        if self.own().is_ok() {
            // where the service is gone, it is closed
            let _ = self.attached.act(&Request::Close(self.number));
        }
    }
}
