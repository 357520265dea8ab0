//! Blocks that a record was to change, and that cannot be read any more.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use fs::{Blocks, FileSystem, Ino};
use lanes::{Happened, Recovered, Stored, Target};

use crate::{connect, content, make, open, piece, scratch};

/// A pool whose file `file` has two blocks, the first of which is damaged.
fn damaged() -> (tempfile::TempDir, FileSystem) {
    let (dir, fs) = scratch();
    let file = make(&fs, "file");
    let first: Vec<u8> = (0..4096u32).map(|at| ((at * at) >> 5) as u8).collect();
    fs.write(&file, 0, &first).unwrap();
    fs.write(&file, 4096, &[7; 4096]).unwrap();
    drop(file);
    fs.close().unwrap();
    drop(fs);
    let slice = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let slice = slice.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let bytes = std::fs::read(&slice).unwrap();
    let block = bytes.chunks(4096).position(|block| block == first).unwrap();
    let slice = OpenOptions::new().write(true).open(slice).unwrap();
    slice.write_all_at(&[!first[100]], block as u64 * 4096 + 100).unwrap();
    let fs = open(dir.path());
    (dir, fs)
}

/// A short write into a block that cannot be read any more was acknowledged, and has no place: it
/// is not thrown away, and harms nothing else; whether its service lives or has died.
#[test]
fn what_the_medium_refuses_is_kept_beside_the_pool() {
    for dies in [false, true] {
        let (dir, fs) = damaged();
        let ino = fs.lookup(Ino::ROOT, b"file").unwrap().ino;
        let file = fs.open(ino).unwrap();
        let mut both = connect(dir.path(), &fs);
        let generation = both.lend(0, &file, 0..=9);
        let write = |offset, data| both.lane.commit(&[piece(0, generation, offset, data)]);
        assert_eq!([write(10, b"lost"), write(4100, b"there")], [Stored::Done; 2]);
        let fs = if dies {
            drop((both, file, fs));
            let fs = open(dir.path());
            let recovered = lanes::recover(dir.path(), &fs, false).unwrap();
            assert_eq!(recovered, Recovered { lanes: 1, leases: 1 });
            fs
        } else {
            let error = both.ledger.fold(&fs).unwrap_err();
            assert!(matches!(error, lanes::Error::Kept { .. }), "{error}");
            assert_eq!(error.errno(), 5);
            both.ledger.end_lease(&fs, 0).unwrap();
            drop((both, file));
            fs
        };
        let (file, mut bytes) = (fs.open(ino).unwrap(), [0; 9]);
        assert_eq!(fs.read(&file, 0, &mut bytes).unwrap_err().errno(), 5);
        fs.read(&file, 4096, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\x07\x07\x07\x07there");
        let kept = std::fs::read_to_string(dir.path().join("lanes/unfolded.jsonl")).unwrap();
        assert_eq!(kept, format!("{{\"inode\":{},\"offset\":10,\"hex\":\"6c6f7374\"}}\n", ino.0));
    }
}

/// A pool that takes no changes any more has lost nothing: what is in the lane stays there, and
/// whoever opens the pool next folds it.
#[test]
fn a_pool_that_takes_no_changes_leaves_it_to_the_next_open() {
    let (dir, fs) = scratch();
    let file = make(&fs, "file");
    let mut both = connect(dir.path(), &fs);
    let generation = both.lend(0, &file, 0..=9);
    let write = |data| both.lane.commit(&[piece(0, generation, 0, data)]);
    assert_eq!(write(b"kept"), Stored::Done);
    fs.close().unwrap();
    let refused = |error: lanes::Error| match error {
        lanes::Error::Files(error) => assert!(error.is_poisoned(), "{error}"),
        error => panic!("{error}"),
    };
    refused(both.ledger.fold(&fs).unwrap_err());
    refused(both.ledger.end_lease(&fs, 0).unwrap_err());
    assert_eq!(write(b"late"), Stored::Closed);
    let blocks = Blocks { ino: file.ino(), blocks: 20..=20 };
    assert!(both.ledger.lend(1, blocks, Target { handle: file.clone(), caller: None }).is_none());
    let ended = both.ledger.remove();
    assert_eq!(ended.happened(0, generation, 1), Happened::Forgotten);
    drop((both, file, fs));

    let fs = open(dir.path());
    let recovered = lanes::recover(dir.path(), &fs, false).unwrap();
    assert_eq!(recovered, Recovered { lanes: 1, leases: 1 });
    // what came late may have happened
    let content = content(&fs, "file");
    assert!([&b"kept"[..], b"late"].contains(&&content[..]), "{content:?}");
    assert!(!dir.path().join("lanes/unfolded.jsonl").exists());
}
