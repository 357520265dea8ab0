//! The operations that are explored, and the tree that they find.

use crate::attributes::attributes;
use crate::images::Outcome;
use crate::migrations::migrations;
use crate::transactions::transactions;
use crate::world::{World, pattern};
use fs::{Fallocate, NewNode, RenameMode, Result};

/// One operation: one call of the file system (or the few that its name says).
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// Its name, for reports and `repeat`.
    pub name: &'static str,
    /// What the tree needs for it, done before recording.
    pub prepare: fn(&mut World) -> Result<()>,
    /// The call.
    pub run: fn(&mut World) -> Result<()>,
    /// The same of so many bytes, where a crash may leave the first part of what it does.
    pub part: Option<Part>,
}

/// A part of a call.
pub type Part = fn(&mut World, u64) -> Result<()>;

pub(crate) type Act = fn(&mut World) -> Result<()>;

pub(crate) fn nothing(_: &mut World) -> Result<()> {
    Ok(())
}

macro_rules! op {
    ($name:literal, $run:expr) => {
        Op { name: $name, prepare: $crate::catalog::nothing, run: $run, part: None }
    };
    ($name:literal, $prepare:expr, $run:expr) => {
        Op { name: $name, prepare: $prepare, run: $run, part: None }
    };
    ($name:literal, $first:expr, $then:expr, $run:expr) => {
        op!($name, |w| $first(w).and_then(|()| ($then as $crate::catalog::Act)(w)), $run)
    };
}

pub(crate) use op;

/// A copy, of so many bytes at most.
macro_rules! copy {
    ($name:literal, $prepare:expr, $part:expr) => {
        Op { name: $name, prepare: $prepare, run: |w| ($part as Part)(w, ALL), part: Some($part) }
    };
}

const ALL: u64 = u64::MAX;

/// The operation after whose return everything is durable, in each domain.
pub const SYNC: &str = "fsync";

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// The tree that every workload finds: files of all shapes, on both slices.
pub fn plant(world: &mut World) -> Result<()> {
    world.file("/file", &pattern(1, 4 * 4096 + 300))?;
    world.file("/heavy", &pattern(2, 4096 + 100))?;
    for patch in 0..16u64 {
        world.write("/heavy", 100 + patch * 200, &[patch as u8; 10])?;
    }
    world.make("/dir", NewNode::Directory)?;
    world.file("/dir/inner", &pattern(3, 5000))?;
    world.make("/dir/sub", NewNode::Directory)?;
    world.make("/empty", NewNode::Directory)?;
    world.file("/two", b"two names")?;
    world.link("/two", "/dir/two-b")?;
    world.make("/sym", NewNode::Symlink(b"a/target"))?;
    world.elsewhere(|world| {
        world.make("/fardir", NewNode::Directory)?;
        world.file("/fardir/far", &pattern(4, 9000))
    })?;
    world.file("/attrs", b"")?;
    world.setxattr("/attrs", "user.small", b"1")?;
    world.setxattr("/attrs", "user.large", &pattern(5, 3000))
}

/// All operations.
pub fn catalog() -> Vec<Op> {
    [
        names(),
        unnamed(),
        renames(),
        writes(),
        sizes(),
        reserved(),
        copies(),
        shared(),
        attributes(),
        transactions(),
        migrations(),
    ]
    .concat()
}

/// The operation of this name.
pub fn find(name: &str) -> Option<Op> {
    [catalog(), crate::moves::moves(), crate::attached::stores()]
        .concat()
        .into_iter()
        .find(|op| op.name == name)
}

/// The same, or an error that says so.
pub fn named(name: &str) -> Outcome<Op> {
    find(name).ok_or_else(|| format!("no operation {name}"))
}

fn names() -> Vec<Op> {
    vec![
        op!("create", |w| w.make("/dir/new", NewNode::File).map(|_| ())),
        op!("create-far", |w| w.make("/fardir/new", NewNode::File).map(|_| ())),
        op!("create-elsewhere", |w| {
            w.elsewhere(|w| w.make("/dir/other", NewNode::File).map(|_| ()))
        }),
        op!("mkdir", |w| w.make("/dir/newdir", NewNode::Directory).map(|_| ())),
        op!("symlink", |w| w.make("/newsym", NewNode::Symlink(&[b'x'; 1500])).map(|_| ())),
        op!("mknod", |w| { w.make("/fifo", NewNode::Special(fs::FileKind::Fifo, 0)).map(|_| ()) }),
        op!("link", |w| w.link("/file", "/dir/linked")),
        op!("link-far", |w| w.link("/fardir/far", "/far-linked")),
        op!("unlink-last", |w| w.unlink("/file")),
        op!("unlink-far", |w| w.unlink("/fardir/far")),
        op!("unlink-not-last", |w| w.unlink("/two")),
        op!("unlink-symlink", |w| w.unlink("/sym")),
        op!("unlink-attrs", |w| w.unlink("/attrs")),
        op!("unlink-open", hold, |w| w.unlink("/file")),
        op!("close-orphan", orphan, |w| {
            w.handles.clear();
            Ok(())
        }),
        op!("close-folded-orphan", |w| orphan(w).and_then(|()| w.fs.checkpoint()), |w| {
            w.handles.clear();
            Ok(())
        }),
        op!("rmdir", |w| w.rmdir("/empty")),
        op!("rmdir-deep", |w| w.rmdir("/dir/sub")),
    ]
}

