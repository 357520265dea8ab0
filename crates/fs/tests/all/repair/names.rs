//! Inodes and names that contradict each other.

use crate::common::{BY, TestPool, content, find, names, pattern};
use crate::repair::planted::{
    BLOCK, mended, mended_but_for, older_copy, reads_as_error, said, told,
};
use crate::values::{DIRENT, INODE, ORPHAN, TICKET, change_tree, entry, into_tree};
use fs::{FileKind, FileSystem, Ino, NewNode, RequestId, repair};
use pool::tree::{Change, Key};

const BYTES: usize = 4 * BLOCK + 900;

/// A pool of one slice with a file, a directory with a directory in it, and a link.
fn planted() -> (TestPool, [Ino; 4]) {
    let pool = TestPool::new(1, 4 << 20);
    let fs = pool.start_alone();
    let make = |parent, name: &[u8], node| fs.create(parent, name, node, BY).unwrap().ino;
    let file = make(Ino::ROOT, b"file", NewNode::File);
    let dir = make(Ino::ROOT, b"dir", NewNode::Directory);
    let sub = make(dir, b"sub", NewNode::Directory);
    let link = make(Ino::ROOT, b"link", NewNode::Symlink(b"target"));
    fs.write(&fs.open(file).unwrap(), 0, &pattern(1, BYTES)).unwrap();
    fs.close().unwrap();
    drop(fs);
    (pool, [file, dir, sub, link])
}

fn inode(ino: Ino) -> Key {
    Key::new(ino.0, INODE, 0)
}

/// The key of an entry of this name: the name says the index, whichever directory it is in.
fn dirent(pool: &TestPool, dir: Ino, name: &str) -> Key {
    let fs = pool.start_alone();
    let mut cookie = None;
    let own = fs.create(dir, b"to look at", NewNode::Directory, BY).unwrap().ino;
    fs.create(own, name.as_bytes(), NewNode::File, BY).unwrap();
    fs.readdir(own, 0, &mut |entry| {
        if entry.name == name.as_bytes() {
            cookie = Some(entry.cookie);
        }
        true
    })
    .unwrap();
    fs.unlink(own, name.as_bytes()).unwrap();
    fs.rmdir(dir, b"to look at").unwrap();
    fs.close().unwrap();
    Key::new(dir.0, DIRENT, cookie.unwrap() & !255)
}

fn has(fs: &FileSystem, dir: Ino, name: &str) -> bool {
    fs.lookup(dir, name.as_bytes()).is_ok()
}

#[test]
fn what_has_lost_its_attributes_is_what_its_content_says() {
    let (pool, [file, dir, sub, link]) = planted();
    let lost = [file, dir, link].map(|ino| (inode(ino), Change::Delete));
    change_tree(&pool.dir(), lost.to_vec());
    let (done, fs) = mended_but_for(&pool, &["/file"]);
    assert_eq!(told(&done, "its attributes are lost: it is the owner's alone"), 3, "{done:?}");
    // how long it was is lost, too: what there is of it is put aside
    assert_eq!(told(&done, "(/file): its attributes are lost, and with them how long it was"), 1);
    assert!(reads_as_error(&fs, file));
    let found = older_copy(&fs, file);
    assert!(found.len() == 5 * BLOCK && found[..BYTES] == pattern(1, BYTES));
    assert!(found[BYTES..].iter().all(|byte| *byte == 0));
    assert_eq!(fs.getattr(file).unwrap().mode & 0o777, 0o600);
    assert_eq!(fs.getattr(dir).unwrap().mode & 0o777, 0o700);
    assert_eq!(fs.lookup(dir, b"sub").unwrap().ino, sub);
    assert_eq!(fs.readlink(link).unwrap(), b"target");
}

/// Bytes over a hole say neither how long the file was nor what else was in it.
#[test]
fn an_inode_of_which_bytes_over_holes_are_left_is_forgotten() {
    let (pool, _) = planted();
    let fs = pool.start_alone();
    let ino = fs.create(Ino::ROOT, b"bits", NewNode::File, BY).unwrap().ino;
    let handle = fs.open(ino).unwrap();
    fs.write(&handle, 0, b"one").unwrap();
    fs.write(&handle, 9000, b"two").unwrap();
    drop(handle);
    fs.close().unwrap();
    drop(fs);
    change_tree(&pool.dir(), vec![(inode(ino), Change::Delete)]);
    let (done, fs) = mended(&pool);
    assert_eq!(told(&done, &format!("inode {}: is lost, but for what says nothing", ino.0)), 1);
    assert_eq!(told(&done, "the entry \"bits\" is dropped: its inode is lost"), 1);
    assert!(!has(&fs, Ino::ROOT, "bits") && has(&fs, Ino::ROOT, "file"));
}

