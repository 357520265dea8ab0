//! Images whose checksums all fit and whose content makes no sense: values that no Nearside wrote,
//! put into the trees or the log through the pool's own interface.

use crate::common::{BY, SOON, TestPool, names, watched};
use crate::values::{
    DIRENT, INODE, MAP, PATCH, REFERENCES, SHARED, SYMLINK, XATTR, entry, head, inode, into_log,
    into_tree, leaf, references,
};
use fs::{FileKind, FileSystem, Ino, NewNode, RenameMode, SetAttr, Timestamp, XattrMode};
use pool::OpenOptions;
use pool::tree::Key;

/// A pool with a file, a directory with a directory and a link in it; gives their numbers.
fn victim() -> (TestPool, [Ino; 4]) {
    let pool = TestPool::new(1, 4 << 20);
    let fs = pool.start();
    let make = |parent, name: &[u8], node| fs.create(parent, name, node, BY).unwrap().ino;
    let dir = make(Ino::ROOT, b"dir", NewNode::Directory);
    let sub = make(dir, b"sub", NewNode::Directory);
    let file = make(Ino::ROOT, b"file", NewNode::File);
    let link = make(Ino::ROOT, b"link", NewNode::Symlink(b"target"));
    fs.write(&fs.open(file).unwrap(), 0, &[7; 20_000]).unwrap();
    fs.close().unwrap();
    (pool, [file, dir, sub, link])
}

/// Uses everything; what fails fails with an error.
fn use_all(fs: &FileSystem, inos: [Ino; 4]) {
    let [file, dir, sub, link] = inos;
    for ino in [Ino::ROOT, file, dir, sub, link] {
        let _ = fs.getattr(ino);
        let _ = fs.readlink(ino);
        let _ = fs.listxattr(ino);
        let _ = fs.setxattr(ino, b"user.x", b"y", XattrMode::Any);
        let _ = fs.setattr(ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() });
        let _ = fs.setattr(ino, &SetAttr { modified: Some(Timestamp(1)), ..SetAttr::default() });
        let _ = fs.readdir(ino, 0, &mut |_| true);
        let _ = fs.create(ino, b"new", NewNode::File, BY);
        let _ = fs.create(ino, b"newdir", NewNode::Directory, BY);
        if let Ok(handle) = fs.open(ino) {
            let _ = fs.read(&handle, 0, &mut [0; 30_000]);
            let _ = fs.seek(&handle, 0, true);
            let _ = fs.seek(&handle, 0, false);
            let _ = fs.write(&handle, 10_000, &[1; 9000]);
            let _ = fs.append(&handle, &[1; 90]);
            let _ = fs.copy((&handle, 0), (&handle, 1 << 20), 30_000);
            let _ = fs.fallocate(&handle, fs::Fallocate::PunchHole, 0, 1 << 30);
        }
    }
    let _ = fs.rename((Ino::ROOT, b"dir"), (sub, b"x"), RenameMode::Replace);
    let _ = fs.rename((dir, b"sub"), (Ino::ROOT, b"sub"), RenameMode::Replace);
    let _ = fs.rename((Ino::ROOT, b"file"), (sub, b"file"), RenameMode::Replace);
    let _ = fs.link(file, sub, b"another");
    let _ = fs.setattr(file, &SetAttr { size: Some(5), ..SetAttr::default() });
    let _ = fs.checkpoint();
    let _ = fs.unlink(Ino::ROOT, b"file");
    let _ = fs.rmdir(sub, b"newdir");
    let _ = fs.statfs();
    let _ = fs.close();
}

/// Checks, opens and uses the pool: errors are fine, panics and hangs are not.
fn survives(what: &str, pool: TestPool, inos: [Ino; 4]) {
    watched(SOON, what, move || {
        let report = fs::check(&pool.dir());
        let noticed = report.map_or(true, |report| !report.findings.is_empty());
        if let Ok(fs) = FileSystem::open_pool(&pool.dir(), &OpenOptions::default()) {
            let _ = names(&fs, Ino::ROOT);
            use_all(&fs, inos);
        }
        assert!(noticed, "check found nothing wrong");
    });
}

