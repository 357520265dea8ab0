//! Operations of a pool with a capacity tier.

use crate::catalog::{BLOCK, Op, op, share};
use crate::world::{World, pattern};
use fs::{Error, Fallocate, Result};

/// Blocks move, and nothing else happens: what can be seen stays the same.
pub fn bare_moves() -> Vec<Op> {
    vec![
        op!("move", near, move_all),
        op!("move-one", |w| w.write("/file", BLOCK, &pattern(8, 4096)), move_all),
        op!("move-folded", near, |w| w.fs.checkpoint(), move_all),
        op!("move-changed", near, |w| w.write("/file", 4196, &pattern(8, 77)), move_all),
        op!("move-new", |w| w.file("/new", &pattern(8, 30_000)), move_all),
        // blocks with several places, and the one that they have on the device
        op!("move-shared", shared, move_all),
        op!("move-shared-folded", shared, |w| w.fs.checkpoint(), move_all),
        // where a device ends; on two devices what moves at once lies on both
        op!("move-across", nearly_full, move_all),
        // blocks that were set aside in slices
        op!("move-reserved", reserved, move_all),
    ]
}

/// Operations of a pool with a capacity tier.
pub fn moves() -> Vec<Op> {
    let then = vec![
        op!("move-and-back", near, |w| move_all(w).and_then(|()| near(w))),
        op!("move-and-unlink", near, |w| move_all(w).and_then(|()| w.unlink("/file"))),
        op!("move-and-checkpoint", near, |w| move_all(w).and_then(|()| w.fs.checkpoint())),
        op!("moved-checkpoint", near, move_all, |w| w.fs.checkpoint()),
        // places on the device that are used again
        op!("move-twice", moved, near, |w| { w.fs.checkpoint().and_then(|()| move_all(w)) }),
        op!("move-shared-and-write", shared, |w| {
            move_all(w).and_then(|()| w.write("/copy", BLOCK, &pattern(8, 4096)))
        }),
        op!("move-shared-and-unlink", shared, |w| { move_all(w).and_then(|()| w.unlink("/file")) }),
        op!("moved-shared-unlink", moved_shared, |w| w.unlink("/file")),
        op!("moved-shared-checkpoint", moved_shared, |w| {
            w.unlink("/copy").and_then(|()| w.fs.checkpoint())
        }),
        op!("move-reserved-and-write", reserved, |w| {
            move_all(w).and_then(|()| w.write("/file", BLOCK, &pattern(8, 4096)))
        }),
        op!("moved-reserved-write", moved_reserved, |w| w.write("/file", 700, &pattern(8, 9000))),
        op!("moved-reserved-checkpoint", moved_reserved, |w| w.fs.checkpoint()),
    ];
    [bare_moves(), then].concat()
}

fn move_all(world: &mut World) -> Result<()> {
    match world.fs.write_back_all()? {
        0 => Err(Error::Invalid("there is nothing to be moved")),
        _ => Ok(()),
    }
}

fn moved(world: &mut World) -> Result<()> {
    near(world)?;
    move_all(world)
}

/// A file, and a copy that has the same blocks.
fn shared(world: &mut World) -> Result<()> {
    near(world)?;
    share(world)
}

fn moved_shared(world: &mut World) -> Result<()> {
    shared(world)?;
    move_all(world)
}

/// A new file in slices. Of the devices the first places are free and the last, each time fewer
/// than it has blocks. (Rewritten files would leave more, some time later.)
fn nearly_full(world: &mut World) -> Result<()> {
    let free = world.fs.tier_stats().unwrap_or_default().device_blocks_free;
    world.make("/hog", fs::NewNode::File)?;
    world.fallocate("/hog", Fallocate::Allocate { keep_size: true }, 0, free * BLOCK)?;
    world.fallocate("/hog", Fallocate::PunchHole, 0, 3 * BLOCK)?;
    world.fallocate("/hog", Fallocate::PunchHole, (free.saturating_sub(3)) * BLOCK, 3 * BLOCK)?;
    world.file("/over", &pattern(8, 20_000))?;
    // in the `sync` domain they are free when that is durable
    world.fs.sync()
}

/// Blocks that are reserved in slices: the device had no room, and has it again.
fn reserved(world: &mut World) -> Result<()> {
    near(world)?;
    let stats = world.fs.tier_stats().unwrap_or_default();
    world.make("/hog", fs::NewNode::File)?;
    let hog = stats.device_blocks_free * BLOCK;
    world.fallocate("/hog", Fallocate::Allocate { keep_size: false }, 0, hog)?;
    world.fallocate("/file", Fallocate::PunchHole, BLOCK, 2 * BLOCK)?;
    world.fallocate("/file", Fallocate::Allocate { keep_size: true }, 0, 8 * BLOCK)?;
    world.unlink("/hog")?;
    // in the `sync` domain its blocks are free when that is durable
    world.fs.sync()
}

fn moved_reserved(world: &mut World) -> Result<()> {
    reserved(world)?;
    move_all(world)
}

/// Writes files anew: they are in slices then.
fn near(world: &mut World) -> Result<()> {
    world.write("/file", 0, &pattern(7, 4 * 4096 + 300))?;
    world.write("/fardir/far", 0, &pattern(7, 9000))
}
