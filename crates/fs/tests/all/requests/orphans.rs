//! Inodes without a name that a client still holds when the server is killed.

use crate::common::{BY, content, make, pattern};
use crate::requests::kill::{Server, assert_clean, formatted};
use fs::{Fallocate, FileSystem, Ino, NewNode, SetAttr, TakeOver, XattrMode};

fn keep() -> TakeOver {
    TakeOver { keep_orphans: true, ..TakeOver::default() }
}

fn gone(fs: &FileSystem, ino: Ino) -> bool {
    matches!(fs.getattr(ino), Err(fs::Error::NotFound)) && fs.open(ino).is_err()
}

/// Bytes of the file: more than a leaf of its map, the last block not whole.
const BYTES: usize = 700_001;

/// Makes a file, unlinks it while it is open, and kills the server: the number of the inode, and
/// what the kill left. `folded`: after a checkpoint.
fn orphan(folded: bool) -> (Ino, crate::requests::kill::Images) {
    let server = Server::immortal(&formatted(2, 4 << 20), &TakeOver::default());
    let fs = &server.fs;
    let file = make(fs, "f");
    fs.write(&file, 0, &pattern(1, BYTES)).unwrap();
    fs.write(&file, 90, b"in place").unwrap();
    fs.setxattr(file.ino(), b"user.large", &pattern(2, 5000), XattrMode::Any).unwrap();
    if folded {
        fs.checkpoint().unwrap();
    }
    fs.unlink(Ino::ROOT, b"f").unwrap();
    if folded {
        fs.checkpoint().unwrap();
    }
    (file.ino(), server.mirror.kill())
}

fn expected() -> Vec<u8> {
    let mut expected = pattern(1, BYTES);
    expected[90..98].copy_from_slice(b"in place");
    expected
}

#[test]
fn without_being_asked_to_recovery_frees_orphans() {
    for folded in [false, true] {
        let (ino, images) = orphan(folded);
        let server = Server::immortal(&images, &TakeOver::default());
        assert!(gone(&server.fs, ino));
        assert_eq!(server.fs.kept_orphans(), []);
        assert_eq!(server.fs.statfs().inodes, 1);
    }
}

#[test]
fn an_orphan_that_is_kept_is_used_as_before_until_it_is_released() {
    for folded in [false, true] {
        let (ino, images) = orphan(folded);
        let server = Server::immortal(&images, &keep());
        let fs = &server.fs;
        assert_eq!(fs.kept_orphans(), [ino]);
        let attr = fs.getattr(ino).unwrap();
        assert_eq!((attr.links, attr.size), (0, BYTES as u64));
        let handle = fs.open(ino).unwrap();
        assert_eq!(content(fs, &handle), expected());
        assert_eq!(fs.getxattr(ino, b"user.large").unwrap(), pattern(2, 5000));
        // a handle that comes and goes does not end it
        drop(handle);
        let handle = fs.open(ino).unwrap();
        let mut now = expected();
        fs.write(&handle, 4096, &pattern(3, 5000)).unwrap();
        now[4096..9096].copy_from_slice(&pattern(3, 5000));
        fs.fallocate(&handle, Fallocate::PunchHole, 200_000, 50_000).unwrap();
        now[200_000..250_000].fill(0);
        fs.setattr(ino, &SetAttr { size: Some(650_000), ..SetAttr::default() }).unwrap();
        now.truncate(650_000);
        fs.setxattr(ino, b"user.more", b"value", XattrMode::Create).unwrap();
        fs.checkpoint().unwrap();
        fs.append(&handle, b"the end").unwrap();
        now.extend_from_slice(b"the end");
        assert!(fs.link(ino, Ino::ROOT, b"again").is_err(), "it had a name, and lost it");
        // and through another kill
        let images = server.mirror.kill();
        assert_clean(&images);
        let server = Server::immortal(&images, &keep());
        let fs = &server.fs;
        let handle = fs.open(ino).unwrap();
        assert_eq!(content(fs, &handle), now);
        assert_eq!(fs.getxattr(ino, b"user.more").unwrap(), b"value");
        fs.release_orphan(ino).unwrap();
        assert_eq!(content(fs, &handle), now, "it is open");
        drop(handle);
        assert!(gone(fs, ino));
        fs.release_orphan(ino).unwrap();
        fs.close().unwrap();
        let report = assert_clean(&server.mirror.kill());
        assert_eq!((report.inodes, report.blocks), (1, 0));
    }
}

