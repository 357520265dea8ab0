//! Calls of the kernel's that fail, one at a time: mappings, writes to a plain file, syncs.

use crate::common::{BY, TestPool};
use fs::{FileSystem, Ino, NewNode};
use pmem::{Fault, fail};

const MIB: u64 = 1 << 20;

fn names(fs: &FileSystem) -> Vec<String> {
    let names = crate::common::names(fs, Ino::ROOT).into_iter();
    let mut names: Vec<String> = names.map(|name| String::from_utf8(name).unwrap()).collect();
    names.sort();
    names
}

fn create(fs: &FileSystem, name: &str) -> fs::Result<()> {
    fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).map(|_| ())
}

#[test]
fn a_pool_that_cannot_be_mapped_is_left_as_it_is() {
    let pool = TestPool::new(3, MIB);
    let fs = pool.start_alone();
    create(&fs, "file").unwrap();
    fs.close().unwrap();
    drop(fs);
    let mut faults = 0;
    loop {
        fail(Some((Fault::Map, faults)));
        let opened = FileSystem::open_pool(&pool.dir(), &pool.open);
        if fail(None) == 0 {
            assert_eq!(names(&opened.unwrap()), ["file"]);
            break;
        }
        match opened {
            // what is only tried first failed: it was mapped otherwise
            Ok(fs) => fs.close().unwrap(),
            Err(error) => {
                assert_eq!(error.errno(), libc::ENOMEM, "{error}");
                assert!(error.to_string().contains("slice."), "{error}");
            }
        }
        pool.assert_clean();
        faults += 1;
    }
    assert!(faults >= 3, "{faults}");
}

/// What a file does not take is stored to its mapping; a sync says whether it got there.
#[test]
fn a_write_that_fails_or_is_short_loses_nothing() {
    for fault in [Fault::Write, Fault::Short] {
        let mut pool = TestPool::synced(1, 4 * MIB);
        let fs = pool.start_alone();
        let attr = fs.create(Ino::ROOT, b"file", NewNode::File, BY).unwrap();
        let handle = fs.open(attr.ino).unwrap();
        let mut model = vec![0; 40_000];
        let mut faults = 0;
        for round in 0..40u8 {
            let (at, len) = (usize::from(round) * 700, 4096 * (1 + usize::from(round % 3)) - 17);
            let data: Vec<u8> = (0..len).map(|n| round ^ (n % 251) as u8).collect();
            fail(Some((fault, u32::from(round % 4))));
            assert_eq!(fs.write(&handle, at as u64, &data).unwrap(), len);
            faults += fail(None);
            model[at..at + len].copy_from_slice(&data);
            if round % 5 == 0 {
                fs.fsync(&handle).unwrap();
            }
        }
        assert!(faults >= 10, "{fault:?}: {faults}");
        fs.sync().unwrap();
        drop(handle);
        let fs = pool.killed(fs);
        let handle = fs.open(attr.ino).unwrap();
        let mut found = vec![0; model.len()];
        let read = fs.read(&handle, 0, &mut found).unwrap();
        assert!(read > 30_000 && found[..read] == model[..read], "{fault:?}");
    }
}

/// A sync that failed is told to whoever asked, and to everybody after; what was acknowledged by a
/// sync before is there when the pool is opened again.
#[test]
fn a_sync_that_fails_stops_the_pool() {
    for after in 0.. {
        let mut pool = TestPool::synced(2, 4 * MIB);
        let fs = pool.start_alone();
        create(&fs, "before").unwrap();
        fs.sync().unwrap();
        create(&fs, "after").unwrap();
        fail(Some((Fault::Sync, after)));
        let synced = fs.sync();
        if fail(None) == 0 {
            synced.unwrap();
            assert!(after >= 1);
            break;
        }
        assert_eq!(synced.unwrap_err().errno(), libc::EIO);
        assert_eq!(create(&fs, "never").unwrap_err().errno(), libc::EIO);
        assert_eq!(fs.sync().unwrap_err().errno(), libc::EIO);
        assert_eq!(names(&fs), ["after", "before"], "reading goes on");
        let fs = pool.killed(fs);
        assert!(names(&fs).contains(&"before".to_owned()));
        create(&fs, "again").unwrap();
        fs.sync().unwrap();
    }
}
