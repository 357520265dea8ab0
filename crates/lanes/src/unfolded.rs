//! What was committed and cannot be in its file, because the medium there has failed: it is kept
//! beside the pool, for people.
//!
//! A line of JSON for each piece: the inode of its file, where it was to be, and its bytes in
//! hexadecimal digits.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fs::Ino;

const NAME: &str = "unfolded.jsonl";
/// Longest that it becomes: a process may have a record fail again and again.
const BYTES_MAX: u64 = 64 << 20;

/// A piece: of which file, where in it, and its bytes.
pub(crate) type Lost<'d> = (Ino, u64, &'d [u8]);

/// Adds pieces to the file in `directory`; they are durable when it returns its path.
pub(crate) fn keep<'d>(
    directory: &Path,
    pieces: impl Iterator<Item = Lost<'d>>,
) -> io::Result<PathBuf> {
    let path = directory.join(NAME);
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create(true).mode(0o600).open(&path)?;
    let mut lines = String::new();
    for (Ino(inode), offset, bytes) in pieces {
        let _ = write!(lines, r#"{{"inode":{inode},"offset":{offset},"hex":""#);
        for byte in bytes {
            let _ = write!(lines, "{byte:02x}");
        }
        lines.push_str("\"}\n");
    }
    if file.metadata()?.len() + lines.len() as u64 > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    file.write_all(lines.as_bytes())?;
    file.sync_all()?;
    File::open(directory)?.sync_all()?;
    Ok(path)
}

/// Says in the log that something was kept in `directory`, if it was.
pub(crate) fn remind(directory: &Path) {
    let path = directory.join(NAME);
    if path.exists() {
        let path = path.display();
        tracing::warn!("what an attached process had committed cannot be stored, and is in {path}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_added_line_by_line_up_to_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let pieces = [(Ino(12), 4096, &b"\0ab"[..]), (Ino(1), 0, b"")];
        let path = keep(dir.path(), pieces.into_iter()).unwrap();
        keep(dir.path(), pieces[..1].iter().copied()).unwrap();
        let first = "{\"inode\":12,\"offset\":4096,\"hex\":\"006162\"}\n";
        let second = "{\"inode\":1,\"offset\":0,\"hex\":\"\"}\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), [first, second, first].concat());
        File::options().write(true).open(&path).unwrap().set_len(BYTES_MAX - 10).unwrap();
        assert!(keep(dir.path(), pieces.into_iter()).is_err());
        assert_eq!(path.metadata().unwrap().len(), BYTES_MAX - 10);
    }
}
