//! Requests as `fuser` brings them, and replies as it takes them.
//!
//! Nothing is decided here: arguments are put into the engine's words, the service answers, the
//! answer is put into the kernel's words.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use nearside::FileKind;
use nearside::files::{Attr, Ino, NAME_BYTES_MAX, NewNode, Timestamp};

use crate::MountOptions;
use crate::convert::{file_attr, file_type, ino, timestamp};
use crate::service::{Caller, Change, Errno, Served, Service};
use crate::settings::negotiate;

/// How long the kernel trusts names and attributes when nobody else can change them: a year.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Entries that one question to the engine brings.
const ENTRIES_MAX: usize = 64;
/// An inode number is never used twice, so generations do not exist.
const GENERATION: Generation = Generation(0);

/// What stands for a name that does not exist: the kernel looks at the number only.
const NO_INODE: Attr = Attr {
    ino: Ino(0),
    kind: FileKind::File,
    mode: 0,
    links: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    size: 0,
    sectors: 0,
    accessed: Timestamp(0),
    modified: Timestamp(0),
    changed: Timestamp(0),
    created: Timestamp(0),
};

/// What tells the kernel to forget; there is one as soon as the connection stands.
pub(crate) type Notice = Arc<OnceLock<Notifier>>;

/// The service behind `fuser`.
pub(crate) struct Transport {
    service: Service,
    notifier: Notice,
    trusted_for: Duration,
    sole_door: bool,
}

impl Transport {
    pub(crate) fn new(service: Service, options: &MountOptions) -> Transport {
        let sole_door = options.sole_door;
        let trusted_for = if sole_door { FOR_EVER } else { Duration::ZERO };
        Transport { service, notifier: Notice::default(), trusted_for, sole_door }
    }

    /// Where the notifier of the connection belongs.
    pub(crate) fn notice(&self) -> Notice {
        self.notifier.clone()
    }

    fn guard<T>(&self, call: &'static str, serve: impl FnOnce(&Service) -> Served<T>) -> Served<T> {
        self.service.metered(call, || survive(call, || serve(&self.service)))
    }

    /// Makes the kernel forget the attributes of `number`, but no page: this may be said while a
    /// request on the same file is served.
    fn forget_attributes(&self, number: INodeNo) {
        if let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.inval_inode(number, -1, 0)
        {
            // ENOENT: the kernel did not know them.
            tracing::debug!(%error, "inval_inode");
        }
    }

    /// Takes the set-id bits of a file away whose content is about to change. The replies to such
    /// requests carry no mode, and exec(2) would go by the one that the kernel knows.
    fn drop_set_id(&self, service: &Service, number: INodeNo) -> Served<()> {
        if service.drop_set_id(ino(number))? {
            self.forget_attributes(number);
        }
        Ok(())
    }

    /// The same for a request that, unlike a write, does not say whether the caller may keep them.
    fn drop_set_id_unless_kept(
        &self,
        service: &Service,
        number: INodeNo,
        by: Caller,
    ) -> Served<()> {
        if by.keeps_set_id() { Ok(()) } else { self.drop_set_id(service, number) }
    }

    fn entry(&self, served: Served<Attr>, reply: ReplyEntry) {
        match served {
            Ok(attr) => reply.entry(&self.trusted_for, &file_attr(&attr), GENERATION),
            Err(errno) => reply.error(errno.into()),
        }
    }

    fn attr(&self, served: Served<Attr>, reply: ReplyAttr) {
        match served {
            Ok(attr) => reply.attr(&self.trusted_for, &file_attr(&attr)),
            Err(errno) => reply.error(errno.into()),
        }
    }

    /// What the kernel may keep of an open file or directory.
    fn keep(&self, directory: bool) -> FopenFlags {
        match (self.sole_door, directory) {
            (false, _) => FopenFlags::empty(),
            (true, false) => FopenFlags::FOPEN_KEEP_CACHE,
            (true, true) => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR,
        }
    }

    fn opened(&self, served: Served<u64>, directory: bool, reply: ReplyOpen) {
        match served {
            Ok(number) => reply.opened(FileHandle(number), self.keep(directory)),
            Err(errno) => reply.error(errno.into()),
        }
    }
}

/// The one place where a panic of a request ends: the caller gets EIO, the server goes on. What
/// the engine had half done is not visible: a change becomes so in one step, at its end.
fn survive<T>(call: &'static str, serve: impl FnOnce() -> Served<T>) -> Served<T> {
    catch_unwind(AssertUnwindSafe(serve)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        tracing::error!(call, "panic while serving a request (please report it): {text}");
        Err(Errno(libc::EIO))
    })
}

