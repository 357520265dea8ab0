//! Reading and writing blocks, and syncing them.

use crate::addr::BlockAddr;
use crate::error::Result;
use crate::pool::Pool;
use crate::superblock::BLOCK_BYTES;
use pmem::InFlight;

impl Pool {
    /// Copies out of the first copy of a block, `at` bytes into it (on into the blocks behind it).
    #[inline]
    pub fn read(&self, addr: BlockAddr, at: u64, buffer: &mut [u8]) -> Result<()> {
        let (slice, offset) = self.memory_of(addr)?;
        Ok(slice.mapping.read_own(offset + at, buffer)?)
    }

    /// Copies a whole block out and gives its checksum.
    #[inline]
    pub fn read_crc(&self, addr: BlockAddr, buffer: &mut [u8]) -> Result<u32> {
        let (slice, offset) = self.memory_of(addr)?;
        Ok(slice.mapping.read_crc_own(offset, buffer)?)
    }

    /// These bytes of a block are wanted soon.
    #[inline]
    pub fn prefetch(&self, addr: BlockAddr, at: usize, len: usize) {
        if let Ok((slice, offset)) = self.memory_of(addr) {
            slice.mapping.prefetch(offset + at as u64, len);
        }
    }

    /// Checksum of one block.
    pub fn crc(&self, addr: BlockAddr) -> Result<u32> {
        let (slice, offset) = self.memory_of(addr)?;
        Ok(slice.mapping.crc(offset, BLOCK_BYTES as usize)?)
    }

    /// What a block's checksum changes by when `data` take the place of what is `at` bytes into it.
    #[inline]
    pub fn crc_difference(&self, addr: BlockAddr, at: usize, data: &[u8]) -> Result<u32> {
        let (slice, offset) = self.memory_of(addr)?;
        let behind = BLOCK_BYTES as usize - at - data.len();
        Ok(slice.mapping.crc_difference(offset + at as u64, data, behind)?)
    }

    /// Writes one block and gives its checksum.
    #[inline]
    pub fn write_block(&self, addr: BlockAddr, data: &[u8]) -> (InFlight, u32) {
        debug_assert_eq!(data.len() as u64, BLOCK_BYTES);
        let (slice, offset) = self.place(addr);
        slice.mapping.write_crc(offset, data)
    }

    /// Writes whole blocks that lie one behind the other, and gives their checksums.
    pub fn write_blocks(&self, first: BlockAddr, data: &[u8], sums: &mut [u32]) -> InFlight {
        let (slice, offset) = self.place(first);
        slice.mapping.write_blocks(offset, data, sums)
    }

    /// Copies so many blocks that lie one behind the other to others that do, of another slice.
    /// Bytes that change meanwhile arrive old or new.
    pub fn copy_blocks(&self, first: BlockAddr, from: BlockAddr, count: usize) -> Result<InFlight> {
        let ((slice, offset), (source, at)) = (self.place(first), self.memory_of(from)?);
        Ok(slice.mapping.copy_blocks(offset, &source.mapping, at, count)?)
    }

    /// Everything stored before is on the medium when this returns.
    pub fn sync(&self) -> Result<()> {
        self.sync_slices(0..self.slices.len())
    }

    /// The same of what was stored to these slices.
    pub fn sync_slices(&self, slices: std::ops::Range<usize>) -> Result<()> {
        pmem::sync_all(self.slices[slices].iter().map(|slice| &slice.mapping)).map_err(|error| {
            self.poison(&error.to_string());
            error.into()
        })
    }
}
