//! Operations of a pool with a capacity tier.

use crate::catalog::{BLOCK, Op, op};
use crate::world::{World, pattern};
use fs::Result;

/// Operations of a pool with a capacity tier.
pub fn moves() -> Vec<Op> {
    vec![
        op!("move", near, move_all),
        op!("move-one", |w| w.write("/file", BLOCK, &pattern(8, 4096)), move_all),
        op!("move-folded", near, |w| w.fs.checkpoint(), move_all),
        op!("move-changed", near, |w| w.write("/file", 4196, &pattern(8, 77)), move_all),
        op!("move-new", |w| w.file("/new", &pattern(8, 30_000)), move_all),
        op!("move-and-back", near, |w| move_all(w).and_then(|()| near(w))),
        op!("move-and-unlink", near, |w| move_all(w).and_then(|()| w.unlink("/file"))),
        op!("move-and-checkpoint", near, |w| move_all(w).and_then(|()| w.fs.checkpoint())),
        op!("moved-checkpoint", near, move_all, |w| w.fs.checkpoint()),
        // places on the device that are used again
        op!("move-twice", moved, near, |w| { w.fs.checkpoint().and_then(|()| move_all(w)) }),
    ]
}

fn move_all(world: &mut World) -> Result<()> {
    world.fs.write_back_all().map(|_| ())
}

fn moved(world: &mut World) -> Result<()> {
    near(world)?;
    move_all(world)
}

/// Writes files anew: they are in slices then.
fn near(world: &mut World) -> Result<()> {
    world.write("/file", 0, &pattern(7, 4 * 4096 + 300))?;
    world.write("/fardir/far", 0, &pattern(7, 9000))
}
