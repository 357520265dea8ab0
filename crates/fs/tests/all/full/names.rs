//! Names, small files and attributes on pools that become full of them.

use crate::common::{BY, TestPool, content, find, names, pattern, random};
use crate::full::{MIB, fill, settled};
use fs::{FileSystem, Ino, NewNode, RenameMode, XattrMode};

fn fits<T>(result: fs::Result<T>, what: &str) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.errno(), libc::ENOSPC, "{what}: {error}");
            false
        }
    }
}

/// Does `one` until it is refused a few times in a row; gives how often it was done.
fn until_full(what: &str, mut one: impl FnMut(u64) -> fs::Result<()>) -> u64 {
    let (mut done, mut refused) = (0, 0);
    while refused < 3 {
        match fits(one(done), what) {
            true => done += 1,
            false => refused += 1,
        }
        assert!(done < 1_000_000, "{what}: never full");
    }
    done
}

fn ends_clean(mut pool: TestPool, fs: FileSystem) -> (TestPool, FileSystem) {
    let fs = pool.killed(fs);
    fs.checkpoint().unwrap();
    (pool, fs)
}

#[test]
fn tiny_files_fill_the_pool_and_give_it_back() {
    let pool = TestPool::new(1, 4 * MIB);
    let fs = pool.start();
    let empty = settled(&fs);
    let made = until_full("tiny file", |number| {
        let name = format!("tiny{number}");
        let attr = fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY)?;
        let written = fs.write(&*fs.open(attr.ino)?, 0, &pattern(number, 100)).map(|_| ());
        if written.is_err() {
            fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
        }
        written
    });
    assert!(made > 1000, "{made} files in 4 MiB");
    let (pool, fs) = ends_clean(pool, fs);
    for number in 0..made {
        assert_eq!(content(&fs, &find(&fs, &format!("tiny{number}"))), pattern(number, 100));
    }
    for name in names(&fs, Ino::ROOT) {
        fs.unlink(Ino::ROOT, &name).unwrap();
    }
    assert_eq!(settled(&fs), empty);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

#[test]
fn empty_files_and_directories_fill_the_pool() {
    let pool = TestPool::new(1, 2 * MIB);
    let fs = pool.start();
    until_full("create", |number| {
        let node = if number % 3 == 0 { NewNode::Directory } else { NewNode::File };
        let name = format!("a name that is rather long, so that the tree grows fast: {number}");
        fs.create(Ino::ROOT, name.as_bytes(), node, BY).map(|_| ())
    });
    drop(ends_clean(pool, fs));
}

#[test]
fn links_and_attributes_fill_the_pool() {
    let pool = TestPool::new(2, MIB);
    let fs = pool.start();
    let ino = fs.create(Ino::ROOT, b"file", NewNode::File, BY).unwrap().ino;
    until_full("link", |number| {
        let name = format!("{number:0>200}");
        fs.link(ino, Ino::ROOT, name.as_bytes()).map(|_| ())
    });
    let (pool, fs) = ends_clean(pool, fs);
    until_full("setxattr", |number| {
        let name = format!("user.{number}");
        fs.setxattr(ino, name.as_bytes(), &[7; 5000], XattrMode::Any)
    });
    let (_pool, fs) = ends_clean(pool, fs);
    for name in names(&fs, Ino::ROOT) {
        fs.unlink(Ino::ROOT, &name).unwrap();
    }
}

/// Names all over a large directory change on a full pool: every change touches another page.
#[test]
fn names_are_changed_and_removed_on_a_full_pool() {
    let pool = TestPool::new(1, 16 * MIB);
    let fs = pool.start();
    let ino = fs.create(Ino::ROOT, b"file", NewNode::File, BY).unwrap().ino;
    let dir = fs.create(Ino::ROOT, b"dir", NewNode::Directory, BY).unwrap().ino;
    let name = |number: u64| format!("{number:0>60}").into_bytes();
    for number in 0..6000 {
        fs.link(ino, dir, &name(number)).unwrap();
    }
    let written = fill(&fs, 0);
    let mut state = 1;
    for _ in 0..3000 {
        let pick = name(random(&mut state) % 6000);
        let other = [&pick[..], b"x"].concat();
        if fits(fs.rename((dir, &pick), (dir, &other), RenameMode::Replace), "rename") {
            fits(fs.rename((dir, &other), (dir, &pick), RenameMode::Replace), "rename back");
        }
    }
    let (pool, fs) = ends_clean(pool, fs);
    for name in names(&fs, dir) {
        fs.unlink(dir, &name).unwrap();
    }
    fs.rmdir(Ino::ROOT, b"dir").unwrap();
    crate::full::intact(&fs, &written);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

#[test]
fn a_directory_of_100_000_entries_is_listed_changed_and_removed() {
    let mut pool = TestPool::new(2, 64 * MIB);
    let fs = pool.start();
    let dir = fs.create(Ino::ROOT, b"dir", NewNode::Directory, BY).unwrap().ino;
    for number in 0..100_000 {
        fs.create(dir, format!("{number}").as_bytes(), NewNode::File, BY).unwrap();
    }
    let fs = pool.killed(fs);
    let mut listed: Vec<u64> =
        names(&fs, dir).iter().map(|n| String::from_utf8_lossy(n).parse().unwrap()).collect();
    listed.sort_unstable();
    assert!(listed.into_iter().eq(0..100_000));
    for number in (0..100_000).step_by(2) {
        fs.unlink(dir, format!("{number}").as_bytes()).unwrap();
    }
    fs.close().unwrap();
    drop(fs);
    let fs = pool.start();
    assert_eq!(names(&fs, dir).len(), 50_000);
    assert_eq!(fs.lookup(dir, b"50000").unwrap_err().errno(), libc::ENOENT);
    assert!(fs.lookup(dir, b"50001").is_ok());
    for number in (1..100_000).step_by(2) {
        fs.unlink(dir, format!("{number}").as_bytes()).unwrap();
    }
    fs.rmdir(Ino::ROOT, b"dir").unwrap();
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}
