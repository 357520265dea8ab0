//! What must be there of a client, by what it acknowledged.

use std::path::Path;

use crate::acts::{Act, RECORD, parts, read_tree, record};
use crate::client::{is_gone, moment_name, own_path};
use crate::mapper::Words;
use crate::model::{Model, Op, Random};
use crate::watched::Heard;

/// What a client's processes have done so far.
#[derive(Debug)]
pub enum Account {
    /// One with a directory of its own.
    Worker(Worker),
    /// The one with a mapping.
    Mapper(Words),
}

/// A directory, and what was appended to the shared file.
#[derive(Debug, Default)]
pub struct Worker {
    number: u64,
    model: Model,
    /// Each record, and whether it was acknowledged.
    appended: Vec<([u8; RECORD], bool)>,
}

impl Account {
    pub fn worker(number: u64) -> Account {
        Account::Worker(Worker { number, ..Worker::default() })
    }

    /// Takes over what a process did that has ended, and compares. `gone` says whether its mount
    /// may have ended before it.
    pub fn settle(&mut self, mnt: &Path, seed: u64, heard: &Heard, gone: bool) {
        assert_eq!(heard.complaint, None);
        match self {
            Account::Worker(worker) => worker.settle(mnt, seed, heard, gone),
            Account::Mapper(words) => words.settle(mnt, seed, heard.acks.len() as u64),
        }
    }

    /// Inodes below the client's directory.
    pub fn inodes(&self) -> u64 {
        match self {
            Account::Worker(worker) => worker.model.0.len() as u64,
            Account::Mapper(_) => 0,
        }
    }
}

impl Worker {
    fn settle(&mut self, mnt: &Path, seed: u64, heard: &Heard, gone: bool) {
        let mut random = Random::new(seed);
        let mut number = 0;
        for (errno, _) in &heard.acks {
            if gone && is_gone(*errno) {
                break;
            }
            self.take(&Act::pick(&mut random), seed, number, *errno);
            number += 1;
        }
        assert!(heard.acks.len() as u64 <= number + 1, "it went on without a mount");
        let pending = Act::pick(&mut random);
        if let Act::Append = pending {
            self.appended.push((record(self.number, seed, number), false));
        }
        if let Act::Unlinked = pending {
            // Killed between the two calls it leaves the name.
            let name = mnt.join("nameless").join(moment_name(self.number, number));
            let _ = std::fs::remove_file(name);
        }
        let own = if let Act::Own(op) = &pending { Some(op) } else { None };
        self.compare(mnt, own, seed.is_multiple_of(2));
    }

    /// Takes over one act that was acknowledged.
    fn take(&mut self, act: &Act, seed: u64, number: u64, errno: i32) {
        let expected = match act {
            Act::Own(op) => {
                let expected = self.model.apply(op);
                assert_eq!(expected, errno == 0, "{act:?} gave errno {errno}");
                return;
            }
            Act::Append => {
                self.appended.push((record(self.number, seed, number), true));
                errno == 0
            }
            Act::Lock { .. } => errno == 0 || errno == libc::EAGAIN,
            Act::Unnamed | Act::Unlinked => errno == 0,
        };
        assert!(expected, "client {}, {number}: {act:?} gave errno {errno}", self.number);
    }

    /// The directory is what the model says, or that with a part of the pending change.
    fn compare(&mut self, mnt: &Path, pending: Option<&Op>, direct: bool) {
        let found = read_tree(&own_path(mnt, self.number), direct).unwrap();
        if found == self.model {
            return;
        }
        let fits = |part: &Op| {
            let mut model = self.model.clone();
            model.apply(part) && model == found
        };
        let fine = pending.is_some_and(|op| parts(op, &self.model).iter().any(fits));
        let differing = self.model.differing(&found);
        let lengths = |model: &Model| -> Vec<_> {
            let length = |path| model.0.get(path).map(|content| content.as_ref().map(Vec::len));
            differing.iter().map(length).collect()
        };
        let (model, there) = (lengths(&self.model), lengths(&found));
        let which = self.number;
        assert!(fine, "client {which}, {pending:?}: {differing:?} differ: {model:?}, {there:?}");
        self.model = found;
    }
}

/// Everything appended is in the shared file once, whole and in the order of each client.
pub fn verify_shared(content: &[u8], accounts: &mut [Account]) {
    let (records, rest) = content.as_chunks::<RECORD>();
    assert!(rest.is_empty(), "{} bytes of a record in the shared file", rest.len());
    let mut expected = 0;
    for account in accounts {
        let Account::Worker(worker) = account else { continue };
        let of_client = |record: &&[u8; RECORD]| record[..8] == worker.number.to_le_bytes();
        let mut found = records.iter().filter(of_client).peekable();
        for (record, is_certain) in worker.appended.drain(..) {
            let is_there = found.next_if(|next| **next == record).is_some();
            assert!(is_there || !is_certain, "client {}: {record:?} is not next", worker.number);
            expected += usize::from(is_there);
        }
        assert_eq!(found.next(), None, "a record of client {} that was never made", worker.number);
    }
    assert_eq!(records.len(), expected, "records of nobody in the shared file");
}
