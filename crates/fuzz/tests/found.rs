//! What images at random have found, each with its story.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod victim;

use fs::{FileSystem, Ino, SetAttr};
use fuzz::image::{BLOCK, DEVICE_FIRST, Kind, Part, ROOT_COPY};
use fuzz::page;
use fuzz::place::Place;
use victim::{Victim, count, create, newest_root, with_a_checkpoint, with_a_file};

/// One flipped bit in the last root, and an open took the checkpoint before it, whose log had been
/// used again: all that came between was gone, and nobody said so.
#[test]
fn a_lost_root_is_not_passed_over_when_its_log_was_used_again() {
    let victim = with_a_checkpoint();
    victim.change(false, |image, parts| {
        let at = newest_root(image, parts) + 70;
        [at, at + ROOT_COPY].into_iter().for_each(|at| image.put(0, at, &[1]));
    });
    victim.refused(&["slice 0, byte", "the root of checkpoint 3 is lost"]);
    assert!(victim.findings().contains("is lost"));
}

/// As long as the log behind the root before has everything, nothing is lost with the last one.
#[test]
fn a_lost_root_is_made_good_by_the_log_when_that_is_whole() {
    let victim = Victim::new();
    let fs = victim.open().unwrap();
    (0..5).for_each(|number| create(&fs, &format!("file{number}")));
    fs.close().unwrap();
    drop(fs);
    victim.change(false, |image, parts| {
        let at = newest_root(image, parts) + 70;
        [at, at + ROOT_COPY].into_iter().for_each(|at| image.put(0, at, &[1]));
    });
    assert_eq!(count(&victim.open().unwrap()), 5);
}

/// One of the two copies of a root is enough.
#[test]
fn a_root_of_which_one_copy_is_damaged_is_read_from_the_other() {
    for copy in [0, ROOT_COPY] {
        let victim = with_a_checkpoint();
        victim.change(false, |image, parts| {
            let at = newest_root(image, parts) + copy + 70;
            image.put(0, at, &[1]);
        });
        assert_eq!(count(&victim.open().unwrap()), 2);
    }
}

/// A record's checksum fits anywhere in its chunk: one that a misdirected write put over another
/// was replayed twice, and the other never.
#[test]
fn a_record_over_another_one_of_its_chunk_is_damage() {
    // one CPU, one lane
    fuzz::worker::prepare();
    for (from, to) in [(1, 3), (3, 1), (0, 4), (4, 0)] {
        let victim = Victim::new();
        let fs = victim.open().unwrap();
        (0..5).for_each(|number| create(&fs, &format!("file{number}")));
        drop(fs);
        victim.change(false, |image, parts| {
            let records: Vec<&Part> = parts.iter().filter(|p| p.kind == Kind::Record).collect();
            assert_eq!(records.len(), 5);
            let bytes = image.get(0, records[from].at, records[from].len).unwrap().to_vec();
            image.put(0, records[to].at, &bytes);
        });
        victim.refused(&["slice 0, byte", "lane", "not in its place"]);
    }
}

/// A record with the highest stamp was replayed, check was content, and no change could follow.
#[test]
fn a_stamp_that_nobody_reaches_is_damage() {
    let victim = Victim::new();
    let fs = victim.open().unwrap();
    create(&fs, "file");
    drop(fs);
    victim.change(true, |image, parts| {
        let record = parts.iter().find(|part| part.kind == Kind::Record).unwrap();
        image.put(0, record.at + 8, &(pool::STAMP_AT_OPEN_MAX + 1).to_le_bytes());
    });
    victim.refused(&["stamp", "slice 0, lane"]);
    assert!(victim.findings().contains("stamp"), "{}", victim.findings());
}

