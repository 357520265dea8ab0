//! Attributes: chmod(2), chown(2), utimensat(2), xattr(7).

use std::ffi::OsString;
use std::time::UNIX_EPOCH;

use nearside::files::{Creation, Ino, NewNode};
use nearside::{FileKind, XattrMode};

use crate::support::{ANN, BEN, Scratch, TEAM, denied, errno, not_permitted};

#[test]
fn only_the_owner_changes_permission_bits() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o777);
    not_permitted(pool.of(BEN, &[ANN.1]).set_permissions("/f", 0o700));
    pool.of(ANN, &[]).set_permissions("/f", 0o4712).unwrap();
    assert_eq!(pool.mode("/f"), 0o4712);
    pool.root().set_permissions("/f", 0o1600).unwrap();
    assert_eq!(pool.mode("/f"), 0o1600);
}

#[test]
fn set_group_id_goes_where_the_owner_is_not_in_the_group() {
    let pool = Scratch::new();
    pool.file("/f", (ANN.0, TEAM), 0o755);
    pool.dir("/d", (ANN.0, TEAM), 0o755);
    for path in ["/f", "/d"] {
        pool.of(ANN, &[]).set_permissions(path, 0o6755).unwrap();
        assert_eq!(pool.mode(path), 0o4755);
        for all in [pool.of(ANN, &[TEAM]), pool.root()] {
            all.set_permissions(path, 0o2755).unwrap();
            assert_eq!(pool.mode(path), 0o2755);
        }
    }
}

#[test]
fn only_root_changes_the_owner_and_the_owner_the_group_to_one_of_his() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o777);
    let (ann, ben) = (pool.of(ANN, &[TEAM]), pool.of(BEN, &[ANN.1]));
    not_permitted(ann.set_owner("/f", Some(BEN.0), None));
    not_permitted(ann.set_owner("/f", None, Some(BEN.1)));
    not_permitted(ben.set_owner("/f", Some(BEN.0), None));
    not_permitted(ben.set_owner("/f", None, Some(BEN.1)));
    not_permitted(ben.set_owner("/f", Some(ANN.0), None));
    ann.set_owner("/f", Some(ANN.0), Some(TEAM)).unwrap();
    assert_eq!(pool.owner("/f"), (ANN.0, TEAM));
    // what it has may stay, also where the owner is not in it
    pool.of(ANN, &[]).set_owner("/f", None, Some(TEAM)).unwrap();
    pool.root().set_owner("/f", Some(BEN.0), Some(BEN.1)).unwrap();
    assert_eq!(pool.owner("/f"), BEN);
}

#[test]
fn a_new_owner_or_group_takes_the_set_id_bits_away() {
    let pool = Scratch::new();
    for (mode, left) in [(0o6755, 0o755), (0o6745, 0o2745), (0o4644, 0o644), (0o7777, 0o1777)] {
        for by in [pool.of(ANN, &[TEAM]), pool.root()] {
            pool.file("/f", ANN, mode);
            by.set_owner("/f", None, Some(TEAM)).unwrap();
            assert_eq!(pool.mode("/f"), left, "{mode:o}");
        }
    }
    pool.dir("/d", ANN, 0o6755);
    pool.of(ANN, &[TEAM]).set_owner("/d", None, Some(TEAM)).unwrap();
    assert_eq!(pool.mode("/d"), 0o6755, "of a directory they are no set-ids");
}

#[test]
fn only_the_owner_sets_times() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o777);
    let (ann, ben) = (pool.of(ANN, &[]), pool.of(BEN, &[]));
    not_permitted(ben.set_times("/f", Some(UNIX_EPOCH), None));
    not_permitted(ben.set_times("/f", None, Some(UNIX_EPOCH)));
    ben.set_times("/f", None, None).unwrap();
    ann.set_times("/f", Some(UNIX_EPOCH), Some(UNIX_EPOCH)).unwrap();
    assert_eq!(pool.metadata("/f").unwrap().modified(), UNIX_EPOCH);
    pool.root().set_times("/f", Some(UNIX_EPOCH), None).unwrap();
}

#[test]
fn user_attributes_go_by_the_permissions_of_files_and_directories() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o640);
    let (ann, ben, member) = (pool.of(ANN, &[]), pool.of(BEN, &[]), pool.of(BEN, &[ANN.1]));
    ann.set_xattr("/f", "user.a", b"value", XattrMode::Any).unwrap();
    assert_eq!(member.xattr("/f", "user.a").unwrap().unwrap(), b"value");
    denied(ben.xattr("/f", "user.a"));
    for other in [&ben, &member] {
        denied(other.set_xattr("/f", "user.a", b"x", XattrMode::Any));
        denied(other.remove_xattr("/f", "user.a"));
    }
    assert_eq!(ben.list_xattrs("/f").unwrap(), ["user.a"], "names are told to who comes there");
    ann.remove_xattr("/f", "user.a").unwrap();
    let by = Creation { mode: 0o777, umask: 0, uid: ANN.0, gid: ANN.1 };
    let pipe = NewNode::Special(FileKind::Fifo, 0);
    pool.fs().create(Ino::ROOT, b"pipe", pipe, by).unwrap();
    for all in [ann, pool.root()] {
        not_permitted(all.set_xattr("/pipe", "user.a", b"x", XattrMode::Any));
        assert_eq!(all.xattr("/pipe", "user.a").unwrap(), None);
    }
}

#[test]
fn attributes_of_a_sticky_directory_are_its_owner_s() {
    let pool = Scratch::new();
    pool.dir("/d", ANN, 0o1777);
    let ben = pool.of(BEN, &[]);
    not_permitted(ben.set_xattr("/d", "user.a", b"x", XattrMode::Any));
    pool.of(ANN, &[]).set_xattr("/d", "user.a", b"x", XattrMode::Any).unwrap();
    assert!(ben.xattr("/d", "user.a").unwrap().is_some());
    not_permitted(ben.remove_xattr("/d", "user.a"));
    pool.settle("/d", ANN, 0o777);
    ben.remove_xattr("/d", "user.a").unwrap();
}

#[test]
fn trusted_and_security_attributes_are_root_s_and_others_do_not_exist() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o777);
    let (ann, root) = (pool.of(ANN, &[]), pool.root());
    for name in ["trusted.a", "security.a"] {
        not_permitted(ann.set_xattr("/f", name, b"x", XattrMode::Any));
        root.set_xattr("/f", name, b"value", XattrMode::Any).unwrap();
        not_permitted(ann.remove_xattr("/f", name));
        assert!(root.xattr("/f", name).unwrap().is_some());
    }
    assert_eq!(ann.xattr("/f", "trusted.a").unwrap(), None);
    assert_eq!(pool.of(BEN, &[]).xattr("/f", "security.a").unwrap().unwrap(), b"value");
    assert_eq!(ann.list_xattrs("/f").unwrap(), ["security.a"]);
    assert_eq!(root.list_xattrs("/f").unwrap(), ["security.a", "trusted.a"].map(OsString::from));
    for all in [ann, root] {
        let set = all.set_xattr("/f", "system.other", b"x", XattrMode::Any);
        assert_eq!(errno(set), libc::EOPNOTSUPP);
    }
}
