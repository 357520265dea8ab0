//! The calls of a history on a directory of the kernel's, each user's by a thread with his ids.
//!
//! In Linux ids, and the root directory if the thread asks for it, are a thread's own; the C
//! library makes them the process's, so its functions are passed over. A thread keeps its ids to
//! its end: it has none of root's capabilities then, as a program that the user runs.

use std::fs::Metadata;
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use nearside::RenameMode;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::history::{Flags, Op, XATTRS};
use crate::pool_side::{Outcome, joined};

/// Bytes of a value or a list of names.
const BYTES: usize = 8192;

/// A user of the directory.
pub struct KernelUser {
    calls: Option<Sender<Op>>,
    outcomes: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
}

impl KernelUser {
    /// Starts a thread with these ids, whose root directory is `dir`.
    pub fn start(dir: &Path, (uid, gid, groups): (u32, u32, &[u32])) -> Result<KernelUser> {
        let (calls, told) = channel::<Op>();
        let (tell, outcomes) = channel();
        let (begins, began) = channel();
        let (dir, groups) = (dir.to_owned(), groups.to_vec());
        let thread = std::thread::spawn(move || {
            begins.send(become_user(&dir, uid, gid, &groups)).unwrap();
            let mut open = None;
            for op in told {
                tell.send(call(&mut open, &op).map_err(|error| errno(&error))).unwrap();
            }
        });
        began.recv().unwrap()?;
        Ok(KernelUser { calls: Some(calls), outcomes, thread: Some(thread) })
    }

    pub fn call(&mut self, op: &Op) -> Outcome {
        self.calls.as_ref().unwrap().send(op.clone()).unwrap();
        self.outcomes.recv().unwrap()
    }
}

impl Drop for KernelUser {
    fn drop(&mut self) {
        self.calls.take();
        self.thread.take().map(JoinHandle::join);
    }
}

fn errno(error: &Error) -> i32 {
    error.raw_os_error().unwrap()
}

fn become_user(dir: &Path, uid: u32, gid: u32, groups: &[u32]) -> Result<()> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)?;
    rustix::process::chroot(dir)?;
    rustix::process::chdir("/")?;
    rustix::process::umask(Mode::empty());
    let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}

fn call(open: &mut Option<(OwnedFd, Flags)>, op: &Op) -> Result<String> {
    match op {
        Op::Open(path, flags) => {
            let file = rustix::fs::open(path, open_flags(flags), mode(flags.mode))?;
            if rustix::fs::fstat(&file)?.st_mode & libc::S_IFMT == libc::S_IFDIR {
                // a library's open is for files
                return Err(Error::from_raw_os_error(libc::EISDIR));
            }
            *open = Some((file, *flags));
        }
        Op::Write => {
            if let Some((file, _)) = open {
                rustix::io::pwrite(file, b"x", 0)?;
            }
        }
        Op::SetLen(bytes) => match open {
            Some((file, flags)) if flags.write => rustix::fs::ftruncate(file, *bytes)?,
            _ => {}
        },
        op => return tells(op).unwrap_or_else(|| changes(op).map(|()| String::new())),
    }
    Ok(String::new())
}

fn open_flags(flags: &Flags) -> OFlags {
    let mut out = match (flags.read, flags.write || flags.append) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    out.set(OFlags::APPEND, flags.append);
    out.set(OFlags::TRUNC, flags.truncate);
    out.set(OFlags::CREATE, flags.create || flags.create_new);
    out.set(OFlags::EXCL, flags.create_new);
    out | OFlags::CLOEXEC
}

fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

/// Calls that say something; `None`: it is none of them.
fn tells(op: &Op) -> Option<Result<String>> {
    Some(match op {
        Op::Stat(path) => std::fs::metadata(path).map(|_| String::new()),
        Op::List(path) => names(Path::new(path)).map(joined),
        Op::ReadLink(path) => std::fs::read_link(path).map(|to| to.to_str().unwrap().to_owned()),
        Op::GetXattr(path, name) => xattr(Path::new(path), name).map(|value| format!("{value:?}")),
        Op::ListXattrs(path) => xattrs(Path::new(path)).map(joined),
        _ => return None,
    })
}

