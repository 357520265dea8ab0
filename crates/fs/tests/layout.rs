//! On which slices files lie: near their writer, in stripes, on a node that was asked for.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "all/common/mod.rs"]
mod common;

use common::{BY, TestPool, options};
use fs::{ExtentOn, Fallocate, FileExtent, FileSystem, Ino, Layout, NewNode};
use pool::FormatOptions;
use std::collections::BTreeSet;

const STRIPE: u64 = 256 << 10;
const SLICES: u64 = 4;

fn file(fs: &FileSystem, parent: Ino, name: &str) -> Ino {
    fs.create(parent, name.as_bytes(), NewNode::File, BY).unwrap().ino
}

fn put(fs: &FileSystem, ino: Ino, offset: u64, bytes: u64) {
    let handle = fs.open(ino).unwrap();
    let data: Vec<u8> = (0..bytes).map(|i| (i * 7 + offset) as u8).collect();
    assert_eq!(fs.write(&handle, offset, &data).unwrap() as u64, bytes);
}

fn extents(fs: &FileSystem, ino: Ino) -> Vec<FileExtent> {
    let (all, next) = fs.extents(ino, 0, usize::MAX).unwrap();
    assert_eq!(next, None);
    // the same a few at a time
    let (mut few, mut from) = (Vec::new(), Some(0));
    while let Some(offset) = from {
        let (more, next) = fs.extents(ino, offset, 3).unwrap();
        few.extend(more);
        from = next;
    }
    assert_eq!(few, all);
    all
}

/// The slice of each block; none where there is no block.
fn slices(fs: &FileSystem, ino: Ino, bytes: u64) -> Vec<Option<u8>> {
    let mut slices = vec![None; bytes.div_ceil(4096) as usize];
    for extent in extents(fs, ino) {
        let first = (extent.offset / 4096) as usize;
        let ExtentOn::Slice(slice) = extent.on else { panic!("{extent:?}") };
        slices[first..first + (extent.bytes / 4096) as usize].fill(Some(slice));
    }
    slices
}

fn on_cpu<T>(cpu: u32, work: impl FnOnce() -> T) -> T {
    let before = topology::pin_current_thread(&[cpu]).unwrap();
    let done = work();
    topology::pin_current_thread(&before).unwrap();
    done
}

fn pool() -> TestPool {
    TestPool::new(SLICES as usize, 32 << 20)
}

#[test]
fn a_small_file_lies_whole_on_the_slice_of_its_writer() {
    let pool = pool();
    let fs = pool.start_alone();
    let near = fs.near_slices();
    for (number, cpu) in topology::allowed_cpus().unwrap().into_iter().take(4).enumerate() {
        let ino = on_cpu(cpu, || {
            let ino = file(&fs, Ino::ROOT, &format!("small{number}"));
            put(&fs, ino, 0, STRIPE);
            ino
        });
        let own = near.iter().find(|slice| slice.cpus.contains(&cpu)).unwrap().slice;
        assert!(slices(&fs, ino, STRIPE).iter().all(|slice| *slice == Some(own)), "CPU {cpu}");
    }
}

#[test]
fn a_large_file_lies_on_all_slices_alike() {
    let pool = pool();
    let fs = pool.start_alone();
    for number in 0..5 {
        let ino = file(&fs, Ino::ROOT, &format!("large{number}"));
        on_cpu(topology::allowed_cpus().unwrap()[0], || put(&fs, ino, 0, 4 << 20));
        let slices = slices(&fs, ino, 4 << 20);
        // a stripe is whole, and as many as there are slices take in each of them
        let stripes: Vec<_> = slices.chunks((STRIPE / 4096) as usize).collect();
        assert!(stripes.iter().all(|stripe| stripe.iter().all(|slice| *slice == stripe[0])));
        let firsts: Vec<_> = stripes.iter().map(|stripe| stripe[0].unwrap()).collect();
        for row in firsts[1..].chunks_exact(SLICES as usize) {
            assert_eq!(row.iter().collect::<BTreeSet<_>>().len(), SLICES as usize, "{firsts:?}");
        }
    }
}

/// Where a block lies does not follow from what was written before.
#[test]
fn a_sparse_file_lies_as_one_that_is_written_in_order() {
    let pool = pool();
    let fs = pool.start_alone();
    let ino = file(&fs, Ino::ROOT, "file");
    fs.set_layout(ino, Layout::Stripe).unwrap();
    put(&fs, ino, 0, 6 << 20);
    let in_order = slices(&fs, ino, 6 << 20);
    fs.fallocate(&fs.open(ino).unwrap(), Fallocate::PunchHole, 0, 6 << 20).unwrap();
    assert_eq!(extents(&fs, ino), []);
    for offset in (0..32).rev().map(|index| index * (192 << 10)) {
        put(&fs, ino, offset, 4096);
    }
    let sparse = slices(&fs, ino, 6 << 20);
    assert_eq!(sparse.iter().flatten().count(), 32);
    for (block, slice) in sparse.iter().enumerate().filter(|(_, slice)| slice.is_some()) {
        assert_eq!(*slice, in_order[block], "block {block}");
    }
    // what is reserved lies there, too
    let handle = fs.open(ino).unwrap();
    fs.fallocate(&handle, Fallocate::Allocate { keep_size: false }, 0, 6 << 20).unwrap();
    put(&fs, ino, 0, 6 << 20);
    assert_eq!(slices(&fs, ino, 6 << 20), in_order);
}

