//! Transactions over several files.

use crate::common::{TestPool, content, find, make, pattern, random};
use fs::{Error, Expected, FileSystem, Handle, Mapped, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

fn write<'d>(file: &'d Handle, offset: u64, data: &'d [u8]) -> Write<'d> {
    Write { file, offset, data }
}

#[test]
fn transactions_of_any_shape_are_what_writes_one_by_one_are() {
    let mut pool = TestPool::new(2, 64 << 20);
    let mut fs = pool.start();
    let names = ["a", "b", "c"];
    let mut shadows: Vec<Vec<u8>> = vec![Vec::new(); 3];
    names.iter().for_each(|name| drop(make(&fs, name)));
    let mut state = 11;
    for round in 0..400u64 {
        let files: Vec<_> = names.iter().map(|name| find(&fs, name)).collect();
        let mut writes = Vec::new();
        for part in 0..1 + random(&mut state) % 12 {
            let file = random(&mut state) as usize % 3;
            let spread = [600, 20_000, 2_000_000][random(&mut state) as usize % 3];
            let offset = random(&mut state) % spread;
            let len =
                random(&mut state) as usize % [20, 1500, 9000][random(&mut state) as usize % 3];
            writes.push((file, offset, pattern(round * 100 + part, len)));
        }
        let all: Vec<Write<'_>> =
            writes.iter().map(|(file, offset, data)| write(&files[*file], *offset, data)).collect();
        fs.commit(&all, &[]).unwrap();
        for (file, offset, data) in &writes {
            let (shadow, end) = (&mut shadows[*file], *offset as usize + data.len());
            if !data.is_empty() {
                shadow.resize(shadow.len().max(end), 0);
                shadow[*offset as usize..end].copy_from_slice(data);
            }
        }
        if round % 40 == 39 {
            for (file, shadow) in files.iter().zip(&shadows) {
                assert!(content(&fs, file) == *shadow, "round {round}");
            }
            drop(files);
            fs = pool.killed(fs);
        }
    }
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

#[test]
fn what_is_not_as_expected_changes_nothing() {
    let pool = TestPool::new(1, 32 << 20);
    let fs = pool.start();
    let (one, other) = (make(&fs, "one"), make(&fs, "other"));
    fs.write(&one, 0, b"balance 100").unwrap();
    let expected = |data| [Expected { file: &one, offset: 8, data }];
    let writes = [write(&one, 8, b"050"), write(&other, 0, b"paid 50")];
    fs.commit(&writes, &expected(b"100")).unwrap();
    assert_eq!(
        (content(&fs, &one), content(&fs, &other)),
        (b"balance 050".into(), b"paid 50".into())
    );
    let error = fs.commit(&writes, &expected(b"100")).unwrap_err();
    assert!(matches!(error, Error::Conflict), "{error}");
    assert_eq!(error.errno(), libc::EAGAIN);
    assert_eq!(content(&fs, &one), b"balance 050");
    // behind a file's end there are zeros
    let behind = [Expected { file: &other, offset: 5, data: b"50\0\0" }];
    fs.commit(&writes[..1], &behind).unwrap();
}

/// A record names blocks where it cannot hold the bytes of all that is written.
#[test]
fn many_small_pieces_are_one_transaction() {
    for mut pool in [TestPool::new(1, 64 << 20), TestPool::synced(1, 64 << 20)] {
        let fs = pool.start();
        let names = ["one", "two"];
        let mut shadow = vec![pattern(1, 4 << 20); 2];
        let files = names.map(|name| make(&fs, name));
        for (file, shadow) in files.iter().zip(&shadow) {
            fs.write(file, 0, shadow).unwrap();
            // what is synced often goes into the log whole
            fs.fsync(file).unwrap();
        }
        let pieces: Vec<Vec<u8>> = (0..200).map(|at| pattern(at + 7, 1000)).collect();
        let place = |at: usize| (at % 2, at / 2 * 8192 + at);
        let writes: Vec<Write<'_>> = (0..200)
            .map(|at| write(&files[place(at).0], place(at).1 as u64, &pieces[at]))
            .collect();
        fs.commit(&writes, &[]).unwrap();
        for (at, piece) in pieces.iter().enumerate() {
            let (file, offset) = place(at);
            shadow[file][offset..offset + 1000].copy_from_slice(piece);
        }
        drop(writes);
        drop(files);
        fs.sync().unwrap();
        let fs = pool.killed(fs);
        for (name, shadow) in names.iter().zip(&shadow) {
            assert!(content(&fs, &find(&fs, name)) == *shadow, "{name}");
        }
        drop(fs);
        pool.assert_clean();
    }
}

/// Money moves between accounts in two files; whoever reads together never sees it elsewhere.
#[test]
fn reads_together_see_whole_transactions() {
    const ACCOUNTS: u64 = 40;
    let pool = TestPool::new(2, 64 << 20);
    let fs = &pool.start();
    let files = &[make(fs, "one"), make(fs, "two")];
    let place = |account: u64| (&*files[account as usize % 2], account / 2 * 5000);
    for account in 0..ACCOUNTS {
        let (file, offset) = place(account);
        fs.write(file, offset, &100u64.to_le_bytes()).unwrap();
    }
    let done = &AtomicBool::new(false);
    let transfer = |seed: u64| {
        let mut state = seed;
        for _ in 0..3000 {
            let (from, to) = (random(&mut state) % ACCOUNTS, random(&mut state) % ACCOUNTS);
            let (mut a, mut b) = ([0; 8], [0; 8]);
            let ((from_file, from_at), (to_file, to_at)) = (place(from), place(to));
            fs.read(from_file, from_at, &mut a).unwrap();
            fs.read(to_file, to_at, &mut b).unwrap();
            let (old_a, old_b) = (u64::from_le_bytes(a), u64::from_le_bytes(b));
            if from == to || old_a == 0 {
                continue;
            }
            let (new_a, new_b) = ((old_a - 1).to_le_bytes(), (old_b + 1).to_le_bytes());
            let writes = [write(from_file, from_at, &new_a), write(to_file, to_at, &new_b)];
            let expected = [
                Expected { file: from_file, offset: from_at, data: &a },
                Expected { file: to_file, offset: to_at, data: &b },
            ];
            match fs.commit(&writes, &expected) {
                Ok(()) | Err(Error::Conflict) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    std::thread::scope(|scope| {
        let writers = [1, 2].map(|seed| scope.spawn(move || transfer(seed)));
        let reader = scope.spawn(move || {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) || rounds == 0 {
                let mut cells = vec![[0u8; 8]; ACCOUNTS as usize];
                let mut reads: Vec<(&Handle, u64, &mut [u8])> = (0..)
                    .zip(&mut cells)
                    .map(|(account, cell)| {
                        let (file, offset) = place(account);
                        (file, offset, &mut cell[..])
                    })
                    .collect();
                fs.read_together(&mut reads).unwrap();
                let sum: u64 = cells.iter().map(|cell| u64::from_le_bytes(*cell)).sum();
                assert_eq!(sum, ACCOUNTS * 100, "round {rounds}");
                rounds += 1;
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

/// A copy of a file that follows what it is told.
#[derive(Debug, Default)]
struct Copy(Mutex<Told>);

/// The bytes, and the ranges that changed otherwise.
type Told = (Vec<u8>, Vec<(u64, u64)>);

impl Mapped for Copy {
    fn is_told_before(&self) -> bool {
        false
    }

    fn written(&self, offset: u64, data: &[u8]) {
        let bytes = &mut self.0.lock().unwrap().0;
        let end = offset as usize + data.len();
        let len = bytes.len().max(end);
        bytes.resize(len, 0);
        bytes[offset as usize..end].copy_from_slice(data);
    }

    fn changed(&self, offset: u64, len: u64) {
        self.0.lock().unwrap().1.push((offset, len));
    }
}

fn told(fs: &FileSystem, file: &Handle) -> Arc<Copy> {
    let copy = Arc::new(Copy::default());
    let mapped: Arc<dyn Mapped> = copy.clone();
    fs.tell(file, &mapped);
    copy
}

#[test]
fn who_keeps_copies_is_told_of_every_change() {
    let pool = TestPool::new(2, 64 << 20);
    let fs = pool.start();
    let (file, other) = (make(&fs, "file"), make(&fs, "other"));
    let copy = told(&fs, &file);
    let mut state = 3;
    for round in 0..300u64 {
        let offset = random(&mut state) % 300_000;
        let data = pattern(round, 1 + random(&mut state) as usize % 9000);
        match round % 3 {
            0 => drop(fs.write(&file, offset, &data).unwrap()),
            1 => drop(fs.append(&file, &data).unwrap()),
            _ => {
                let writes = [write(&file, offset, &data), write(&file, offset + 20_000, &data)];
                fs.commit(&writes, &[]).unwrap();
            }
        }
    }
    assert!(content(&fs, &file) == copy.0.lock().unwrap().0);
    fs.write(&other, 0, &pattern(1, 20_000)).unwrap();
    let changes = || std::mem::take(&mut copy.0.lock().unwrap().1);
    let covers = |all: &[(u64, u64)], from: u64, to: u64| {
        all.iter().any(|(offset, len)| *offset <= from && offset + len >= to)
    };
    assert_eq!(changes(), []);
    fs.fallocate(&file, fs::Fallocate::PunchHole, 5000, 9000).unwrap();
    assert!(covers(&changes(), 5000, 14_000));
    fs.copy((&other, 0), (&file, 8192), 12_288).unwrap();
    assert!(covers(&changes(), 8192, 20_480));
    let size = fs.getattr(file.ino()).unwrap().size;
    let change = fs::SetAttr { size: Some(777), ..fs::SetAttr::default() };
    fs.setattr(file.ino(), &change).unwrap();
    assert!(covers(&changes(), 777, size));
}
