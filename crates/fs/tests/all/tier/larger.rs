//! Files that are larger than the slices, whatever is done with them.

use crate::common::{BY, TestPool, content, find, make, pattern, random};
use crate::tier::{MIB, pool, tiered};
use fs::{Error, FileSystem, Handle, Ino, NewNode, XattrMode};
use pool::FormatOptions;
use std::sync::Arc;

/// A file, and what it is to hold.
pub struct Shadow {
    pub file: Arc<Handle>,
    pub bytes: Vec<u8>,
}

impl Shadow {
    pub fn make(fs: &FileSystem, name: &str) -> Shadow {
        Shadow { file: make(fs, name), bytes: Vec::new() }
    }

    pub fn write(&mut self, fs: &FileSystem, offset: usize, data: &[u8]) {
        assert_eq!(fs.write(&self.file, offset as u64, data).unwrap(), data.len());
        let end = offset + data.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(data);
    }

    pub fn assert_part(&self, fs: &FileSystem, offset: usize, len: usize) {
        let mut read = vec![0xEE; len];
        let seen = fs.read(&self.file, offset as u64, &mut read).unwrap();
        let want = &self.bytes[offset..self.bytes.len().min(offset + len)];
        assert!(read[..seen] == *want, "at {offset}, {len} bytes");
    }

    pub fn assert_all(&self, fs: &FileSystem) {
        assert!(content(fs, &self.file) == self.bytes);
    }

    /// The same file in what was opened again.
    pub fn found(self, fs: &FileSystem, name: &str) -> Shadow {
        Shadow { file: find(fs, name), bytes: self.bytes }
    }
}

fn moved(fs: &FileSystem) -> u64 {
    fs.tier_stats().unwrap().written_blocks
}

#[test]
fn a_file_larger_than_the_slices_is_what_was_written() {
    for (slices, devices) in [(1, &[160 * MIB][..]), (3, &[60 * MIB, 30 * MIB, 70 * MIB][..])] {
        let mut pool = pool(slices, 16 * MIB, devices);
        let fs = pool.start();
        let mut shadow = Shadow::make(&fs, "large");
        for piece in 0..96 {
            shadow.write(&fs, piece * MIB as usize, &pattern(piece as u64, MIB as usize));
        }
        assert!(moved(&fs) * 4096 > 96 * MIB - slices as u64 * 16 * MIB);
        shadow.assert_all(&fs);
        let fs = pool.killed(fs);
        let mut shadow = shadow.found(&fs, "large");
        shadow.assert_all(&fs);
        let mut state = 5;
        for round in 0..3000u64 {
            let offset = random(&mut state) as usize % (95 * MIB as usize);
            let len = 1 + random(&mut state) as usize % [200, 5000, 70_000][round as usize % 3];
            if round % 4 == 0 {
                shadow.assert_part(&fs, offset, len);
            } else {
                shadow.write(&fs, offset, &pattern(round, len));
            }
        }
        shadow.assert_all(&fs);
        let Shadow { file, bytes } = shadow;
        fs.close().unwrap();
        drop((file, fs));
        pool.assert_clean();
        let fs = pool.start();
        assert!(content(&fs, &find(&fs, "large")) == bytes);
    }
}

