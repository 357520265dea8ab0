//! Pages that somebody kept and stored to: what is taken of them, and what is told of a change.

use crate::common::{TestPool, content, find, make, pattern, random};
use fs::{BLOCK_BYTES, Before, Error, FileSystem, Handle, Mapped, Pages, SetAttr, deferring_waits};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

const BLOCK: usize = BLOCK_BYTES as usize;

/// What one keeps of a file: the blocks as they were when they were given, once they have changed.
#[derive(Debug, Default)]
struct Kept {
    bases: Mutex<BTreeMap<u64, Vec<u8>>>,
    left: Mutex<Vec<(u64, usize, u64)>>,
    waits: Arc<Mutex<u32>>,
}

impl Mapped for Kept {
    fn is_told_before(&self) -> bool {
        true
    }

    fn changes(&self, blocks: &RangeInclusive<u64>, before: &Before<'_>) -> Result<(), Error> {
        let end = before.size().div_ceil(BLOCK_BYTES);
        for block in *blocks.start()..=*blocks.end().min(&end) {
            let mut bytes = vec![0; BLOCK];
            before.read(block, &mut bytes)?;
            self.bases.lock().unwrap().entry(block).or_insert(bytes);
        }
        let waits = self.waits.clone();
        before.wait(Box::new(move || *waits.lock().unwrap() += 1));
        Ok(())
    }

    fn written(&self, _offset: u64, _data: &[u8]) {}

    fn changed(&self, _offset: u64, _len: u64) {}
}

impl Pages for Kept {
    fn is_changed(&self, block: u64) -> bool {
        self.bases.lock().unwrap().contains_key(&block)
    }

    fn merge(&self, block: u64, at: usize, pages: &[u8], now: &mut [u8]) {
        let bases = self.bases.lock().unwrap();
        for ((now, page), was) in now.iter_mut().zip(pages).zip(&bases[&block][at..]) {
            if page != was {
                *now = *page;
            }
        }
    }

    fn taken(&self, offset: u64, data: &[u8]) {
        for (block, base) in self.bases.lock().unwrap().iter_mut() {
            for (n, byte) in data.iter().enumerate() {
                let at = offset + n as u64;
                if at / BLOCK_BYTES == *block {
                    base[(at % BLOCK_BYTES) as usize] = *byte;
                }
            }
        }
    }

    fn left(&self, offset: u64, data: &[u8], end: u64) {
        self.left.lock().unwrap().push((offset, data.len(), end));
    }
}

fn kept(fs: &FileSystem, file: &Handle) -> Arc<Kept> {
    let kept = Arc::new(Kept::default());
    let mapped: Arc<dyn Mapped> = kept.clone();
    fs.tell(file, &mapped);
    assert!(fs.is_told(file, &mapped));
    kept
}

