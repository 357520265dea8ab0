//! Calls and answers, as they are written down: a line of JSON before each call, and one behind it.
//!
//! A caller that is killed has written down what it was at: that may have happened or not.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::door::DoorKind;
use crate::plan::{CELL_BYTES, Kind};
use crate::{Result, said};

/// Cells of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which file.
    pub file: u32,
    /// First cell.
    pub at: u32,
    /// How many.
    pub cells: u32,
}

/// What is called. Cells are counted, not bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Act {
    Write {
        file: u32,
        at: u32,
        cells: u32,
    },
    Read {
        file: u32,
        at: u32,
        cells: u32,
    },
    /// A read through the kernel's pages: of each cell one word, each at a moment of its own.
    Load {
        file: u32,
        at: u32,
        cells: u32,
    },
    /// A copy of the first cells by a program: each cell at a moment of its own.
    Copy {
        file: u32,
        at: u32,
        cells: u32,
    },
    /// A copy of a file of so many cells over this one, by a program: the file is emptied, and is
    /// filled then.
    CopyIn {
        file: u32,
        cells: u32,
    },
    /// Stores by a mapping, and msync, or a read of the same cells at the same mount.
    Store {
        file: u32,
        at: u32,
        cells: u32,
        read: bool,
    },
    Append {
        file: u32,
        cells: u32,
    },
    Truncate {
        file: u32,
        cells: u32,
    },
    Punch {
        file: u32,
        at: u32,
        cells: u32,
    },
    Size {
        file: u32,
    },
    Sync {
        file: u32,
    },
    Transact {
        reads: Vec<Part>,
        writes: Vec<Part>,
    },
    Create {
        name: String,
    },
    Link {
        from: String,
        to: String,
    },
    LinkInode {
        ino: u64,
        to: String,
    },
    Rename {
        from: String,
        to: String,
    },
    /// A rename that replaces nothing.
    Move {
        from: String,
        to: String,
    },
    Unlink {
        name: String,
    },
    Lookup {
        name: String,
    },
}

impl Act {
    /// What it is called.
    #[cfg(test)]
    pub fn name(&self) -> String {
        let text = format!("{self:?}");
        text.split(' ').next().unwrap_or_default().to_owned()
    }
}

/// What a call answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The error's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// Whether it happened is not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// It did not happen, and asks to be made again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// What was read, part by part: runs of cells with the number of the call that wrote them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Vec<Vec<(i64, u32)>>>,
    /// Cells: where an append went, or a size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The inode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ino: Option<u64>,
    /// How many names it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<u32>,
}

impl Answer {
    /// An error; some say that nobody knows what became of the call.
    pub fn failed(errno: i32) -> Answer {
        // ENOTCONN, ECONNABORTED: of a service or a mount that has gone
        match errno {
            103 | 107 => Answer { unknown: true, ..Answer::default() },
            errno => Answer { errno: Some(errno), ..Answer::default() },
        }
    }
}

/// The beginning of a history.
#[derive(Clone, Debug, Serialize)]
pub struct Head {
    /// Its number.
    pub history: u32,
    /// Its seed.
    pub seed: u64,
    /// See there.
    pub kind: Kind,
    /// The host, and what was done to it and to others.
    pub told: String,
    /// Names that are there, with their inodes.
    pub names: std::collections::BTreeMap<String, u64>,
    /// The door of each caller.
    pub doors: Vec<DoorKind>,
    /// When services were killed: a moment before, and one when the next service answered.
    pub kills: Vec<[u64; 2]>,
}

#[derive(Serialize)]
struct Called<'a> {
    id: u32,
    client: u32,
    call: u64,
    #[serde(flatten)]
    act: &'a Act,
}

#[derive(Serialize)]
struct Returned<'a> {
    id: u32,
    ret: u64,
    #[serde(flatten)]
    answer: &'a Answer,
}

/// Calls that the next caller makes beside one call, at most.
const BESIDE_MAX: u32 = 1 << 12;

/// What one caller writes down.
#[derive(Debug)]
pub struct Record {
    dir: PathBuf,
    file: File,
    history: u32,
    client: u32,
    calls: u32,
    /// The last number of the next caller that may have been used.
    beside: u32,
    line: Vec<u8>,
}

impl Record {
    /// In directory `dir`.
    pub fn create(dir: &Path, history: u32, client: u32) -> Result<Record> {
        let path = dir.join(format!("{history}.{client}"));
        let file = File::options().read(true).append(true).create(true).open(&path);
        let file = file.and_then(begin_a_line);
        let file = file.map_err(said("what is called cannot be written down"))?;
        let line = Vec::new();
        Ok(Record { dir: dir.to_owned(), file, history, client, calls: 0, beside: 0, line })
    }

    /// That of the next caller, who calls while this one is at a call.
    pub fn beside(&mut self) -> Result<Record> {
        let record = Record::create(&self.dir, self.history, self.client + 1)?;
        self.beside += BESIDE_MAX;
        Ok(Record { calls: self.beside, ..record })
    }

