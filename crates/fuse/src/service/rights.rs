//! Whose rights count. A kernel of this machine has asked whether its callers may; of what another
//! machine's says nothing is believed, but where that machine is trusted as this one is.
//!
//! Then each request is made for somebody (`FileSystem::for_caller`), who is the thread's as long
//! as it serves. What is opened is opened for reading or writing, and nothing else is done with it.

use std::cell::RefCell;
use std::sync::Arc;

use nearside::Caller as Asking;
use nearside::files::{Access, Changer, ForCaller, Ino, keeping_access_times};

use super::{Caller, Errno, OpenFile, Served, Service, stale};

thread_local! {
    /// The caller of the thread's request, where its rights are checked. `None`: the mount itself
    /// asks, and has no rights to files.
    static ASKING: RefCell<Option<Arc<Asking>>> = const { RefCell::new(None) };
}

/// A user that owns nothing.
const NOBODY: u32 = u32::MAX;

/// Which users of a machine are taken for which of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// They are who they are, and the kernel has asked whether they may.
    Trusted,
    /// All are this one.
    All(Arc<Asking>),
    /// Root is this one; others are who they say.
    Root(Arc<Asking>),
}

impl Users {
    /// The one whose rights all have, if they are one's.
    pub(crate) fn one(&self) -> Option<Arc<Asking>> {
        match self {
            Users::All(one) => Some(one.clone()),
            Users::Trusted | Users::Root(_) => None,
        }
    }

    /// Whose rights these numbers have, where that is not the kernel's to say.
    pub(crate) fn asking(&self, uid: u32, (gid, group): (u32, Option<u32>)) -> Option<Arc<Asking>> {
        match self {
            Users::Trusted => None,
            Users::All(one) => Some(one.clone()),
            Users::Root(one) if uid == 0 => Some(one.clone()),
            Users::Root(_) => Some(Arc::new(Asking::new(uid, gid, group.into_iter().collect()))),
        }
    }
}

/// What may be done with an open file, or is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct May(u8);

impl May {
    pub(crate) const NOTHING: May = May(0);
    pub(crate) const READ: May = May(1);
    pub(crate) const WRITE: May = May(2);
    pub(crate) const ALL: May = May(3);

    pub(crate) fn has(self, wanted: May) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    fn and(self, other: May) -> May {
        May(self.0 | other.0)
    }

    /// What the flags of open(2) want.
    pub(super) fn of(flags: i32) -> May {
        match flags & libc::O_ACCMODE {
            libc::O_RDONLY => May::READ,
            libc::O_WRONLY => May::WRITE,
            _ => May::ALL,
        }
    }
}

/// Serves for somebody, where that is not the kernel's to say.
pub(crate) fn asked_by<T>(asking: Option<Arc<Asking>>, serve: impl FnOnce() -> T) -> T {
    struct Before(Option<Arc<Asking>>);
    impl Drop for Before {
        fn drop(&mut self) {
            ASKING.set(self.0.take());
        }
    }
    let _before = Before(ASKING.replace(asking));
    serve()
}

/// The caller whose rights the thread's request has.
fn asking() -> Arc<Asking> {
    let nobody = || Arc::new(Asking::new(NOBODY, NOBODY, Vec::new()));
    ASKING.with_borrow(|asking| asking.clone().unwrap_or_else(nobody))
}

/// What a request to change content says of what that takes away.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Changes {
    /// Whether the caller's change takes set-id bits away.
    Said(bool),
    /// Nothing: the user settles it, since capabilities are not in a request.
    Unsaid,
    /// That somebody stored to a mapping.
    Stored,
}

/// The caller without root's right to leave set-id bits, which the kernel says he lacks; his groups
/// are what the kernel knows of his thread.
fn of_thread(gid: u32, thread: u32) -> Asking {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let groups = line.unwrap_or_default().split_ascii_whitespace();
    Asking::new(NOBODY, gid, groups.filter_map(|group| group.parse().ok()).collect())
}

/// The same of another machine's kernel, where that is trusted.
fn of_ids(gid: u32, _thread: u32) -> Asking {
    Asking::new(NOBODY, gid, Vec::new())
}

