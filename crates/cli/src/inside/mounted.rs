//! A pool's files through its mount.
//!
//! Every path is walked inside the mount's root (openat2(2), `RESOLVE_IN_ROOT`): `..` of the root
//! is the root, and an absolute link starts there, as in a pool that this process opened. What the
//! walk found is held by a descriptor; only the last name is given to the kernel once more.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nearside::files::{
    Attr, Decided, Error as FsError, FileExtent, FileExtras, Heat, Ino, NearSlice, Placing,
    SetAttr, Timestamp,
};
use nearside::{FileKind, Metadata, XattrMode};
use nearside_fuse::mounts::MountEntry;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps,
    UTIME_OMIT, Uid,
};

use super::{Entry, Failure, Opening, Result};
use crate::content::Content;
use crate::control::Client;
use crate::placed::{self, Setting};
use crate::xattrs;

const NANOS_OF_SECOND: i64 = 1_000_000_000;
/// Permission bits of a new directory, as the library makes it.
const DIRECTORY_MODE: u16 = 0o755;

/// A pool's files through its mount.
pub struct Mounted {
    root: OwnedFd,
    device: u64,
    pool: PathBuf,
    /// A connection to the server, once something was asked.
    server: RefCell<Option<Client>>,
}

impl Mounted {
    /// The files of `pool`, which is mounted as `entry` says.
    pub fn open(pool: &Path, entry: &MountEntry) -> io::Result<Mounted> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, &entry.dir, flags, Mode::empty())?;
        let device = rustix::fs::fstat(&root)?.st_dev;
        if (rustix::fs::major(device), rustix::fs::minor(device)) != entry.device {
            // Unmounted since, and what was hidden below is not the pool's.
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        Ok(Mounted { root, device, pool: pool.to_path_buf(), server: RefCell::default() })
    }

    /// The number of the mount's device, what `st_dev` says of its files.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Everything that was done through it is durable when this returns: the server of a pool in
    /// the domain `sync` syncs all of it.
    pub fn sync(&self) -> io::Result<()> {
        match self.walk(Path::new("/"), OFlags::RDONLY | OFlags::DIRECTORY, 0) {
            Ok(root) => Ok(rustix::fs::fsync(root)?),
            // Who may not read the root has no other way to ask.
            Err(failure) if failure.errno == libc::EACCES => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    fn walk(&self, path: &Path, flags: OFlags, mode: u16) -> Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_XDEV;
        let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::from_bits_truncate(mode.into()));
        rustix::fs::openat2(&self.root, path, flags, mode, resolve).map_err(kernel(path))
    }

    fn at(&self, path: &Path) -> Result<OwnedFd> {
        self.walk(path, OFlags::PATH, 0)
    }

    /// The directory that `path` lies in, and its last name with the slashes that end it.
    fn parent<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr)> {
        let (above, name) = split(path);
        if matches!(trimmed(name.as_bytes()), b"" | b"." | b"..") {
            let error = FsError::Invalid("the path names no entry of a directory");
            return Err(Failure::of_engine(path, &error));
        }
        let parent = self.walk(above, OFlags::PATH | OFlags::DIRECTORY, 0);
        let parent = parent.map_err(|failure| Failure { path: Some(path.into()), ..failure })?;
        Ok((parent, name))
    }

    /// What `path` leads to.
    pub fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.found(path, OFlags::PATH)
    }

    /// What `path` names.
    pub fn symlink_metadata(&self, path: &Path) -> Result<Metadata> {
        self.found(path, OFlags::PATH | OFlags::NOFOLLOW)
    }

    fn found(&self, path: &Path, flags: OFlags) -> Result<Metadata> {
        let stat = rustix::fs::fstat(self.walk(path, flags, 0)?).map_err(kernel(path))?;
        Ok(attr(&stat).into())
    }

    /// When an inode was made. The kernel asks a mount for no such times, so the server is asked;
    /// it tells the pool's owner and root only.
    pub fn created(&self, ino: u64) -> Option<Timestamp> {
        let mut kept = self.server.borrow_mut();
        // A server closes a connection that was idle for long, so a kept one may be of no use.
        if let Some(Ok(created)) = kept.as_mut().map(|server| server.created(ino)) {
            return created;
        }
        let mut server = Client::connect(&self.pool).ok()?;
        let created = server.created(ino).ok()?;
        *kept = Some(server);
        created
    }

    /// What a symbolic link says.
    pub fn read_link(&self, path: &Path) -> Result<PathBuf> {
        let link = self.walk(path, OFlags::PATH | OFlags::NOFOLLOW, 0)?;
        let target = rustix::fs::readlinkat(link, "", Vec::new()).map_err(kernel(path))?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    /// The entries of a directory.
    pub fn entries(&self, path: &Path) -> Result<Vec<Entry>> {
        let dir = self.walk(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        let mut entries = Vec::new();
        for entry in Dir::new(dir).map_err(kernel(path))? {
            let entry = entry.map_err(kernel(path))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                entries.push(Entry { name: name.to_vec(), kind: kind(entry.file_type()) });
            }
        }
        Ok(entries)
    }

    /// Opens a file.
    pub fn open_content(&self, path: &Path, how: Opening) -> Result<Content> {
        if !matches!(how, Opening::New(_)) {
            // Opening a pipe would wait, opening a device may do anything.
            let found = rustix::fs::fstat(self.at(path)?);
            match kind(FileType::from_raw_mode(found.map_err(kernel(path))?.st_mode)) {
                FileKind::File => {}
                FileKind::Directory => return Err(Failure::of_engine(path, &FsError::IsDirectory)),
                _ => {
                    let error = FsError::Unsupported("only regular files can be opened");
                    return Err(Failure::of_engine(path, &error));
                }
            }
        }
        let opened = match how {
            Opening::Read => self.walk(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)?,
            Opening::Emptied => self.walk(path, OFlags::WRONLY | OFlags::TRUNC, 0)?,
            Opening::New(mode) => {
                self.walk(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)?
            }
        };
        Ok(Content::Mounted(File::from(opened)))
    }

    /// Makes a directory.
    pub fn create_dir(&self, path: &Path) -> Result<()> {
        let (parent, name) = match self.parent(path) {
            // The root, `.` and `..` are there.
            Err(failure) if failure.errno == libc::EINVAL => {
                self.metadata(path)?;
                return Err(Failure::of_engine(path, &FsError::Exists));
            }
            found => found?,
        };
        let mode = Mode::from_bits_truncate(DIRECTORY_MODE.into());
        rustix::fs::mkdirat(parent, name, mode).map_err(kernel(path))
    }

    /// Makes a directory and those above it.
    pub fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut missing = PathBuf::new();
        for component in path.components() {
            missing.push(component);
            match self.create_dir(&missing) {
                Err(failure) if failure.errno == libc::EEXIST => {}
                done => done?,
            }
        }
        match self.metadata(path)?.is_dir() {
            true => Ok(()),
            false => Err(Failure::of_engine(path, &FsError::NotDirectory)),
        }
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        rustix::fs::symlinkat(target, parent, name).map_err(kernel(path))
    }

    /// Renames.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let ((old, name), (new, new_name)) = (self.parent(from)?, self.parent(to)?);
        rustix::fs::renameat(old, name, new, new_name).map_err(kernel(from))
    }

    /// Removes the name of what is no directory.
    pub fn remove_file(&self, path: &Path) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        rustix::fs::unlinkat(parent, name, AtFlags::empty()).map_err(kernel(path))
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: &Path) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(kernel(path))
    }

    /// Sets the permission bits.
    pub fn set_permissions(&self, path: &Path, mode: u16) -> Result<()> {
        let found = self.walk(path, OFlags::PATH, 0)?;
        let mode = Mode::from_bits_truncate(mode.into());
        rustix::fs::chmodat(CWD, by_descriptor(&found), mode, AtFlags::empty())
            .map_err(kernel(path))
    }

    /// Changes owner or times, of a symbolic link's target if `follow`.
    pub fn change(&self, path: &Path, change: &SetAttr, follow: bool) -> Result<()> {
        let flags = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        let found = self.walk(path, flags, 0)?;
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(&found, "", uid, gid, AtFlags::EMPTY_PATH).map_err(kernel(path))?;
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let times = Timestamps {
                last_access: timespec(change.accessed),
                last_modification: timespec(change.modified),
            };
            let set = rustix::fs::utimensat(&found, "", &times, AtFlags::EMPTY_PATH);
            set.map_err(kernel(path))?;
        }
        Ok(())
    }

    /// Gives a file one more name.
    pub fn hard_link(&self, original: &Path, path: &Path) -> Result<()> {
        let ((old, name), (new, new_name)) = (self.parent(original)?, self.parent(path)?);
        rustix::fs::linkat(old, name, new, new_name, AtFlags::empty()).map_err(kernel(path))
    }

    /// The names of the extended attributes.
    pub fn list_xattrs(&self, path: &Path) -> Result<Vec<OsString>> {
        xattrs::list(&by_descriptor(&self.at(path)?)).map_err(kernel(path))
    }

    /// An extended attribute, if it is there.
    pub fn xattr(&self, path: &Path, name: &OsStr) -> Result<Option<Vec<u8>>> {
        xattrs::get(&by_descriptor(&self.at(path)?), name).map_err(kernel(path))
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8], _: XattrMode) -> Result<()> {
        xattrs::set(&by_descriptor(&self.at(path)?), name, value).map_err(kernel(path))
    }

    /// Where new blocks go, and what may move.
    pub fn placing(&self, path: &Path) -> Result<Placing> {
        placed::placing(&by_descriptor(&self.at(path)?)).map_err(kernel(path))
    }

    /// Sets something of that.
    pub fn set_placed(&self, path: &Path, settings: &[Setting]) -> Result<()> {
        placed::set(&by_descriptor(&self.at(path)?), settings).map_err(kernel(path))
    }

    /// Some extents of a file, and where to go on.
    pub fn extents(&self, path: &Path, offset: u64) -> Result<(Vec<FileExtent>, Option<u64>)> {
        placed::extents(&by_descriptor(&self.at(path)?), offset).map_err(kernel(path))
    }

    /// What a file has beside them, and where to go on.
    pub fn extras(&self, path: &Path, offset: u64) -> Result<(FileExtras, Option<u64>)> {
        placed::extras(&by_descriptor(&self.at(path)?), offset).map_err(kernel(path))
    }

    /// Who would gain by having parts of a file near, and where to go on.
    pub fn heat(&self, path: &Path, offset: u64) -> Result<(Vec<Heat>, Option<u64>)> {
        placed::heat(&by_descriptor(&self.at(path)?), offset).map_err(kernel(path))
    }

    /// What was decided about a file lately.
    pub fn decisions(&self, path: &Path) -> Result<Vec<Decided>> {
        placed::decisions(&by_descriptor(&self.at(path)?)).map_err(kernel(path))
    }

    /// The pool's slices.
    pub fn near_slices(&self) -> Result<Vec<NearSlice>> {
        let root = Path::new("/");
        placed::slices(&by_descriptor(&self.at(root)?)).map_err(kernel(root))
    }
}

