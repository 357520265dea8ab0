//! Names made, linked, moved and removed by many threads in directories that they share.

use crate::common::{BY, TestPool, names, random};
use crate::stress::{Clock, pool};
use fs::{FileSystem, Ino, NewNode, RenameMode};
use std::time::Duration;

/// After a kill everything is as it was, and clean.
fn killed(mut pool: TestPool, fs: FileSystem) -> (TestPool, FileSystem) {
    let fs = pool.killed(fs);
    (pool, fs)
}

#[test]
fn a_name_that_is_replaced_by_rename_is_there_all_the_time() {
    let pool = pool(None);
    let fs = pool.start();
    fs.create(Ino::ROOT, b"name", NewNode::File, BY).unwrap();
    let clock = Clock::start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while clock.runs() {
                fs.create(Ino::ROOT, b"new", NewNode::File, BY).unwrap();
                fs.rename((Ino::ROOT, b"new"), (Ino::ROOT, b"name"), RenameMode::Replace).unwrap();
            }
        });
        scope.spawn(|| {
            for round in 0u64.. {
                if !clock.runs() {
                    break;
                }
                let found = fs.lookup(Ino::ROOT, b"name");
                assert!(found.is_ok(), "lookup {round}: {}", found.unwrap_err());
            }
        });
    });
    drop(killed(pool, fs));
}

#[test]
fn a_name_and_how_many_its_inode_has_are_of_one_moment() {
    let pool = pool(None);
    let fs = pool.start();
    let ino = fs.create(Ino::ROOT, b"name", NewNode::File, BY).unwrap().ino;
    let clock = Clock::start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while clock.runs() {
                // where `other` is, `name` is
                fs.link(ino, Ino::ROOT, b"other").unwrap();
                fs.unlink(Ino::ROOT, b"other").unwrap();
            }
        });
        scope.spawn(|| {
            let mut seen = 0;
            while clock.runs() || seen == 0 {
                if let Ok(found) = fs.lookup(Ino::ROOT, b"other") {
                    seen += 1;
                    assert_eq!(found.links, 2, "of a name that has gone");
                }
            }
        });
    });
    drop(killed(pool, fs));
}

#[test]
fn a_link_to_a_name_that_is_replaced_by_rename_never_misses_it() {
    let pool = pool(None);
    let fs = pool.start();
    fs.create(Ino::ROOT, b"name", NewNode::File, BY).unwrap();
    let clock = Clock::start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while clock.runs() {
                fs.create(Ino::ROOT, b"new", NewNode::File, BY).unwrap();
                fs.rename((Ino::ROOT, b"new"), (Ino::ROOT, b"name"), RenameMode::Replace).unwrap();
            }
        });
        scope.spawn(|| {
            while clock.runs() {
                // there and back again: `name` is there at every moment, by either thread
                fs.create(Ino::ROOT, b"other", NewNode::File, BY).unwrap();
                let ends = ((Ino::ROOT, &b"other"[..]), (Ino::ROOT, &b"name"[..]));
                let swapped = fs.rename(ends.0, ends.1, RenameMode::Exchange);
                assert!(swapped.is_ok(), "exchange: {}", swapped.unwrap_err());
                fs.unlink(Ino::ROOT, b"other").unwrap();
            }
        });
    });
    drop(killed(pool, fs));
}

#[test]
fn a_directory_that_gets_an_entry_is_not_replaced_by_rename() {
    let pool = pool(None);
    let fs = pool.start();
    let make =
        |name: String| fs.create(Ino::ROOT, name.as_bytes(), NewNode::Directory, BY).unwrap().ino;
    let targets: Vec<Ino> = (0..10_000).map(|i| make(format!("target{i}"))).collect();
    (0..10_000).for_each(|i| {
        make(format!("moved{i}"));
    });
    crate::stress::meet(
        targets.len(),
        |i| {
            let (from, to) = (format!("moved{i}"), format!("target{i}"));
            let ends = ((Ino::ROOT, from.as_bytes()), (Ino::ROOT, to.as_bytes()));
            if let Err(error) = fs.rename(ends.0, ends.1, RenameMode::Replace) {
                assert_eq!(error.errno(), libc::ENOTEMPTY);
            }
        },
        |i| {
            if let Err(error) = fs.create(targets[i], b"inside", NewNode::File, BY) {
                assert_eq!(error.errno(), libc::ENOENT);
            }
        },
    );
    drop(killed(pool, fs));
}

