//! Absurd arguments.

use crate::common::{BY, SOON, TestPool, make, names, watched};
use fs::{Fallocate, FileKind, Ino, NewNode, RenameMode, SetAttr, XattrMode};
use std::time::Duration;

const ABSURD: [u64; 6] = [u64::MAX, u64::MAX - 4095, 1 << 63, (1 << 63) - 1, 1 << 60, 64 << 40];

#[test]
fn absurd_offsets_and_sizes_are_refused_or_empty() {
    let pool = TestPool::new(1, 4 << 20);
    let fs = pool.start();
    let handle = make(&fs, "file");
    fs.write(&handle, 0, b"content").unwrap();
    for offset in ABSURD {
        assert_eq!(fs.read(&handle, offset, &mut [0; 10]).unwrap(), 0);
        assert_eq!(fs.write(&handle, offset, b"x").unwrap_err().errno(), libc::EFBIG);
        for data in [true, false] {
            assert_eq!(fs.seek(&handle, offset, data).unwrap_err().errno(), libc::ENXIO);
        }
        for mode in [
            Fallocate::PunchHole,
            Fallocate::Zero { keep_size: false },
            Fallocate::Allocate { keep_size: false },
        ] {
            let refused = fs.fallocate(&handle, mode, offset, u64::MAX).unwrap_err();
            assert_eq!(refused.errno(), libc::EFBIG);
            let refused = fs.fallocate(&handle, mode, u64::MAX, offset).unwrap_err();
            assert_eq!(refused.errno(), libc::EFBIG);
        }
        if offset > fs::FILE_BYTES_MAX {
            let change = SetAttr { size: Some(offset), ..SetAttr::default() };
            assert_eq!(fs.setattr(handle.ino(), &change).unwrap_err().errno(), libc::EFBIG);
        }
    }
    assert_eq!(fs.getattr(handle.ino()).unwrap().size, 7);
}

#[test]
fn the_last_byte_of_the_largest_file_is_written_read_and_cut_off() {
    let pool = TestPool::new(1, 4 << 20);
    let fs = pool.start();
    let handle = make(&fs, "file");
    let last = fs::FILE_BYTES_MAX - 1;
    fs.write(&handle, last, b"z").unwrap();
    fs.checkpoint().unwrap();
    let mut byte = [0; 8];
    assert_eq!(fs.read(&handle, last, &mut byte).unwrap(), 1);
    assert_eq!(byte[0], b'z');
    assert_eq!(fs.append(&handle, b"more").unwrap_err().errno(), libc::EFBIG);
    assert_eq!(fs.seek(&handle, 0, true).unwrap(), last & !4095);
    let change = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.setattr(handle.ino(), &change).unwrap();
    drop(handle);
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

/// What is punched is mostly hole already: that must cost nothing, not a look at each leaf.
#[test]
fn punching_the_largest_file_takes_no_longer_than_what_is_in_it() {
    watched(SOON, "punch", || {
        let before = cpu_time();
        let pool = TestPool::new(1, 4 << 20);
        let fs = pool.start();
        let handle = make(&fs, "file");
        for offset in [0, 1 << 30, 5 << 40, fs::FILE_BYTES_MAX - 1] {
            fs.write(&handle, offset, b"z").unwrap();
        }
        fs.checkpoint().unwrap();
        fs.fallocate(&handle, Fallocate::PunchHole, 0, fs::FILE_BYTES_MAX).unwrap();
        assert_eq!(fs.seek(&handle, 0, true).unwrap_err().errno(), libc::ENXIO);
        assert_eq!(fs.seek(&handle, 5, false).unwrap(), 5);
        // A look at each leaf would cost CPU time, which a busy machine does not stretch.
        let used = cpu_time() - before;
        assert!(used < Duration::from_secs(5), "{used:?}");
    });
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

#[test]
fn a_cookie_that_readdir_never_gave_lists_what_comes_after_it() {
    let pool = TestPool::new(1, 4 << 20);
    let fs = pool.start();
    make(&fs, "file");
    for cookie in [u64::MAX, u64::MAX - 1, 1 << 63, i64::MAX as u64, 1, 255] {
        let mut seen = 0;
        fs.readdir(Ino::ROOT, cookie, &mut |entry| {
            assert!(entry.cookie > cookie);
            seen += 1;
            true
        })
        .unwrap();
        assert_eq!(seen, u32::from(cookie < 256), "cookie {cookie}");
    }
}

#[test]
fn names_that_cannot_be_are_refused_by_every_call() {
    let pool = TestPool::new(1, 4 << 20);
    let fs = pool.start();
    let ino = make(&fs, "file").ino();
    let long = [b'x'; 256];
    let bad: [(&[u8], i32); 5] = [
        (b"", libc::EINVAL),
        (b"a/b", libc::EINVAL),
        (b"/", libc::EINVAL),
        (b"a\0", libc::EINVAL),
        (&long, libc::ENAMETOOLONG),
    ];
    for (name, errno) in bad {
        let here = (Ino::ROOT, name);
        let file = (Ino::ROOT, &b"file"[..]);
        let answers = [
            fs.create(Ino::ROOT, name, NewNode::File, BY).map(|_| ()),
            fs.create(Ino::ROOT, name, NewNode::Directory, BY).map(|_| ()),
            fs.unlink(Ino::ROOT, name).map(|_| ()),
            fs.rmdir(Ino::ROOT, name).map(|_| ()),
            fs.link(ino, Ino::ROOT, name).map(|_| ()),
            fs.rename(here, file, RenameMode::Replace).map(|_| ()),
            fs.rename(file, here, RenameMode::Exchange).map(|_| ()),
        ];
        for (call, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.unwrap_err().errno(), errno, "call {call}, name {name:?}");
        }
        assert!(fs.lookup(Ino::ROOT, name).is_err());
    }
    fs.create(Ino::ROOT, &long[..255], NewNode::File, BY).unwrap();
    assert_eq!(names(&fs, Ino::ROOT).len(), 2);
}

#[test]
fn inodes_that_are_not_there_are_not_found() {
    let pool = TestPool::new(2, 4 << 20);
    let fs = pool.start();
    for ino in [0, 2, 255, 256, 257, 511, 1 << 40 | 1, 1 << 40 | 200, u64::MAX, u64::MAX - 255] {
        let ino = Ino(ino);
        let answers = [
            fs.getattr(ino).map(|_| ()),
            fs.open(ino).map(|_| ()),
            fs.lookup(ino, b"x").map(|_| ()),
            fs.lookup(ino, b"..").map(|_| ()),
            fs.setattr(ino, &SetAttr::default()).map(|_| ()),
            fs.create(ino, b"x", NewNode::File, BY).map(|_| ()),
            fs.link(ino, Ino::ROOT, b"x").map(|_| ()),
            fs.readlink(ino).map(|_| ()),
            fs.readdir(ino, 0, &mut |_| true),
            fs.setxattr(ino, b"user.x", b"", XattrMode::Any),
            fs.getxattr(ino, b"user.x").map(|_| ()),
            fs.parent(ino).map(|_| ()),
        ];
        for (call, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.unwrap_err().errno(), libc::ENOENT, "call {call}, inode {}", ino.0);
        }
    }
}

