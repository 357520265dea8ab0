//! An inode in DRAM.
//!
//! Locks, in this order: the gate, directory moves, `ranges`, `meta` (several in the order of their
//! numbers), `map.loading`, a leaf's lock bit, the lane. What a write changes of a file (size,
//! times, blocks) are atomics, so that writers of disjoint ranges share no lock.

use crate::attr::Stored;
use crate::entries::Dir;
use crate::inline::UNSYNCED_MAX;
use crate::layout::Layout;
use crate::map::BlockMap;
use crate::mapped::Mappings;
use crate::placing::Placing;
use crate::privileges::Marks;
use crate::range_lock::RangeLock;
use crate::read_ahead::ReadAhead;
use crate::types::{Attr, FileKind, Ino, Timestamp};
use crate::watch::Watched;
use crate::xattr::Xattrs;
use ::locks::{Mutex, RwLock};
use pool::tree::{Change, Key};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// No leaf was cut off.
pub const NOTHING_VOID: u64 = u64::MAX;

/// What of an inode is under its lock.
#[derive(Debug)]
pub struct Meta {
    /// Permission bits.
    pub mode: u16,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Creation.
    pub created: Timestamp,
    /// Of a directory: the one that holds it.
    pub parent: Ino,
    /// It has no name any more and nobody has it open.
    pub gone: bool,
    /// It has no name any more, but is open.
    pub orphan: bool,
    /// It never had a name, and may be given one.
    pub nameable: bool,
    /// Of a directory: its entries; nothing else has any.
    pub dir: Option<Box<Dir>>,
    /// Extended attributes, once looked at.
    pub xattrs: Option<Box<Xattrs>>,
    /// Target of a symbolic link, once looked at.
    pub target: Option<Box<[u8]>>,
    /// Values of the tree that changed since the last cut, apart from those found otherwise.
    pub pending: BTreeMap<Key, Change>,
}

/// An inode.
#[derive(Debug)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// What is under its lock.
    pub meta: RwLock<Meta>,
    /// Bytes; of a directory: entries.
    pub size: AtomicU64,
    /// Data blocks.
    pub blocks: AtomicU64,
    /// Last read.
    pub accessed: AtomicI64,
    /// Last change of content.
    pub modified: AtomicI64,
    /// Last change of attributes.
    pub changed: AtomicI64,
    /// Highest stamp of a change to it.
    pub stamp: AtomicU64,
    /// Where new blocks go, and what may move: the code of that (`placing.rs`).
    pub placing: AtomicU32,
    /// Some of it has moved to its readers, and stays there when it is written anew.
    pub moved: AtomicBool,
    /// Where its data is.
    pub map: BlockMap,
    /// Ranges that writers hold.
    pub ranges: RangeLock,
    /// It is on the list of changed inodes.
    pub dirty: AtomicBool,
    /// Where on that list; under the list's lock.
    pub dirty_at: AtomicU32,
    /// The tree may have it: it came from there, or was there at a cut.
    pub stored: AtomicBool,
    /// Leaves that changed since the last cut.
    pub dirty_leaves: Mutex<Vec<u64>>,
    /// Lowest leaf that a truncation cut off since the last cut.
    pub void_from: AtomicU64,
    /// A leaf was met that has reserved blocks (`reserve.rs`).
    pub reserves: AtomicBool,
    /// Who keeps copies of its bytes.
    pub mappings: Mappings,
    /// Whether some of it is written by others by themselves, and whether it may give privileges.
    pub marks: Marks,
    /// Who looks whether they change.
    pub watched: Watched,
    /// How far ahead it is read from the capacity tier.
    pub read_ahead: ReadAhead,
    /// Handles.
    pub opens: AtomicU32,
    /// Writes since the last sync, as far as it matters (`inline.rs`).
    pub unsynced: AtomicU32,
}

