//! Extended attributes of the machine's own files.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Room for a value, or for a list of names: Linux has none that are larger.
const ROOM_BYTES: usize = 64 << 10;

/// The names of those of a file; none where there are no such things.
pub fn list(path: &Path) -> io::Result<Vec<OsString>> {
    let mut room = vec![0; ROOM_BYTES];
    match rustix::fs::listxattr(path, &mut room) {
        Ok(bytes) => {
            let names = room[..bytes].split(|&byte| byte == 0).filter(|name| !name.is_empty());
            Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect())
        }
        Err(Errno::NOTSUP) => Ok(Vec::new()),
        Err(errno) => Err(errno.into()),
    }
}

/// The value of one, if it is there.
pub fn get(path: &Path, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let mut room = vec![0; ROOM_BYTES];
    match rustix::fs::getxattr(path, name, &mut room) {
        Ok(bytes) => {
            room.truncate(bytes);
            Ok(Some(room))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Sets one.
pub fn set(path: &Path, name: &OsStr, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::setxattr(path, name, value, XattrFlags::empty())?)
}