/// Each thread works on names of its own in directories that all share, and knows what is there.
#[test]
fn counts_of_shared_directories_are_those_of_what_the_threads_did() {
    let pool = pool(Some(200_000));
    let fs = pool.start();
    let clock = Clock::start();
    let dirs: Vec<Ino> = (0..4)
        .map(|i| fs.create(Ino::ROOT, &[b'd', b'0' + i], NewNode::Directory, BY).unwrap().ino)
        .collect();
    let left: Vec<Vec<(Ino, Vec<u8>)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3u64)
            .map(|thread| {
                let (fs, dirs, clock) = (&fs, &dirs, &clock);
                scope.spawn(move || churn(fs, dirs, clock, thread))
            })
            .collect();
        scope.spawn(|| clock.checkpoints(&fs, Duration::from_millis(5)));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let same = |fs: &FileSystem| {
        for dir in &dirs {
            let own = left.iter().flatten().filter(|(own, _)| own == dir);
            let mut expected: Vec<Vec<u8>> = own.map(|(_, name)| name.clone()).collect();
            expected.sort();
            let mut found = names(fs, *dir);
            found.sort();
            assert_eq!(found.len(), expected.len());
            assert_eq!(found, expected);
            assert_eq!(fs.getattr(*dir).unwrap().size, expected.len() as u64 * 32);
        }
    };
    same(&fs);
    let (_pool, fs) = killed(pool, fs);
    same(&fs);
}

fn churn(fs: &FileSystem, dirs: &[Ino], clock: &Clock, thread: u64) -> Vec<(Ino, Vec<u8>)> {
    let mut state = thread + 77;
    let mut own: Vec<(Ino, Vec<u8>)> = Vec::new();
    let mut count = 0u64;
    while clock.runs() {
        let dice = random(&mut state);
        let dir = dirs[(dice >> 8) as usize % dirs.len()];
        count += 1;
        let name = format!("{thread}-{count}").into_bytes();
        let picked = (dice >> 16) as usize % own.len().max(1);
        match dice % 6 {
            0 | 1 => {
                fs.create(dir, &name, NewNode::File, BY).unwrap();
                own.push((dir, name));
            }
            2 if !own.is_empty() => {
                let (from, old) = own.swap_remove(picked);
                fs.unlink(from, &old).unwrap();
            }
            3 if !own.is_empty() => {
                let (from, old) = own[picked].clone();
                let ino = fs.lookup(from, &old).unwrap().ino;
                fs.link(ino, dir, &name).unwrap();
                own.push((dir, name));
            }
            4 if !own.is_empty() => {
                let (from, old) = own.swap_remove(picked);
                fs.rename((from, &old), (dir, &name), RenameMode::NoReplace).unwrap();
                own.push((dir, name));
            }
            5 if own.len() > 1 => {
                let (from, old) = own.swap_remove(picked);
                let (to, over) = own[picked % own.len()].clone();
                let same = fs.lookup(from, &old).unwrap().ino == fs.lookup(to, &over).unwrap().ino;
                fs.rename((from, &old), (to, &over), RenameMode::Replace).unwrap();
                if same {
                    own.push((from, old));
                }
            }
            _ => {}
        }
    }
    own
}

#[test]
fn directories_moved_into_each_other_by_two_threads_never_make_a_circle() {
    let pool = pool(None);
    let fs = pool.start();
    let clock = Clock::start();
    let a = fs.create(Ino::ROOT, b"a", NewNode::Directory, BY).unwrap().ino;
    let b = fs.create(Ino::ROOT, b"b", NewNode::Directory, BY).unwrap().ino;
    std::thread::scope(|scope| {
        for (own, own_name, other) in [(a, b"a", b), (b, b"b", a)] {
            let (fs, clock) = (&fs, &clock);
            scope.spawn(move || {
                while clock.runs() {
                    let ends = ((Ino::ROOT, &own_name[..]), (other, &own_name[..]));
                    if fs.rename(ends.0, ends.1, RenameMode::Replace).is_ok() {
                        assert_eq!(fs.lookup(own, b"..").unwrap().ino, other);
                        fs.rename(ends.1, ends.0, RenameMode::Replace).unwrap();
                    }
                }
            });
        }
    });
    drop(killed(pool, fs));
}
