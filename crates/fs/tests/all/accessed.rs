//! Times of the last read.

use crate::common::{BY, TestPool, find, make};
use fs::{FileSystem, Handle, Ino, NewNode, SetAttr, Timestamp};
use pool::Atime;

const MIB: u64 = 1 << 20;
/// A time long ago.
const OLD: Timestamp = Timestamp(1_000_000_000);

fn age(fs: &FileSystem, ino: Ino) {
    fs.setattr(ino, &SetAttr { accessed: Some(OLD), ..SetAttr::default() }).unwrap();
}

fn accessed(fs: &FileSystem, ino: Ino) -> Timestamp {
    fs.getattr(ino).unwrap().accessed
}

fn read(fs: &FileSystem, handle: &Handle) {
    fs.read(handle, 0, &mut [0; 10]).unwrap();
}

/// Calls `act` until the clock has ticked, at least once.
fn for_a_tick(mut act: impl FnMut()) {
    let before = Timestamp::now();
    act();
    while Timestamp::now() == before {
        act();
    }
}

#[test]
fn reading_moves_the_time_on_once_after_a_change() {
    let pool = TestPool::new(1, 8 * MIB);
    let fs = pool.start_alone();
    let file = make(&fs, "file");
    fs.write(&file, 0, &[1; 100]).unwrap();
    let link = fs.create(Ino::ROOT, b"link", NewNode::Symlink(b"to"), BY).unwrap().ino;
    let dir = fs.create(Ino::ROOT, b"dir", NewNode::Directory, BY).unwrap().ino;
    let reads: [(Ino, &dyn Fn()); 3] = [
        (file.ino(), &|| read(&fs, &file)),
        (link, &|| drop(fs.readlink(link).unwrap())),
        (dir, &|| fs.readdir(dir, 0, &mut |_| true).unwrap()),
    ];
    for (ino, read) in reads {
        age(&fs, ino);
        let changed = fs.getattr(ino).unwrap().changed;
        read();
        assert!(accessed(&fs, ino) >= changed, "{ino:?}");
        // until it is later than the last change
        for_a_tick(read);
        read();
        let after = accessed(&fs, ino);
        assert!(after > changed, "{ino:?}");
        for_a_tick(read);
        assert_eq!(accessed(&fs, ino), after, "{ino:?}: nothing changed");
    }
}

#[test]
fn no_read_writes_a_record_and_the_next_checkpoint_takes_the_time_along() {
    let mut pool = TestPool::new(1, 8 * MIB);
    let fs = pool.start_alone();
    let file = make(&fs, "file");
    fs.write(&file, 0, &[1; 100]).unwrap();
    age(&fs, file.ino());
    fs.checkpoint().unwrap();
    let (log, checkpoints) = (fs.log_bytes_written(), fs.checkpoint_cost());
    read(&fs, &file);
    let moved = accessed(&fs, file.ino());
    assert_ne!(moved, OLD);
    assert_eq!((fs.log_bytes_written(), fs.checkpoint_cost()), (log, checkpoints));
    fs.checkpoint().unwrap();
    pool.kill();
    drop((file, fs));
    pool.assert_clean();
    let fs = pool.start_alone();
    let file = find(&fs, "file");
    assert_eq!(accessed(&fs, file.ino()), moved);
    // with the next record about the inode
    age(&fs, file.ino());
    read(&fs, &file);
    let moved = accessed(&fs, file.ino());
    fs.setattr(file.ino(), &SetAttr { uid: Some(7), ..SetAttr::default() }).unwrap();
    pool.kill();
    drop((file, fs));
    let fs = pool.start_alone();
    assert_eq!(accessed(&fs, find(&fs, "file").ino()), moved);
}

#[test]
fn it_can_be_left_alone_and_a_pool_for_reading_leaves_it_alone() {
    let mut pool = TestPool::new(1, 8 * MIB);
    pool.open.atime = Atime::Never;
    let fs = pool.start_alone();
    let file = make(&fs, "file");
    age(&fs, file.ino());
    read(&fs, &file);
    fs.readdir(Ino::ROOT, 0, &mut |_| true).unwrap();
    assert_eq!(accessed(&fs, file.ino()), OLD);
    drop(file);
    fs.close().unwrap();
    drop(fs);
    pool.open.atime = Atime::Relatime;
    pool.open.read_only = true;
    let fs = pool.start();
    let file = find(&fs, "file");
    read(&fs, &file);
    assert_eq!(accessed(&fs, file.ino()), OLD);
}

/// More inodes are read than a checkpoint could fold: their times wait, the pool goes on.
#[test]
fn reads_make_no_more_work_for_a_checkpoint_than_it_can_do() {
    let mut pool = TestPool::new(1, 4 * MIB);
    pool.open.memory_bytes = Some(200_000);
    let fs = pool.start_alone();
    let names: Vec<String> = (0..600).map(|i| format!("file{i}")).collect();
    for name in &names {
        drop(make(&fs, name));
    }
    fs.checkpoint().unwrap();
    for_a_tick(|| {});
    let mut rounds = Vec::new();
    while rounds.last() != Some(&names.len()) {
        let moved = names.iter().filter(|name| {
            let file = find(&fs, name);
            read(&fs, &file);
            let attr = fs.getattr(file.ino()).unwrap();
            attr.accessed > attr.created
        });
        rounds.push(moved.count());
        fs.checkpoint().unwrap();
        assert!(rounds.len() < 50, "{rounds:?}");
    }
    assert!(rounds[0] > 0 && rounds[0] < names.len() / 2, "{rounds:?}");
    fs.close().unwrap();
    drop(fs);
    assert_eq!(pool.assert_clean().inodes, 601);
}
