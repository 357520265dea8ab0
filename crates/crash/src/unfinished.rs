//! A pool in which a checkpoint was killed that wrote all of its root but some bytes; the next
//! checkpoint, the one of recovery, writes those, too.

use crate::arena::Arena;
use crate::catalog::named;
use crate::events::{Trace, apply_all};
use crate::images::{Images, Outcome, Shape, failed};
use crate::recording::{Recorder, Recording};
use pmem::Domain;
use std::ops::Range;
use std::sync::Arc;

/// Of a root: its generation, the number of the tree's first page, and the bytes before its
/// checksum (docs/FORMAT.md).
const GENERATION: Range<usize> = 24..32;
const TREE: usize = 72;
const CHECKED: usize = 248;
/// What is missing: zeros, where the tree's end, the free-space tree's and room lie.
const MISSING: Range<usize> = 128..192;
const BLOCK: usize = 4096;

/// An open of it.
pub fn unfinished(domain: Domain) -> Outcome<Recording> {
    let shape = Shape { slices: 1, domain, ..Shape::SMALL };
    let mut recorder = Recorder::new(&shape, 0)?;
    recorder.plant()?;
    recorder.world.fs.checkpoint().map_err(|error| failed("checkpoint")(&error))?;
    recorder.begin()?;
    let _ = recorder.op(&named("overwrite-many")?);
    recorder.world.fs.sync().map_err(|error| failed("sync")(&error))?;
    let blocks_free = recorder.blocks_free();
    let mut images = recorder.images();
    drop(recorder);
    let later = recovered(domain, &images)?;
    plant(&mut images, &later)?;
    let mut recorder = Recorder::on(domain, images, blocks_free, 0)?;
    recorder.begin_at_open()?;
    Ok(recorder.finish(format!("an open after a checkpoint that was killed, {domain}")))
}

/// What an open leaves of these images.
fn recovered(domain: Domain, images: &Images) -> Outcome<Images> {
    let mut images = images.clone();
    let trace = Arc::new(Trace::default());
    let fs = Arena::new(domain, &images)?.open(Some(&trace))?;
    apply_all(&trace.take(), &mut images);
    drop(fs);
    Ok(images)
}

/// Puts there what the next generation could have left: its root names a page of nothing.
fn plant(images: &mut Images, later: &Images) -> Outcome<()> {
    let (now, later) = (&mut images[0], &later[0]);
    let generation = |image: &[u8], block: usize| {
        let bytes = image[block * BLOCK..][GENERATION].try_into().unwrap_or_default();
        u64::from_le_bytes(bytes)
    };
    let slots = [[1, 4], [2, 5]];
    let slot = slots.into_iter().max_by_key(|slot| generation(later, slot[0]));
    let slot = slot.filter(|slot| generation(later, slot[0]) > generation(now, slot[0]));
    let slot = slot.ok_or("recovery wrote no root")?;
    let mut root = later[slot[0] * BLOCK..][..256].to_vec();
    root[TREE] ^= 1;
    let crc = pmem::crc32c(0, &root[..CHECKED]);
    root[CHECKED..CHECKED + 4].copy_from_slice(&crc.to_le_bytes());
    root[MISSING].fill(0xFF);
    slot.iter().for_each(|block| now[block * BLOCK..][..256].copy_from_slice(&root));
    Ok(())
}
