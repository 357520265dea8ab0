//! Operations that move blocks from slice to slice.

use crate::catalog::{BLOCK, Op, op};
use crate::world::{World, pattern};
use fs::Result;

/// The slice on which `/file` is made, and the other one.
const HERE: u8 = 0;
const THERE: u8 = 1;

/// Blocks that move, alone and beside what else happens to them.
pub fn migrations() -> Vec<Op> {
    vec![
        op!("migrate", there),
        op!("migrate-new", |w| w.file("/new", &pattern(8, 30_000)), |w| {
            to_the_other(w, "/new")
        }),
        op!("migrate-patched", |w| w.write("/file", 4196, &pattern(9, 77)), there),
        op!("migrate-and-patch", |w| {
            there(w).and_then(|()| w.write("/file", 4196, &pattern(9, 77)))
        }),
        op!("migrate-and-write", |w| {
            there(w).and_then(|()| w.write("/file", BLOCK, &pattern(8, 4096)))
        }),
        op!("migrate-and-back", |w| there(w).and_then(|()| there(w))),
        op!("migrate-and-unlink", |w| there(w).and_then(|()| w.unlink("/file"))),
        op!("migrate-and-checkpoint", |w| there(w).and_then(|()| w.fs.checkpoint())),
        op!("migrated-patch", there, |w| w.write("/file", 4196, &pattern(9, 77))),
        op!("migrated-checkpoint", there, |w| w.fs.checkpoint()),
        // the places that it left are used again
        op!("migrated-reuse", there, |w| w.fs.checkpoint(), |w| {
            w.write("/heavy", 0, &pattern(8, 30_000))
        }),
    ]
}

/// Wherever it was, it is on the other slice then.
fn to_the_other(world: &mut World, path: &str) -> Result<()> {
    if !world.migrate(path, THERE)? {
        world.migrate(path, HERE)?;
    }
    Ok(())
}

fn there(world: &mut World) -> Result<()> {
    to_the_other(world, "/file")
}
