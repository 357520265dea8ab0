//! What is mounted where, from the kernel's table (proc(5), `/proc/PID/mountinfo`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::{Error, Result, device};

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Major and minor number of its device, what `st_dev` says of its files.
    pub device: (u32, u32),
    /// What of the file system is mounted there: `/` is all of it, another path a bind mount's.
    pub root: PathBuf,
    /// Where it is mounted.
    pub dir: PathBuf,
    /// Type of the file system.
    pub kind: String,
    /// What is mounted.
    pub source: OsString,
    /// Of a FUSE mount, the user that made it, who says whatever they like about its source.
    pub user: Option<u32>,
    /// Of a FUSE mount, whether others than that user may enter.
    pub allows_others: bool,
}

/// The mount table as this thread sees it, oldest first: `/proc/self` is that of the first thread,
/// which may have another one.
pub fn list() -> std::io::Result<Vec<MountEntry>> {
    let table = std::fs::read("/proc/thread-self/mountinfo")?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// The mount that a look at directory `dir` meets (of several on top of each other the last).
pub fn at(dir: &Path) -> std::io::Result<Option<MountEntry>> {
    Ok(list()?.into_iter().rfind(|entry| entry.dir == dir))
}

/// Unmounts what is mounted on `dir`; fails with [`Error::Busy`] while somebody
/// uses it. The server ends by itself after that.
pub fn unmount(dir: &Path) -> Result<()> {
    device::unmount(dir, false)
}

/// Takes the mount of a dead server away, also while somebody is still in it.
pub fn clear(dir: &Path) -> Result<()> {
    match device::unmount(dir, false) {
        Err(Error::Busy(_)) => device::unmount(dir, true),
        done => done,
    }
}

/// One line: `ID PARENT MAJOR:MINOR ROOT DIR OPTIONS [FIELD]... - TYPE SOURCE SUPER`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let (root, dir) = (unescape(fields.next()?), unescape(fields.next()?));
    fields.by_ref().find(|&field| field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    let mut settings = fields.next().unwrap_or_default().split(|&byte| byte == b',');
    let allows_others = settings.clone().any(|setting| setting == b"allow_other");
    let user = settings.find_map(|setting| setting.strip_prefix(b"user_id="));
    Some(MountEntry {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: PathBuf::from(root),
        dir: PathBuf::from(dir),
        kind,
        source,
        user: user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok()),
        allows_others,
    })
}

/// Undoes the kernel's octal escapes (`\040` is a space).
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).and_then(octal);
        match (first, code) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

/// `text` as one value in a list of mount options that fusermount3 splits at commas.
pub(crate) fn escape_option(text: &OsStr) -> OsString {
    let escaped = text.as_bytes().iter().flat_map(|&byte| {
        let mark = matches!(byte, b'\\' | b',').then_some(b'\\');
        mark.into_iter().chain([byte])
    });
    OsString::from_vec(escaped.collect())
}

/// Longest source that fits the page which mount(2) copies it to, bytes.
const SOURCE_BYTES_MAX: usize = 4000;

/// Whether `text` can be the source of a mount.
pub(crate) fn is_source(text: &OsStr) -> bool {
    let bytes = text.as_bytes();
    !bytes.is_empty() && !bytes.contains(&0) && bytes.len() <= SOURCE_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_understood() {
        let line = b"97 29 0:44 / /mnt/a\\040b rw,nosuid shared:5 master:2 - fuse.nearside \
                     nearside:/po\\134ol rw,user_id=0";
        let entry = parse(line).unwrap();
        assert_eq!(entry.device, (0, 44));
        assert_eq!(entry.dir, Path::new("/mnt/a b"));
        assert_eq!(entry.kind, "fuse.nearside");
        assert_eq!(entry.source, "nearside:/po\\ol");
        assert_eq!((entry.root.as_path(), entry.user), (Path::new("/"), Some(0)));
        let part = b"97 29 0:44 /a\\040b /mnt rw - fuse.x y rw,default_permissions,user_id=1000";
        let entry = parse(part).unwrap();
        assert_eq!((entry.root.as_path(), entry.user), (Path::new("/a b"), Some(1000)));
        assert!(!entry.allows_others);
        let open =
            parse(b"9 2 0:1 / /a rw - fuse.x y rw,user_id=7,group_id=7,allow_other").unwrap();
        assert!(open.allows_others && open.user == Some(7));
        assert_eq!(parse(b"1 2 0:1 / /a rw - ext4 x rw").unwrap().user, None);
    }

    #[test]
    fn an_option_keeps_its_bytes() {
        let text = OsStr::from_bytes(b"a,b\\c\xff");
        assert_eq!(escape_option(text).as_bytes(), b"a\\,b\\\\c\xff");
    }

    #[test]
    fn lines_that_make_no_sense_are_passed_over() {
        for line in [&b""[..], b"1 2 3", b"1 2 0:1 / /a rw", b"1 2 x:1 / /a rw - t s o", b"\\"] {
            assert_eq!(parse(line), None);
        }
        assert_eq!(unescape(b"a\\04"), "a\\04");
        assert_eq!(unescape(b"\\999"), "\\999");
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(at(Path::new("/")).unwrap().is_some());
    }
}
