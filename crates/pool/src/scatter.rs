//! Reading neighbouring blocks of a device into memory that is not one piece: the frames of a
//! cache, which lie anywhere.

use crate::device::{Device, Transfer};
use std::io;

/// A run of blocks that is read into pieces of memory.
#[derive(Debug)]
pub struct Scatter<'b> {
    /// The first of them.
    pub block: u64,
    /// The memory, in the order of the blocks; whole blocks in all.
    pub into: Vec<&'b mut [u8]>,
}

impl Scatter<'_> {
    /// How much it reads.
    pub fn bytes(&self) -> usize {
        self.into.iter().map(|piece| piece.len()).sum()
    }
}

/// Reads such runs with transfers, those of several pieces by a detour: for devices that know
/// nothing better.
pub fn scatter_by_copy<D: Device + ?Sized>(device: &D, runs: &mut [Scatter<'_>]) -> io::Result<()> {
    let detour = |run: &Scatter<'_>| match run.into.len() {
        1 => Vec::new(),
        _ => vec![0; run.bytes()],
    };
    let mut detours: Vec<Vec<u8>> = runs.iter().map(detour).collect();
    let mut transfers = Vec::with_capacity(runs.len());
    for (run, detour) in runs.iter_mut().zip(&mut detours) {
        let into = match &mut run.into[..] {
            [piece] => &mut **piece,
            _ => &mut detour[..],
        };
        transfers.push(Transfer::Read(run.block, into));
    }
    device.transfer(&mut transfers)?;
    for (run, detour) in runs.iter_mut().zip(&detours).filter(|(run, _)| run.into.len() > 1) {
        let mut rest = &detour[..];
        for piece in &mut run.into {
            let (own, more) = rest.split_at(piece.len());
            piece.copy_from_slice(own);
            rest = more;
        }
    }
    Ok(())
}
