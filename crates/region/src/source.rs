//! Where faults come from, and how whoever waits for a page is answered.

use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::signals::Signals;
use crate::userfault::Userfault;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// How faults of regions come to this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faults {
    /// userfaultfd, of system calls, too.
    All,
    /// userfaultfd of the program's own loads: a system call that is given an address of a page
    /// that is not there says EFAULT.
    Own,
    /// SIGSEGV, where the kernel gives no userfaultfd: of the program's own loads, too. A program
    /// that handles SIGSEGV itself installs its handler before, and is called for all else.
    Signals,
}

impl Faults {
    /// The best way that this process may have now.
    pub fn best() -> Faults {
        let userfault = Userfault::all().or_else(Userfault::own);
        userfault.map_or(Faults::Signals, |userfault| userfault.way)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Faults::All => "userfaultfd",
            Faults::Own => "userfaultfd, of the program's own loads only",
            Faults::Signals => "SIGSEGV",
        }
    }
}

/// Where faults come from.
#[derive(Debug)]
pub enum Source {
    /// The kernel's descriptor.
    Userfault(Userfault),
    /// A handler of SIGSEGV.
    Signals(Signals),
}

impl Source {
    /// In this way; `None`: in the best one that this process may have.
    pub fn new(way: Option<Faults>) -> Result<Source> {
        let userfault = match way {
            None => Userfault::all().or_else(Userfault::own),
            Some(Faults::All) => Userfault::all(),
            Some(Faults::Own) => Userfault::own(),
            Some(Faults::Signals) => None,
        };
        match (userfault, way) {
            (Some(userfault), _) => Ok(Source::Userfault(userfault)),
            (None, None | Some(Faults::Signals)) => Ok(Source::Signals(Signals::new()?)),
            (None, Some(_)) => Err(Error::kernel("userfaultfd")),
        }
    }

    /// The same for pages that another process takes away: only userfaultfd tells of those. Its
    /// memory may move to where other memory is.
    pub fn served(way: Option<Faults>) -> Result<Source> {
        let userfault = match way {
            None => Userfault::all_that_moves().or_else(Userfault::own_that_moves),
            Some(Faults::All) => Userfault::all_that_moves(),
            Some(Faults::Own) => Userfault::own_that_moves(),
            Some(Faults::Signals) => None,
        };
        userfault.map(Source::Userfault).ok_or(Error::NoUserfault)
    }

    /// Which way it is.
    pub fn way(&self) -> Faults {
        match self {
            Source::Userfault(userfault) => userfault.way,
            Source::Signals(_) => Faults::Signals,
        }
    }

    /// From now on faults of this memory come here.
    pub fn register(&self, memory: Range<usize>) -> Result<()> {
        match self {
            Source::Userfault(userfault) => userfault.register(memory),
            Source::Signals(signals) => {
                signals.register(memory);
                Ok(())
            }
        }
    }

    /// From now on they do not.
    pub fn unregister(&self, memory: Range<usize>) {
        match self {
            Source::Userfault(userfault) => userfault.unregister(memory),
            Source::Signals(signals) => signals.unregister(memory),
        }
    }

    /// The state of pages that were put says so.
    pub fn settled(&self, memory: &Memory, at: usize, bytes: usize) {
        // the kernel woke who waits when it put them there
        if let Source::Signals(_) = self {
            self.wake(memory, at, bytes);
        }
    }

    /// These pages are there, or can be asked for again: who waits for them goes on.
    pub fn wake(&self, memory: &Memory, at: usize, bytes: usize) {
        let start = memory.start().as_ptr() as usize + at;
        match self {
            Source::Userfault(userfault) => userfault.wake(start as u64, bytes),
            Source::Signals(signals) => signals.answer(start..start + bytes, true),
        }
    }

    /// The same by addresses.
    pub fn wake_at(&self, addresses: Range<usize>) {
        match self {
            Source::Userfault(it) => it.wake(addresses.start as u64, addresses.len()),
            Source::Signals(signals) => signals.answer(addresses, true),
        }
    }

    /// There is no region at this address any more: who waits there looks once more.
    pub fn let_go(&self, address: usize) {
        // the kernel woke who waits when the memory was unregistered
        if let Source::Signals(signals) = self {
            signals.answer(address..address + 1, true);
        }
    }

    /// A page cannot be brought: who waits for it is ended by a signal.
    pub fn refuse(&self, memory: &Memory, at: usize) {
        let start = memory.start().as_ptr() as usize + at;
        match self {
            Source::Userfault(userfault) => {
                memory.forbid(at);
                userfault.wake(start as u64, crate::PAGE_BYTES);
            }
            Source::Signals(signals) => signals.answer(start..start + crate::PAGE_BYTES, false),
        }
    }

    /// The address of the next fault, if there is one now.
    pub fn next(&self) -> Option<u64> {
        match self {
            Source::Userfault(userfault) => userfault.next(),
            Source::Signals(signals) => signals.next(),
        }
    }

    /// The descriptor, to wait for it to be readable.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Source::Userfault(userfault) => userfault.descriptor(),
            Source::Signals(signals) => signals.descriptor(),
        }
    }
}
