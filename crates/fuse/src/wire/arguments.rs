//! The fixed parts of requests, field by field as the kernel lays them out.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Makes a structure of the protocol. It has no hidden padding (`IntoBytes` refuses that), and any
/// bytes are a valid one.
macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $kind,)* }
    )* };
}

layout! {
    /// The head of every request.
    InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        node: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        extension_words: u16,
        padding: u16,
    }
    ForgetOne { node: u64, lookups: u64, }
    BatchForgetIn { count: u32, padding: u32, }
    GetattrIn { flags: u32, padding: u32, handle: u64, }
    StatxIn { flags: u32, padding: u32, handle: u64, statx_flags: u32, mask: u32, }
    SetattrIn {
        valid: u32,
        padding: u32,
        handle: u64,
        size: u64,
        lock_owner: u64,
        accessed_s: i64,
        modified_s: i64,
        changed_s: i64,
        accessed_ns: u32,
        modified_ns: u32,
        changed_ns: u32,
        mode: u32,
        unused: u32,
        uid: u32,
        gid: u32,
        unused_too: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32, }
    MkdirIn { mode: u32, umask: u32, }
    RenameIn { new_parent: u64, }
    Rename2In { new_parent: u64, flags: u32, padding: u32, }
    LinkIn { node: u64, }
    OpenIn { flags: u32, open_flags: u32, }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    ReadIn {
        handle: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    WriteIn {
        handle: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    ReleaseIn { handle: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    FsyncIn { handle: u64, flags: u32, padding: u32, }
    FlushIn { handle: u64, unused: u32, padding: u32, lock_owner: u64, }
    /// The first half is all there is where the longer form was not agreed on.
    SetxattrIn { size: u32, flags: u32, }
    SetxattrMore { flags: u32, padding: u32, }
    GetxattrIn { size: u32, padding: u32, }
    LockIn {
        handle: u64,
        owner: u64,
        start: u64,
        end: u64,
        kind: u32,
        pid: u32,
        flags: u32,
        padding: u32,
    }
    AccessIn { mask: u32, padding: u32, }
    InitMore { flags2: u32, unused: [u32; 11], }
    InterruptIn { unique: u64, }
    FallocateIn { handle: u64, offset: u64, len: u64, mode: u32, padding: u32, }
    LseekIn { handle: u64, offset: u64, whence: u32, padding: u32, }
    CopyIn {
        handle: u64,
        offset: u64,
        to_node: u64,
        to_handle: u64,
        to_offset: u64,
        len: u64,
        flags: u64,
    }
    ExtensionHead { size: u32, kind: u32, }
}

/// What the kernel says of itself when a connection begins.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InitAsk {
    /// Its major version.
    pub major: u32,
    /// Its minor version.
    pub minor: u32,
    /// Bytes that it would read ahead.
    pub max_readahead: u32,
    /// What it can do, the lower half.
    pub flags: u32,
}
