//! What a file gives whoever runs it beyond his own rights: set-user-id, set-group-id, and what
//! `security.capability` names. It was given for the bytes that were there, so whoever changes them
//! takes it away, as Linux does (`file_remove_privs`): the attribute always, the bits unless he is
//! root. Sources: write(2), capabilities(7), and the kernel (`setattr_should_drop_sgid`,
//! `cap_inode_need_killpriv`).
//!
//! A change of content looks when it has the range, and whoever gives such a privilege waits until
//! nobody has a range of the file: so none is given between the look and the change. What is taken
//! away is in the log before the change is. Whose change it is the thread says ([`changing_for`]).

use crate::core::Core;
use crate::error::Result;
use crate::handle::Handle;
use crate::inode::{Inode, Meta};
use crate::request;
use crate::rights::{Caller, Owned};
use crate::system::FileSystem;
use crate::types::FileKind;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The attribute that names capabilities for whoever runs the file.
pub const CAPABILITY: &[u8] = b"security.capability";
/// Set-user-id and set-group-id.
const SET_ID: u16 = 0o6000;

/// Things about a file that make changes of its content look further; mostly none.
#[derive(Debug)]
pub struct Marks(AtomicU8);

/// Ranges of it may be leased.
pub const LEASED: u8 = 1;
/// It may give privileges.
pub const RAISES: u8 = 2;
/// Some keeper of copies of its bytes may want to be told before they change (`mapped.rs`).
pub const TOLD_BEFORE: u8 = 4;
/// What a change of its content looks for when it has the range.
pub const BEFORE_CHANGES: u8 = LEASED | RAISES | TOLD_BEFORE;
/// Copies of its bytes may be kept.
pub const MAPPED: u8 = 8;

impl Marks {
    /// Of an inode of which nothing is known but its kind.
    pub fn unknown(kind: FileKind) -> Marks {
        Marks(AtomicU8::new(if kind == FileKind::File { RAISES } else { 0 }))
    }

    /// All of them.
    // ordering: whoever gives a lease or a privilege says so and then waits for the range; a change
    // that has the range sees it, or is over before it is given
    #[inline(always)]
    pub fn get(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }

    /// Whether this one is there.
    #[inline(always)]
    pub fn has(&self, mark: u8) -> bool {
        self.get() & mark != 0
    }

    /// The same, behind all that this thread stored before.
    pub fn has_after_stores(&self, mark: u8) -> bool {
        self.0.load(Ordering::SeqCst) & mark != 0
    }

    /// Sets it or takes it away.
    pub fn set(&self, mark: u8, is_set: bool) {
        match is_set {
            true => self.0.fetch_or(mark, Ordering::SeqCst),
            false => self.0.fetch_and(!mark, Ordering::SeqCst),
        };
    }
}

/// Whose change of content it is.
#[derive(Clone, Debug, Default)]
pub enum Changer {
    /// Somebody with all rights: set-id bits stay.
    #[default]
    Root,
    /// This caller.
    Caller(Arc<Caller>),
    /// A thread that is not root, whose groups are looked up where they matter: the function that
    /// does so, by its group and its number.
    Thread(fn(u32, u32) -> Caller, (u32, u32)),
    /// Nobody can say: the kernel writes pages back that somebody stored to. As with other file
    /// systems of Linux nothing is taken away then.
    Stores,
}

thread_local! {
    static CHANGER: RefCell<Changer> = const { RefCell::new(Changer::Root) };
    /// Whether something was taken away.
    static TOOK: Cell<bool> = const { Cell::new(false) };
}

/// Makes changes of content for this one; gives also whether privileges were taken away.
pub fn changing_for<T>(changer: Changer, change: impl FnOnce() -> T) -> (T, bool) {
    struct Before(Changer, bool);
    impl Drop for Before {
        fn drop(&mut self) {
            CHANGER.replace(std::mem::take(&mut self.0));
            TOOK.set(self.1);
        }
    }
    let _before = Before(CHANGER.replace(changer), TOOK.replace(false));
    let changed = change();
    (changed, TOOK.get())
}

/// The same for a caller, who has all rights if he is `None`.
#[inline]
pub fn changing_by<T>(caller: Option<&Arc<Caller>>, change: impl FnOnce() -> T) -> T {
    match caller.filter(|caller| !caller.is_root()) {
        Some(caller) => changing_for(Changer::Caller(caller.clone()), change).0,
        None => change(),
    }
}

impl Changer {
    /// The mode after his change, if that changes it.
    fn mode_after(&self, it: &Owned) -> Option<u16> {
        match self {
            Changer::Root | Changer::Stores => None,
            Changer::Caller(caller) => it.after_write(caller),
            Changer::Thread(find, (gid, thread)) => it.after_write(&find(*gid, *thread)),
        }
    }
}

impl Core {
    /// The file, whose range the caller has and whose content is about to change, gives no more
    /// privileges than that change leaves. The caller is inside the gate.
    #[cold]
    pub(crate) fn take_privileges(&self, inode: &Arc<Inode>) -> Result<()> {
        let changer = CHANGER.with_borrow(Clone::clone);
        if matches!(changer, Changer::Stores) {
            return Ok(());
        }
        let mut meta = inode.meta.write();
        if meta.gone {
            return Ok(());
        }
        let mode = changer.mode_after(&Owned::of(inode, &meta));
        let has_capability = self.has_capability(inode, &mut meta)?;
        if mode.is_some() || has_capability {
            // it comes before the change that was asked for
            let mode = mode.unwrap_or(meta.mode);
            request::repeatable(|| self.log_xattr(inode, &mut meta, CAPABILITY, None, mode))?;
            TOOK.set(true);
        }
        if meta.mode & SET_ID == 0 {
            inode.marks.set(RAISES, false);
        }
        Ok(())
    }

    /// Whether the file names capabilities.
    pub(crate) fn has_capability(&self, inode: &Inode, meta: &mut Meta) -> Result<bool> {
        Ok(self.xattrs(inode, meta)?.values.contains_key(CAPABILITY))
    }
}

impl FileSystem {
    /// Whether the file gives whoever runs it privileges, which a change of its content takes away;
    /// also where that cannot be read.
    pub fn gives_privileges(&self, handle: &Handle) -> bool {
        let inode = &handle.inode;
        if !inode.marks.has(RAISES) {
            return false;
        }
        let mut meta = inode.meta.write();
        let gives =
            meta.mode & SET_ID != 0 || self.core.has_capability(inode, &mut meta).unwrap_or(true);
        inode.marks.set(RAISES, gives);
        gives
    }
}

/// Whether a file with these bits gives privileges by them.
pub fn raises(kind: FileKind, mode: u16) -> bool {
    kind == FileKind::File && mode & SET_ID != 0
}