/// Truncation, holes, copies, and what becomes of blocks that move meanwhile.
#[test]
fn every_kind_of_change_finds_blocks_of_the_tier() {
    let mut pool = pool(2, 16 * MIB, &[200 * MIB]);
    let mut fs = pool.start();
    let mut shadow = Shadow::make(&fs, "file");
    let mut state = 99;
    for round in 0..600u64 {
        let at = random(&mut state) as usize % (40 * MIB as usize);
        let len = 1 + random(&mut state) as usize % 400_000;
        match random(&mut state) % 10 {
            0 => {
                let change = fs::SetAttr { size: Some(at as u64), ..fs::SetAttr::default() };
                fs.setattr(shadow.file.ino(), &change).unwrap();
                shadow.bytes.resize(at, 0);
            }
            1 => {
                let mode = fs::Fallocate::PunchHole;
                fs.fallocate(&shadow.file, mode, at as u64, len as u64).unwrap();
                let end = shadow.bytes.len().min(at + len);
                shadow.bytes[at.min(end)..end].fill(0);
            }
            2 => {
                let mode = fs::Fallocate::Zero { keep_size: false };
                fs.fallocate(&shadow.file, mode, at as u64, len as u64).unwrap();
                shadow.bytes.resize(shadow.bytes.len().max(at + len), 0);
                shadow.bytes[at..at + len].fill(0);
            }
            3 => {
                let to = at + 50 * MIB as usize;
                let file = &shadow.file;
                let len = len.min(shadow.bytes.len().saturating_sub(at));
                let copied = fs.copy((file, at as u64), (file, to as u64), len as u64).unwrap();
                assert_eq!(copied as usize, len);
                if len > 0 {
                    let part = shadow.bytes[at..at + len].to_vec();
                    shadow.bytes.resize(shadow.bytes.len().max(to + len), 0);
                    shadow.bytes[to..to + len].copy_from_slice(&part);
                }
            }
            4 => {
                let end = fs.append(&shadow.file, &pattern(round, 3000)).unwrap();
                assert_eq!(end as usize, shadow.bytes.len());
                shadow.bytes.extend(pattern(round, 3000));
            }
            5 => shadow.assert_part(&fs, at.min(shadow.bytes.len()), len),
            _ => shadow.write(&fs, at, &pattern(round, len)),
        }
        if round % 100 == 99 {
            shadow.assert_all(&fs);
            fs = pool.killed(fs);
            shadow = shadow.found(&fs, "file");
        }
    }
    shadow.assert_all(&fs);
    fs.unlink(Ino::ROOT, b"file").unwrap();
    drop(shadow);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
    let fs = pool.start();
    let space = fs.statfs();
    assert!(space.blocks - space.blocks_free < 2000, "{space:?}");
}

#[test]
fn only_a_pool_whose_tier_is_full_is_full() {
    let pool = pool(1, 16 * MIB, &[64 * MIB]);
    let fs = pool.start();
    let mut files = Vec::new();
    let error = loop {
        let file = make(&fs, &format!("file{}", files.len()));
        let data = pattern(files.len() as u64, MIB as usize);
        match fs.write(&file, 0, &data) {
            Ok(len) if len == data.len() => files.push((file, data)),
            Ok(_) => break Error::NoSpace,
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), libc::ENOSPC, "{error}");
    assert!(files.len() as u64 > 70, "{} of 80 MiB", files.len());
    for (file, data) in &files {
        assert!(content(&fs, file) == *data);
    }
    for (number, (file, _)) in files.drain(..).enumerate().take(20) {
        drop(file);
        fs.unlink(Ino::ROOT, format!("file{number}").as_bytes()).unwrap();
    }
    let file = make(&fs, "more");
    let data = pattern(1, 15 * MIB as usize);
    assert_eq!(fs.write(&file, 0, &data).unwrap(), data.len());
    assert!(content(&fs, &file) == data);
    fs.close().unwrap();
    drop((file, fs));
    pool.assert_clean();
}

/// In the `sync` domain a block that was moved is free when the record is synced, not before.
#[test]
fn the_same_on_plain_files() {
    let options = FormatOptions { process: false, ..tiered(1, 16 * MIB, &[80 * MIB]) };
    let mut pool = TestPool::with(&options);
    let fs = pool.start();
    let mut shadow = Shadow::make(&fs, "file");
    let mut state = 3;
    for round in 0..400u64 {
        let at = random(&mut state) as usize % (40 * MIB as usize);
        let len = 1 + random(&mut state) as usize % [300, 9000, 500_000][round as usize % 3];
        shadow.write(&fs, at, &pattern(round, len));
        if round % 50 == 0 {
            fs.fsync(&shadow.file).unwrap();
        }
    }
    shadow.assert_all(&fs);
    assert!(moved(&fs) > 1000);
    let fs = pool.killed(fs);
    let shadow = shadow.found(&fs, "file");
    shadow.assert_all(&fs);
    fs.close().unwrap();
    drop((shadow, fs));
    pool.assert_clean();
}