fn timespec(time: Option<Timestamp>) -> Timespec {
    let Some(Timestamp(nanos)) = time else {
        return Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    };
    Timespec {
        tv_sec: nanos.div_euclid(NANOS_OF_SECOND),
        tv_nsec: nanos.rem_euclid(NANOS_OF_SECOND),
    }
}

/// A path to what this descriptor holds, for calls that take no such descriptor.
fn by_descriptor(found: &impl AsFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", found.as_fd().as_raw_fd()).into()
}

fn kernel<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> Failure + '_ {
    move |error| Failure::of_kernel(path, error.into())
}

fn trimmed(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    name.get(..end).unwrap_or_default()
}

/// `path` before its last name, and that name with the slashes behind it.
fn split(path: &Path) -> (&Path, &OsStr) {
    let bytes = path.as_os_str().as_bytes();
    let end = trimmed(bytes).len();
    let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let (above, name) = bytes.split_at(start);
    let above = if above.is_empty() { b"/" } else { above };
    (Path::new(OsStr::from_bytes(above)), OsStr::from_bytes(name))
}

fn kind(kind: FileType) -> FileKind {
    match kind {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::File,
    }
}

/// The type of the nanoseconds is not the same on all machines.
fn time(seconds: i64, nanos: impl TryInto<i64>) -> Timestamp {
    let nanos = nanos.try_into().unwrap_or(0);
    Timestamp(seconds.saturating_mul(NANOS_OF_SECOND).saturating_add(nanos))
}

fn attr(stat: &Stat) -> Attr {
    let changed = time(stat.st_ctime, stat.st_ctime_nsec);
    Attr {
        ino: Ino(stat.st_ino),
        kind: kind(FileType::from_raw_mode(stat.st_mode)),
        mode: (stat.st_mode & 0o7777) as u16,
        links: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        size: stat.st_size as u64,
        sectors: stat.st_blocks as u64,
        accessed: time(stat.st_atime, stat.st_atime_nsec),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
        changed,
        created: changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_keeps_its_slashes() {
        for (path, above, name) in [
            ("/a/b", "/a/", "b"),
            ("a/b//", "a/", "b//"),
            ("a", "/", "a"),
            ("/a/", "/", "a/"),
            ("/", "/", "/"),
            ("/a/..", "/a/", ".."),
        ] {
            let found = split(Path::new(path));
            assert_eq!(found, (Path::new(above), OsStr::new(name)), "{path}");
        }
    }
}
