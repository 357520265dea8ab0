//! A mount of a pool that another machine serves: what stands here for the pool's directory.
//!
//! A keeper has files of its own: a lock, a log, a socket. Those of such a mount lie in a directory
//! of its user's below `/run`, which is named after the place where it is mounted.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use client::is_address;
use nearside_fuse::mounts::MountEntry;

use crate::error::{self, Error, Result};

/// Bytes of a mount point's path that a name has, at most: its last.
const NAME_BYTES_MAX: usize = 120;

/// Where all of a user's are.
fn base(user: u32) -> PathBuf {
    let own = PathBuf::from(format!("/run/user/{user}"));
    match user {
        0 => PathBuf::from("/run/nearside"),
        _ if own.is_dir() => own.join("nearside"),
        user => PathBuf::from(format!("/tmp/nearside-{user}")),
    }
}

/// The name of what is mounted on `dir`: the end of its path, and a number of all of it.
fn name(dir: &Path) -> OsString {
    let path = dir.as_os_str().as_bytes();
    let number = path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |number, byte| {
        (number ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let end = &path[path.len().saturating_sub(NAME_BYTES_MAX)..];
    let end = end.iter().map(|byte| if *byte == b'/' { b'-' } else { *byte });
    let mut name = OsString::from_vec(end.collect());
    name.push(format!("-{number:016x}"));
    name
}

/// The directory of what this user has mounted on `dir`, a canonical path.
pub fn home(dir: &Path, user: u32) -> PathBuf {
    base(user).join(name(dir))
}

/// The same of a mount, if it is one of a service's on a network.
pub fn home_of(entry: &MountEntry) -> Option<PathBuf> {
    let home = home(&entry.dir, entry.user?);
    is_address(Path::new(&entry.source)).then_some(home)
}

/// Makes the directory of what is mounted on `dir`.
pub fn make_home(dir: &Path) -> Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let (base, home) = (base(user), home(dir, user));
    for path in [&base, &home] {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error::io(path)(error));
            }
            _ => {}
        }
        let found = std::fs::symlink_metadata(path).map_err(error::io(path))?;
        if !found.is_dir() || found.uid() != user {
            let reason = "it is not this user's directory; move it away".to_owned();
            return Err(Error::Place { dir: path.clone(), reason });
        }
    }
    Ok(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_a_directory_of_its_own() {
        let names: Vec<OsString> =
            ["/a/b", "/a-b", "/a/b/"].iter().map(|dir| name(Path::new(dir))).collect();
        assert!(names[0].to_str().unwrap().starts_with("-a-b-"));
        assert!(names[0] != names[1] && names[1] != names[2]);
        let long = format!("/{}", "x/".repeat(2000));
        assert!(name(Path::new(&long)).len() < 255);
        assert!(is_address(Path::new("near://host/a")) && !is_address(Path::new("near:/host")));
    }
}