fn unnamed() -> Vec<Op> {
    vec![
        op!("create-unnamed", |w| {
            let (_, handle) = w.fs.create_unnamed(w.ino("/dir")?, crate::world::BY)?;
            w.handles.insert("unnamed", handle);
            Ok(())
        }),
        op!("write-unnamed", |w| w.unnamed(b""), |w| {
            let handle = w.handles.get("unnamed").cloned().ok_or(fs::Error::NotFound)?;
            w.fs.write(&handle, 0, &pattern(9, 9000)).map(|_| ())
        }),
        op!("link-unnamed", |w| w.unnamed(&pattern(9, 9000)), |w| w.name_unnamed("/dir/named")),
        op!(
            "link-folded-unnamed",
            |w| w.unnamed(&pattern(9, 9000)).and_then(|()| w.fs.checkpoint()),
            |w| w.name_unnamed("/fardir/named")
        ),
        op!("close-unnamed", |w| w.unnamed(&pattern(9, 9000)), |w| {
            w.handles.clear();
            Ok(())
        }),
        op!(
            "unlink-linked-unnamed",
            |w| w.unnamed(b"few").and_then(|()| w.name_unnamed("/n")),
            |w| { w.unlink("/n") }
        ),
    ]
}

fn hold(w: &mut World) -> Result<()> {
    let handle = w.open("/file")?;
    w.handles.insert("file", handle);
    Ok(())
}

fn orphan(w: &mut World) -> Result<()> {
    hold(w)?;
    w.unlink("/file")
}

fn renames() -> Vec<Op> {
    use RenameMode::{Exchange, NoReplace, Replace};
    vec![
        op!("rename", |w| w.rename("/file", "/renamed", Replace)),
        op!("rename-no-replace", |w| w.rename("/two", "/dir/moved", NoReplace)),
        op!("rename-across", |w| w.rename("/file", "/dir/moved", Replace)),
        op!("rename-replace", |w| w.rename("/file", "/heavy", Replace)),
        op!("rename-replace-across", |w| w.rename("/file", "/dir/inner", Replace)),
        op!("rename-replace-far", |w| w.rename("/file", "/fardir/far", Replace)),
        op!("rename-replace-linked", |w| w.rename("/file", "/two", Replace)),
        op!("rename-replace-open", hold, |w| w.rename("/heavy", "/file", Replace)),
        op!("rename-dir", |w| w.rename("/dir", "/dir2", Replace)),
        op!("rename-dir-across", |w| w.rename("/dir/sub", "/fardir/sub", Replace)),
        op!("rename-dir-replace", |w| w.rename("/dir", "/empty", Replace)),
        op!("rename-dir-replace-up", |w| w.rename("/dir/sub", "/empty", Replace)),
        op!("exchange", |w| w.rename("/file", "/heavy", Exchange)),
        op!("exchange-across", |w| w.rename("/file", "/dir/sub", Exchange)),
        op!("exchange-dirs", |w| w.rename("/dir", "/fardir", Exchange)),
    ]
}

