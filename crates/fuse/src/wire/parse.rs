//! From an operation's number and bytes to the operation.

use super::arguments::{
    AccessIn, BatchForgetIn, CopyIn, CreateIn, FallocateIn, FlushIn, ForgetOne, FsyncIn, GetattrIn,
    GetxattrIn, InitAsk, InitMore, InterruptIn, LinkIn, LockIn, LseekIn, MkdirIn, MknodIn, OpenIn,
    ReadIn, ReleaseIn, Rename2In, RenameIn, SetattrIn, SetxattrIn, SetxattrMore, StatxIn, WriteIn,
};
use super::operation::{Forgets, Lock, Operation, Setattr, SetattrTime};
use super::reader::{Malformed, Reader};
use super::{Capabilities, opcode};

/// The handle of GETATTR and STATX is one.
const GETATTR_HANDLE: u32 = 1 << 0;
/// OPEN and CREATE: take set-id bits away.
const OPEN_KILL_SET_ID: u32 = 1 << 0;
/// WRITE: from the page cache.
const WRITE_CACHE: u32 = 1 << 0;
/// READ: a lock owner is named. The kernel does so where a caller is given the bytes, and not where
/// they fill pages (fs/fuse/file.c, `fuse_send_read`; the same from 5.x to 6.18).
const READ_OWNED: u32 = 1 << 1;
/// WRITE: the same; it comes past the pages then.
const WRITE_OWNED: u32 = 1 << 1;
/// WRITE: take set-id bits away.
const WRITE_KILL_SET_ID: u32 = 1 << 2;
/// RELEASE: the owner's flock(2) lock goes.
const RELEASE_UNLOCK_FLOCK: u32 = 1 << 1;
/// FSYNC: the content only.
const FSYNC_DATA_ONLY: u32 = 1 << 0;
/// A lock of flock(2).
const LOCK_FLOCK: u32 = 1 << 0;
/// SETXATTR: an access ACL takes the set-group-id bit away.
const SETXATTR_KILL_SET_GID: u32 = 1 << 0;

/// Bits of `SetattrIn::valid`.
mod valid {
    pub(super) const MODE: u32 = 1 << 0;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ACCESSED: u32 = 1 << 4;
    pub(super) const MODIFIED: u32 = 1 << 5;
    pub(super) const HANDLE: u32 = 1 << 6;
    pub(super) const ACCESSED_NOW: u32 = 1 << 7;
    pub(super) const MODIFIED_NOW: u32 = 1 << 8;
    pub(super) const KILL_SET_ID: u32 = 1 << 11;
}

type Parsed<'r> = Result<Operation<'r>, Malformed>;

/// Reads the arguments of operation `code`; `agreed` says which of its forms they have.
pub(super) fn operation<'r>(
    code: u32,
    reader: &mut Reader<'r>,
    agreed: Capabilities,
) -> Parsed<'r> {
    let parse = match code {
        opcode::READ..=opcode::WRITE => data,
        opcode::LOOKUP | opcode::FORGET | opcode::BATCH_FORGET => known,
        opcode::GETATTR | opcode::SETATTR | opcode::STATX | opcode::ACCESS => attributes,
        opcode::READLINK..=opcode::LINK | opcode::RENAME2 => names,
        opcode::OPEN | opcode::CREATE | opcode::TMPFILE | opcode::OPENDIR => opens,
        opcode::RELEASE..=opcode::FSYNC | opcode::FLUSH => handles,
        opcode::READDIR..=opcode::FSYNCDIR | opcode::READDIRPLUS => directories,
        opcode::SETXATTR => return setxattr(reader, agreed),
        opcode::GETXATTR..=opcode::REMOVEXATTR => xattrs,
        opcode::GETLK..=opcode::SETLKW => locks,
        opcode::FALLOCATE | opcode::LSEEK => data,
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => data,
        _ => session,
    };
    parse(code, reader)
}

/// Requests about what the kernel knows.
fn known<'r>(code: u32, reader: &mut Reader<'r>) -> Parsed<'r> {
    Ok(match code {
        opcode::LOOKUP => Operation::Lookup { name: reader.name()? },
        opcode::FORGET => Operation::Forget { lookups: reader.take()? },
        _ => {
            let head: BatchForgetIn = reader.take()?;
            let bytes = (head.count as usize).checked_mul(size_of::<ForgetOne>());
            Operation::BatchForget(Forgets(reader.bytes(bytes.ok_or(Malformed)?)?))
        }
    })
}

fn attributes<'r>(code: u32, reader: &mut Reader<'r>) -> Parsed<'r> {
    let handle = |flags: u32, handle: u64| (flags & GETATTR_HANDLE != 0).then_some(handle);
    Ok(match code {
        opcode::GETATTR => {
            let get: GetattrIn = reader.take()?;
            Operation::Getattr { handle: handle(get.flags, get.handle) }
        }
        opcode::STATX => {
            let get: StatxIn = reader.take()?;
            Operation::Statx { handle: handle(get.flags, get.handle), mask: get.mask }
        }
        opcode::SETATTR => Operation::Setattr(setattr(&reader.take()?)),
        _ => Operation::Access { mask: reader.take::<AccessIn>()?.mask },
    })
}