fn tree_case(what: &str, values: impl FnOnce([Ino; 4]) -> Vec<(Key, Vec<u8>)>) {
    let (pool, inos) = victim();
    into_tree(&pool.dir(), values(inos));
    survives(what, pool, inos);
}

fn log_case(what: &str, items: impl FnOnce([Ino; 4]) -> Vec<u64>) {
    let (pool, inos) = victim();
    let words = items(inos);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    into_log(&pool.dir(), &bytes);
    survives(what, pool, inos);
}

const MAX: u64 = u64::MAX;

#[test]
fn a_file_of_absurd_size() {
    tree_case("size", |[file, ..]| {
        vec![(Key::new(file.0, INODE, 0), inode(FileKind::File, 1, MAX, 5, 0, 1))]
    });
}

#[test]
fn a_file_with_an_absurd_count_of_blocks() {
    tree_case("blocks", |[file, ..]| {
        vec![(Key::new(file.0, INODE, 0), inode(FileKind::File, 1, 20_000, MAX, 0, 1))]
    });
}

#[test]
fn a_file_with_the_highest_stamp() {
    tree_case("stamp", |[file, ..]| {
        vec![(Key::new(file.0, INODE, 0), inode(FileKind::File, 2, 20_000, 5, 0, MAX))]
    });
}

#[test]
fn a_directory_with_absurd_counts() {
    tree_case("counts", |[_, dir, ..]| {
        let value = inode(FileKind::Directory, u32::MAX, MAX, 0, 1, 1);
        vec![(Key::new(dir.0, INODE, 0), value)]
    });
}

#[test]
fn directories_in_a_circle() {
    tree_case("circle", |[_, dir, sub, _]| {
        let value = |parent| inode(FileKind::Directory, 3, 1, 0, parent, 1);
        vec![(Key::new(dir.0, INODE, 0), value(sub.0)), (Key::new(sub.0, INODE, 0), value(dir.0))]
    });
}

#[test]
fn a_directory_that_is_its_own_parent() {
    tree_case("own parent", |[_, dir, ..]| {
        let value = inode(FileKind::Directory, 3, 1, 0, dir.0, 1);
        vec![(Key::new(dir.0, INODE, 0), value)]
    });
}

#[test]
fn a_directory_whose_parent_is_a_file() {
    tree_case("parent", |[file, _, sub, _]| {
        let value = inode(FileKind::Directory, 2, 0, 0, file.0, 1);
        vec![(Key::new(sub.0, INODE, 0), value)]
    });
}

#[test]
fn a_leaf_far_behind_the_largest_file() {
    tree_case("leaf", |[file, ..]| {
        let far = [1 << 25, 1 << 40, MAX / 128, MAX];
        far.map(|index| (Key::new(file.0, MAP, index), leaf(0, 0, 100))).to_vec()
    });
}

#[test]
fn a_leaf_that_names_the_superblock_the_log_and_blocks_that_are_not_there() {
    for addr in [1, 17, 1023, 1 << 30, 1 << 40 | 100, 255 << 40 | 1, (1 << 40) - 1] {
        tree_case("address", |[file, ..]| vec![(Key::new(file.0, MAP, 0), leaf(0, 3, addr))]);
    }
}

#[test]
fn a_leaf_that_names_blocks_of_another_file_and_of_the_tree() {
    tree_case("owners", |[file, ..]| {
        (1..6).map(|index| (Key::new(file.0, MAP, index), leaf(0, 127, 40))).collect()
    });
}

/// The file's five blocks, which a leaf with marks names again.
fn shared_leaf() -> Vec<u8> {
    let mut value = leaf(0, 4, 40);
    value[2] |= SHARED;
    value
}