fn writes() -> Vec<Op> {
    vec![
        op!("write-patch", |w| w.write("/file", 4196, &pattern(9, 77))),
        op!("write-patch-again", |w| w.write("/heavy", 95, &pattern(9, 30))),
        op!("write-patch-merge", |w| w.write("/heavy", 4000, &pattern(9, 20))),
        op!("write-inside", |w| w.write("/file", 4196, &pattern(9, 1000))),
        op!("write-across", |w| w.write("/file", 4000, &pattern(9, 200))),
        op!("write-across-unaligned", |w| w.write("/file", 3001, &pattern(9, 7001))),
        op!("overwrite", |w| w.write("/file", BLOCK, &pattern(9, 4096))),
        op!("overwrite-far", |w| w.write("/fardir/far", 0, &pattern(9, 4096))),
        op!("overwrite-many", |w| w.write("/file", 0, &pattern(9, 3 * 4096))),
        op!("write-in-pieces", |w| w.write_in_pieces("/file", &pattern(9, 9000), 5000)),
        op!("write-pages", |w| w.write_pages("/file", BLOCK, &pattern(9, 3 * 4096))),
        op!("write-pages-part", |w| w.write_pages("/heavy", 0, &pattern(9, 4096))),
        op!("write-pages-behind", |w| w.write_pages("/file", 3 * BLOCK, &pattern(9, 3 * 4096))),
        op!("append", |w| w.fs.append(&*w.open("/file")?, &pattern(9, 700)).map(|_| ())),
        op!("append-small", |w| w.fs.append(&*w.open("/two")?, b"!").map(|_| ())),
        op!("append-block", |w| w.fs.append(&*w.open("/attrs")?, &pattern(9, 4096)).map(|_| ())),
        op!("write-past-end", |w| w.write("/file", 9 * BLOCK + 5, &pattern(9, 3000))),
        op!("write-patch-hole", |w| w.write("/attrs", 600 * BLOCK + 9, b"far out")),
        op!("checkpoint", |w| w.fs.checkpoint()),
        Op { name: SYNC, prepare: nothing, run: sync, part: None },
    ]
}

/// Of the file, which is then one that is synced often.
fn sync(w: &mut World) -> Result<()> {
    w.open("/file").map_or_else(|_| w.fs.sync(), |file| w.fs.fsync(&file))
}

fn sizes() -> Vec<Op> {
    vec![
        op!("truncate-up", |w| w.truncate("/file", 8 * BLOCK + 17)),
        op!("truncate-up-edge", |w| w.truncate("/heavy", 3 * BLOCK)),
        op!("truncate-middle", |w| w.truncate("/file", BLOCK + 1000)),
        op!("truncate-edge", |w| w.truncate("/file", 2 * BLOCK)),
        op!("truncate-patched", |w| w.truncate("/heavy", 150)),
        op!("truncate-all", |w| w.truncate("/file", 0)),
        op!("truncate-same-block", |w| w.truncate("/file", 4 * BLOCK + 10)),
        op!("punch", |w| w.fallocate("/file", Fallocate::PunchHole, BLOCK, 2 * BLOCK)),
        op!("punch-parts", |w| w.fallocate("/file", Fallocate::PunchHole, 1000, 2 * BLOCK)),
        op!("punch-inside", |w| w.fallocate("/file", Fallocate::PunchHole, 10, 100)),
        op!("punch-patched", |w| w.fallocate("/heavy", Fallocate::PunchHole, 90, 400)),
        op!("zero-keep", |w| {
            w.fallocate("/file", Fallocate::Zero { keep_size: true }, BLOCK + 9, 3 * BLOCK)
        }),
        op!("zero-extend", |w| {
            w.fallocate("/file", Fallocate::Zero { keep_size: false }, BLOCK + 9, 9 * BLOCK)
        }),
        op!("allocate", |w| {
            w.fallocate("/file", Fallocate::Allocate { keep_size: false }, 0, 9 * BLOCK)
        }),
    ]
}

const KEEP_SIZE: Fallocate = Fallocate::Allocate { keep_size: true };

/// A file with blocks that are reserved between written ones and behind its end.
fn reserve(w: &mut World) -> Result<()> {
    w.fallocate("/file", Fallocate::PunchHole, BLOCK, 2 * BLOCK)?;
    w.fallocate("/file", KEEP_SIZE, 0, 8 * BLOCK)
}

fn reserve_folded(w: &mut World) -> Result<()> {
    reserve(w)?;
    w.fs.checkpoint()
}

fn reserve_write(w: &mut World) -> Result<()> {
    reserve(w)?;
    w.write("/file", BLOCK, &pattern(9, 4096))
}

