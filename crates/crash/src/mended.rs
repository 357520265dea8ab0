//! Mirrored pools of which a copy was damaged or stale, and is made whole while the pool is in use.

use crate::arena::{Arena, Files};
use crate::catalog::named;
use crate::events::{Trace, apply_all};
use crate::images::{Images, Outcome, Shape, failed};
use crate::recording::{Recorder, Recording};
use crate::world::{World, pattern};
use pmem::Domain;
use std::sync::Arc;

const BLOCK: usize = 4096;
/// First bytes of a superblock, and of a root.
const HEADS: [&[u8]; 2] = [b"NEARSIDE", b"NSROOT01"];

/// The pool of the catalog, closed.
fn closed(domain: Domain) -> Outcome<(Images, u64)> {
    let shape = Shape { domain, ..Shape::MIRRORED };
    let mut recorder = Recorder::new(&shape, 0)?;
    let blocks_free = recorder.blocks_free();
    recorder.plant()?;
    let _ = recorder.world.at_home(|world| world.write("/file", 0, &pattern(9, 3 * BLOCK)));
    Ok((recorder.close()?, blocks_free))
}

/// A pool whose first file was away while files were made, changed and removed.
pub fn stale(domain: Domain) -> Outcome<Recorder> {
    let (mut images, blocks_free) = closed(domain)?;
    let trace = Arc::new(Trace::default());
    let fs = Arena::new(domain, &images)?.with(Files::Without(0)).open(Some(&trace))?;
    let mut world = World::new(fs, 0, 0);
    let change = |world: &mut World| {
        world.file("/made", &pattern(5, 30_000))?;
        world.write("/file", 100, &pattern(6, 9000))
    };
    change(&mut world).map_err(|error| failed("changes")(&error))?;
    world.handles.clear();
    let fs = Arc::into_inner(world.fs).ok_or("it is in use")?;
    fs.close().map_err(|error| failed("close")(&error))?;
    apply_all(&trace.take(), &mut images);
    Recorder::on(domain, images, blocks_free, 0)
}

/// A file that was stale is up to date; then all crashes take the other one.
pub fn resilvered(domain: Domain) -> Outcome<Recording> {
    let recorder = stale(domain)?;
    let done = recorder.world.fs.resilver(&mut |_, _| true).ok_or("nothing was stale")?;
    if done.ended != Some(Ok(())) {
        return Err(format!("{:?}", done.ended));
    }
    and_then(recorder, "a file brought up to date", domain)
}

/// A file in which every block of data, root and superblock was damaged is scrubbed; then all
/// crashes take the other one.
pub fn scrubbed(domain: Domain) -> Outcome<Recording> {
    let (mut images, blocks_free) = closed(domain)?;
    let data = pattern(9, 3 * BLOCK);
    for block in images[0].chunks_mut(BLOCK) {
        let is_data = data.chunks(BLOCK).any(|data| data == block);
        if is_data || HEADS.iter().any(|head| block.starts_with(head)) {
            block[40] ^= 1;
        }
    }
    // a file without any superblock of its own would be none
    images[0][40] ^= 1;
    let recorder = Recorder::on(domain, images, blocks_free, 0)?;
    let scrub = recorder.world.fs.scrub(None, &mut |_, _| true);
    let report = scrub.map_err(|error| failed("scrub")(&error))?.unwrap_or_default();
    if report.repaired.len() < 4 || !report.findings.is_empty() {
        return Err(format!("{report:?}"));
    }
    and_then(recorder, "a file scrubbed", domain)
}

fn and_then(mut recorder: Recorder, what: &str, domain: Domain) -> Outcome<Recording> {
    recorder.begin()?;
    let op = named("overwrite")?;
    let _ = recorder.op(&op)?;
    recorder.operation("sync", |world| world.fs.sync())?.map_err(|e| failed("sync")(&e))?;
    Ok(Recording { files: Files::Without(1), ..recorder.finish(format!("{what}, {domain}")) })
}