/// Without threads in the background, calls write back what they need the room of.
#[test]
fn who_is_alone_makes_room_himself() {
    let mut pool = pool(1, 16 * MIB, &[64 * MIB]);
    let fs = pool.start_alone();
    let mut shadow = Shadow::make(&fs, "file");
    for piece in 0..40 {
        shadow.write(&fs, piece * MIB as usize, &pattern(piece as u64, MIB as usize));
    }
    shadow.assert_all(&fs);
    let fs = pool.killed(fs);
    shadow.found(&fs, "file").assert_all(&fs);
}

/// Files come and go while their blocks move. Killed at any time, the log of it can be replayed.
#[test]
fn files_are_removed_while_their_blocks_move() {
    let mut pool = pool(2, 16 * MIB, &[64 * MIB]);
    for round in 0..12 {
        let fs = Arc::new(pool.start());
        let mover = {
            let fs = fs.clone();
            std::thread::spawn(move || {
                for _ in 0..60 {
                    fs.write_back_all().unwrap();
                }
            })
        };
        let data = pattern(round, 200_000);
        let mut state = round + 1;
        while !mover.is_finished() {
            let name = format!("file{}", random(&mut state) % 8);
            if fs.lookup(Ino::ROOT, name.as_bytes()).is_ok() {
                fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
            } else {
                let file = make(&fs, &name);
                fs.write(&file, 0, &data).unwrap();
            }
        }
        mover.join().unwrap();
        let fs = pool.killed(Arc::into_inner(fs).unwrap());
        for name in crate::common::names(&fs, Ino::ROOT) {
            let found = find(&fs, std::str::from_utf8(&name).unwrap());
            let seen = content(&fs, &found);
            drop(found);
            assert!(seen.len() == data.len() || seen.is_empty());
            fs.unlink(Ino::ROOT, &name).unwrap();
        }
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
    }
    let fs = pool.start();
    let stats = fs.tier_stats().unwrap();
    assert_eq!(stats.device_blocks, stats.device_blocks_free, "every place came back");
}

/// A transaction that takes half of the slices gets them, with the rest of the pool in its way.
#[test]
fn a_long_transaction_gets_the_room_that_the_tier_makes() {
    let pool = pool(1, 64 * MIB, &[256 * MIB]);
    let fs = pool.start();
    let mut full = Shadow::make(&fs, "full");
    for piece in 0..100 {
        full.write(&fs, piece * MIB as usize, &pattern(piece as u64, MIB as usize));
    }
    let file = make(&fs, "long");
    for round in 0..3 {
        let data = pattern(500 + round, 24 * MIB as usize);
        fs.commit(&[fs::Write { file: &file, offset: 77, data: &data }], &[]).unwrap();
        assert!(content(&fs, &file)[77..] == data, "round {round}");
    }
    full.assert_all(&fs);
    drop((full, file));
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

/// Extended attributes stay in the slices: the devices are free, and nobody comes to that.
#[test]
fn slices_full_of_what_stays_there_are_a_full_pool() {
    let pool = pool(1, 16 * MIB, &[32 * MIB]);
    let fs = pool.start();
    let value = pattern(3, 3000);
    let fill = || -> fs::Result<()> {
        for number in 0.. {
            let file = fs.create(Ino::ROOT, format!("{number}").as_bytes(), NewNode::File, BY)?;
            fs.setxattr(file.ino, b"user.a", &value, XattrMode::Create)?;
        }
        Ok(())
    };
    assert_eq!(fill().map_err(|error| error.errno()), Err(libc::ENOSPC));
    let full = fs.statfs();
    assert!(full.blocks_free < full.blocks / 20, "{full:?}");
    // what is removed is free, and so are the devices
    for number in 0..50 {
        fs.unlink(Ino::ROOT, format!("{number}").as_bytes()).unwrap();
    }
    fs.checkpoint().unwrap();
    let free = fs.statfs();
    assert!(free.blocks_free > free.blocks / 2, "{free:?}");
    fs.close().unwrap();
}