#[test]
fn references_that_are_missing_absurd_or_to_nothing() {
    let shared = |file: Ino| (Key::new(file.0, MAP, 0), shared_leaf());
    tree_case("none", |[file, ..]| vec![shared(file)]);
    for count in [1, 2, 1 << 31, u32::MAX] {
        tree_case("count", |[file, ..]| {
            let of_others = (Key::new(0, REFERENCES, 1), references(7, 90, count));
            vec![shared(file), (Key::new(0, REFERENCES, 0), references(40, 3, count)), of_others]
        });
    }
    for index in [1 << 33, MAX, MAX / 128, 1 << 40] {
        tree_case("nowhere", |_| vec![(Key::new(0, REFERENCES, index), references(1, 0, 1))]);
    }
    for value in [Vec::new(), vec![0], references(127, 1, 1), references(0, 0, 0), vec![9; 50]] {
        tree_case("value", |[file, ..]| {
            vec![shared(file), (Key::new(0, REFERENCES, 0), value.clone())]
        });
    }
}

#[test]
fn patches_far_behind_the_largest_file() {
    tree_case("patch", |[file, ..]| {
        let patch = [0u8, 0, 2, 0, b'x', b'y'].to_vec();
        [MAX, MAX / 4096, 1 << 35]
            .map(|index| (Key::new(file.0, PATCH, index), patch.clone()))
            .to_vec()
    });
}

#[test]
fn entries_with_absurd_cookies_inodes_and_names() {
    let entry = |ino: u64, name: &[u8]| entry(ino, FileKind::File, name);
    tree_case("entries", |[_, dir, ..]| {
        vec![
            (Key::new(dir.0, DIRENT, MAX), entry(256, b"last")),
            (Key::new(dir.0, DIRENT, 0), entry(MAX, b"first")),
            (Key::new(dir.0, DIRENT, 300), entry(0, b"none")),
        ]
    });
    tree_case("names", |[_, dir, ..]| vec![(Key::new(dir.0, DIRENT, 1000), entry(256, b"a/b"))]);
}

#[test]
fn attributes_and_targets_that_were_cut() {
    tree_case("xattr", |[file, ..]| vec![(Key::new(file.0, XATTR, 0), vec![9, 9])]);
    tree_case("xattr number", |[file, ..]| {
        let cut = [&[1u8, b'x'][..], &9u32.to_le_bytes()].concat();
        vec![(Key::new(file.0, XATTR, MAX & !255), cut)]
    });
    tree_case("target", |[.., link]| {
        (0..100).map(|part| (Key::new(link.0, SYMLINK, part), vec![b'x'; 1000])).collect()
    });
}

#[test]
fn keys_of_kinds_and_objects_that_are_not() {
    tree_case("keys", |_| {
        vec![
            (Key::new(MAX, INODE, 0), inode(FileKind::File, 1, 0, 0, 0, 1)),
            (Key::new(0, 1, MAX), Vec::new()),
            (Key::new(0, 77, 5), vec![1]),
            (Key::new(300 << 8, 200, 5), vec![1]),
        ]
    });
}

#[test]
fn a_record_that_writes_blocks_behind_the_largest_file() {
    for block in [MAX, MAX - 1, 1 << 60, 1 << 34] {
        log_case("write", |[file, ..]| vec![head(1, 0, 1, 0), file.0, block, 100, 20_000]);
        log_case("write two", |[file, ..]| {
            vec![head(2, 0, 2, 0), file.0, block, 20_000, 100, 101 << 32, 0]
        });
    }
}

/// The leaf was asked for room up to the slot before its first one.
#[test]
fn a_record_that_writes_no_block() {
    log_case("write none", |[file, ..]| vec![head(2, 0, 0, 0), file.0, 0, 20_000]);
    log_case("write none", |[file, ..]| vec![head(2, 0, 0, 0), file.0, 3, 20_000]);
}

#[test]
fn a_record_with_an_absurd_end_of_file() {
    log_case("end", |[file, ..]| vec![head(1, 0, 1, 0), file.0, 3, 100, MAX]);
    log_case("truncate", |[file, ..]| vec![head(6, 0, 0, 0), file.0, MAX]);
    log_case("patch", |[file, ..]| {
        vec![head(3, 0, 8, 0), file.0, MAX - 4090, MAX, 0x7878_7878_7878_7878]
    });
}

