//! A million names in one directory: made, listed while others come and go, found, removed.

use crate::common::{BY, TestPool, random};
use fs::{Error, FileSystem, Ino, NewNode};

const NAMES: u32 = 1_000_000;
/// Names that one call of a listing gives, as the kernel takes them.
const LISTED_AT_ONCE: usize = 500;
/// A multiple of this is removed while the directory is listed.
const REMOVED: u32 = 7;

fn name(number: u32) -> String {
    format!("file-{number}")
}

/// How often each of the first names was seen; `between` is called between two calls.
fn list(fs: &FileSystem, dir: Ino, mut between: impl FnMut(u64)) -> Vec<u8> {
    let mut seen = vec![0; NAMES as usize];
    let (mut cookie, mut calls) = (0, 0);
    loop {
        let mut given = 0;
        fs.readdir(dir, cookie, &mut |entry| {
            if given == LISTED_AT_ONCE {
                return false;
            }
            given += 1;
            cookie = entry.cookie;
            let number = std::str::from_utf8(&entry.name).unwrap().strip_prefix("file-");
            if let Some(number) = number {
                seen[number.parse::<usize>().unwrap()] += 1;
            }
            true
        })
        .unwrap();
        if given == 0 {
            return seen;
        }
        between(calls);
        calls += 1;
    }
}

#[test]
fn a_million_names_in_one_directory() {
    let pool = TestPool::new(2, 640 << 20);
    let fs = pool.start();
    let dir = fs.create(Ino::ROOT, b"dir", NewNode::Directory, BY).unwrap().ino;
    for number in 0..NAMES {
        fs.create(dir, name(number).as_bytes(), NewNode::File, BY).unwrap();
    }
    fs.close().unwrap();
    drop(fs);

    let fs = pool.start();
    // What is there throughout is seen once, what goes or comes meanwhile at most once.
    let mut removed = 0;
    let seen = list(&fs, dir, |call| {
        for number in (removed..NAMES).step_by(REMOVED as usize).take(100) {
            fs.unlink(dir, name(number).as_bytes()).unwrap();
            removed = number + REMOVED;
        }
        fs.create(dir, format!("new-{call}").as_bytes(), NewNode::File, BY).unwrap();
    });
    assert!(removed > NAMES / 3, "{removed}");
    for (number, times) in seen.iter().enumerate() {
        let stayed = !(number as u32).is_multiple_of(REMOVED) || number as u32 >= removed;
        assert!(*times == 1 || (!stayed && *times == 0), "{number}: {times} times");
    }

    let mut dice = 1;
    for _ in 0..20_000 {
        let number = (random(&mut dice) % u64::from(NAMES)) as u32;
        let gone = number.is_multiple_of(REMOVED) && number < removed;
        match fs.lookup(dir, name(number).as_bytes()) {
            Ok(_) => assert!(!gone, "{number}"),
            Err(error) => assert!(gone && matches!(error, Error::NotFound), "{number}: {error}"),
        }
    }
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();

    let fs = pool.start();
    let seen = list(&fs, dir, |_| ());
    for (number, times) in seen.iter().enumerate() {
        let gone = (number as u32).is_multiple_of(REMOVED) && (number as u32) < removed;
        assert_eq!(*times, u8::from(!gone), "{number}");
        if *times == 1 {
            fs.unlink(dir, name(number as u32).as_bytes()).unwrap();
        }
    }
    fs.close().unwrap();
    drop(fs);
}