fn cut(fs: &FileSystem, file: &Handle, size: u64) {
    fs.setattr(file.ino(), &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}

#[test]
fn what_was_stored_is_taken_and_what_others_changed_stays() {
    let mut pool = TestPool::new(2, 64 << 20);
    let mut fs = pool.start();
    let mut state = 5;
    for round in 0..40 {
        let file = make(&fs, &format!("file{round}"));
        let size = 1 + random(&mut state) as usize % (5 * BLOCK);
        let before = pattern(round, size);
        fs.write(&file, 0, &before).unwrap();
        let kept = kept(&fs, &file);
        let mut pages = before.clone();
        let mut wanted = before.clone();
        for turn in 0..6 {
            // each changes bytes of its own: those of even places, and those of odd ones
            let (at, other) = (random(&mut state) as usize % size, 200 + turn as u8);
            let end = size.min(at + 700);
            for place in (at..end).filter(|place| place % 2 == 0) {
                fs.write(&file, place as u64, &[other]).unwrap();
                wanted[place] = other;
            }
            for place in (at..end).filter(|place| place % 2 == 1) {
                pages[place] = 100 + turn as u8;
                wanted[place] = pages[place];
            }
            let first = at / BLOCK * BLOCK;
            fs.write_pages(&file, first as u64, &pages[first..], &*kept).unwrap();
            assert!(content(&fs, &file) == wanted, "round {round}, turn {turn}");
        }
        if round % 10 == 9 {
            drop(file);
            fs = pool.killed(fs);
            let file = find(&fs, &format!("file{round}"));
            assert!(content(&fs, &file) == wanted, "round {round}");
        }
    }
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

#[test]
fn a_file_that_was_cut_does_not_grow_again() {
    let pool = TestPool::new(1, 32 << 20);
    let fs = pool.start();
    let file = make(&fs, "file");
    fs.write(&file, 0, &[b'a'; 3 * BLOCK]).unwrap();
    let kept = kept(&fs, &file);
    let mut pages = [b'a'; 3 * BLOCK];
    pages[10] = b'B';
    pages[BLOCK + 900] = b'B';
    pages[2 * BLOCK] = b'B';
    cut(&fs, &file, BLOCK_BYTES + 100);
    fs.write_pages(&file, 0, &pages, &*kept).unwrap();
    let mut wanted = vec![b'a'; BLOCK + 100];
    wanted[10] = b'B';
    assert!(content(&fs, &file) == wanted);
    assert_eq!(*kept.left.lock().unwrap(), [(0, 3 * BLOCK, BLOCK_BYTES + 100)]);
    // what it grows by is zeros, also when the same pages come once more
    cut(&fs, &file, 3 * BLOCK_BYTES);
    kept.taken(0, &pages);
    fs.write_pages(&file, 0, &pages, &*kept).unwrap();
    wanted.resize(3 * BLOCK, 0);
    assert!(content(&fs, &file) == wanted);
    fs.close().unwrap();
}

#[test]
fn every_change_tells_what_was_there_before() {
    let pool = TestPool::new(2, 64 << 20);
    let fs = pool.start();
    let (file, source) = (make(&fs, "file"), make(&fs, "source"));
    fs.write(&source, 0, &pattern(9, 4 * BLOCK)).unwrap();
    let punch = fs::Fallocate::PunchHole;
    let zero = fs::Fallocate::Zero { keep_size: true };
    type Change<'c> = Box<dyn Fn() + 'c>;
    let write = fs::Write { file: &file, offset: 5000, data: b"other" };
    let changes: [(&str, Change<'_>); 9] = [
        ("write", Box::new(|| assert_eq!(fs.write(&file, 5000, b"other").unwrap(), 5))),
        ("block", Box::new(|| assert_eq!(fs.write(&file, 4096, &[1; BLOCK]).unwrap(), BLOCK))),
        ("append", Box::new(|| assert_eq!(fs.append(&file, b"other").unwrap(), 9000))),
        ("commit", Box::new(|| fs.commit(&[write, write], &[]).unwrap())),
        ("share", Box::new(|| assert_eq!(fs.copy((&source, 0), (&file, 0), 8192).unwrap(), 8192))),
        ("copy", Box::new(|| assert_eq!(fs.copy((&source, 1), (&file, 5000), 100).unwrap(), 100))),
        ("punch", Box::new(|| fs.fallocate(&file, punch, 4096, 4096).unwrap())),
        ("zero", Box::new(|| fs.fallocate(&file, zero, 5000, 100).unwrap())),
        ("cut", Box::new(|| cut(&fs, &file, 5000))),
    ];
    for (name, change) in changes {
        cut(&fs, &file, 0);
        let before = pattern(3, 9000);
        fs.write(&file, 0, &before).unwrap();
        let kept = kept(&fs, &file);
        change();
        let bases = kept.bases.lock().unwrap().clone();
        assert!(!bases.is_empty(), "{name}");
        let mut was = before;
        was.resize(4 * BLOCK, 0);
        let now = content(&fs, &file);
        for block in 0..3 {
            let range = block as usize * BLOCK..(block as usize + 1) * BLOCK;
            let mut is = now.get(range.start..).unwrap_or_default().to_vec();
            is.resize(BLOCK.max(is.len()), 0);
            match bases.get(&block) {
                Some(base) => assert!(*base == was[range], "{name}: block {block}"),
                None => assert!(is[..BLOCK] == was[range], "{name}: block {block} was not told"),
            }
        }
        let mapped: Arc<dyn Mapped> = kept;
        fs.tell_no_more(&file, &mapped);
        assert!(!fs.is_told(&file, &mapped));
    }
    fs.close().unwrap();
}

#[test]
fn a_change_waits_for_who_keeps_copies_before_it_returns() {
    let pool = TestPool::new(1, 32 << 20);
    let fs = pool.start();
    let file = make(&fs, "file");
    fs.write(&file, 0, &[1; BLOCK]).unwrap();
    let kept = kept(&fs, &file);
    fs.write(&file, 0, b"one").unwrap();
    assert_eq!(*kept.waits.lock().unwrap(), 1);
    // or whoever made it does so for it
    let (_, waits) = deferring_waits(|| fs.write(&file, 0, b"two").unwrap());
    assert_eq!((*kept.waits.lock().unwrap(), waits.len()), (1, 1));
    waits.into_iter().for_each(|wait| wait());
    assert_eq!(*kept.waits.lock().unwrap(), 2);
    let mapped: Arc<dyn Mapped> = kept.clone();
    fs.tell_no_more(&file, &mapped);
    fs.write(&file, 0, b"three").unwrap();
    assert_eq!(*kept.waits.lock().unwrap(), 2);
    fs.close().unwrap();
}

#[test]
fn on_a_full_pool_pages_are_taken_block_by_block() {
    let pool = TestPool::new(1, 32 << 20);
    let fs = pool.start();
    let file = make(&fs, "file");
    fs.write(&file, 0, &pattern(1, 64 * BLOCK)).unwrap();
    let kept = kept(&fs, &file);
    let filler = make(&fs, "filler");
    let mut at = 0;
    for size in [1 << 20, BLOCK, 100] {
        while fs.write(&filler, at, &pattern(at, size)).is_ok_and(|bytes| bytes == size) {
            at += size as u64;
        }
    }
    let mut pages = pattern(1, 64 * BLOCK);
    pages.iter_mut().step_by(100).for_each(|byte| *byte = !*byte);
    fs.write_pages(&file, 0, &pages, &*kept).unwrap();
    assert!(content(&fs, &file) == pages);
    fs.close().unwrap();
}
