//! Where blocks lie: in which slice's memory, or on which device.

use crate::addr::BlockAddr;
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::slice::Slice;
use crate::space::Space;
use crate::superblock::BLOCK_BYTES;

impl Pool {
    /// Whether `addr` is a data block of this pool, in a slice or on a device.
    pub fn contains(&self, addr: BlockAddr) -> bool {
        !addr.is_none() && self.space_of(addr).is_some_and(|space| space.contains(addr.block()))
    }

    /// The free blocks of the slice or device that a block lies on, if the pool has it.
    pub(crate) fn space_of(&self, addr: BlockAddr) -> Option<&Space> {
        match addr.device() {
            Some(device) => self.devices.get(device).map(|device| &*device.space),
            None => self.slices.get(usize::from(addr.slice())).map(|slice| &*slice.space),
        }
    }

    /// What is read of a block of a device is not what was written there: nobody else is to get
    /// its place, until the pool is opened anew. Whether that is new.
    pub fn withdraw(&self, addr: BlockAddr) -> bool {
        let space = self.space_of(addr).filter(|_| addr.device().is_some());
        space.is_some_and(|space| space.withdraw(addr.block()))
    }

    /// The slice whose trees say of a block whether it is free, and how many places it has.
    pub fn home_of(&self, addr: BlockAddr) -> usize {
        addr.home(self.slices.len())
    }

    /// Where a block of a slice lies.
    #[inline]
    pub(crate) fn place(&self, addr: BlockAddr) -> (&Slice, u64) {
        (&self.slices[usize::from(addr.slice())], addr.block() * BLOCK_BYTES)
    }

    /// The same for what is to be read: an error of a block that is on a device.
    #[inline]
    pub(crate) fn memory_of(&self, addr: BlockAddr) -> Result<(&Slice, u64)> {
        match self.slices.get(usize::from(addr.slice())) {
            Some(slice) => Ok((slice, addr.block() * BLOCK_BYTES)),
            None => Err(Error::Away(addr)),
        }
    }
}