impl Service {
    /// Whose change of content a request is.
    pub(crate) fn changer(&self, by: Caller, changes: Changes) -> Changer {
        if self.is_checked {
            // what another machine says of it is not believed
            return match asking() {
                asking if asking.is_root() => Changer::Root,
                asking => Changer::Caller(asking),
            };
        }
        let find = if self.is_away { of_ids } else { of_thread };
        let thread = Changer::Thread(find, (by.gid, by.thread));
        match changes {
            Changes::Stored => Changer::Stores,
            Changes::Said(true) => thread,
            Changes::Unsaid if by.uid != 0 => thread,
            Changes::Said(false) | Changes::Unsaid => Changer::Root,
        }
    }

    /// What is known of the rights of who asks, for what is up to his groups.
    pub(super) fn rights_of(&self, by: Caller) -> Asking {
        match (by.uid, self.is_away) {
            (0, _) => Asking::new(0, by.gid, Vec::new()),
            (_, true) => of_ids(by.gid, by.thread),
            (_, false) => of_thread(by.gid, by.thread),
        }
    }

    /// The engine's calls that need rights, for whoever asks.
    pub(super) fn checked<T>(&self, call: impl FnOnce(ForCaller<'_>) -> T) -> T {
        match self.is_checked {
            true => call(self.fs.for_caller(Some(&asking()))),
            false => call(self.fs.for_caller(None)),
        }
    }

    /// What an open with these flags is for; an error where that is not allowed.
    pub(crate) fn permit_open(&self, ino: Ino, flags: i32) -> Served<May> {
        /// The kernel opens a program that it runs.
        const EXECUTES: i32 = 0o40;
        if !self.is_checked {
            return Ok(May::ALL);
        }
        let may = May::of(flags);
        let wanted = if flags & libc::O_TRUNC != 0 { may.and(May::WRITE) } else { may };
        let executes = flags & EXECUTES != 0 && wanted == May::READ;
        let access = if executes { Access::SEARCH } else { access(wanted) };
        self.checked(|fs| fs.open(ino, access)).map_err(stale)?;
        if flags & libc::O_NOATIME != 0 {
            self.checked(|fs| fs.may_keep_access_time(ino)).map_err(stale)?;
        }
        Ok(may)
    }

    /// Reads for a descriptor with these flags. With O_NOATIME the time of the last read stays. The
    /// owner alone may have that, and it is asked again: fcntl(2) sets it without a request.
    pub(crate) fn reading<T>(&self, ino: Ino, flags: i32, read: impl FnOnce() -> T) -> T {
        let keeps =
            flags & libc::O_NOATIME != 0 && self.checked(|fs| fs.may_keep_access_time(ino)).is_ok();
        if keeps { keeping_access_times(read) } else { read() }
    }

    /// An error unless names may be looked up in this directory.
    pub(crate) fn permit_search(&self, dir: Ino) -> Served<()> {
        if self.is_checked { self.checked(|fs| fs.search(dir)).map_err(stale) } else { Ok(()) }
    }

    /// Whether whoever asks may do this with a file that was open before.
    pub(super) fn permits(&self, ino: Ino, wanted: May) -> May {
        if !self.is_checked {
            return May::ALL;
        }
        let may = wanted == May::NOTHING || self.checked(|fs| fs.open(ino, access(wanted))).is_ok();
        if may { wanted } else { May::NOTHING }
    }

    /// An error where it is known who had this open before, and that he may neither read nor
    /// write it.
    pub(super) fn permit_again(&self, ino: Ino) -> Served<()> {
        let is_known = ASKING.with_borrow(Option::is_some);
        let may = |may| self.permits(ino, may) == may;
        match self.is_checked && is_known && !may(May::READ) && !may(May::WRITE) {
            true => Err(Errno(libc::EACCES)),
            false => Ok(()),
        }
    }

    /// An error unless this is open here, and for what is wanted.
    pub(crate) fn permit_use(&self, file: OpenFile, wanted: May) -> Served<()> {
        if self.is_checked { self.handle(file, wanted).map(drop) } else { Ok(()) }
    }
}

fn access(may: May) -> Access {
    match may {
        May::READ => Access::READ,
        May::WRITE => Access::WRITE,
        _ => Access::READ.and(Access::WRITE),
    }
}

/// The error of a file that is open for something else.
pub(super) const NOT_OPEN_FOR_IT: Errno = Errno(libc::EBADF);
