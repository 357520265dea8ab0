//! What a file is, for people and for programs: its kind, mode, times and name.

use nearside::files::Timestamp;
use nearside::{FileKind, Metadata};
use serde::Serialize;

const NANOS_OF_SECOND: i64 = 1_000_000_000;

/// A file as JSON shows it.
#[derive(Serialize)]
pub struct About {
    name: String,
    /// Only if `name` is not exact, since the name is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<Vec<u8>>,
    kind: &'static str,
    bytes: u64,
    stored_bytes: u64,
    inode: u64,
    links: u32,
    mode: String,
    uid: u32,
    gid: u32,
    accessed: String,
    modified: String,
    changed: String,
    /// Missing where only the server of a mount could say it, and does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl About {
    /// What there is to say of the file of this name; `target` is what a symbolic link says.
    pub fn new(
        name: &[u8],
        meta: &Metadata,
        created: Option<Timestamp>,
        target: Option<&[u8]>,
    ) -> About {
        let attr = meta.attr();
        About {
            name: String::from_utf8_lossy(name).into_owned(),
            name_bytes: inexact(name),
            kind: kind(attr.kind),
            bytes: attr.size,
            stored_bytes: attr.sectors * 512,
            inode: attr.ino.0,
            links: attr.links,
            mode: format!("{:04o}", attr.mode),
            uid: attr.uid,
            gid: attr.gid,
            accessed: time(attr.accessed),
            modified: time(attr.modified),
            changed: time(attr.changed),
            created: created.map(time),
            target: target.map(|target| String::from_utf8_lossy(target).into_owned()),
        }
    }
}

/// The bytes of a name that JSON cannot say as text.
pub fn inexact(name: &[u8]) -> Option<Vec<u8>> {
    std::str::from_utf8(name).err().map(|_| name.to_vec())
}

/// The word for a kind.
pub fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char-device",
        FileKind::BlockDevice => "block-device",
    }
}

/// Kind and permission bits as `ls -l` writes them: `drwxr-xr-x`.
pub fn mode(kind: FileKind, mode: u16) -> String {
    let mut text = String::from(match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    });
    // The bit that the class has beside its three, and its letter.
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A time in UTC to the nanosecond, as RFC 3339 writes it.
pub fn time(time: Timestamp) -> String {
    let (date, clock) = time.utc_date_and_clock();
    format!("{date}T{clock}.{:09}Z", time.0.rem_euclid(NANOS_OF_SECOND))
}

/// A time in UTC to the second.
pub fn short_time(time: Timestamp) -> String {
    let (date, clock) = time.utc_date_and_clock();
    format!("{date} {clock}")
}

/// A name for a terminal: nothing in it moves the cursor or sets a colour.
pub fn escaped(name: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter.is_control() {
                true => text.extend(letter.escape_default()),
                false => text.push(letter),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        let at = |seconds: i64, nanos: i64| time(Timestamp(seconds * NANOS_OF_SECOND + nanos));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(at(-1, 5), "1969-12-31T23:59:59.000000005Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(at(1_735_689_599, 0), "2024-12-31T23:59:59.000000000Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000000000Z");
        assert!(time(Timestamp(i64::MIN)).starts_with("1677-09-21T00:12:43."));
        assert_eq!(short_time(Timestamp(i64::MAX)), "2262-04-11 23:47:16");
    }

    #[test]
    fn modes_are_letters() {
        assert_eq!(mode(FileKind::File, 0o644), "-rw-r--r--");
        assert_eq!(mode(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(FileKind::File, 0o4750), "-rwsr-x---");
        assert_eq!(mode(FileKind::File, 0o7000), "---S--S--T");
    }

    #[test]
    fn names_cannot_command_a_terminal() {
        assert_eq!(escaped("a b é".as_bytes()), "a b é".as_bytes());
        assert_eq!(escaped(b"a\nb\x1b[31m\xff"), b"a\\nb\\u{1b}[31m\\xff");
    }
}
