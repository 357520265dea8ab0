//! The fixed parts of replies, field by field as the kernel lays them out.

use std::time::Duration;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Makes a structure of the protocol; see `arguments`.
macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $kind:ty,)* })*) => { $(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable
        )]
        #[repr(C)]
        pub struct $name { $($(#[$about])* pub $field: $kind,)* }
    )* };
}

layout! {
    /// The head of every reply.
    OutHeader {
        /// Bytes of head and answer.
        len: u32,
        /// 0, or an errno, negative.
        error: i32,
        /// The request's number.
        unique: u64,
    }
    /// Attributes of an inode.
    NodeAttr {
        /// Inode number.
        ino: u64,
        /// Size, bytes.
        size: u64,
        /// Space in use, 512-byte sectors.
        sectors: u64,
        /// Last access, whole seconds since 1970.
        accessed_s: i64,
        /// Last change of content, whole seconds.
        modified_s: i64,
        /// Last change of attributes, whole seconds.
        changed_s: i64,
        /// Nanoseconds to be added to `accessed_s`.
        accessed_ns: u32,
        /// Nanoseconds to be added to `modified_s`.
        modified_ns: u32,
        /// Nanoseconds to be added to `changed_s`.
        changed_ns: u32,
        /// Kind and permission bits.
        mode: u32,
        /// Names.
        links: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number of a device.
        rdev: u32,
        /// Preferred bytes of one read or write.
        block_bytes: u32,
        /// None that is used here.
        flags: u32,
    }
    /// How long the kernel may trust what it was told, apart from whole seconds.
    Validity {
        /// Whole seconds for the name.
        entry_s: u64,
        /// Whole seconds for the attributes.
        attr_s: u64,
        /// Nanoseconds to be added.
        entry_ns: u32,
        /// Nanoseconds to be added.
        attr_ns: u32,
    }
    /// What a name stands for.
    EntryAnswer {
        /// Inode number; 0 says that there is no such name.
        node: u64,
        /// Tells inodes apart that had the number one after the other.
        generation: u64,
        /// How long to trust it.
        validity: Validity,
        /// Its attributes.
        attr: NodeAttr,
    }
    /// Attributes, and how long to trust them.
    AttrAnswer {
        /// Whole seconds.
        valid_s: u64,
        /// Nanoseconds to be added.
        valid_ns: u32,
        /// Unused.
        padding: u32,
        /// The attributes.
        attr: NodeAttr,
    }
    /// A point in time, as statx(2) says it.
    StatxTime {
        /// Whole seconds since 1970.
        s: i64,
        /// Nanoseconds to be added.
        ns: u32,
        /// Unused.
        padding: u32,
    }
    /// Attributes as statx(2) says them.
    StatxAnswer {
        /// How long to trust it, whole seconds.
        valid_s: u64,
        /// Nanoseconds to be added.
        valid_ns: u32,
        /// None that is used here.
        flags: u32,
        /// Unused.
        spare: [u64; 2],
        /// Which of the fields below are there.
        mask: u32,
        /// Preferred bytes of one read or write.
        block_bytes: u32,
        /// None that is used here.
        attributes: u64,
        /// Names.
        links: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Kind and permission bits.
        mode: u16,
        /// Unused.
        padding: u16,
        /// Inode number.
        ino: u64,
        /// Size, bytes.
        size: u64,
        /// Space in use, 512-byte sectors.
        sectors: u64,
        /// None that is used here.
        attributes_mask: u64,
        /// Last access.
        accessed: StatxTime,
        /// Creation.
        created: StatxTime,
        /// Last change of attributes.
        changed: StatxTime,
        /// Last change of content.
        modified: StatxTime,
        /// Device number of a device.
        rdev: [u32; 2],
        /// Device number of the file system; the kernel puts its own.
        device: [u32; 2],
        /// Unused.
        spare_too: [u64; 14],
    }
    /// An open file.
    OpenAnswer {
        /// What the kernel calls it from now on.
        handle: u64,
        /// What the kernel may do with it ([`super::open_flags`]).
        flags: u32,
        /// Unused.
        padding: u32,
    }
    /// A number of bytes.
    SizeAnswer {
        /// Bytes.
        size: u32,
        /// Unused.
        padding: u32,
    }
    /// An offset, or a number of bytes in 64 bits.
    OffsetAnswer {
        /// Bytes.
        offset: u64,
    }
    /// Space of the file system, as statfs(2) says it.
    SpaceAnswer {
        /// Blocks in all.
        blocks: u64,
        /// Free blocks.
        blocks_free: u64,
        /// Free blocks that everybody may use.
        blocks_available: u64,
        /// Inodes in all.
        inodes: u64,
        /// Free inodes.
        inodes_free: u64,
        /// Bytes of a block.
        block_bytes: u32,
        /// Bytes of the longest name.
        name_bytes: u32,
        /// Bytes in which `blocks` counts.
        fragment_bytes: u32,
        /// Unused.
        padding: u32,
        /// Unused.
        spare: [u32; 6],
    }
    /// A lock that is in the way, or the kind "unlocked".
    LockAnswer {
        /// First byte.
        start: u64,
        /// Last byte.
        end: u64,
        /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
        kind: u32,
        /// Its owner's process.
        pid: u32,
    }
    /// What a server says of itself when a connection begins.
    InitAnswer {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
        /// Bytes that the kernel may read ahead.
        max_readahead: u32,
        /// What both can do, the lower half.
        flags: u32,
        /// Requests in the background.
        max_background: u16,
        /// Requests in the background at which the kernel slows down.
        congestion_threshold: u16,
        /// Bytes of the largest write.
        max_write: u32,
        /// Nanoseconds in which times are told.
        time_granularity: u32,
        /// Pages of the largest request.
        max_pages: u16,
        /// Unused: for memory that is mapped directly.
        map_alignment: u16,
        /// What both can do, the upper half.
        flags2: u32,
        /// Unused: for stacked file systems.
        max_stack_depth: u32,
        /// Unused: seconds after which the kernel gives a request up.
        request_timeout: u16,
        /// Unused.
        unused: [u16; 11],
    }
    /// The fixed part of an entry in a listing.
    DirentHead {
        /// Inode number.
        ino: u64,
        /// Where to go on after it.
        offset: u64,
        /// Bytes of its name.
        name_bytes: u32,
        /// Its kind, the type bits of a mode moved down by 12.
        kind: u32,
    }
    /// A notification: forget attributes and pages.
    InvalInode {
        /// Inode number.
        ino: u64,
        /// First byte; negative for attributes only.
        offset: i64,
        /// Bytes; 0 for all to the end.
        len: i64,
    }
    /// A notification: forget a name.
    InvalEntry {
        /// The directory.
        parent: u64,
        /// Bytes of the name.
        name_bytes: u32,
        /// None that is used here.
        flags: u32,
    }
}

impl Validity {
    /// Names and attributes may be trusted for this time.
    pub fn of(time: Duration) -> Validity {
        let (s, ns) = (time.as_secs(), time.subsec_nanos());
        Validity { entry_s: s, attr_s: s, entry_ns: ns, attr_ns: ns }
    }
}

impl AttrAnswer {
    /// Attributes that may be trusted for this time.
    pub fn new(attr: NodeAttr, valid: Duration) -> AttrAnswer {
        let (valid_s, valid_ns) = (valid.as_secs(), valid.subsec_nanos());
        AttrAnswer { valid_s, valid_ns, padding: 0, attr }
    }
}

impl EntryAnswer {
    /// An inode, to be trusted for this time; inode numbers are never used twice.
    pub fn new(attr: NodeAttr, valid: Duration) -> EntryAnswer {
        EntryAnswer { node: attr.ino, generation: 0, validity: Validity::of(valid), attr }
    }
}
