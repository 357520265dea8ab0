//! One owner per slice: an flock(2) on the descriptor, for as long as the mapping lives.
//!
//! The lock goes with its process, however that ends. It binds those who ask; on NFS it binds
//! this machine only.

use crate::error::{Error, Result};
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Who holds a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The process's id, in this process's namespace.
    pub pid: u32,
    /// The command's name, as far as the kernel keeps it (15 bytes); empty where it is not told.
    pub command: String,
}

impl Holder {
    pub(crate) fn or_unknown(holder: &Option<Holder>) -> String {
        match holder {
            Some(Holder { pid, command }) if command.is_empty() => format!("process {pid}"),
            Some(Holder { pid, command }) => format!("{command} (process {pid})"),
            None => "another process".to_owned(),
        }
    }
}

/// A file whose lock goes when this does, also where a process that is being started still holds
/// a duplicate of the descriptor (between its fork and its exec, for a moment).
#[derive(Debug)]
pub(crate) struct Locked {
    file: File,
    /// Who took the lock: a forked child shares it, and must leave it alone.
    pid: u32,
    /// Device and inode.
    identity: Option<(u64, u64)>,
}

impl Locked {
    /// The file, whose lock this process holds.
    pub(crate) fn new(file: File) -> Locked {
        let identity = identity(&file);
        Locked { file, pid: std::process::id(), identity }
    }

    /// Whether the descriptor is still the file's. A program that closes descriptors which are not
    /// its own may have opened another file with this number since.
    pub(crate) fn is_itself(&self) -> bool {
        identity(&self.file) == self.identity
    }
}

fn identity(file: &File) -> Option<(u64, u64)> {
    let metadata = file.metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl std::ops::Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // SAFETY: flock touches no memory, and the descriptor is open.
            unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
        }
    }
}

/// Takes the lock or says who has it; shared for readers.
pub(crate) fn lock(file: File, path: &Path, shared: bool) -> Result<Locked> {
    let kind = if shared { libc::LOCK_SH } else { libc::LOCK_EX };
    loop {
        // SAFETY: flock touches no memory, and the descriptor is open.
        if unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) } == 0 {
            return Ok(Locked::new(file));
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EWOULDBLOCK) => {
                let holder = file.metadata().ok().and_then(|metadata| holder(&metadata));
                return Err(Error::Busy { path: path.to_owned(), holder });
            }
            _ => return Err(Error::io("lock", path, error)),
        }
    }
}

/// How often a holder is looked for.
const HOLDER_LOOKS: u32 = 20;

/// The first process that holds an flock on the file.
fn holder(file: &Metadata) -> Option<Holder> {
    // the kernel gives the list in parts: what others take and leave between them may hide a line
    let look = |_| {
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        holder_pid(&locks, file.dev(), file.ino())
    };
    let pid = (0..HOLDER_LOOKS).find_map(look)?;
    let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Holder { pid, command: command.trim_end().to_owned() })
}

/// The process of the first line such as `3: FLOCK  ADVISORY  WRITE 812 08:01:1234 0 EOF`.
///
/// The device is a second criterion only: btrfs gives stat(2) another one than the lock.
fn holder_pid(locks: &str, device: libc::dev_t, inode: u64) -> Option<u32> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let identity = format!("{major:02x}:{minor:02x}:{inode}");
    let any_device = format!(":{inode}");
    let holders = || {
        locks.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace().skip(1);
            // A waiter has "->" here.
            let (kind, pid, file) = (words.next()?, words.nth(2)?, words.next()?);
            // Process 0 is one of another namespace.
            let pid: u32 = pid.parse().ok().filter(|pid| *pid != 0)?;
            (kind == "FLOCK").then_some((pid, file))
        })
    };
    let exact = holders().find(|(_, file)| *file == identity);
    let found = exact.or_else(|| holders().find(|(_, file)| file.ends_with(&any_device)));
    found.map(|(pid, _)| pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
1: POSIX  ADVISORY  WRITE 11 00:1a:77 0 EOF
2: FLOCK  ADVISORY  WRITE 22 00:1b:77 0 EOF
3: FLOCK  ADVISORY  WRITE 33 00:1a:77 0 EOF
3: -> FLOCK  ADVISORY  WRITE 44 00:1a:99 0 EOF
4: FLOCK  ADVISORY  READ  0 00:1a:88 0 EOF
";

    #[test]
    fn the_holder_is_the_one_of_that_device_inode_and_kind_of_lock() {
        assert_eq!(holder_pid(LOCKS, libc::makedev(0, 0x1a), 77), Some(33));
        assert_eq!(holder_pid(LOCKS, libc::makedev(0, 0x1b), 77), Some(22));
    }

    #[test]
    fn another_device_number_will_do_where_none_is_exact() {
        assert_eq!(holder_pid(LOCKS, libc::makedev(9, 9), 77), Some(22));
    }

    /// A process that is being started holds a duplicate of every descriptor until its exec. A pool
    /// that was closed and opened again meanwhile found itself in use.
    #[test]
    fn a_duplicate_of_the_descriptor_does_not_keep_the_lock() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(named.path()).unwrap();
        let locked = lock(open(), named.path(), false).unwrap();
        let duplicate = locked.try_clone().unwrap();
        assert!(lock(open(), named.path(), false).is_err(), "it is held");
        drop(locked);
        lock(open(), named.path(), false).unwrap();
        drop(duplicate);
    }

    #[test]
    fn waiters_and_strangers_hold_nothing() {
        assert_eq!(holder_pid(LOCKS, libc::makedev(0, 0x1a), 99), None);
        assert_eq!(holder_pid(LOCKS, libc::makedev(0, 0x1a), 88), None);
        assert_eq!(holder_pid("", libc::makedev(0, 0x1a), 77), None);
    }
}