#[test]
fn entries_that_cannot_be_are_dropped_and_what_they_name_stays() {
    let (pool, [file, dir, sub, _]) = planted();
    let in_root = |name| dirent(&pool, Ino::ROOT, name);
    let again = in_root("file");
    into_tree(
        &pool.dir(),
        vec![
            (Key::new(file.0, DIRENT, again.index), entry(sub.0, FileKind::Directory, b"file")),
            (Key { index: again.index | 9, ..again }, entry(file.0, FileKind::File, b"file")),
            (in_root("sub"), entry(sub.0, FileKind::Directory, b"sub")),
            (in_root("top"), entry(1, FileKind::Directory, b"top")),
            (in_root("none"), entry(77 << 8, FileKind::File, b"none")),
            (in_root("wrong"), entry(file.0, FileKind::Fifo, b"wrong")),
        ],
    );
    let (done, fs) = mended(&pool);
    for (name, why) in [
        ("file", "its directory is none"),
        ("file", "the name is there twice"),
        ("sub", "its directory has another name, too"),
        ("top", "it names the root directory"),
        ("none", "its inode is lost"),
    ] {
        assert_eq!(told(&done, &format!("the entry {name:?} is dropped: {why}")), 1, "{done:?}");
    }
    assert_eq!(told(&done, "the entry \"wrong\" says what its inode is now"), 1, "{done:?}");
    assert_eq!(fs.lookup(dir, b"sub").unwrap().ino, sub);
    let mut left = names(&fs, Ino::ROOT);
    left.retain(|name| name != b"." && name != b"..");
    left.sort();
    assert_eq!(left, [&b"dir"[..], b"file", b"link", b"wrong"]);
    assert_eq!(fs.getattr(file).unwrap().links, 2);
    assert_eq!(content(&fs, &find(&fs, "wrong")), pattern(1, BYTES));
}

#[test]
fn directories_in_a_circle_are_taken_out_of_it() {
    let (pool, [_, dir, sub, _]) = planted();
    let (own, inner) = (dirent(&pool, Ino::ROOT, "dir"), dirent(&pool, sub, "dir"));
    let named = entry(dir.0, FileKind::Directory, b"dir");
    let own_key = key_of(&pool, own);
    change_tree(&pool.dir(), vec![(own_key, Change::Delete), (inner, Change::Put(named))]);
    let (done, fs) = mended(&pool);
    assert_eq!(told(&done, "lay in a circle of directories"), 1, "{done:?}");
    let aside = fs.lookup(Ino::ROOT, b"lost+found").unwrap().ino;
    let name = format!("#{}", dir.0);
    assert_eq!(fs.lookup(aside, name.as_bytes()).unwrap().ino, dir);
    assert_eq!(fs.lookup(dir, b"sub").unwrap().ino, sub);
    assert!(!has(&fs, sub, "dir") && !has(&fs, Ino::ROOT, "dir"));
}

/// The key under which an entry really is: of names with one hash each has its own.
fn key_of(pool: &TestPool, base: Key) -> Key {
    let keys = (base.index..=base.index | 255).map(|index| Key { index, ..base });
    let is_there = |key: &Key| crate::values::of_tree(&pool.dir(), key).is_some();
    keys.into_iter().find(is_there).unwrap()
}

