//! What DRAM remembers of directories: right after eviction, folds and reopening, and so complete
//! that a directory in use reads no tree page.

use crate::common::{BY, TestPool, names, random, slices};
use fs::{Error, FileSystem, Ino, NewNode, RenameMode};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE_BYTES: usize = 4096;

/// Damages every leaf of the trees but the first, which has the root directory's inode and that of
/// the first directory in it, and those of free space; nor, if given, the one where the extended
/// attributes of `spared` are or would be: nothing is made in a directory whose default ACL cannot
/// be read. Gives their number.
fn damage_leaves(dir: &Path, spared: Option<Ino>) -> usize {
    let mut damaged = 0;
    for path in slices(dir) {
        let image = std::fs::read(&path).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        // "NSTP", version 1, level 0; then slots, with keys of 17 bytes, big-endian (FORMAT.md)
        let leaves: Vec<_> = image
            .chunks_exact(PAGE_BYTES)
            .enumerate()
            .filter(|(_, page)| page[..6] == *b"NSTP\x01\x00")
            .collect();
        let wanted = spared.map(|ino| [&ino.0.to_be_bytes()[..], &[5], &[0; 8]].concat());
        let first_key = |page: &[u8]| page[32..49].to_vec();
        let before = leaves.iter().map(|(_, page)| first_key(page));
        let before = before.filter(|key| wanted.as_ref().is_some_and(|wanted| key <= wanted)).max();
        for (index, page) in leaves {
            let object = u64::from_be_bytes(page[32..40].try_into().unwrap());
            if object > 1 && before != Some(first_key(page)) {
                file.write_all_at(&[!page[2000]], (index * PAGE_BYTES + 2000) as u64).unwrap();
                damaged += 1;
            }
        }
    }
    damaged
}

fn create(fs: &FileSystem, dir: Ino, name: &str) -> Ino {
    fs.create(dir, name.as_bytes(), NewNode::File, BY).unwrap().ino
}

fn absent(fs: &FileSystem, dir: Ino, name: &str) {
    let found = fs.lookup(dir, name.as_bytes());
    assert!(matches!(found, Err(Error::NotFound)), "{name}: {found:?}");
}

/// Makes, moves and removes names in `dir`, none of which was there before.
fn change_names(fs: &FileSystem, dir: Ino) {
    for number in 0..50 {
        let (name, other) = (format!("new-{number}"), format!("other-{number}"));
        absent(fs, dir, &name);
        create(fs, dir, &name);
        fs.rename((dir, name.as_bytes()), (dir, other.as_bytes()), RenameMode::NoReplace).unwrap();
        absent(fs, dir, &name);
        fs.unlink(dir, other.as_bytes()).unwrap();
        absent(fs, dir, &other);
        let sub = fs.create(dir, other.as_bytes(), NewNode::Directory, BY).unwrap().ino;
        create(fs, sub, "file");
        fs.unlink(sub, b"file").unwrap();
        fs.rmdir(dir, other.as_bytes()).unwrap();
    }
}

#[test]
fn a_directory_made_since_open_reads_no_tree_page() {
    let pool = TestPool::new(1, 16 << 20);
    let fs = pool.start_alone();
    let dir = fs.create(Ino::ROOT, b"dir", NewNode::Directory, BY).unwrap().ino;
    for number in 0..600 {
        create(&fs, dir, &format!("file-{number}"));
    }
    fs.checkpoint().unwrap();
    for number in 0..300 {
        fs.unlink(dir, format!("file-{number}").as_bytes()).unwrap();
    }
    fs.checkpoint().unwrap();
    fs.checkpoint().unwrap();
    assert!(damage_leaves(&pool.dir(), None) > 5);
    change_names(&fs, dir);
    for number in 0..300 {
        absent(&fs, dir, &format!("file-{number}"));
        fs.lookup(dir, format!("file-{}", number + 300).as_bytes()).unwrap();
    }
    assert_eq!(names(&fs, dir).len(), 300);
}

#[test]
fn a_directory_that_many_names_were_looked_up_in_reads_no_tree_page() {
    let pool = TestPool::new(1, 16 << 20);
    let fs = pool.start_alone();
    let dir = fs.create(Ino::ROOT, b"dir", NewNode::Directory, BY).unwrap().ino;
    for number in 0..600 {
        create(&fs, dir, &format!("file-{number}"));
    }
    fs.close().unwrap();
    drop(fs);
    let fs = pool.start_alone();
    (0..100).for_each(|number| absent(&fs, dir, &format!("absent-{number}")));
    // pages that are written now were never read
    for number in 0..600 {
        create(&fs, dir, &format!("more-{number}"));
    }
    fs.checkpoint().unwrap();
    assert!(damage_leaves(&pool.dir(), None) > 5);
    change_names(&fs, dir);
    (0..300).for_each(|number| absent(&fs, dir, &format!("absent-{number}")));
    assert_eq!(names(&fs, dir).len(), 1200);
}