#[test]
fn close_ends_the_orphans_that_nobody_released_and_a_kill_does_not() {
    let (ino, images) = orphan(true);
    let server = Server::immortal(&images, &keep());
    let killed = server.mirror.kill();
    let server = Server::immortal(&killed, &keep());
    assert_eq!(server.fs.kept_orphans(), [ino]);
    server.fs.close().unwrap();
    let images = server.mirror.kill();
    assert_eq!(assert_clean(&images).inodes, 1);
    assert!(gone(&Server::immortal(&images, &keep()).fs, ino));
}

/// Of a directory that was removed while it was open, and of nodes without data, attributes stay.
#[test]
fn orphans_of_every_kind_are_kept() {
    let server = Server::immortal(&formatted(1, 4 << 20), &TakeOver::default());
    let fs = &server.fs;
    let nodes = [
        ("dir", NewNode::Directory),
        ("symlink", NewNode::Symlink(b"target")),
        ("fifo", NewNode::Special(fs::FileKind::Fifo, 0)),
    ];
    let open = |(name, node): (&str, NewNode<'_>)| {
        let ino = fs.create(Ino::ROOT, name.as_bytes(), node, BY).unwrap().ino;
        let handle = fs.open(ino).unwrap();
        match node {
            NewNode::Directory => fs.rmdir(Ino::ROOT, name.as_bytes()).unwrap(),
            _ => fs.unlink(Ino::ROOT, name.as_bytes()).unwrap(),
        };
        handle
    };
    let handles: Vec<_> = nodes.into_iter().map(open).collect();
    let mut inos: Vec<Ino> = handles.iter().map(|handle| handle.ino()).collect();
    let server = Server::immortal(&server.mirror.kill(), &keep());
    let fs = &server.fs;
    for ino in &inos {
        assert_eq!(fs.getattr(*ino).unwrap().links, 0);
        drop(fs.open(*ino).unwrap());
    }
    assert_eq!(fs.readlink(inos[1]).unwrap(), b"target");
    let made = fs.create(inos[0], b"x", NewNode::File, BY);
    assert!(matches!(made, Err(fs::Error::NotFound)), "{made:?}");
    inos.sort();
    assert_eq!(fs.kept_orphans(), inos);
    inos.iter().for_each(|ino| fs.release_orphan(*ino).unwrap());
    assert!(inos.iter().all(|ino| gone(fs, *ino)));
    assert_clean(&server.mirror.kill());
}

/// An orphan that nobody looks at is not let go of where memory is short.
#[test]
fn a_kept_orphan_is_there_after_its_memory_was_needed() {
    let (ino, images) = orphan(true);
    let server = Server::immortal(&images, &keep());
    let fs = &server.fs;
    for round in 0..3u64 {
        for file in 0..200 {
            let handle = make(fs, &format!("r{round}f{file}"));
            fs.write(&handle, 0, &pattern(file, 100)).unwrap();
        }
        fs.checkpoint().unwrap();
        fs.checkpoint().unwrap();
    }
    let handle = fs.open(ino).unwrap();
    assert_eq!(content(fs, &handle), expected());
    drop(handle);
    fs.release_orphan(ino).unwrap();
    assert!(gone(fs, ino));
}

