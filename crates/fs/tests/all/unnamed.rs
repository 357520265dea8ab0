//! Files without a name: gone with their last handle, unless they are given one.

use crate::common::{BY, TestPool, content, find, make, pattern};
use fs::{Caller, Creation, FileSystem, Ino, NewNode, SetAttr, TakeOver};

const MIB: u64 = 1 << 20;

fn errno<T: std::fmt::Debug>(result: fs::Result<T>) -> i32 {
    result.unwrap_err().errno()
}

/// A file without a name that holds `data`.
fn unnamed(fs: &FileSystem, data: &[u8]) -> std::sync::Arc<fs::Handle> {
    let (attr, handle) = fs.create_unnamed(Ino::ROOT, BY).unwrap();
    assert_eq!((attr.links, attr.size, attr.mode), (0, 0, 0o644));
    fs.write(&handle, 0, data).unwrap();
    handle
}

#[test]
fn it_is_gone_with_its_last_handle_and_so_is_its_space() {
    let pool = TestPool::new(2, 8 * MIB);
    let fs = pool.start_alone();
    let before = fs.statfs();
    for checkpoint in [false, true] {
        let handle = unnamed(&fs, &pattern(1, 100_000));
        let other = fs.open(handle.ino()).unwrap();
        if checkpoint {
            fs.checkpoint().unwrap();
        }
        drop(handle);
        assert_eq!(content(&fs, &other), pattern(1, 100_000));
        let ino = other.ino();
        drop(other);
        assert_eq!(errno(fs.getattr(ino)), libc::ENOENT);
        assert_eq!(errno(fs.link(ino, Ino::ROOT, b"late")), libc::ENOENT);
    }
    fs.checkpoint().unwrap();
    fs.checkpoint().unwrap();
    assert_eq!(fs.statfs().inodes, before.inodes);
    fs.close().unwrap();
    drop(fs);
    let report = pool.assert_clean();
    assert_eq!((report.inodes, report.blocks), (1, 0));
}

/// Its opener may still give it a name when the next server has taken over.
#[test]
fn one_that_is_kept_over_a_crash_can_still_be_named() {
    for folded in [false, true] {
        let mut pool = TestPool::new(2, 8 * MIB);
        let fs = pool.start_alone();
        let handle = unnamed(&fs, &pattern(5, 50_000));
        let removed = fs.create(Ino::ROOT, b"removed", NewNode::File, BY).unwrap().ino;
        let open = fs.open(removed).unwrap();
        fs.unlink(Ino::ROOT, b"removed").unwrap();
        let ino = handle.ino();
        if folded {
            fs.checkpoint().unwrap();
        }
        pool.kill();
        drop((handle, open, fs));
        let fs = pool.take_over(&TakeOver { keep_orphans: true, ..TakeOver::default() });
        assert!(matches!(fs.link(removed, Ino::ROOT, b"again"), Err(fs::Error::NotFound)));
        assert_eq!(fs.link(ino, Ino::ROOT, b"named").unwrap().links, 1);
        fs.release_orphan(ino).unwrap();
        assert_eq!(content(&fs, &find(&fs, "named")), pattern(5, 50_000));
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
    }
}

#[test]
fn a_crash_takes_it_and_leaves_one_that_was_given_a_name() {
    for (before, after) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut pool = TestPool::new(2, 8 * MIB);
        let fs = pool.start_alone();
        let kept = unnamed(&fs, &pattern(2, 50_000));
        let lost = unnamed(&fs, &pattern(3, 50_000));
        if before {
            fs.checkpoint().unwrap();
        }
        let attr = fs.link(kept.ino(), Ino::ROOT, b"kept").unwrap();
        assert_eq!((attr.links, attr.ino), (1, kept.ino()));
        if after {
            fs.checkpoint().unwrap();
        }
        pool.kill();
        drop((kept, lost, fs));
        pool.assert_clean();
        let fs = pool.start_alone();
        assert_eq!(fs.statfs().inodes, 2, "the root and the one with a name");
        let handle = find(&fs, "kept");
        assert_eq!(content(&fs, &handle), pattern(2, 50_000));
        let ino = handle.ino();
        drop(handle);
        fs.getattr(ino).unwrap();
        fs.close().unwrap();
        drop(fs);
        pool.assert_clean();
    }
}

#[test]
fn a_name_is_given_once_to_one_that_never_had_any() {
    let pool = TestPool::new(1, 8 * MIB);
    let fs = pool.start_alone();
    let handle = unnamed(&fs, b"content");
    fs.link(handle.ino(), Ino::ROOT, b"one").unwrap();
    drop(handle);
    let handle = find(&fs, "one");
    assert_eq!(content(&fs, &handle), b"content", "closed, but named");
    assert_eq!(fs.link(handle.ino(), Ino::ROOT, b"two").unwrap().links, 2);
    assert_eq!(fs.unlink(Ino::ROOT, b"one").unwrap(), None);
    let left = fs.unlink(Ino::ROOT, b"two").unwrap().unwrap();
    assert_eq!((left.ino, left.links, left.size), (handle.ino(), 0, 7));
    assert_eq!(errno(fs.link(handle.ino(), Ino::ROOT, b"again")), libc::ENOENT);
    let plain = make(&fs, "plain");
    fs.unlink(Ino::ROOT, b"plain").unwrap();
    assert_eq!(errno(fs.link(plain.ino(), Ino::ROOT, b"again")), libc::ENOENT);
    drop((handle, plain));
    fs.close().unwrap();
    drop(fs);
    assert_eq!(pool.assert_clean().inodes, 1);
}

#[test]
fn it_inherits_from_the_directory_and_obeys_the_umask() {
    let pool = TestPool::new(1, 8 * MIB);
    let fs = pool.start_alone();
    let change = SetAttr { mode: Some(0o2777), gid: Some(55), ..SetAttr::default() };
    fs.setattr(Ino::ROOT, &change).unwrap();
    let by = Creation { mode: 0o666, umask: 0o027, uid: 3, gid: 4 };
    let (attr, handle) = fs.create_unnamed(Ino::ROOT, by).unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid), (0o640, 3, 55));
    assert_eq!(errno(fs.create_unnamed(handle.ino(), by)), libc::ENOTDIR);
}

#[test]
fn it_is_made_by_callers_who_may_make_names_and_acts_for_no_group_but_theirs() {
    let pool = TestPool::new(1, 8 * MIB);
    let fs = pool.start_alone();
    let settle = |mode| {
        let change = SetAttr { mode: Some(mode), gid: Some(55), ..SetAttr::default() };
        fs.setattr(Ino::ROOT, &change).unwrap();
    };
    let by = Creation { mode: 0o6755, umask: 0, uid: 0, gid: 0 };
    let made = |groups: &[u32]| {
        let caller = Caller::new(3, 4, groups.to_vec());
        fs.for_caller(Some(&caller)).create_unnamed(Ino::ROOT, by).map(|(attr, _)| attr)
    };
    settle(0o2777);
    let attr = made(&[]).unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid), (0o4755, 3, 55));
    assert_eq!(made(&[55]).unwrap().mode, 0o6755);
    settle(0o2775);
    assert_eq!(errno(made(&[])), libc::EACCES);
    assert!(made(&[55]).is_ok());
}