#[test]
fn a_record_that_punches_all_that_could_ever_be() {
    log_case("punch", |[file, ..]| vec![head(7, 0, 0, 0), file.0, 0, 1 << 62]);
    log_case("punch to the end", |[file, ..]| vec![head(7, 0, 0, 0), file.0, 5, MAX - 5]);
    // no record of a real one is longer than a GiB; each of so many leaves was looked for
    for blocks in [(1 << 18) + 1, 1 << 34] {
        log_case("punch too much", |[file, ..]| vec![head(7, 0, 0, 0), file.0, 0, blocks]);
    }
}

/// A record that shares: target, its block, blocks, end, source, its block.
fn share(to: u64, block: u64, blocks: u32, end: u64, from: u64, first: u64) -> Vec<u64> {
    vec![head(12, 0, 0, blocks), to, block, end, from, first]
}

#[test]
fn a_record_that_shares_what_is_not_there_or_too_much_of_it() {
    for (block, blocks, end, first) in [
        (9, 0, 20_000, 0),
        (9, u32::MAX, 20_000, 0),
        (9, 4097, 20_000, 0),
        (MAX, 1, 20_000, 0),
        (9, 1, 20_000, MAX),
        (1 << 34, 2, 20_000, 0),
        (9, 1, MAX, 0),
        (1, 2, 20_000, 0),
        (0, 1, 20_000, 0),
    ] {
        log_case("share", |[file, ..]| share(file.0, block, blocks, end, file.0, first));
    }
    log_case("from a directory", |[file, dir, ..]| share(file.0, 9, 1, 20_000, dir.0, 0));
    log_case("to a link", |[file, .., link]| share(link.0, 0, 1, 20_000, file.0, 0));
    log_case("from nobody", |[file, ..]| share(file.0, 9, 1, 20_000, 77 << 8, 0));
    // a patch, in the log, of what is shared before
    log_case("patched", |[file, ..]| {
        let patch = [head(3, 0, 8, 0), file.0, 100, 20_000, 0x7878_7878_7878_7878];
        [share(file.0, 9, 1, 50_000, file.0, 0), patch.to_vec()].concat()
    });
}

#[test]
fn a_record_that_counts_a_directory_absurdly() {
    log_case("touch", |[_, dir, ..]| vec![head(8, 0, 0, u32::MAX), dir.0, MAX]);
    log_case("touch a file", |[file, ..]| vec![head(8, 0, 0, 7), file.0, MAX]);
}

#[test]
fn a_record_that_drops_the_root_and_one_that_drops_a_directory_in_use() {
    log_case("root", |_| vec![head(9, 0, 0, 0), 1]);
    log_case("dir", |[_, dir, ..]| vec![head(9, 0, 0, 0), dir.0]);
    log_case("twice", |[file, ..]| vec![head(9, 0, 0, 0), file.0, head(9, 0, 0, 0), file.0]);
}

/// Dropped and described again: its number would belong to two.
#[test]
fn a_record_that_brings_back_what_it_dropped() {
    log_case("again", |[file, ..]| {
        let value = inode(FileKind::File, 1, 0, 0, 0, 1);
        let words = value.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let dropped = vec![head(9, 0, 0, 0), file.0, head(4, INODE, 88, 0), file.0, 0];
        dropped.into_iter().chain(words).collect()
    });
}

#[test]
fn a_record_that_writes_data_into_a_directory() {
    log_case("directory", |[_, dir, ..]| vec![head(1, 0, 1, 0), dir.0, 0, 100, 4096]);
}

#[test]
fn a_record_that_puts_an_entry_into_a_file_and_keys_anywhere() {
    log_case("entry", |[file, ..]| vec![head(4, DIRENT, 12, 0), file.0, 9000, 256, 0x6161_6101]);
    log_case("kind", |[file, ..]| vec![head(4, 99, 8, 0), file.0, 9000, 256]);
    log_case("leaf", |[file, ..]| vec![head(4, MAP, 8, 0), file.0, 0, 256]);
    log_case("inode", |_| vec![head(4, INODE, 8, 0), MAX, 0, 256]);
    log_case("orphan", |_| vec![head(4, 1, 0, 0), 0, MAX]);
}
