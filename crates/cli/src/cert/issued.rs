//! What an authority has issued, and revoked: a line for each, which is never taken away.
//!
//! ```text
//! issued   SERIAL service|program NAME
//! revoked  SERIAL SECONDS          since 1970
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use time::OffsetDateTime;

use super::authority::For;
use crate::error::{self, Error, Result};

/// What an authority has issued, and revoked.
#[derive(Debug)]
pub struct Issued {
    dir: PathBuf,
    /// Serial number, and whose program it is for, if it is one's.
    all: Vec<(Vec<u8>, Option<String>)>,
    revoked: Vec<(Vec<u8>, OffsetDateTime)>,
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn number(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    (!digits.is_empty() && digits.len().is_multiple_of(2))
        .then(|| digits.chunks(2).map(byte).collect())?
}

/// The lines of a file of the authority's, none where it is not there.
fn lines<T>(path: &Path, parse: impl Fn(&[&str]) -> Option<T>) -> Result<Vec<T>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text.map_err(error::io(path))?,
    };
    let parsed = text.lines().enumerate().map(|(at, line)| {
        let words: Vec<&str> = line.split_whitespace().collect();
        parse(&words).ok_or_else(|| {
            let reason = format!("line {} makes no sense", at + 1);
            Error::Path { shown: path.to_path_buf(), reason }
        })
    });
    parsed.collect()
}

impl Issued {
    /// Of the authority in this directory.
    pub fn open(dir: &Path) -> Result<Issued> {
        let all = lines(&dir.join("issued"), |words| match words {
            [serial, side, name] => {
                let is_program = *side == For::Program.name();
                Some((number(serial)?, is_program.then(|| (*name).to_owned())))
            }
            _ => None,
        })?;
        let revoked = lines(&dir.join("revoked"), |words| match words {
            [serial, seconds] => {
                let time = OffsetDateTime::from_unix_timestamp(seconds.parse().ok()?).ok()?;
                Some((number(serial)?, time))
            }
            _ => None,
        })?;
        Ok(Issued { dir: dir.to_path_buf(), all, revoked })
    }

    /// One more.
    pub fn add(&mut self, serial: &[u8], side: For, name: &str) -> Result<()> {
        let line = format!("{} {} {name}\n", hexadecimal(serial), side.name());
        super::append(&self.dir.join("issued"), &line)?;
        self.all.push((serial.to_vec(), (side == For::Program).then(|| name.to_owned())));
        Ok(())
    }

    /// Revokes what was issued for programs of this name and is not revoked. False: there was
    /// never any.
    pub fn revoke(&mut self, name: &str) -> Result<bool> {
        let is_known = |serial: &[u8]| self.revoked.iter().any(|(known, _)| known == serial);
        let theirs = self.all.iter().filter(|(_, whose)| whose.as_deref() == Some(name));
        let theirs: Vec<_> = theirs.map(|(serial, _)| serial.clone()).collect();
        let new: Vec<_> = theirs.iter().filter(|serial| !is_known(serial)).cloned().collect();
        let now = OffsetDateTime::now_utc();
        for serial in new {
            let line = format!("{} {}\n", hexadecimal(&serial), now.unix_timestamp());
            super::append(&self.dir.join("revoked"), &line)?;
            self.revoked.push((serial, now));
        }
        Ok(!theirs.is_empty())
    }

    /// All that are revoked, and since when.
    pub fn revoked(&self) -> Vec<(Vec<u8>, OffsetDateTime)> {
        self.revoked.clone()
    }
}
