//! Reading many blocks past all caches, for who verifies them: all that lie on one device are asked
//! of it in one call, in the order in which they lie there.

use crate::aligned::Blocks;
use crate::tier::transfer;
use pool::{BLOCK_BYTES, BlockAddr, Capacity, Error, Result, Transfer};
use std::collections::HashMap;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Blocks of devices as they lay there when they were read.
#[derive(Default)]
pub struct ReadBlocks {
    found: HashMap<BlockAddr, Result<Box<[u8; BLOCK]>>>,
}

impl ReadBlocks {
    /// Reads these. The caller holds no lock.
    pub fn of(devices: &[Capacity], mut addrs: Vec<BlockAddr>) -> ReadBlocks {
        addrs.sort_unstable();
        addrs.dedup();
        let mut read = ReadBlocks::default();
        for own in addrs.chunk_by(|one, next| one.device() == next.device()) {
            if read.add(devices, own).is_err() {
                // which of them it is that cannot be read
                for addr in own {
                    if let Err(error) = read.add(devices, std::slice::from_ref(addr)) {
                        read.found.insert(*addr, Err(error));
                    }
                }
            }
        }
        read
    }

    /// Reads blocks of one device, in one call.
    fn add(&mut self, devices: &[Capacity], addrs: &[BlockAddr]) -> Result<()> {
        let mut blocks = Blocks::new(addrs.len());
        let (mut rest, mut transfers) = (blocks.bytes_mut(), Vec::new());
        for run in addrs.chunk_by(|one, next| one.bits() + 1 == next.bits()) {
            let (part, more) = rest.split_at_mut(run.len() * BLOCK);
            rest = more;
            transfers.push(Transfer::Read(run[0].block(), part));
        }
        transfer(devices, addrs[0], &mut transfers)?;
        for (addr, bytes) in addrs.iter().zip(blocks.bytes().chunks_exact(BLOCK)) {
            let mut block = Box::new([0; BLOCK]);
            block.copy_from_slice(bytes);
            self.found.insert(*addr, Ok(block));
        }
        Ok(())
    }

    /// A block, or why it could not be read; `None`: it was not asked for.
    pub fn get(&self, addr: BlockAddr) -> Option<std::result::Result<&[u8; BLOCK], &Error>> {
        self.found.get(&addr).map(|it| it.as_ref().map(|block| &**block))
    }
}