#[test]
fn a_damaged_page_is_found_when_it_is_first_read_and_hides_no_other_names() {
    let pool = TestPool::new(1, 16 << 20);
    let fs = pool.start_alone();
    let dir = fs.create(Ino::ROOT, b"dir", NewNode::Directory, BY).unwrap().ino;
    for number in 0..600 {
        create(&fs, dir, &format!("file-{number}"));
    }
    fs.close().unwrap();
    drop(fs);
    assert!(damage_leaves(&pool.dir(), Some(dir)) > 5);
    let fs = pool.start_alone();
    let (mut missing, mut damaged) = (0, 0);
    for number in 0..600 {
        match fs.lookup(dir, format!("absent-{number}").as_bytes()) {
            Err(Error::NotFound) => missing += 1,
            Err(error) if error.to_string().contains("checksum") => damaged += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(missing > 20 && damaged > 300, "{missing} missing, {damaged} damaged");
    let made = (0..600).filter(|number| {
        let name = format!("new-{number}");
        fs.create(dir, name.as_bytes(), NewNode::File, BY).is_ok()
    });
    let made = made.count();
    assert!(made > 20 && made < 300, "{made} names were made where no page is damaged");
}

/// One directory and what it should hold.
struct Tracked {
    dir: Ino,
    model: BTreeMap<String, Ino>,
}

impl Tracked {
    fn step(&mut self, fs: &FileSystem, dice: &mut u64) {
        let name = format!("name-{}", random(dice) % 200);
        let other = format!("name-{}", random(dice) % 200);
        match random(dice) % 8 {
            0..=2 => match fs.create(self.dir, name.as_bytes(), NewNode::File, BY) {
                Ok(attr) => assert_eq!(self.model.insert(name, attr.ino), None),
                Err(Error::Exists) => assert!(self.model.contains_key(&name), "{name}"),
                Err(error) => panic!("{error}"),
            },
            3 | 4 => match fs.unlink(self.dir, name.as_bytes()) {
                Ok(_) => assert!(self.model.remove(&name).is_some(), "{name}"),
                Err(Error::NotFound) => assert!(!self.model.contains_key(&name), "{name}"),
                Err(error) => panic!("{error}"),
            },
            5 => {
                let (from, to) = ((self.dir, name.as_bytes()), (self.dir, other.as_bytes()));
                match fs.rename(from, to, RenameMode::Replace) {
                    Ok(_) => {
                        let ino = self.model.remove(&name).expect("it was there");
                        self.model.insert(other, ino);
                    }
                    Err(Error::NotFound) => assert!(!self.model.contains_key(&name), "{name}"),
                    Err(error) => panic!("{error}"),
                }
            }
            _ => {
                let found = fs.lookup(self.dir, name.as_bytes()).map(|attr| attr.ino).ok();
                assert_eq!(found, self.model.get(&name).copied(), "{name}");
            }
        }
    }

    fn compare(&self, fs: &FileSystem) {
        let listed: BTreeSet<Vec<u8>> = names(fs, self.dir).into_iter().collect();
        let expected: BTreeSet<Vec<u8>> = self.model.keys().map(|n| n.clone().into()).collect();
        assert_eq!(listed, expected);
    }
}

/// Memory for 0, 40 and all of the entries: the first two evict at every checkpoint.
#[test]
fn names_are_right_after_eviction_folds_and_restarts() {
    for memory_bytes in [0, 40 * 1024, 1 << 30] {
        let mut pool = TestPool::new(1, 16 << 20);
        pool.open.memory_bytes = Some(memory_bytes);
        let mut fs = pool.start_alone();
        let mut dice = 77 + memory_bytes;
        let mut tracked: Vec<Tracked> = ["a", "b"]
            .iter()
            .map(|name| Tracked {
                dir: fs.create(Ino::ROOT, name.as_bytes(), NewNode::Directory, BY).unwrap().ino,
                model: BTreeMap::new(),
            })
            .collect();
        for round in 0..60 {
            for _ in 0..random(&mut dice) % 120 {
                let which = (random(&mut dice) % 4 / 3) as usize;
                tracked[which].step(&fs, &mut dice);
            }
            match round % 10 {
                3 => {
                    pool.kill();
                    drop(fs);
                    fs = pool.start_alone();
                }
                7 => {
                    fs.close().unwrap();
                    drop(fs);
                    pool.assert_clean();
                    fs = pool.start_alone();
                }
                _ => fs.checkpoint().unwrap(),
            }
            tracked.iter().for_each(|one| one.compare(&fs));
        }
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
    }
}