/// Calls that change names or attributes.
fn changes(op: &Op) -> Result<()> {
    match op {
        Op::MakeDir(path) => rustix::fs::mkdir(path, mode(0o755))?,
        Op::Symlink(target, path) => rustix::fs::symlink(target, path)?,
        Op::Link(original, path) => rustix::fs::link(original, path)?,
        Op::Unlink(path) => rustix::fs::unlink(path)?,
        Op::RemoveDir(path) => rustix::fs::rmdir(path)?,
        Op::Rename(from, to, mode) => {
            let flags = match mode {
                RenameMode::NoReplace => RenameFlags::NOREPLACE,
                RenameMode::Exchange => RenameFlags::EXCHANGE,
                _ => RenameFlags::empty(),
            };
            rustix::fs::renameat_with(CWD, from, CWD, to, flags)?;
        }
        Op::Chmod(path, bits) => rustix::fs::chmod(path, mode(*bits))?,
        Op::Chown(path, uid, gid) => {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            rustix::fs::chownat(CWD, path, uid, gid, AtFlags::empty())?;
        }
        Op::Times(path, accessed, modified) => {
            let time =
                |set: &bool| Timespec { tv_sec: 77, tv_nsec: if *set { 0 } else { UTIME_OMIT } };
            let times =
                Timestamps { last_access: time(accessed), last_modification: time(modified) };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?;
        }
        Op::SetXattr(path, name, value) => {
            rustix::fs::setxattr(path, *name, value, XattrFlags::empty())?;
        }
        Op::RemoveXattr(path, name) => rustix::fs::removexattr(path, *name)?,
        op => unreachable!("{op:?} is served elsewhere"),
    }
    Ok(())
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(dir)?;
    entries.map(|entry| Ok(entry?.file_name().into_string().unwrap())).collect()
}

fn xattr(path: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let mut value = vec![0; BYTES];
    match rustix::fs::getxattr(path, name, &mut value[..]) {
        Ok(bytes) => {
            value.truncate(bytes);
            Ok(Some(value))
        }
        Err(rustix::io::Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn xattrs(path: &Path) -> Result<Vec<String>> {
    let mut names = vec![0; BYTES];
    let bytes = rustix::fs::listxattr(path, &mut names[..])?;
    let names = names[..bytes].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect())
}

/// Every path below `root`, and what can be seen of it, in the words of the pool's side.
pub fn seen(root: &Path) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut pending = vec!["/".to_owned()];
    while let Some(path) = pending.pop() {
        let place = root.join(&path[1..]);
        let metadata = std::fs::symlink_metadata(&place).unwrap();
        if metadata.is_dir() {
            let dir = if path == "/" { "" } else { &path };
            let names = names(&place).unwrap();
            pending.extend(names.iter().map(|name| format!("{dir}/{name}")));
        }
        out.push((path, about(&place, &metadata)));
    }
    out.sort();
    out
}

fn about(place: &Path, metadata: &Metadata) -> String {
    let (mode, links) = (metadata.mode(), metadata.nlink());
    let mut about = format!("{mode:o} {}:{} links {links}", metadata.uid(), metadata.gid());
    if metadata.is_symlink() {
        about += &format!(" to {:?}", std::fs::read_link(place).unwrap());
    } else {
        let mut names = xattrs(place).unwrap();
        names.retain(|name| XATTRS.contains(&name.as_str()));
        names.sort();
        for name in names {
            about += &format!(" {name:?}: {:?}", xattr(place, &name).unwrap().unwrap());
        }
    }
    if metadata.is_file() {
        about += &format!(" {} bytes", metadata.len());
    }
    about
}