fn setattr(set: &SetattrIn) -> Setattr {
    let has = |bit: u32| set.valid & bit != 0;
    let time = |given: u32, now: u32, s: i64, ns: u32| match (has(given), has(now)) {
        (_, true) => Some(SetattrTime::Now),
        (true, false) => Some(SetattrTime::At { s, ns }),
        (false, false) => None,
    };
    Setattr {
        mode: has(valid::MODE).then_some(set.mode),
        uid: has(valid::UID).then_some(set.uid),
        gid: has(valid::GID).then_some(set.gid),
        size: has(valid::SIZE).then_some(set.size),
        accessed: time(valid::ACCESSED, valid::ACCESSED_NOW, set.accessed_s, set.accessed_ns),
        modified: time(valid::MODIFIED, valid::MODIFIED_NOW, set.modified_s, set.modified_ns),
        handle: has(valid::HANDLE).then_some(set.handle),
        kill_set_id: has(valid::KILL_SET_ID),
    }
}

/// Requests that make, remove or read names.
fn names<'r>(code: u32, reader: &mut Reader<'r>) -> Parsed<'r> {
    Ok(match code {
        opcode::READLINK => Operation::Readlink,
        opcode::SYMLINK => Operation::Symlink { name: reader.name()?, target: reader.name()? },
        opcode::MKNOD => {
            let make: MknodIn = reader.take()?;
            let (mode, rdev, umask) = (make.mode, make.rdev, make.umask);
            Operation::Mknod { name: reader.name()?, mode, rdev, umask }
        }
        opcode::MKDIR => {
            let make: MkdirIn = reader.take()?;
            Operation::Mkdir { name: reader.name()?, mode: make.mode, umask: make.umask }
        }
        opcode::UNLINK => Operation::Unlink { name: reader.name()? },
        opcode::RMDIR => Operation::Rmdir { name: reader.name()? },
        opcode::RENAME => rename(reader.take::<RenameIn>()?.new_parent, 0, reader)?,
        opcode::RENAME2 => {
            let to: Rename2In = reader.take()?;
            rename(to.new_parent, to.flags, reader)?
        }
        opcode::LINK => {
            let of = reader.take::<LinkIn>()?.node;
            Operation::Link { of, name: reader.name()? }
        }
        _ => Operation::Unknown(code),
    })
}

fn rename<'r>(new_parent: u64, flags: u32, reader: &mut Reader<'r>) -> Parsed<'r> {
    Ok(Operation::Rename { name: reader.name()?, new_parent, new_name: reader.name()?, flags })
}

fn opens<'r>(code: u32, reader: &mut Reader<'r>) -> Parsed<'r> {
    Ok(match code {
        opcode::OPEN => {
            let open: OpenIn = reader.take()?;
            let kill_set_id = open.open_flags & OPEN_KILL_SET_ID != 0;
            Operation::Open { flags: open.flags as i32, kill_set_id }
        }
        opcode::OPENDIR => Operation::Opendir { flags: reader.take::<OpenIn>()?.flags as i32 },
        _ => {
            let create: CreateIn = reader.take()?;
            let (mode, umask, flags) = (create.mode, create.umask, create.flags as i32);
            // TMPFILE has a name too, which the kernel made up.
            let name = reader.name()?;
            let kill_set_id = create.open_flags & OPEN_KILL_SET_ID != 0;
            match code {
                opcode::CREATE => Operation::Create { name, mode, umask, flags, kill_set_id },
                _ => Operation::Tmpfile { mode, umask, flags },
            }
        }
    })
}

fn handles<'r>(code: u32, reader: &mut Reader<'r>) -> Parsed<'r> {
    Ok(match code {
        opcode::RELEASE => {
            let it: ReleaseIn = reader.take()?;
            Operation::Release {
                handle: it.handle,
                flags: it.flags as i32,
                lock_owner: it.lock_owner,
                unlock_flock: it.release_flags & RELEASE_UNLOCK_FLOCK != 0,
            }
        }
        opcode::FSYNC => {
            let it: FsyncIn = reader.take()?;
            let data_only = it.flags & FSYNC_DATA_ONLY != 0;
            Operation::Fsync { handle: it.handle, data_only }
        }
        opcode::FLUSH => {
            let it: FlushIn = reader.take()?;
            Operation::Flush { handle: it.handle, lock_owner: it.lock_owner }
        }
        _ => Operation::Unknown(code),
    })
}