/// A client may have had it open before the kill, and say nothing until it uses it: it was dropped
/// with its last name, and the client had lost its file.
#[test]
fn a_file_from_before_that_loses_its_name_is_kept_until_it_is_released() {
    for replaced in [false, true] {
        let server = Server::immortal(&formatted(2, 4 << 20), &TakeOver::default());
        let file = make(&server.fs, "f");
        let ino = file.ino();
        server.fs.write(&file, 0, &pattern(1, BYTES)).unwrap();
        let server = Server::immortal(&server.mirror.kill(), &keep());
        let fs = &server.fs;
        if replaced {
            drop(make(fs, "new"));
            fs.rename((Ino::ROOT, b"new"), (Ino::ROOT, b"f"), fs::RenameMode::Replace).unwrap();
        } else {
            fs.unlink(Ino::ROOT, b"f").unwrap();
        }
        assert_eq!(fs.kept_orphans(), [ino]);
        assert_eq!(content(fs, &fs.open(ino).unwrap()), pattern(1, BYTES));
        // and through another kill
        let server = Server::immortal(&server.mirror.kill(), &keep());
        let fs = &server.fs;
        assert_eq!(content(fs, &fs.open(ino).unwrap()), pattern(1, BYTES));
        fs.release_orphan(ino).unwrap();
        assert!(gone(fs, ino));
        // what this server's own clients made goes at once
        let own = make(fs, "own").ino();
        fs.unlink(Ino::ROOT, b"own").unwrap();
        assert!(gone(fs, own));
        assert_eq!(assert_clean(&server.mirror.kill()).inodes, 1 + u64::from(replaced));
    }
}

/// Its server was killed before it had answered: the next one made another, and the first stayed
/// until the pool was closed.
#[test]
fn a_file_without_a_name_is_found_by_the_request_that_made_it() {
    let id = fs::RequestId { client: 7, sequence: 2 };
    for folded in [false, true] {
        let server = Server::immortal(&formatted(2, 4 << 20), &TakeOver::default());
        let made = server.fs.with_request(id, || server.fs.create_unnamed(Ino::ROOT, BY));
        let (attr, _handle) = made.unwrap();
        if folded {
            server.fs.checkpoint().unwrap();
        }
        let images = server.mirror.kill();
        assert_clean(&images);
        let asked = TakeOver { requests: vec![id], ..keep() };
        let server = Server::immortal(&images, &asked);
        let fs = &server.fs;
        assert!(fs.was_done(id));
        assert_eq!(fs.made_unnamed(id), Some(attr.ino));
        drop(fs.open(attr.ino).unwrap());
        fs.link(attr.ino, Ino::ROOT, b"named").unwrap();
        fs.unlink(Ino::ROOT, b"named").unwrap();
        fs.release_orphan(attr.ino).unwrap();
        assert_eq!(fs.made_unnamed(id), None);
        assert_eq!(assert_clean(&server.mirror.kill()).inodes, 1);
    }
}

/// A mount lets go of what an attached process may have had open, too, which has not come back.
#[test]
fn what_a_door_lets_go_of_stays_while_processes_are_awaited() {
    let (ino, images) = orphan(true);
    let server = Server::immortal(&images, &TakeOver { returning: true, ..keep() });
    let fs = &server.fs;
    let named = make(fs, "named").ino();
    fs.release_orphan(ino).unwrap();
    fs.release_orphan(named).unwrap();
    let handle = fs.open(ino).unwrap();
    assert_eq!(content(fs, &handle), expected());
    fs.end_returning().unwrap();
    assert_eq!(content(fs, &handle), expected(), "it came back, and has it open");
    drop(handle);
    assert!(gone(fs, ino));
    // from now on what is let go of goes
    fs.unlink(Ino::ROOT, b"named").unwrap();
    fs.release_orphan(named).unwrap();
    assert!(gone(fs, named));
    fs.close().unwrap();
    let report = assert_clean(&server.mirror.kill());
    assert_eq!((report.inodes, report.blocks), (1, 0));
}
