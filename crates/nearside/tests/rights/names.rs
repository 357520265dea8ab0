//! Names: mkdir(2), unlink(2), rename(2), link(2), symlink(2).

use nearside::files::{Creation, Ino, NewNode};
use nearside::{Caller, FileKind, OpenFlags, Pool, RenameMode};

use crate::support::{ANN, BEN, Scratch, TEAM, denied, errno, not_permitted};

#[test]
fn names_change_only_where_the_parent_is_written_and_searched() {
    let pool = Scratch::new();
    pool.dir("/d", ANN, 0o755);
    for name in ["file", "other"] {
        pool.file(&format!("/d/{name}"), BEN, 0o666);
    }
    pool.dir("/d/dir", BEN, 0o777);
    pool.dir("/own", BEN, 0o755);
    pool.file("/own/file", BEN, 0o666);
    let ben = pool.of(BEN, &[]);
    let all_refused = |ben: &Pool| {
        denied(ben.create_dir("/d/new"));
        denied(ben.symlink("x", "/d/new"));
        denied(ben.hard_link("/own/file", "/d/new"));
        denied(ben.remove_file("/d/file"));
        denied(ben.remove_dir("/d/dir"));
        denied(ben.rename("/d/file", "/own/moved"));
        denied(ben.rename("/own/file", "/d/moved"));
        denied(ben.rename("/d/file", "/d/other"));
        denied(ben.rename_with("/d/file", "/own/file", RenameMode::Exchange));
        denied(ben.rename_with("/own/file", "/d/file", RenameMode::Exchange));
    };
    all_refused(&ben);
    for mode in [0o751, 0o755] {
        pool.settle("/d", ANN, mode);
        all_refused(&ben);
    }
    assert_eq!(errno(ben.remove_file("/d/nothing")), libc::ENOENT);
    assert_eq!(errno(ben.create_dir("/d/dir")), libc::EEXIST, "that it exists comes first");
    pool.settle("/d", ANN, 0o753);
    ben.create_dir("/d/new").unwrap();
    ben.symlink("x", "/d/link").unwrap();
    ben.hard_link("/own/file", "/d/hard").unwrap();
    ben.rename("/d/file", "/d/other").unwrap();
    ben.rename("/d/other", "/own/moved").unwrap();
    ben.remove_dir("/d/dir").unwrap();
    ben.remove_file("/d/hard").unwrap();
    assert_eq!(pool.owner("/d/new"), BEN);
    assert_eq!(pool.owner("/d/link"), BEN);
}

#[test]
fn in_a_sticky_directory_an_entry_goes_by_its_owner_or_the_directory_s() {
    let pool = Scratch::new();
    pool.dir("/tmp", ANN, 0o1777);
    let ben = pool.of(BEN, &[]);
    let third = pool.of((1003, 2003), &[ANN.1, BEN.1]);
    let make = || {
        pool.file("/tmp/ben", BEN, 0o666);
        pool.dir("/tmp/dir", BEN, 0o777);
        pool.file("/tmp/third", (1003, 2003), 0o666);
    };
    make();
    not_permitted(third.remove_file("/tmp/ben"));
    not_permitted(third.remove_dir("/tmp/dir"));
    not_permitted(third.rename("/tmp/ben", "/tmp/x"));
    not_permitted(third.rename("/tmp/third", "/tmp/ben"));
    not_permitted(third.rename_with("/tmp/third", "/tmp/ben", RenameMode::Exchange));
    ben.rename("/tmp/ben", "/tmp/renamed").unwrap();
    ben.remove_file("/tmp/renamed").unwrap();
    ben.remove_dir("/tmp/dir").unwrap();
    third.remove_file("/tmp/third").unwrap();
    for other in [pool.of(ANN, &[]), pool.root()] {
        make();
        other.remove_file("/tmp/ben").unwrap();
        other.remove_dir("/tmp/dir").unwrap();
        other.remove_file("/tmp/third").unwrap();
    }
}

#[test]
fn a_directory_moves_to_another_one_only_if_it_may_be_written() {
    let pool = Scratch::new();
    for dir in ["/one", "/two"] {
        pool.dir(dir, ANN, 0o777);
    }
    pool.dir("/one/dir", ANN, 0o755);
    pool.dir("/two/dir", BEN, 0o755);
    let ben = pool.of(BEN, &[]);
    denied(ben.rename("/one/dir", "/two/moved"));
    denied(ben.rename_with("/two/dir", "/one/dir", RenameMode::Exchange));
    ben.rename("/one/dir", "/one/renamed").unwrap();
    pool.settle("/one/renamed", ANN, 0o757);
    ben.rename_with("/two/dir", "/one/renamed", RenameMode::Exchange).unwrap();
    ben.rename("/two/dir", "/one/moved").unwrap();
}