fn reserved() -> Vec<Op> {
    let patched = |w: &mut World| w.write("/attrs", 3 * BLOCK + 9, b"a patch");
    vec![
        op!("reserve-behind", |w| w.fallocate("/file", KEEP_SIZE, 2 * BLOCK, 9 * BLOCK)),
        op!("reserve-patched", patched, |w| w.fallocate("/attrs", KEEP_SIZE, 0, 8 * BLOCK)),
        op!("reserved-write", reserve, |w| w.write("/file", BLOCK, &pattern(9, 4096))),
        op!("reserved-write-folded", reserve_folded, |w| {
            w.write("/file", BLOCK, &pattern(9, 4096))
        }),
        op!("reserved-write-inside", reserve_folded, |w| w.write("/file", BLOCK + 9, b"inside")),
        op!("reserved-write-many", reserve, |w| w.write("/file", 700, &pattern(9, 4 * 4096))),
        op!("reserved-write-behind", reserve_folded, |w| {
            w.write("/file", 6 * BLOCK, &pattern(9, 5000))
        }),
        op!("reserved-overwrite", reserve_write, |w| w.write("/file", BLOCK, &pattern(7, 4096))),
        op!("reserved-append", reserve, |w| {
            w.fs.append(&*w.open("/file")?, &pattern(9, 6000)).map(|_| ())
        }),
        op!("reserved-truncate", reserve_folded, |w| w.truncate("/file", BLOCK + 1000)),
        op!("reserved-extend", reserve, |w| w.truncate("/file", 6 * BLOCK)),
        op!("reserved-punch", reserve_folded, |w| {
            w.fallocate("/file", Fallocate::PunchHole, 1000, 7 * BLOCK)
        }),
        op!("reserved-zero", reserve, |w| {
            w.fallocate("/file", Fallocate::Zero { keep_size: true }, 1000, 5 * BLOCK)
        }),
        copy!("reserved-copy-over", reserve, |w, len| {
            w.copy(("/fardir/far", 0), ("/file", BLOCK), len.min(2 * BLOCK))
        }),
        op!("reserved-unlink", reserve_folded, |w| w.unlink("/file")),
        op!("reserved-checkpoint", reserve_write, |w| w.fs.checkpoint()),
    ]
}

/// A file that shares all of its blocks with another.
pub(crate) fn share(w: &mut World) -> Result<()> {
    w.make("/copy", NewNode::File)?;
    w.copy(("/file", 0), ("/copy", 0), ALL)
}

/// The same, after a small write that lies in the log and perhaps not in its block.
fn share_patched(w: &mut World) -> Result<()> {
    w.write("/file", 4196, &pattern(9, 77))?;
    share(w)
}

fn share_folded(w: &mut World) -> Result<()> {
    share(w)?;
    w.fs.checkpoint()
}

fn copies() -> Vec<Op> {
    let empty = |w: &mut World| w.make("/copy", NewNode::File).map(|_| ());
    let patched = |w: &mut World| {
        w.make("/copy", NewNode::File)?;
        w.write("/file", 4196, &pattern(9, 77))
    };
    vec![
        copy!("copy", empty, |w, len| w.copy(("/file", 0), ("/copy", 0), len)),
        copy!("copy-far", empty, |w, len| w.copy(("/fardir/far", 0), ("/copy", 0), len)),
        copy!("copy-elsewhere", empty, |w, len| {
            w.elsewhere(|w| w.copy(("/file", 0), ("/copy", 0), len))
        }),
        copy!("copy-over", nothing, |w, len| w.copy(("/file", 0), ("/fardir/far", 0), len)),
        copy!("copy-patched", patched, |w, len| w.copy(("/file", 0), ("/copy", 0), len)),
        copy!("copy-inside", nothing, |w, len| {
            w.copy(("/file", 0), ("/file", 9 * BLOCK), len.min(2 * BLOCK))
        }),
        copy!("copy-again", share, |w, len| w.copy(("/copy", 0), ("/dir/inner", 0), len)),
        copy!("copy-folded-again", share_folded, |w, len| {
            w.copy(("/copy", 0), ("/dir/inner", 0), len)
        }),
        copy!("copy-over-shared", share, |w, len| {
            w.copy(("/fardir/far", 0), ("/copy", BLOCK), len.min(2 * BLOCK))
        }),
    ]
}

fn shared() -> Vec<Op> {
    vec![
        op!("shared-write-source", share, |w| w.write("/file", BLOCK, &pattern(9, 4096))),
        op!("shared-write-copy", share, |w| w.write("/copy", BLOCK, &pattern(9, 4096))),
        op!("shared-write-inside", share_folded, |w| w.write("/file", 4196, &pattern(9, 77))),
        op!("shared-patched-write", share_patched, |w| w.write("/file", 0, &pattern(7, 9000))),
        op!("shared-patched-unlink", share_patched, |w| w.unlink("/file")),
        op!("shared-unlink-source", share, |w| w.unlink("/file")),
        op!("shared-unlink-copy", share_folded, |w| w.unlink("/copy")),
        op!("shared-unlink-both", share_folded, |w| w.unlink("/file"), |w| w.unlink("/copy")),
        op!("shared-truncate", share_folded, |w| w.truncate("/copy", BLOCK + 1000)),
        op!("shared-punch", share, |w| {
            w.fallocate("/file", Fallocate::PunchHole, 1000, 2 * BLOCK)
        }),
        op!("shared-replace", share, |w| w.rename("/heavy", "/copy", RenameMode::Replace)),
        op!("shared-checkpoint", share, |w| w.fs.checkpoint()),
        op!("shared-checkpoint-after", share_folded, |w| w.unlink("/copy"), |w| w.fs.checkpoint()),
    ]
}
