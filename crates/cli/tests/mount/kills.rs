//! kill -9 of the server in the middle of changes, again and again, on files with a history.
//!
//! Every writer has a file of its own and a model of it in memory. A call that returned is in the
//! model; of the one that the kill interrupted every request happened entirely or not at all. A
//! write of whole pages, up to 1 MiB, is one request.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::fcntl::{FallocateFlags, fallocate};

use crate::support::Scratch;

const FILE_BYTES_MAX: u64 = 1 << 20;
const WRITE_BYTES_MAX: u64 = 20_000;

/// A small generator of numbers (xorshift), the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Write { offset: u64, bytes: u64, byte: u8 },
    Resize { bytes: u64 },
    Punch { offset: u64, bytes: u64 },
}

impl Change {
    fn pick(random: &mut Random) -> Change {
        let offset = random.below(FILE_BYTES_MAX - WRITE_BYTES_MAX);
        let bytes = match random.below(3) {
            0 => 1 + random.below(200),
            1 => 4096,
            _ => 1 + random.below(WRITE_BYTES_MAX),
        };
        match random.below(20) {
            0 => Change::Resize { bytes: random.below(FILE_BYTES_MAX) },
            1 => Change::Punch { offset, bytes },
            // Whole blocks are the common case, as databases write them.
            2..=10 => Change::Write { offset: offset & !4095, bytes: 4096, byte: offset as u8 },
            _ => Change::Write { offset, bytes, byte: offset as u8 },
        }
    }

    fn make(self, file: &File) -> std::io::Result<()> {
        match self {
            Change::Write { offset, bytes, byte } => {
                file.write_all_at(&vec![byte; bytes as usize], offset)
            }
            Change::Resize { bytes } => file.set_len(bytes),
            Change::Punch { offset, bytes } => {
                let flags =
                    FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                Ok(fallocate(file, flags, offset as i64, bytes as i64)?)
            }
        }
    }

    /// What the kill may have left of it: all, or of a write the requests before the last. The
    /// kernel ends a request with a page that is written in part and not in its cache.
    fn parts(self) -> Vec<Change> {
        let Change::Write { offset, bytes, byte } = self else { return vec![self] };
        let pages = (offset / 4096 + 1..).map(|page| page * 4096 - offset);
        let inner = pages.take_while(|cut| *cut < bytes).chain([bytes]);
        inner.map(|bytes| Change::Write { offset, bytes, byte }).collect()
    }

    fn model(self, content: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes, byte } => {
                let end = (offset + bytes) as usize;
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[offset as usize..end].fill(byte);
            }
            Change::Resize { bytes } => content.resize(bytes as usize, 0),
            Change::Punch { offset, bytes } => {
                let end = ((offset + bytes) as usize).min(content.len());
                content[(offset as usize).min(end)..end].fill(0);
            }
        }
    }
}

struct Writer {
    random: Random,
    content: Vec<u8>,
    /// The change that was on its way when the server died.
    pending: Option<Change>,
}

impl Writer {
    fn run(&mut self, path: &Path, stop: &AtomicBool) {
        let Ok(file) = File::options().write(true).create(true).truncate(false).open(path) else {
            return;
        };
        while !stop.load(Ordering::Relaxed) {
            let change = Change::pick(&mut self.random);
            self.pending = Some(change);
            if change.make(&file).is_err() {
                return;
            }
            change.model(&mut self.content);
            self.pending = None;
        }
    }

    /// Compares the file with the model, and takes over what the interrupted call did.
    fn verify(&mut self, path: &Path) {
        let found = std::fs::read(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        if found == self.content {
            return;
        }
        let parts = self.pending.map(Change::parts).unwrap_or_default();
        let done = parts.into_iter().find(|part| {
            let mut content = self.content.clone();
            part.model(&mut content);
            content == found
        });
        let at = found.iter().zip(&self.content).position(|(found, model)| found != model);
        let lengths = (found.len(), self.content.len());
        let pending = self.pending;
        assert!(done.is_some(), "{path:?}: differs at {at:?}, lengths {lengths:?}, {pending:?}");
        self.content = found;
    }
}

#[test]
fn overwrites_cuts_and_holes_survive_killed_servers() {
    let Some(scratch) = Scratch::mounted() else { return };
    let path = |writer: usize| scratch.mnt().join(format!("w{writer}"));
    let mut writers: Vec<Writer> = (0..3)
        .map(|writer| Writer {
            random: Random(0x9E37_79B9_7F4A_7C15 ^ (writer + 1)),
            content: Vec::new(),
            pending: None,
        })
        .collect();
    for round in 0..12u64 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for (at, writer) in writers.iter_mut().enumerate() {
                let (path, stop) = (path(at), &stop);
                threads.spawn(move || writer.run(&path, stop));
            }
            std::thread::sleep(Duration::from_millis(100 + round * 37 % 300));
            scratch.kill_both();
            stop.store(true, Ordering::Relaxed);
        });
        if round % 2 == 0 {
            // Also what was not recovered yet has to be whole.
            scratch.umount();
            scratch.run_ok(["check".as_ref(), scratch.pool().as_os_str()]);
        }
        scratch.mount();
        for (at, writer) in writers.iter_mut().enumerate() {
            writer.verify(&path(at));
        }
    }
    scratch.finish();
}