/// In /lost+found the name may be somebody else's already.
#[test]
fn what_is_put_aside_gets_a_name_that_is_free() {
    let (pool, [file, _, _, link]) = planted();
    let fs = pool.start_alone();
    let aside = fs.create(Ino::ROOT, b"lost+found", NewNode::Directory, BY).unwrap().ino;
    let taken = format!("#{}", file.0);
    fs.create(aside, taken.as_bytes(), NewNode::File, BY).unwrap();
    fs.close().unwrap();
    drop(fs);
    let keys = ["file", "link"].map(|name| key_of(&pool, dirent(&pool, Ino::ROOT, name)));
    change_tree(&pool.dir(), keys.map(|key| (key, Change::Delete)).to_vec());
    let (done, fs) = mended(&pool);
    assert_eq!(told(&done, "had no name: it is /lost+found/#"), 2, "{done:?}");
    assert_eq!(fs.lookup(aside, format!("#{}", link.0).as_bytes()).unwrap().ino, link);
    assert_ne!(fs.lookup(aside, taken.as_bytes()).unwrap().ino, file);
    let other = fs.lookup(aside, format!("{taken}.1").as_bytes()).unwrap().ino;
    assert_eq!(other, file);
    assert_eq!(content(&fs, &fs.open(file).unwrap()), pattern(1, BYTES));
}

#[test]
fn where_lost_found_is_a_file_what_has_no_name_is_told_and_kept() {
    let (pool, [file, ..]) = planted();
    let fs = pool.start_alone();
    fs.create(Ino::ROOT, b"lost+found", NewNode::File, BY).unwrap();
    fs.close().unwrap();
    drop(fs);
    let key = key_of(&pool, dirent(&pool, Ino::ROOT, "file"));
    change_tree(&pool.dir(), vec![(key, Change::Delete)]);
    let tried = repair(&pool.dir(), &mut |_, _| ()).unwrap().unwrap();
    let (done, left) = (said(&tried.report().done), said(&tried.report().left));
    assert_eq!(told(&done, "has no name, and there is none to be had"), 1, "{done:?}");
    assert_eq!(left, [format!("inode {}: has no name", file.0)]);
    tried.write(&pool.dir().join("repair.undo")).unwrap();
    let fs = pool.start_alone();
    assert_eq!(content(&fs, &fs.open(file).unwrap()), pattern(1, BYTES));
}

#[test]
fn a_file_with_a_name_is_no_orphan() {
    let (pool, [file, ..]) = planted();
    into_tree(&pool.dir(), vec![(Key::new(0, ORPHAN, file.0), Vec::new())]);
    let (done, fs) = mended(&pool);
    assert_eq!(told(&done, "is on the list of orphans, but has a name"), 1, "{done:?}");
    assert_eq!(content(&fs, &find(&fs, "file")), pattern(1, BYTES));
}

/// Files without a name that were open when the server died: they end with the next open, and are
/// nothing that was lost. The one that a request had made was put into /lost+found.
#[test]
fn orphans_stay_orphans_and_nonsense_beside_them_is_dropped() {
    let mut pool = TestPool::new(1, 4 << 20);
    let fs = pool.start_alone();
    let unlinked = crate::common::make(&fs, "unlinked");
    fs.write(&unlinked, 0, &pattern(1, BYTES)).unwrap();
    fs.unlink(Ino::ROOT, b"unlinked").unwrap();
    let unnamed = fs.create_unnamed(Ino::ROOT, BY).unwrap();
    let id = RequestId { client: 7, sequence: 3 };
    let asked = fs.with_request(id, || fs.create_unnamed(Ino::ROOT, BY)).unwrap();
    fs.checkpoint().unwrap();
    pool.kill();
    drop((unlinked, unnamed, asked, fs));
    into_tree(
        &pool.dir(),
        vec![
            (Key::new(0, TICKET, 0), vec![9]),
            (Key::new(0, 77, 5), vec![1]),
            (Key::new(0, ORPHAN, 77 << 8), Vec::new()),
            (Key::new(0, ORPHAN, 78 << 8), vec![3]),
            (Key::new(300 << 8, 200, 5), vec![1]),
        ],
    );
    let (done, fs) = mended(&pool);
    assert_eq!(told(&done, "log: left out:"), 1, "{done:?}");
    assert_eq!(told(&done, "holds what makes no sense: dropped"), 4, "{done:?}");
    assert_eq!(told(&done, "inode 19712: is lost, but for what says nothing"), 1, "{done:?}");
    assert_eq!(told(&done, "had no name"), 0, "{done:?}");
    assert!(!has(&fs, Ino::ROOT, "lost+found"));
    assert_eq!(fs.statfs().inodes, 1);
}