impl Inode {
    /// The inode that these attributes describe. `stored`: the tree may hold more of it.
    pub fn new(ino: Ino, stored: &Stored, in_tree: bool) -> Inode {
        Inode {
            ino,
            kind: stored.kind,
            meta: RwLock::new(Meta {
                mode: stored.mode,
                links: stored.links,
                uid: stored.uid,
                gid: stored.gid,
                rdev: stored.rdev,
                created: stored.created,
                parent: stored.parent,
                gone: false,
                orphan: false,
                nameable: false,
                dir: (stored.kind == FileKind::Directory).then(|| Dir::new(!in_tree).into()),
                xattrs: None,
                target: None,
                pending: BTreeMap::new(),
            }),
            size: AtomicU64::new(stored.size),
            blocks: AtomicU64::new(stored.blocks),
            accessed: AtomicI64::new(stored.accessed.0),
            modified: AtomicI64::new(stored.modified.0),
            changed: AtomicI64::new(stored.changed.0),
            stamp: AtomicU64::new(stored.stamp),
            placing: AtomicU32::new(stored.placing.code()),
            moved: AtomicBool::new(false),
            map: BlockMap::new(in_tree),
            ranges: RangeLock::default(),
            dirty: AtomicBool::new(false),
            dirty_at: AtomicU32::new(0),
            stored: AtomicBool::new(in_tree),
            dirty_leaves: Mutex::default(),
            void_from: AtomicU64::new(NOTHING_VOID),
            reserves: AtomicBool::new(false),
            opens: AtomicU32::new(0),
            unsynced: AtomicU32::new(UNSYNCED_MAX),
            mappings: Mappings::default(),
            marks: Marks::unknown(stored.kind),
            watched: Watched::default(),
            read_ahead: ReadAhead::default(),
        }
    }

    /// As stored.
    pub fn stored(&self, meta: &Meta) -> Stored {
        Stored {
            kind: self.kind,
            mode: meta.mode,
            links: meta.links,
            uid: meta.uid,
            gid: meta.gid,
            rdev: meta.rdev,
            size: self.size.load(Ordering::Acquire),
            blocks: self.blocks.load(Ordering::Relaxed),
            accessed: Timestamp(self.accessed.load(Ordering::Relaxed)),
            modified: Timestamp(self.modified.load(Ordering::Relaxed)),
            changed: Timestamp(self.changed.load(Ordering::Relaxed)),
            created: meta.created,
            parent: meta.parent,
            placing: self.placing(),
            stamp: self.stamp.load(Ordering::Relaxed),
            sets_modified: false,
        }
    }

    /// Where new blocks go.
    #[inline]
    pub fn layout(&self) -> Layout {
        self.placing().layout
    }

    /// That, and what may move.
    #[inline]
    pub fn placing(&self) -> Placing {
        // ordering: whoever changed it meanwhile did so before or after what is done by it
        Placing::from_code(self.placing.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Takes over attributes that replay found in a record that changed them. Not the size and the
    /// blocks: a writer may have changed them while the record was made, and says so in its own.
    pub fn restore(&self, meta: &mut Meta, stored: &Stored) {
        meta.mode = stored.mode;
        meta.links = stored.links;
        // whatever the tree said of it
        meta.orphan &= stored.links == 0;
        meta.uid = stored.uid;
        meta.gid = stored.gid;
        meta.rdev = stored.rdev;
        self.accessed.store(stored.accessed.0, Ordering::Relaxed);
        meta.created = stored.created;
        meta.parent = stored.parent;
        self.placing.store(stored.placing.code(), Ordering::Relaxed);
        if stored.sets_modified {
            self.modified.store(stored.modified.0, Ordering::Relaxed);
        }
        self.changed.fetch_max(stored.changed.0, Ordering::Relaxed);
    }

    /// As `stat` shows it.
    pub fn attr(&self, meta: &Meta) -> Attr {
        let stored = self.stored(meta);
        let size = match self.kind {
            FileKind::Directory => stored.size.saturating_mul(32),
            _ => stored.size,
        };
        Attr {
            ino: self.ino,
            kind: self.kind,
            mode: stored.mode,
            links: stored.links,
            uid: stored.uid,
            gid: stored.gid,
            rdev: stored.rdev,
            size,
            sectors: stored.blocks.saturating_mul(8),
            accessed: stored.accessed,
            modified: stored.modified,
            changed: stored.changed,
            created: stored.created,
        }
    }

    /// Content changed at `now`.
    pub fn touch(&self, now: i64) {
        self.modified.store(now, Ordering::Relaxed);
        self.changed.store(now, Ordering::Relaxed);
    }

    /// A change with this stamp is durable.
    #[inline]
    pub fn stamped(&self, stamp: u64) {
        // ordering: AcqRel, so that who takes a higher stamp has seen what this one published
        self.stamp.fetch_max(stamp, Ordering::AcqRel);
    }

    /// A change begins; gives the stamp that it must exceed.
    #[inline]
    pub fn begin_change(&self) -> u64 {
        self.watched.change();
        self.stamp_now()
    }

    /// Stamp that a new change must exceed.
    #[inline]
    pub fn stamp_now(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }
}
