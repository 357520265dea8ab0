//! A device of the capacity tier in the memory of an arena: crashes tear what it was not told to
//! sync, as they tear what slices did not fence.

use pmem::{Deferred, Mapping};
use pool::{BLOCK_BYTES, Device, Transfer};
use std::io;
use std::sync::{Mutex, PoisonError};

/// A device.
#[derive(Debug)]
pub struct MappedDevice {
    mapping: Mapping,
    /// What was written since the last sync.
    written: Mutex<Vec<Deferred>>,
}

impl MappedDevice {
    /// The device in this memory.
    pub fn new(mapping: Mapping) -> MappedDevice {
        MappedDevice { mapping, written: Mutex::default() }
    }
}

impl Device for MappedDevice {
    fn bytes(&self) -> u64 {
        self.mapping.len()
    }

    fn transfer(&self, transfers: &mut [Transfer<'_>]) -> io::Result<()> {
        for transfer in transfers {
            match transfer {
                Transfer::Read(block, bytes) => {
                    let read = self.mapping.read(*block * BLOCK_BYTES, bytes);
                    read.map_err(|error| io::Error::other(error.to_string()))?;
                }
                Transfer::Write(block, bytes) => {
                    let stored = self.mapping.store_deferred(*block * BLOCK_BYTES, bytes);
                    self.written.lock().unwrap_or_else(PoisonError::into_inner).push(stored);
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let written =
            std::mem::take(&mut *self.written.lock().unwrap_or_else(PoisonError::into_inner));
        let (in_flight, _) = self.mapping.flush_deferred(written);
        let _ = pmem::fence(in_flight);
        self.mapping.sync().map_err(|error| io::Error::other(error.to_string()))
    }

    fn path(&self) -> String {
        "memory".to_owned()
    }
}