#[test]
fn a_rename_goes_to_both_places_before_it_says_what_is_missing() {
    let pool = Scratch::new();
    pool.dir("/closed", ANN, 0o700);
    let ben = pool.of(BEN, &[]);
    denied(ben.rename("/nothing", "/closed/x"));
    assert_eq!(errno(ben.rename("/nothing", "/x")), libc::ENOENT);
}

#[test]
fn two_names_of_one_file_are_not_renamed_and_so_need_no_right() {
    let pool = Scratch::new();
    pool.file("/a", ANN, 0o600);
    pool.hard_link("/a", "/b").unwrap();
    let ben = pool.of(BEN, &[]);
    ben.rename("/a", "/b").unwrap();
    assert!(ben.exists("/a").unwrap());
}

#[test]
fn a_link_needs_nothing_of_the_file_and_no_directory_gets_one() {
    let pool = Scratch::new();
    pool.dir("/d", BEN, 0o755);
    pool.file("/secret", ANN, 0o600);
    pool.dir("/dir", ANN, 0o777);
    let ben = pool.of(BEN, &[]);
    // what `fs.protected_hardlinks` refuses
    ben.hard_link("/secret", "/d/name").unwrap();
    denied(ben.read("/d/name"));
    not_permitted(ben.hard_link("/dir", "/d/dir"));
    denied(ben.hard_link("/dir", "/name"));
}

#[test]
fn what_is_made_is_the_caller_s_and_its_group_the_set_group_id_directory_s() {
    let pool = Scratch::new();
    pool.dir("/plain", ANN, 0o777);
    pool.dir("/shared", (ANN.0, TEAM), 0o2777);
    let (ben, member) = (pool.of(BEN, &[]), pool.of(BEN, &[TEAM]));
    let new = |mode| OpenFlags::new().write(true).create_new(true).mode(mode);
    ben.open_file("/plain/f", &new(0o6755)).unwrap();
    assert_eq!((pool.owner("/plain/f"), pool.mode("/plain/f")), (BEN, 0o6755));
    ben.create_dir("/shared/dir").unwrap();
    assert_eq!((pool.owner("/shared/dir"), pool.mode("/shared/dir")), ((BEN.0, TEAM), 0o2755));
    // it would act for a group that its maker is not in
    ben.open_file("/shared/f", &new(0o6755)).unwrap();
    assert_eq!((pool.owner("/shared/f"), pool.mode("/shared/f")), ((BEN.0, TEAM), 0o4755));
    ben.open_file("/shared/locked", &new(0o2644)).unwrap();
    assert_eq!(pool.mode("/shared/locked"), 0o2644, "without execution it does not");
    member.open_file("/shared/g", &new(0o2755)).unwrap();
    assert_eq!(pool.mode("/shared/g"), 0o2755);
}

#[test]
fn only_root_makes_devices_and_a_whiteout_is_the_caller_s() {
    let pool = Scratch::new();
    pool.settle("/", (0, 0), 0o777);
    let ann = Caller::new(ANN.0, ANN.1, vec![]);
    let by = Creation { mode: 0o1777, umask: 0, uid: 0, gid: 0 };
    let make = |name: &[u8], kind, rdev| {
        let calls = pool.fs().for_caller(Some(&ann));
        calls.create(Ino::ROOT, name, NewNode::Special(kind, rdev), by)
    };
    for kind in [FileKind::CharDevice, FileKind::BlockDevice] {
        assert_eq!(make(b"device", kind, 0x103).unwrap_err().errno(), libc::EPERM);
    }
    assert_eq!(make(b"pipe", FileKind::Fifo, 0).unwrap().uid, ANN.0);
    assert_eq!(make(b"white", FileKind::CharDevice, 0).unwrap().uid, ANN.0);
    pool.file("/f", ANN, 0o644);
    let whiteout = RenameMode::Whiteout { uid: 0, gid: 0 };
    pool.of(ANN, &[]).rename_with("/f", "/g", whiteout).unwrap();
    assert_eq!(pool.owner("/f"), ANN);
    assert_eq!(pool.metadata("/f").unwrap().kind(), FileKind::CharDevice);
}