#[test]
fn a_layout_is_inherited_and_survives() {
    let mut pool = pool();
    let fs = pool.start_alone();
    let dir = fs.create(Ino::ROOT, b"dir", NewNode::Directory, BY).unwrap().ino;
    let before = file(&fs, dir, "before");
    fs.set_layout(dir, Layout::Node(2)).unwrap();
    let below = fs.create(dir, b"below", NewNode::Directory, BY).unwrap().ino;
    let inner = file(&fs, below, "inner");
    let link = fs.create(dir, b"link", NewNode::Symlink(b"inner"), BY).unwrap().ino;
    put(&fs, inner, 0, 2 << 20);
    let check = |fs: &FileSystem| {
        let of = |ino| fs.layout(ino).unwrap();
        assert_eq!([of(dir), of(below), of(inner)], [Layout::Node(2); 3]);
        assert_eq!([of(before), of(link), of(Ino::ROOT)], [Layout::Auto; 3]);
        assert!(slices(fs, inner, 2 << 20).iter().all(|slice| *slice == Some(2)));
    };
    check(&fs);
    drop(fs);
    pool.kill();
    let fs = pool.start_alone();
    check(&fs);
    // from the trees, too
    fs.checkpoint().unwrap();
    fs.set_layout(before, Layout::Near).unwrap();
    fs.close().unwrap();
    drop(fs);
    let fs = pool.start_alone();
    assert_eq!(fs.layout(before).unwrap(), Layout::Near);
    fs.set_layout(before, Layout::Auto).unwrap();
    check(&fs);
}

#[test]
fn what_is_there_stays_until_it_is_written_anew() {
    let pool = pool();
    let fs = pool.start_alone();
    let ino = file(&fs, Ino::ROOT, "file");
    fs.set_layout(ino, Layout::Node(1)).unwrap();
    put(&fs, ino, 0, 1 << 20);
    fs.set_layout(ino, Layout::Node(3)).unwrap();
    put(&fs, ino, 512 << 10, 256 << 10);
    let expected: Vec<_> = [1, 1, 3, 1].iter().flat_map(|slice| [Some(*slice); 64]).collect();
    assert_eq!(slices(&fs, ino, 1 << 20), expected);
}

#[test]
fn only_files_and_directories_are_laid_on_nodes_that_are_there() {
    let pool = pool();
    let fs = pool.start_alone();
    let ino = file(&fs, Ino::ROOT, "file");
    let error = fs.set_layout(ino, Layout::Node(4)).unwrap_err();
    assert!(error.to_string().contains("node"), "{error}");
    let link = fs.create(Ino::ROOT, b"link", NewNode::Symlink(b"file"), BY).unwrap().ino;
    assert!(fs.set_layout(link, Layout::Near).is_err());
    assert!(fs.extents(link, 0, 9).is_err() && fs.extents(Ino::ROOT, 0, 9).is_err());
    assert_eq!(fs.layout(ino).unwrap(), Layout::Auto);
}

/// What an overwrite sets free is what the next one takes: the slice does not fill up.
#[test]
fn a_file_that_is_overwritten_stays_where_it_is() {
    let pool = TestPool::new(2, 16 << 20);
    let fs = pool.start_alone();
    let ino = file(&fs, Ino::ROOT, "file");
    fs.set_layout(ino, Layout::Node(1)).unwrap();
    for round in 0..30 {
        put(&fs, ino, 0, 4 << 20);
        let elsewhere = extents(&fs, ino);
        let elsewhere = elsewhere.iter().filter(|it| it.on != ExtentOn::Slice(1)).count();
        assert_eq!(elsewhere, 0, "round {round}");
    }
}

/// ENOSPC means that the pool is full, not a slice.
#[test]
fn a_full_slice_spills() {
    let pool = TestPool::new(2, 16 << 20);
    let fs = pool.start_alone();
    let ino = file(&fs, Ino::ROOT, "file");
    fs.set_layout(ino, Layout::Node(0)).unwrap();
    put(&fs, ino, 0, 20 << 20);
    let on =
        |slice| slices(&fs, ino, 20 << 20).into_iter().flatten().filter(|it| *it == slice).count();
    let (own, other) = (on(0), on(1));
    assert_eq!(own + other, (20 << 20) / 4096);
    assert!(own > other && other > 0, "{own} {other}");
    let handle = fs.open(ino).unwrap();
    let mut read = vec![0; 20 << 20];
    assert_eq!(fs.read(&handle, 0, &mut read).unwrap(), 20 << 20);
    assert!(read.iter().enumerate().all(|(at, byte)| *byte == (at * 7) as u8));
}

#[test]
fn the_stripe_is_the_pools() {
    let pool = TestPool::with(&FormatOptions {
        stripe_bytes: Some(16 << 10),
        ..options(SLICES as usize, 16 << 20)
    });
    let fs = pool.start_alone();
    assert_eq!(fs.stripe_bytes(), 16 << 10);
    let ino = file(&fs, Ino::ROOT, "file");
    fs.set_layout(ino, Layout::Stripe).unwrap();
    put(&fs, ino, 0, 1 << 20);
    let slices = slices(&fs, ino, 1 << 20);
    for row in slices.chunks(16) {
        let all: BTreeSet<_> = row.iter().step_by(4).collect();
        assert_eq!(all.len(), SLICES as usize);
    }
    let fails = FormatOptions { stripe_bytes: Some(12 << 10), ..options(2, 16 << 20) };
    let error = fs::format(&common::scratch().path().join("pool"), &fails).unwrap_err();
    assert!(error.to_string().contains("power of two"), "{error}");
}