/// Recovery put blocks of the log's records in place as if it had looked at them, and reads gave
/// whatever was there.
#[test]
fn a_block_that_only_the_log_names_is_verified_at_its_first_read() {
    let victim = Victim::new();
    let fs = victim.open().unwrap();
    create(&fs, "file");
    create(&fs, "other");
    let open = |fs: &FileSystem, name| fs.open(fs.lookup(Ino::ROOT, name).unwrap().ino).unwrap();
    let (file, other) = (open(&fs, b"file"), open(&fs, b"other"));
    fs.write(&file, 0, &[0x5A; 4096]).unwrap();
    // the lane's last record is verified in any case
    fs.write(&other, 0, &[1; 4096]).unwrap();
    drop((file, other, fs));
    victim.change(false, |image, _| {
        let data = image.slices[0].windows(4096).position(|bytes| bytes == [0x5A; 4096]).unwrap();
        image.put(0, data + 100, &[0x5B]);
    });
    for read_only in [true, false] {
        let fs = victim.files().open(read_only).unwrap();
        let error = fs.read(&open(&fs, b"file"), 0, &mut [0; 10]).unwrap_err();
        assert_eq!(error.errno(), libc::EIO, "{error}");
        assert_eq!(fs.read(&open(&fs, b"other"), 0, &mut [0; 10]).unwrap(), 10);
    }
}

/// Numbers from which the next one cannot be written: the first checkpoint made a pool of it that
/// no open took again.
#[test]
fn a_pool_that_counts_further_than_any_has_is_not_opened() {
    for (at, number) in [(24, (1u64 << 62) - 1), (32, (1 << 62) - 1), (40, (1 << 55) - 1)] {
        let victim = Victim::new();
        victim.change(true, |image, parts| {
            let root = newest_root(image, parts);
            image.put(0, root + at, &number.to_le_bytes());
        });
        victim.refused(&["slice 0, byte", "count further"]);
    }
    let victim = Victim::new();
    let fs = victim.open().unwrap();
    create(&fs, "file");
    drop(fs);
    victim.change(true, |image, parts| {
        let chunk = parts.iter().find(|part| part.kind == Kind::Chunk).unwrap();
        image.put(0, chunk.at + 8, &((1u64 << 62) - 1).to_le_bytes());
    });
    victim.refused(&["slice 0, byte", "count further"]);
}

/// The counter of new inodes was behind those that exist, and `check` found nothing: the next new
/// file took an old one's number.
#[test]
fn a_counter_of_inodes_behind_those_that_exist_is_found() {
    let victim = Victim::new();
    let fs = victim.open().unwrap();
    (0..3).for_each(|number| create(&fs, &format!("file{number}")));
    fs.close().unwrap();
    drop(fs);
    assert_eq!(victim.findings(), "[]");
    victim.change(true, |image, parts| {
        let root = newest_root(image, parts);
        let counter = image.number(0, root + 40, 8) - 1;
        image.put(0, root + 40, &counter.to_le_bytes());
    });
    assert!(victim.findings().contains("a new inode would get its number"));
}

/// A bitmap under a key of another kind was loaded by its index, and the first fold, which looked
/// for the right key, found all its blocks free.
#[test]
fn a_bitmap_under_a_key_of_another_kind_is_damage() {
    let victim = with_a_file(9000);
    victim.change(true, |image, parts| {
        let root = newest_root(image, parts);
        let (slice, at) = image.page_place(image.get(0, root + 104, 20).unwrap()).unwrap();
        let mut entries = page::entries(image, slice, at);
        assert_eq!((at % BLOCK, entries.len(), entries[0].0[8]), (0, 1, 1));
        entries[0].0[8] = 2;
        page::replace(image, slice, at, &entries);
    });
    victim.refused(&["free-space bitmap", "slice 0"]);
    assert!(victim.findings().contains("free-space bitmap"));
}

/// The open of a pool whose list of orphans names nobody failed with "no such file or directory",
/// and `check` found nothing.
#[test]
fn an_orphan_that_does_not_exist_is_named() {
    let victim = Victim::new();
    let fs = victim.open().unwrap();
    create(&fs, "file");
    fs.close().unwrap();
    drop(fs);
    victim.change(true, |image, parts| {
        let root = newest_root(image, parts);
        let (slice, at) = image.page_place(image.get(0, root + 72, 20).unwrap()).unwrap();
        let mut entries = page::entries(image, slice, at);
        let mut key = [0; page::KEY];
        (key[8], key[15]) = (1, 77);
        entries.insert(0, (key, Vec::new()));
        page::replace(image, slice, at, &entries);
        let count = image.number(slice, root + 96, 8) + 1;
        image.put(slice, root + 96, &count.to_le_bytes());
    });
    assert!(victim.findings().contains("inode 19712"), "{}", victim.findings());
    victim.refused(&["object 0", "index 19712"]);
}

