//! What the service answers, without a kernel.

use super::{Caller, Change, Errno, Mode, Service};
use crate::Turn;
use nearside::files::{Ino, NewNode};
use nearside::{FormatOptions, Pool, SliceSpec};

const BY: Caller = Caller { uid: 0, gid: 0, thread: 1 };

fn with_service(sole_door: bool, test: impl FnOnce(&Service)) {
    let root = tempfile::tempdir().unwrap();
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: 32 << 20,
        process: true,
        ..FormatOptions::default()
    };
    Pool::format(root.path().join("pool"), &options).unwrap();
    let pool = Pool::open(root.path().join("pool")).unwrap();
    test(&Service::new(pool.fs().clone(), sole_door, Turn { client: 7, number: 1 }));
    pool.close().unwrap();
}

fn removed(service: &Service) -> Ino {
    let attr = service
        .make(Ino::ROOT, b"name", NewNode::Directory, Mode { asked: 0o700, umask: 0 }, BY)
        .unwrap();
    service.rmdir(Ino::ROOT, b"name").unwrap();
    attr.ino
}

#[test]
fn what_is_left_of_an_inode_stays_until_the_kernel_forgets_it() {
    with_service(true, |service| {
        let ino = removed(service);
        let left = service.getattr(ino).unwrap();
        assert_eq!((left.ino, left.mode, left.links), (ino, 0o700, 0));
        let change = Change { mode: Some(0o40750), ..Change::default() };
        service.setattr(ino, change, None, BY).unwrap();
        let left = service.getattr(ino).unwrap();
        assert_eq!((left.mode, left.uid, left.links), (0o750, 0, 0));
        let listing = service.opendir(ino, 0).unwrap();
        assert_eq!(service.list(ino, 2, 10).unwrap(), []);
        service.release((listing, ino)).unwrap();
        service.forget(ino, 1);
        assert_eq!(service.opendir(ino, 0), Err(Errno(libc::ESTALE)));
        assert_eq!(service.getattr(ino), Err(Errno(libc::ESTALE)));
    });
}

#[test]
fn a_removal_that_fails_or_leaves_names_leaves_no_remains() {
    with_service(true, |service| {
        let file = service
            .make(Ino::ROOT, b"one", NewNode::File, Mode { asked: 0o600, umask: 0 }, BY)
            .unwrap();
        service.link(file.ino, Ino::ROOT, b"two").unwrap();
        assert_eq!(service.rmdir(Ino::ROOT, b"one"), Err(Errno(libc::ENOTDIR)));
        service.unlink(Ino::ROOT, b"one").unwrap();
        let remains = service.remains.as_ref().unwrap();
        assert_eq!(remains.get(file.ino), None);
        service.unlink(Ino::ROOT, b"two").unwrap();
        assert_eq!(remains.get(file.ino).map(|attr| attr.links), Some(0));
    });
}

#[test]
fn nothing_is_left_where_there_are_other_doors() {
    with_service(false, |service| {
        let ino = removed(service);
        assert_eq!(service.getattr(ino), Err(Errno(libc::ESTALE)));
    });
}

#[test]
fn extended_attributes_have_a_known_class_and_trusted_ones_are_roots() {
    with_service(true, |service| {
        let names = [b"security.a".as_slice(), b"trusted.a", b"user.a"];
        for name in names {
            service.setxattr(Ino::ROOT, (name, b"value"), 0, false).unwrap();
            assert_eq!(service.getxattr(Ino::ROOT, name), Ok(b"value".to_vec()));
        }
        for name in [b"other.a".as_slice(), b"system.other", b"user"] {
            let refused = Err(Errno(libc::EOPNOTSUPP));
            assert_eq!(service.setxattr(Ino::ROOT, (name, b"value"), 0, false), refused);
        }
        let all = b"security.a\0trusted.a\0user.a\0".to_vec();
        assert_eq!(service.listxattr(Ino::ROOT, BY), Ok(all));
        let other = Caller { uid: 1, ..BY };
        let seen = b"security.a\0user.a\0".to_vec();
        assert_eq!(service.listxattr(Ino::ROOT, other), Ok(seen));
    });
}

#[test]
fn who_was_told_that_a_file_is_gone_finds_one_that_stays() {
    with_service(true, |service| {
        let mode = Mode { asked: 0o600, umask: 0 };
        let make = || service.make(Ino::ROOT, b"name", NewNode::File, mode, BY).unwrap().ino;
        let lookup = |by| service.lookup(Ino::ROOT, b"name", by).unwrap().unwrap().ino;
        let gone = Err(Errno(libc::ESTALE));
        let other = Caller { thread: 2, ..BY };

        make();
        let found = lookup(BY);
        service.unlink(Ino::ROOT, b"name").unwrap();
        assert_eq!(service.open(found, libc::O_RDONLY), gone);
        service.tells_stale(BY);

        let made = make();
        assert_eq!((lookup(other), lookup(BY)), (made, made));
        service.unlink(Ino::ROOT, b"name").unwrap();
        assert_ne!(service.open(made, libc::O_RDONLY), gone);

        let made = make();
        assert_eq!(lookup(other), made);
        service.unlink(Ino::ROOT, b"name").unwrap();
        assert_eq!(service.open(made, libc::O_RDONLY), gone);
    });
}

/// The kernel asks whether a name still stands for what it did, finds that it does not, forgets
/// what it was told, and looks the name up anew; what it forgets may come after that.
#[test]
fn a_lookup_that_is_forgotten_takes_no_other_ones_file_away() {
    with_service(true, |service| {
        let mode = Mode { asked: 0o600, umask: 0 };
        let lookup = || service.lookup(Ino::ROOT, b"name", BY).unwrap().unwrap().ino;
        service.tells_stale(BY);
        let made = service.make(Ino::ROOT, b"name", NewNode::File, mode, BY).unwrap().ino;
        assert_eq!((lookup(), lookup()), (made, made));
        service.forget(made, 1);
        service.unlink(Ino::ROOT, b"name").unwrap();
        let opened = service.open(made, libc::O_RDONLY).unwrap();
        service.release((opened, made)).unwrap();
        service.forget(made, 1);
        assert_eq!(service.open(made, libc::O_RDONLY), Err(Errno(libc::ESTALE)));
    });
}
