//! Access control lists: in step with the permission bits, handed on, over crashes.

use crate::common::{BY, TestPool, make};
use fs::{Creation, FileSystem, Ino, NewNode, SetAttr, XattrMode};

const MIB: u64 = 1 << 20;
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// A list: the owner's, user 1000's, the group's, the mask's and the others' permissions.
fn list(owner: u8, user: u8, group: u8, mask: u8, other: u8) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0];
    let nobody = u32::MAX;
    let entries = [
        (1, owner, nobody),
        (2, user, 1000),
        (4, group, nobody),
        (16, mask, nobody),
        (32, other, nobody),
    ];
    for (tag, permissions, id) in entries {
        out.extend_from_slice(&[tag, 0, permissions, 0]);
        out.extend_from_slice(&u32::to_le_bytes(id));
    }
    out
}

fn minimal(owner: u8, group: u8, other: u8) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0];
    for (tag, permissions) in [(1, owner), (4, group), (32, other)] {
        out.extend_from_slice(&[tag, 0, permissions, 0, 255, 255, 255, 255]);
    }
    out
}

fn mode(fs: &FileSystem, ino: Ino) -> u16 {
    fs.getattr(ino).unwrap().mode
}

fn chmod(fs: &FileSystem, ino: Ino, mode: u16) {
    fs.setattr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
}

#[test]
fn the_list_and_the_permission_bits_follow_each_other() {
    let pool = TestPool::new(1, 8 * MIB);
    let fs = pool.start_alone();
    let ino = make(&fs, "file").ino();
    let set = |value: &[u8]| fs.setxattr(ino, ACCESS, value, XattrMode::Any).unwrap();
    set(&list(6, 7, 1, 5, 0));
    assert_eq!(mode(&fs, ino), 0o650, "the mask is the group's class");
    chmod(&fs, ino, 0o4723);
    assert_eq!(mode(&fs, ino), 0o4723);
    assert_eq!(fs.getxattr(ino, ACCESS).unwrap(), list(7, 7, 1, 2, 3));
    assert_eq!(fs.listxattr(ino).unwrap(), [ACCESS]);
    set(&minimal(6, 4, 0));
    assert_eq!(mode(&fs, ino), 0o4640);
    assert_eq!(fs.getxattr(ino, ACCESS).unwrap_err().errno(), libc::ENODATA, "the bits say it");
    set(&list(6, 7, 1, 5, 0));
    fs.removexattr(ino, ACCESS).unwrap();
    fs.removexattr(ino, ACCESS).unwrap();
    assert_eq!((mode(&fs, ino), fs.listxattr(ino).unwrap().len()), (0o4650, 0));
    fs.close().unwrap();
    drop(fs);
    pool.assert_clean();
}

#[test]
fn set_group_id_goes_when_another_group_s_member_sets_a_list() {
    let pool = TestPool::new(1, 8 * MIB);
    let fs = pool.start_alone();
    let ino = make(&fs, "file").ino();
    for (in_group, kept) in [(true, 0o6755), (false, 0o4755)] {
        chmod(&fs, ino, 0o6000);
        fs.setxattr_by(ino, ACCESS, &minimal(7, 5, 5), XattrMode::Any, in_group).unwrap();
        assert_eq!(mode(&fs, ino), kept);
    }
}

#[test]
fn a_default_list_is_handed_on_and_replaces_the_umask() {
    let mut pool = TestPool::new(2, 8 * MIB);
    let fs = pool.start_alone();
    let by = Creation { mode: 0o666, umask: 0o077, uid: 1, gid: 1 };
    let made = fs.create(Ino::ROOT, b"before", NewNode::File, by).unwrap();
    assert_eq!(made.mode, 0o600);
    let default = list(7, 7, 5, 6, 4);
    fs.setxattr(Ino::ROOT, DEFAULT, &default, XattrMode::Any).unwrap();
    let file = fs.create(Ino::ROOT, b"file", NewNode::File, by).unwrap();
    let wide = Creation { mode: 0o777, ..by };
    let dir = fs.create(Ino::ROOT, b"dir", NewNode::Directory, wide).unwrap();
    let link = fs.create(Ino::ROOT, b"link", NewNode::Symlink(b"to"), wide).unwrap();
    let (unnamed, handle) = fs.create_unnamed(dir.ino, by).unwrap();
    fs.link(unnamed.ino, Ino::ROOT, b"named").unwrap();
    pool.kill();
    drop((handle, fs));
    pool.assert_clean();
    let fs = pool.start_alone();
    let lists = |ino: Ino| [ACCESS, DEFAULT].map(|name| fs.getxattr(ino, name).ok());
    assert_eq!((file.mode, lists(file.ino)), (0o664, [Some(list(6, 7, 5, 6, 4)), None]));
    assert_eq!((dir.mode, lists(dir.ino)), (0o764, [Some(default.clone()), Some(default)]));
    assert_eq!((link.mode, lists(link.ino)), (0o777, [None, None]));
    assert_eq!((unnamed.mode, lists(unnamed.ino)), (0o664, [Some(list(6, 7, 5, 6, 4)), None]));
    assert_eq!(mode(&fs, unnamed.ino), 0o664);
    fs.setxattr(dir.ino, DEFAULT, &minimal(7, 0, 0), XattrMode::Any).unwrap();
    let inner = fs.create(dir.ino, b"inner", NewNode::File, by).unwrap();
    assert_eq!((inner.mode, lists(inner.ino)), (0o600, [None, None]));
}

#[test]
fn lists_are_refused_where_they_make_no_sense() {
    let pool = TestPool::new(1, 8 * MIB);
    let fs = pool.start_alone();
    let file = make(&fs, "file").ino();
    let link = fs.create(Ino::ROOT, b"link", NewNode::Symlink(b"to"), BY).unwrap().ino;
    let set = |ino, name, value: &[u8]| {
        fs.setxattr(ino, name, value, XattrMode::Any).map_err(|error| error.errno())
    };
    let good = list(7, 7, 7, 7, 7);
    assert_eq!(set(file, DEFAULT, &good), Err(libc::EACCES));
    assert_eq!(set(link, ACCESS, &good), Err(libc::EOPNOTSUPP));
    assert_eq!(set(file, ACCESS, &good[..good.len() - 8]), Err(libc::EINVAL), "none for others");
    assert_eq!(set(file, ACCESS, &good[..good.len() - 1]), Err(libc::EINVAL));
    assert_eq!(set(file, ACCESS, b""), Err(libc::EINVAL));
    assert_eq!(set(Ino::ROOT, DEFAULT, &good), Ok(()));
    assert_eq!(set(Ino::ROOT, DEFAULT, &[2, 0, 0, 0]), Ok(()), "no entry: no list");
    assert_eq!(fs.listxattr(Ino::ROOT).unwrap().len(), 0);
}