/// The message said how many virtual nodes there may be, and not which slice asks for so many.
#[test]
fn a_superblock_with_more_virtual_nodes_than_there_can_be_is_named() {
    let victim = Victim::new();
    victim.change(true, |image, parts| {
        for part in parts.iter().filter(|part| part.kind == Kind::Superblock) {
            image.put(0, part.at + 80, &4095u32.to_le_bytes());
        }
    });
    let error = victim.open().map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("virtual_nodes"), "{error}");
    assert!(error.to_string().contains("slice.000"), "{error}");
}

/// A file of `bytes` whose leaf, not read since the open, names blocks from `addr` on.
fn with_a_leaf_that_names(addr: u64, bytes: usize) -> (Victim, FileSystem) {
    let victim = with_a_file(bytes);
    victim.change(true, |image, parts| {
        let root = newest_root(image, parts);
        let (slice, at) = image.page_place(image.get(0, root + 72, 20).unwrap()).unwrap();
        let mut entries = page::entries(image, slice, at);
        // the map's first leaf, all one run: its count, its place, then the address
        let leaf = |key: &[u8], value: &[u8]| key[8] == 2 && key[9..] == [0; 8] && value[0] == 1;
        let (_, value) = entries.iter_mut().find(|(key, value)| leaf(key, value)).unwrap();
        value[3..9].copy_from_slice(&addr.to_le_bytes()[..6]);
        page::replace(image, slice, at, &entries);
    });
    let fs = victim.open().unwrap();
    (victim, fs)
}

/// Unlink did not look at what it freed: blocks of a slice that is not there made whichever thread
/// let go of them panic, and those behind a slice's end were given to the next writer. The file can
/// go; what its leaf names stays as it is.
#[test]
fn a_leaf_that_names_what_is_not_there_frees_nothing() {
    for addr in [9 << 40 | 100, 1 << 30] {
        let (victim, fs) = with_a_leaf_that_names(addr, 70 * BLOCK);
        let before = fs.info().slices[0].blocks_free;
        fs.unlink(Ino::ROOT, b"file").unwrap();
        let notes = fs.info().notes;
        assert!(notes.iter().any(|note| note.contains("index 0 makes no sense")), "{notes:?}");
        create(&fs, "other");
        let other = fs.open(fs.lookup(Ino::ROOT, b"other").unwrap().ino).unwrap();
        for number in 0..100 {
            fs.write(&other, number % 3 * BLOCK as u64, &[1; BLOCK]).unwrap();
        }
        fs.unlink(Ino::ROOT, b"other").unwrap();
        fs.checkpoint().unwrap();
        assert!(fs.info().slices[0].blocks_free <= before);
        drop((other, fs));
        assert_eq!(count(&victim.open().unwrap()), 0);
    }
}

/// Bytes behind the last leaf asked whether the block before them is there, and took what is wrong
/// with it for their own failure.
#[test]
fn an_append_does_not_need_the_leaf_before_it() {
    let bytes = 128 * BLOCK;
    let (_victim, fs) = with_a_leaf_that_names(9 << 40 | 100, bytes);
    let file = fs.open(fs.lookup(Ino::ROOT, b"file").unwrap().ino).unwrap();
    assert_eq!(fs.append(&file, b"a few bytes").unwrap(), bytes as u64);
    let mut read = [0; 20];
    assert_eq!(fs.read(&file, bytes as u64, &mut read).unwrap(), 11);
    assert_eq!(&read[..11], b"a few bytes");
    assert_eq!(fs.read(&file, 0, &mut read).unwrap_err().errno(), libc::EIO);
}