impl From<Errno> for fuser::Errno {
    fn from(errno: Errno) -> fuser::Errno {
        fuser::Errno::from_i32(errno.0)
    }
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

fn empty(served: Served<()>, reply: ReplyEmpty) {
    match served {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno.into()),
    }
}

fn written(served: Served<u32>, reply: ReplyWrite) {
    match served {
        Ok(bytes) => reply.written(bytes),
        Err(errno) => reply.error(errno.into()),
    }
}

/// Answers a question for a value of unknown size: its size when no room was offered.
fn sized(served: Served<Vec<u8>>, room: u32, reply: ReplyXattr) {
    match served {
        Ok(value) if room == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() <= room as usize => reply.data(&value),
        Ok(_) => reply.error(fuser::Errno::ERANGE),
        Err(errno) => reply.error(errno.into()),
    }
}

impl Filesystem for Transport {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        negotiate(config, self.sole_door);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let served = self.guard("lookup", |service| service.lookup(ino(parent), name.as_bytes()));
        match served {
            Ok(Some(attr)) => self.entry(Ok(attr), reply),
            // Inode 0 says "no such name" and lets the kernel remember it.
            Ok(None) if self.sole_door => self.entry(Ok(NO_INODE), reply),
            Ok(None) => reply.error(fuser::Errno::ENOENT),
            Err(errno) => reply.error(errno.into()),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, _lookups: u64) {
        // Nobody waits for an answer, and a panic was told to the log.
        let _ = self.guard("forget", |service| {
            service.forget(ino(number));
            Ok(())
        });
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attr(self.guard("getattr", |service| service.getattr(ino(number))), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _change_time: Option<SystemTime>,
        _backup_time: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let now = Timestamp::now();
        let accessed = accessed.map(|time| timestamp(time, now));
        let modified = modified.map(|time| timestamp(time, now));
        let change = Change { mode, uid, gid, size, accessed, modified };
        let by = caller(request);
        self.attr(self.guard("setattr", |it| it.setattr(ino(number), change, by)), reply);
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.guard("readlink", |service| service.readlink(ino(number))) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno.into()),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (by, name) = (caller(request), name.as_bytes());
        self.entry(self.guard("mknod", |it| it.mknod(ino(parent), name, mode, rdev, by)), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let (by, name, node) = (caller(request), name.as_bytes(), NewNode::Directory);
        self.entry(self.guard("mkdir", |it| it.make(ino(parent), name, node, mode, by)), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (by, name) = (caller(request), name.as_bytes());
        let node = NewNode::Symlink(target.as_os_str().as_bytes());
        self.entry(self.guard("symlink", |it| it.make(ino(parent), name, node, 0o777, by)), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.guard("unlink", |it| it.unlink(ino(parent), name.as_bytes())), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.guard("rmdir", |it| it.rmdir(ino(parent), name.as_bytes())), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((ino(parent), name.as_bytes()), (ino(new_parent), new_name.as_bytes()));
        empty(self.guard("rename", |it| it.rename(from, to, flags.bits())), reply);
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes();
        self.entry(self.guard("link", |it| it.link(ino(number), ino(parent), name)), reply);
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.opened(self.guard("open", |it| it.open(ino(number), flags.0)), false, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (by, name) = (caller(request), name.as_bytes());
        match self.guard("create", |it| it.create(ino(parent), name, mode, flags, by)) {
            Ok((attr, handle)) => {
                let (attr, keep) = (file_attr(&attr), self.keep(false));
                reply.created(&self.trusted_for, &attr, GENERATION, FileHandle(handle), keep);
            }
            Err(errno) => reply.error(errno.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut reply = Some(reply);
        // The reply goes out of the thread's buffer, so it is sent before the buffer is given back.
        let served = self.guard("read", |service| {
            service.read(handle.0, offset, size as usize, |bytes| {
                if let Some(reply) = reply.take() {
                    reply.data(bytes);
                }
            })
        });
        if let (Err(errno), Some(reply)) = (served, reply) {
            reply.error(errno.into());
        }
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Pages of a mapping go where they lie, also when the file was opened for appending.
        let from_mapping = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let append = flags.0 & libc::O_APPEND != 0 && !from_mapping;
        let served = self.guard("write", |service| {
            if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                self.drop_set_id(service, number)?;
            }
            let bytes = if append {
                service.append(handle.0, data)?
            } else {
                service.write(handle.0, offset, data)?
            };
            Ok(bytes as u32)
        });
        written(served, reply);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is left to flush at a close; the kernel remembers this answer and asks no more.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        empty(self.guard("release", |service| service.release(handle.0)), reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.guard("fsync", |service| service.fsync(handle.0)), reply);
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.opened(self.guard("opendir", |service| service.opendir(ino(number))), true, reply);
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        mut offset: u64,
        mut reply: ReplyDirectory,
    ) {
        loop {
            let served = self.guard("readdir", |it| it.list(ino(number), offset, ENTRIES_MAX));
            let list = match served {
                Ok(list) => list,
                Err(errno) => return reply.error(errno.into()),
            };
            let ended = list.len() < ENTRIES_MAX;
            for entry in list {
                let (kind, name) = (file_type(entry.kind), OsStr::from_bytes(&entry.name));
                if reply.add(INodeNo(entry.ino.0), entry.offset, kind, name) {
                    return reply.ok();
                }
                offset = entry.offset;
            }
            if ended {
                return reply.ok();
            }
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        mut offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        loop {
            let served = self.guard("readdirplus", |it| it.list(ino(number), offset, ENTRIES_MAX));
            let list = match served {
                Ok(list) => list,
                Err(errno) => return reply.error(errno.into()),
            };
            let ended = list.len() < ENTRIES_MAX;
            for entry in list {
                offset = entry.offset;
                let known = if entry.is_dots() { ino(number) } else { entry.ino };
                let Ok(attr) = self.guard("readdirplus", |it| it.getattr(known)) else {
                    // Removed since it was listed.
                    continue;
                };
                let mut attr = file_attr(&attr);
                attr.ino = INodeNo(entry.ino.0);
                let name = OsStr::from_bytes(&entry.name);
                let trusted_for = self.trusted_for;
                if reply.add(attr.ino, entry.offset, name, &trusted_for, &attr, GENERATION) {
                    return reply.ok();
                }
            }
            if ended {
                return reply.ok();
            }
        }
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.guard("fsyncdir", |service| service.fsync(handle.0)), reply);
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        empty(self.guard("releasedir", |service| service.release(handle.0)), reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.guard("statfs", |service| Ok(service.statfs())) {
            Ok(space) => reply.statfs(
                space.blocks,
                space.blocks_free,
                space.blocks_free,
                space.inodes + space.inodes_free,
                space.inodes_free,
                space.block_bytes,
                NAME_BYTES_MAX as u32,
                space.block_bytes,
            ),
            Err(errno) => reply.error(errno.into()),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let name = name.as_bytes();
        empty(self.guard("setxattr", |it| it.setxattr(ino(number), name, value, flags)), reply);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        let name = name.as_bytes();
        sized(self.guard("getxattr", |it| it.getxattr(ino(number), name)), room, reply);
    }

    fn listxattr(&self, request: &Request, number: INodeNo, room: u32, reply: ReplyXattr) {
        let by = caller(request);
        sized(self.guard("listxattr", |it| it.listxattr(ino(number), by)), room, reply);
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.guard("removexattr", |it| it.removexattr(ino(number), name.as_bytes())), reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let by = caller(request);
        let served = self.guard("fallocate", |service| {
            self.drop_set_id_unless_kept(service, number, by)?;
            service.fallocate(handle.0, mode, offset, len)
        });
        empty(served, reply);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.guard("lseek", |service| service.seek(handle.0, offset, whence)) {
            Ok(found) => reply.offset(found),
            Err(errno) => reply.error(errno.into()),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        number: INodeNo,
        to: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (by, from, to) = (caller(request), (from.0, from_offset), (to.0, to_offset));
        let served = self.guard("copy_file_range", |service| {
            self.drop_set_id_unless_kept(service, number, by)?;
            service.copy(from, to, len)
        });
        written(served, reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_costs_one_request_and_says_so() {
        assert_eq!(survive("test", || Ok(5)), Ok(5));
        assert_eq!(survive("test", || Err::<(), _>(Errno(libc::ENOENT))), Err(Errno(libc::ENOENT)));
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let served = survive("test", || -> Served<()> { panic!("asked to") });
        std::panic::set_hook(hook);
        assert_eq!(served, Err(Errno(libc::EIO)));
    }
}
