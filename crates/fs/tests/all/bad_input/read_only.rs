//! Pools opened for reading only: they show everything, also what only the log holds, and change
//! nothing.

use crate::common::{BY, TestPool, candidates, content, find, names, pattern, slices};
use fs::{Fallocate, FileSystem, Ino, NewNode, RenameMode, SetAttr, XattrMode};
use pool::OpenOptions;
use std::path::Path;

const LONG: [u8; 3000] = [b'l'; 3000];

pub fn build(fs: &FileSystem) {
    let file = crate::common::make(fs, "file");
    fs.write(&file, 5000, &pattern(1, 20_000)).unwrap();
    fs.write(&file, 100, b"small").unwrap();
    fs.setxattr(file.ino(), b"user.a", b"value", XattrMode::Any).unwrap();
    fs.create(Ino::ROOT, b"short", NewNode::Symlink(b"target"), BY).unwrap();
    fs.create(Ino::ROOT, b"long", NewNode::Symlink(&LONG), BY).unwrap();
    fs.create(Ino::ROOT, b"dir", NewNode::Directory, BY).unwrap();
    fs.create(Ino::ROOT, b"gone", NewNode::File, BY).unwrap();
    fs.unlink(Ino::ROOT, b"gone").unwrap();
}

/// Everything that `build` made is shown.
pub fn shown(fs: &FileSystem) {
    let mut expected = vec![0; 25_000];
    expected[5000..].copy_from_slice(&pattern(1, 20_000));
    expected[100..105].copy_from_slice(b"small");
    let file = find(fs, "file");
    assert!(content(fs, &file) == expected);
    assert_eq!(fs.getxattr(file.ino(), b"user.a").unwrap(), b"value");
    assert_eq!(fs.listxattr(file.ino()).unwrap(), [b"user.a"]);
    let target = |name: &[u8]| fs.readlink(fs.lookup(Ino::ROOT, name).unwrap().ino).unwrap();
    assert_eq!(target(b"short"), b"target");
    assert_eq!(target(b"long"), LONG);
    assert_eq!(names(fs, Ino::ROOT).len(), 4);
}

fn refuses_changes(fs: &FileSystem) {
    let file = find(fs, "file");
    let ends = ((Ino::ROOT, &b"file"[..]), (Ino::ROOT, &b"other"[..]));
    let answers = [
        fs.write(&file, 0, b"x").map(|_| ()),
        fs.append(&file, b"x").map(|_| ()),
        fs.fallocate(&file, Fallocate::PunchHole, 0, 10),
        fs.setattr(file.ino(), &SetAttr { size: Some(1), ..SetAttr::default() }).map(|_| ()),
        fs.setattr(file.ino(), &SetAttr { mode: Some(0), ..SetAttr::default() }).map(|_| ()),
        fs.create(Ino::ROOT, b"new", NewNode::File, BY).map(|_| ()),
        fs.link(file.ino(), Ino::ROOT, b"new").map(|_| ()),
        fs.unlink(Ino::ROOT, b"file").map(|_| ()),
        fs.rmdir(Ino::ROOT, b"dir").map(|_| ()),
        fs.rename(ends.0, ends.1, RenameMode::Replace).map(|_| ()),
        fs.setxattr(file.ino(), b"user.b", b"", XattrMode::Any),
        fs.removexattr(file.ino(), b"user.a"),
    ];
    for (call, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.unwrap_err().errno(), libc::EROFS, "call {call}");
    }
}

pub fn images(dir: &Path) -> Vec<Vec<u8>> {
    slices(dir).iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn read_only(pool: &TestPool) {
    let before = images(&pool.dir());
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let fs = FileSystem::open_pool(&pool.dir(), &options).unwrap();
    shown(&fs);
    refuses_changes(&fs);
    shown(&fs);
    let second = candidates(&pool.dir(), true).unwrap();
    shown(&FileSystem::open_candidates(second, &options, false).unwrap());
    fs.close().unwrap();
    drop(fs);
    assert!(images(&pool.dir()) == before, "a pool opened for reading was changed");
}

#[test]
fn a_closed_pool_opened_for_reading_shows_everything_and_changes_nothing() {
    let pool = TestPool::new(2, 4 << 20);
    let fs = pool.start();
    build(&fs);
    fs.close().unwrap();
    drop(fs);
    read_only(&pool);
}

#[test]
fn a_killed_pool_opened_for_reading_shows_everything_and_changes_nothing() {
    let pool = TestPool::new(2, 4 << 20);
    let fs = pool.start();
    build(&fs);
    drop(fs);
    read_only(&pool);
}