/// Whatever is asked of the wrong kind of inode is refused, and changes nothing.
#[test]
fn data_calls_on_what_holds_no_data_are_refused_and_change_nothing() {
    let pool = TestPool::new(1, 4 << 20);
    let fs = pool.start();
    let nodes = [
        NewNode::Directory,
        NewNode::Symlink(b"target"),
        NewNode::Special(FileKind::Fifo, 0),
        NewNode::Special(FileKind::CharDevice, 5),
    ];
    let mut made = vec![Ino::ROOT];
    for (number, node) in nodes.into_iter().enumerate() {
        let name = format!("n{number}");
        made.push(fs.create(Ino::ROOT, name.as_bytes(), node, BY).unwrap().ino);
    }
    for ino in &made {
        let handle = fs.open(*ino).unwrap();
        let before = fs.getattr(*ino).unwrap();
        let mut refused = vec![
            ("write", fs.write(&handle, 0, b"x").map(|_| ())),
            ("append", fs.append(&handle, b"x").map(|_| ())),
            ("read", fs.read(&handle, 0, &mut [0; 3]).map(|_| ())),
            ("seek", fs.seek(&handle, 0, true).map(|_| ())),
        ];
        for mode in [
            Fallocate::PunchHole,
            Fallocate::Zero { keep_size: false },
            Fallocate::Allocate { keep_size: false },
        ] {
            refused.push(("fallocate", fs.fallocate(&handle, mode, 0, 10_000)));
        }
        let change = SetAttr { size: Some(1), ..SetAttr::default() };
        refused.push(("truncate", fs.setattr(*ino, &change).map(|_| ())));
        let done: Vec<&str> = refused.iter().filter(|(_, r)| r.is_ok()).map(|(n, _)| *n).collect();
        assert!(done.is_empty(), "{:?}: {done:?} succeeded", before.kind);
        assert_eq!(fs.getattr(*ino).unwrap(), before);
    }
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

#[test]
fn a_file_as_the_directory_of_a_new_name_is_refused() {
    let pool = TestPool::new(1, 4 << 20);
    let fs = pool.start();
    let file = make(&fs, "file").ino();
    let other = make(&fs, "other").ino();
    let inside = (file, &b"x"[..]);
    let answers = [
        fs.create(file, b"x", NewNode::File, BY).map(|_| ()),
        fs.link(other, file, b"x").map(|_| ()),
        fs.link(file, file, b"x").map(|_| ()),
        fs.unlink(file, b"x").map(|_| ()),
        fs.rename((Ino::ROOT, b"other"), inside, RenameMode::Replace).map(|_| ()),
        fs.rename((Ino::ROOT, b"file"), inside, RenameMode::Replace).map(|_| ()),
        fs.rename(inside, (Ino::ROOT, b"file"), RenameMode::Replace).map(|_| ()),
        fs.readdir(file, 0, &mut |_| true),
        fs.lookup(file, b"..").map(|_| ()),
    ];
    for (call, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.unwrap_err().errno(), libc::ENOTDIR, "call {call}");
    }
}

#[test]
fn an_attribute_that_does_not_fit_is_refused_and_the_old_one_stays() {
    let pool = TestPool::new(1, 4 << 20);
    let fs = pool.start();
    let ino = make(&fs, "file").ino();
    fs.setxattr(ino, b"user.x", b"old", XattrMode::Any).unwrap();
    for len in [65_537, 65_536, 1 << 20] {
        let refused = fs.setxattr(ino, b"user.x", &vec![1; len], XattrMode::Any).unwrap_err();
        assert!([libc::ERANGE, libc::E2BIG, libc::ENOSPC].contains(&refused.errno()));
        assert_eq!(fs.getxattr(ino, b"user.x").unwrap(), b"old");
    }
    for name in [&b""[..], &[b'x'; 256]] {
        assert!(fs.setxattr(ino, name, b"", XattrMode::Any).is_err());
    }
    fs.setxattr(ino, &[b'x'; 255], b"", XattrMode::Any).unwrap();
}