/// The tree says that a file has no name; the log, that it has one. Whoever closed it removed it.
#[test]
fn a_file_that_the_log_names_again_is_no_orphan() {
    let victim = Victim::new();
    let fs = victim.open().unwrap();
    create(&fs, "file");
    fs.checkpoint().unwrap();
    let ino = fs.lookup(Ino::ROOT, b"file").unwrap().ino;
    fs.setattr(ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    drop(fs);
    victim.change(true, |image, parts| {
        let root = newest_root(image, parts);
        let (slice, at) = image.page_place(image.get(0, root + 72, 20).unwrap()).unwrap();
        let mut entries = page::entries(image, slice, at);
        let inode = |key: &[u8]| key[..8] == ino.0.to_be_bytes() && key[8] == 1;
        let (_, value) = entries.iter_mut().find(|(key, _)| inode(key)).unwrap();
        value[4..8].fill(0);
        page::replace(image, slice, at, &entries);
    });
    assert_eq!(victim.findings(), "[]");
    let fs = victim.open().unwrap();
    drop(fs.open(ino).unwrap());
    assert_eq!(fs.getattr(ino).unwrap().links, 1);
}

/// The end of a file that is no end of a page is nothing to split a mapping at: the repair of a
/// damaged pool panicked, of which a slice had been cut or had grown by some bytes.
#[test]
fn a_slice_that_does_not_end_with_a_page_is_repaired() {
    for more in [1, 511, BLOCK, 3 * BLOCK + 1] {
        let victim = with_a_checkpoint();
        victim.change(false, |image, parts| {
            let at = newest_root(image, parts) + 70;
            [at, at + ROOT_COPY].into_iter().for_each(|at| image.put(0, at, &[1]));
            let len = image.len(0);
            image.slices[0].resize(len + more, 0);
        });
        victim.is_repaired();
    }
}

/// What the tree said to be no directory was opened as the root: check was content, and no name was
/// found.
#[test]
fn a_root_that_is_no_directory_is_damage() {
    let victim = Victim::new();
    victim.change(true, |image, parts| {
        let root = newest_root(image, parts);
        let (slice, at) = image.page_place(image.get(0, root + 72, 20).unwrap()).unwrap();
        let mut entries = page::entries(image, slice, at);
        let inode = |key: &[u8]| key[..8] == Ino::ROOT.0.to_be_bytes() && key[8] == 1;
        let (_, value) = entries.iter_mut().find(|(key, _)| inode(key)).unwrap();
        // an empty file
        value.fill(0);
        (value[0], value[4]) = (1, 1);
        page::replace(image, slice, at, &entries);
    });
    assert!(victim.findings().contains("is no directory"), "{}", victim.findings());
    victim.refused(&["the root directory is no directory"]);
    victim.is_repaired();
}

/// A page that is said to lie on a device was taken for one of the tree by repair, since its second
/// copy is whole; it left the tree as it was, which no open takes.
#[test]
fn a_tree_page_that_is_said_to_lie_on_a_device_is_written_anew() {
    let victim = Victim::above(1);
    victim.change(true, |image, parts| {
        let root = newest_root(image, parts);
        for at in [root + 72, root + ROOT_COPY + 72] {
            image.put(0, at, &((DEVICE_FIRST as u64) << 40 | 20).to_le_bytes());
        }
    });
    victim.refused(&["a tree page"]);
    victim.is_repaired();
}

/// The tree says that a directory has no links; the log, that it has some. Whoever closed it
/// removed it, here the root and with it everything.
#[test]
fn a_directory_to_which_the_log_gives_links_is_no_orphan() {
    let victim = with_a_checkpoint();
    victim.change(true, |image, parts| {
        let root = newest_root(image, parts);
        let (slice, at) = image.page_place(image.get(0, root + 72, 20).unwrap()).unwrap();
        let mut entries = page::entries(image, slice, at);
        let inode = |key: &[u8]| key[..8] == Ino::ROOT.0.to_be_bytes() && key[8] == 1;
        let (_, value) = entries.iter_mut().find(|(key, _)| inode(key)).unwrap();
        value[4..8].fill(0);
        page::replace(image, slice, at, &entries);
    });
    assert_eq!(victim.findings(), "[]");
    let fs = victim.open().unwrap();
    drop(fs.open(Ino::ROOT).unwrap());
    assert_eq!(fs.getattr(Ino::ROOT).unwrap().links, 2);
    fs.close().unwrap();
    drop(fs);
    assert_eq!(victim.findings(), "[]");
}