fn directories<'r>(code: u32, reader: &mut Reader<'r>) -> Parsed<'r> {
    Ok(match code {
        opcode::RELEASEDIR => Operation::Releasedir { handle: reader.take::<ReleaseIn>()?.handle },
        opcode::FSYNCDIR => {
            let it: FsyncIn = reader.take()?;
            let data_only = it.flags & FSYNC_DATA_ONLY != 0;
            Operation::Fsyncdir { handle: it.handle, data_only }
        }
        _ => {
            let ReadIn { handle, offset, size: room, flags, .. } = reader.take()?;
            let flags = flags as i32;
            match code {
                opcode::READDIR => Operation::Readdir { handle, offset, room, flags },
                _ => Operation::Readdirplus { handle, offset, room, flags },
            }
        }
    })
}

/// Requests about the bytes of files.
fn data<'r>(code: u32, reader: &mut Reader<'r>) -> Parsed<'r> {
    Ok(match code {
        opcode::READ => {
            let ReadIn { handle, offset, size, flags, read_flags, .. } = reader.take()?;
            let for_pages = read_flags & READ_OWNED == 0;
            Operation::Read { handle, offset, size, flags: flags as i32, for_pages }
        }
        opcode::WRITE => {
            let it: WriteIn = reader.take()?;
            Operation::Write {
                handle: it.handle,
                offset: it.offset,
                data: reader.bytes(it.size as usize)?,
                flags: it.flags as i32,
                from_cache: it.write_flags & WRITE_CACHE != 0,
                past_pages: it.write_flags & WRITE_OWNED != 0,
                kill_set_id: it.write_flags & WRITE_KILL_SET_ID != 0,
            }
        }
        opcode::FALLOCATE => {
            let FallocateIn { handle, offset, len, mode, .. } = reader.take()?;
            Operation::Fallocate { handle, offset, len, mode: mode as i32 }
        }
        opcode::LSEEK => {
            let LseekIn { handle, offset, whence, .. } = reader.take()?;
            Operation::Lseek { handle, offset: offset as i64, whence: whence as i32 }
        }
        _ => {
            let CopyIn { handle, offset, to_node, to_handle, to_offset, len, flags } =
                reader.take()?;
            let wide = code == opcode::COPY_FILE_RANGE_64;
            Operation::CopyFileRange {
                handle,
                offset,
                to_node,
                to_handle,
                to_offset,
                len,
                flags,
                wide,
            }
        }
    })
}

fn setxattr<'r>(reader: &mut Reader<'r>, agreed: Capabilities) -> Parsed<'r> {
    let set: SetxattrIn = reader.take()?;
    let more = match agreed.has(Capabilities::SETXATTR_EXT) {
        true => reader.take::<SetxattrMore>()?.flags,
        false => 0,
    };
    let name = reader.name()?;
    let value = reader.bytes(set.size as usize)?;
    let kill_set_gid = more & SETXATTR_KILL_SET_GID != 0;
    Ok(Operation::Setxattr { name, value, flags: set.flags as i32, kill_set_gid })
}

fn xattrs<'r>(code: u32, reader: &mut Reader<'r>) -> Parsed<'r> {
    Ok(match code {
        opcode::GETXATTR => {
            let room = reader.take::<GetxattrIn>()?.size;
            Operation::Getxattr { name: reader.name()?, room }
        }
        opcode::LISTXATTR => Operation::Listxattr { room: reader.take::<GetxattrIn>()?.size },
        _ => Operation::Removexattr { name: reader.name()? },
    })
}

fn locks<'r>(code: u32, reader: &mut Reader<'r>) -> Parsed<'r> {
    let it: LockIn = reader.take()?;
    let lock = Lock {
        handle: it.handle,
        owner: it.owner,
        start: it.start,
        end: it.end,
        kind: it.kind as i32,
        pid: it.pid,
        flock: it.flags & LOCK_FLOCK != 0,
    };
    Ok(match code {
        opcode::GETLK => Operation::Getlk(lock),
        opcode::SETLK => Operation::Setlk { lock, wait: false },
        _ => Operation::Setlk { lock, wait: true },
    })
}

/// Requests about the connection and the file system as a whole, and all others.
fn session<'r>(code: u32, reader: &mut Reader<'r>) -> Parsed<'r> {
    Ok(match code {
        opcode::STATFS => Operation::Statfs,
        opcode::SYNCFS => Operation::Syncfs,
        opcode::INIT => {
            let ask: InitAsk = reader.take()?;
            let lower = Capabilities(ask.flags.into());
            let upper = match lower.has(Capabilities::INIT_EXT) {
                true => reader.take::<InitMore>()?.flags2,
                false => 0,
            };
            Operation::Init(ask, lower.and(Capabilities(u64::from(upper) << 32)))
        }
        opcode::INTERRUPT => Operation::Interrupt { unique: reader.take::<InterruptIn>()?.unique },
        opcode::DESTROY => Operation::Destroy,
        opcode::NOTIFY_REPLY => Operation::NotifyReply,
        _ => Operation::Unknown(code),
    })
}