    /// Goes on with another number: the second part of a history, by the same caller.
    pub fn goes_on(mut self) -> Record {
        self.calls = 1 << 15;
        self
    }

    /// Makes a call, which gets its number, and writes it down.
    pub fn call(&mut self, act: &Act, make: impl FnOnce(u64) -> Answer) -> Result<Answer> {
        self.calls += 1;
        let id = self.client << 16 | self.calls;
        let called = Called { id, client: self.client, call: crate::clock::now(), act };
        self.write(&called)?;
        let answer = make(word_of(self.history, id));
        let returned = Returned { id, ret: crate::clock::now(), answer: &answer };
        self.write(&returned)?;
        Ok(answer)
    }

    fn write(&mut self, what: &impl Serialize) -> Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, what).map_err(said("a record"))?;
        self.line.push(b'\n');
        self.file.write_all(&self.line).map_err(said("a record"))
    }
}

/// Ends a line that a caller was writing when it was killed.
fn begin_a_line(mut file: File) -> io::Result<File> {
    let bytes = file.metadata()?.len();
    let mut last = [b'\n'];
    if bytes > 0 {
        file.read_exact_at(&mut last, bytes - 1)?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// The word that a call of a history writes all over a cell. A part of it tells it from a mixture,
/// byte by byte, of the words of two calls, or of one and zeros.
pub fn word_of(history: u32, id: u32) -> u64 {
    let plain = u64::from(history as u16) << 32 | u64::from(id);
    // 2^64 divided by the golden ratio
    let sum = (plain + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    sum << 48 | plain
}

/// The bytes that a call writes, of its word.
pub fn bytes(number: u64, cells: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(cells as usize * CELL_BYTES / 8)
}

/// What such bytes say: runs of cells. -1: of no call of this history, or of two.
pub fn runs(history: u32, bytes: &[u8]) -> Vec<(i64, u32)> {
    let mut runs: Vec<(i64, u32)> = Vec::new();
    for cell in bytes.chunks(CELL_BYTES) {
        let word = |at: usize| cell.get(at..at + 8).and_then(|it| it.try_into().ok());
        let first = u64::from_le_bytes(word(0).unwrap_or([0xff; 8]));
        let is_whole = cell.len() == CELL_BYTES && cell.chunks(8).all(|it| *it == cell[..8]);
        let value = match (is_whole, first) {
            (true, 0) => 0,
            (true, word) if word == word_of(history, word as u32) => i64::from(word as u32),
            _ => -1,
        };
        match runs.last_mut() {
            Some((last, count)) if *last == value => *count += 1,
            _ => runs.push((value, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_behind_half_a_line_begins_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("3.1");
        let sync = || Act::Sync { file: 0 };
        let call = |record: &mut Record| record.call(&sync(), |_| Answer::default()).unwrap();
        call(&mut Record::create(dir.path(), 3, 1).unwrap());
        let written = std::fs::read(&path).unwrap();
        std::fs::write(&path, &written[..written.len() - 5]).unwrap();
        call(&mut Record::create(dir.path(), 3, 1).unwrap().goes_on());
        call(&mut Record::create(dir.path(), 3, 1).unwrap().goes_on());
        let lines = std::fs::read_to_string(&path).unwrap();
        let whole =
            lines.lines().filter(|it| serde_json::from_str::<serde_json::Value>(it).is_ok());
        assert_eq!((lines.lines().count(), whole.count()), (6, 5));
    }

    #[test]
    fn what_was_written_is_told_and_mixtures_are_nobodys() {
        let mut seen = bytes(word_of(4, 77), 2);
        seen.extend([0; CELL_BYTES]);
        seen.extend(bytes(word_of(4, 78), 1));
        assert_eq!(runs(4, &seen), [(77, 2), (0, 1), (78, 1)]);
        assert_eq!(runs(3, &seen), [(-1, 2), (0, 1), (-1, 1)]);
        seen[CELL_BYTES - 1] ^= 1;
        assert_eq!(runs(4, &seen)[0], (-1, 1));
        assert_eq!(runs(4, &seen[..10]), [(-1, 1)]);
    }

    #[test]
    fn a_mixture_of_two_words_is_no_calls_word() {
        let (one, other) = (word_of(17, 7 << 16 | 19), word_of(17, 4 << 16 | 8));
        // as a store and a write(2) at one time leave it: bytes of both make the id of a third call
        let mixed = |mask: u64| (one & mask | other & !mask).to_le_bytes().repeat(CELL_BYTES / 8);
        let third = runs(17, &bytes(word_of(17, 4 << 16 | 19), 1));
        assert_eq!(third, [(4 << 16 | 19, 1)]);
        let masks = (1..255u64).map(|mask| {
            (0..8).filter(|at| mask >> at & 1 == 1).map(|at| 0xff << (8 * at)).sum::<u64>()
        });
        // equal bytes are of both
        let mixtures = masks.map(mixed).filter(|it| *it != bytes(one, 1) && *it != bytes(other, 1));
        assert!(mixtures.into_iter().all(|it| runs(17, &it) == [(-1, 1)]));
    }
}
