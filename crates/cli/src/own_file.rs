//! Files of Nearside's own in a pool's directory, which may be somebody else's.
//!
//! Root may serve a user's pool. What lies in that directory under our names is then the user's to
//! choose: a link to a file of root's, a pipe that nobody ever writes to. So no link is followed,
//! nothing is waited for, and only a plain file is used that has no other name and belongs to the
//! one who serves, to the pool's owner, or to root. What is made is for its owner only.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid};

/// Writable by others than the owner.
const OTHERS_WRITE: u32 = 0o022;

/// Opens a file of ours in the directory of a pool.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = options.mode(0o600).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    let dir = path.parent().map(std::fs::metadata).transpose()?;
    let owners = [Some(0), Some(euid()), dir.map(|dir| dir.uid())];
    if !found.is_file() || found.nlink() > 1 || !owners.contains(&Some(found.uid())) {
        return Err(io::Error::other("not a plain file of the pool's; move it away"));
    }
    Ok(file)
}

/// Gives a socket that this process has just made there its mode and owner, whatever lies under its
/// name by now.
pub fn settle_socket(path: &Path, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
    let found = socket.metadata()?;
    if !found.file_type().is_socket() || found.uid() != euid() || found.nlink() > 1 {
        return Err(io::Error::other("something else took the socket's name; try again"));
    }
    // Through its descriptor: the name may stand for another file at any time.
    let itself = format!("/proc/self/fd/{}", socket.as_raw_fd());
    rustix::fs::chmodat(CWD, itself, Mode::from_bits_truncate(mode), AtFlags::empty())?;
    if let Some((uid, gid)) = owner {
        // Without the right to give it away the server is the owner, or only root asks.
        let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        let _ = rustix::fs::chownat(&socket, "", owner.0, owner.1, AtFlags::EMPTY_PATH);
    }
    Ok(())
}

/// Whether nobody but root can have written what is in a pool: then its set-id bits and devices may
/// count where root mounts it.
pub fn is_roots_alone(pool: &Path) -> bool {
    let is_roots = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|it| it.uid() == 0 && it.mode() & OTHERS_WRITE == 0)
    };
    let Ok(entries) = std::fs::read_dir(pool) else { return false };
    // an entry that cannot be read may be a slice of somebody's
    let Ok(entries) = entries.collect::<io::Result<Vec<_>>>() else { return false };
    let mut slices = entries.iter().filter(|entry| is_slice(&entry.file_name()));
    is_roots(pool) && slices.all(|slice| is_roots(&slice.path()))
}

/// Slices that others than their owner can read, in which case no mode of a file in the pool keeps
/// its content from them.
pub fn slices_open_to_others(pool: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(pool) else { return 0 };
    let slices = entries.flatten().filter(|entry| is_slice(&entry.file_name()));
    let found = slices.filter_map(|slice| std::fs::metadata(slice.path()).ok());
    let enterable = std::fs::metadata(pool).is_ok_and(|dir| dir.mode() & 0o011 != 0);
    found.filter(|slice| enterable && slice.mode() & 0o044 != 0).count()
}

fn is_slice(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"slice.")
}

fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn writing() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options
    }

    #[test]
    fn only_plain_files_with_one_name_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let file = open(&at("new"), &mut writing()).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        std::fs::write(at("victim"), "mine").unwrap();
        symlink(at("victim"), at("link")).unwrap();
        std::fs::hard_link(at("victim"), at("other name")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["link", "other name", "pipe", "."] {
            assert!(open(&at(name), &mut writing()).is_err(), "{name}");
        }
        // One that nobody reads or writes is not waited for either.
        assert!(open(&at("pipe"), OpenOptions::new().read(true)).is_err());
        assert_eq!(std::fs::read(at("victim")).unwrap(), b"mine");
    }

    #[test]
    fn only_the_socket_itself_is_settled() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        settle_socket(&at("socket"), 0o640, None).unwrap();
        assert_eq!(std::fs::metadata(at("socket")).unwrap().mode() & 0o777, 0o640);
        std::fs::write(at("victim"), "").unwrap();
        std::fs::set_permissions(at("victim"), PermissionsExt::from_mode(0o644)).unwrap();
        symlink(at("socket"), at("link")).unwrap();
        for name in ["victim", "link"] {
            assert!(settle_socket(&at(name), 0o600, None).is_err(), "{name}");
        }
        assert_eq!(std::fs::metadata(at("victim")).unwrap().mode() & 0o777, 0o644);
        assert_eq!(std::fs::metadata(at("socket")).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn whose_pool_it_is_shows_in_directory_and_slices() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        let slice = dir.path().join("slice.0");
        std::fs::write(&slice, "").unwrap();
        mode(dir.path(), 0o755);
        mode(&slice, 0o644);
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(is_roots_alone(dir.path()), is_root);
        assert_eq!(slices_open_to_others(dir.path()), 1);
        mode(&slice, 0o620);
        assert!(!is_roots_alone(dir.path()));
        assert_eq!(slices_open_to_others(dir.path()), 0);
        mode(&slice, 0o644);
        mode(dir.path(), 0o700);
        assert_eq!(slices_open_to_others(dir.path()), 0);
        assert!(!is_roots_alone(&dir.path().join("none")));
    }
}
