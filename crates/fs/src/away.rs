//! Blocks that are on the capacity tier: reading them, and who waits for it.
//!
//! A call that meets one which is not in memory gets an error (`pool::Error::Away`), lets go of its
//! locks, of the gate and of its epoch, has it fetched, and begins again. Until it ends, what was
//! fetched for it stays, so that it comes further each time.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::system::FileSystem;
use pool::{BLOCK_BYTES, BlockAddr, OpenOptions, Pool, Recovery};
use std::cell::RefCell;
use std::path::Path;

/// Blocks that a call which meets many of them has fetched at one time.
pub const AWAY_BLOCKS_MAX: usize = 4096;

thread_local! {
    /// What the call that this thread makes will meet besides the block that it met.
    static WANTED: RefCell<Vec<BlockAddr>> = const { RefCell::new(Vec::new()) };
}

/// Says what the call will meet when it begins again.
pub fn want(addrs: impl IntoIterator<Item = BlockAddr>) {
    WANTED.with_borrow_mut(|wanted| {
        wanted.clear();
        wanted.extend(addrs);
    });
}

/// What it will meet, with the block that it met.
pub fn wanted_with(addr: BlockAddr) -> Vec<BlockAddr> {
    let mut wanted = WANTED.take();
    if !wanted.contains(&addr) {
        wanted.push(addr);
    }
    wanted
}

const BLOCK: usize = BLOCK_BYTES as usize;

/// What one call reads of the tier at one time; see [`Core::read`].
pub const AWAY_BYTES_MAX: usize = 1 << 20;

/// Opens the pool in `dir` with the devices of its capacity tier.
pub fn open_pool(dir: &Path, options: &OpenOptions) -> Result<(Pool, Recovery)> {
    let mut options = options.clone();
    if options.devices.is_empty() {
        options.devices = tier::open_devices(dir, options.read_only)?;
    }
    Ok(Pool::open(dir, &options)?)
}

/// The block that is away, if that is what is wrong.
pub fn away(error: &Error) -> Option<BlockAddr> {
    match error {
        Error::Pool(error) => match **error {
            pool::Error::Away(addr) => Some(addr),
            _ => None,
        },
        _ => None,
    }
}

impl FileSystem {
    /// Reads without ever waiting for a writer's lock: for who serves one that may hold some. What
    /// lies behind the file's end is zeros. Before a device is waited for `waits` is called.
    pub fn read_unlocked(
        &self,
        handle: &Handle,
        offset: u64,
        buffer: &mut [u8],
        waits: &mut dyn FnMut(),
    ) -> Result<()> {
        for (index, part) in buffer.chunks_mut(AWAY_BYTES_MAX).enumerate() {
            let at = offset + (index * AWAY_BYTES_MAX) as u64;
            let done = self.core.read_and_fetch(&handle.inode, at, part, waits)?;
            part[done..].fill(0);
        }
        Ok(())
    }
}

impl Core {
    /// A read of which some blocks are on the capacity tier, and that is too long to hold them all:
    /// in parts, each of which is atomic.
    #[cold]
    pub fn read_by_parts(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            // parts end where blocks do
            let len = AWAY_BYTES_MAX - (at % BLOCK_BYTES) as usize;
            let end = buffer.len().min(done + len);
            let part = &mut buffer[done..end];
            let read = self.read(inode, at, part)?;
            done += read;
            if read < end - (done - read) {
                break;
            }
        }
        Ok(done)
    }

    /// A whole block as it lies in its slice or on its device, if it is in memory.
    pub fn read_raw(&self, addr: BlockAddr, whole: &mut [u8; BLOCK]) -> Result<()> {
        let Some(tier) = self.tier.as_ref().filter(|_| addr.device().is_some()) else {
            return Ok(self.pool.read(addr, 0, whole)?);
        };
        if let Some(page) = tier.page(addr) {
            whole.copy_from_slice(page.bytes());
            return Ok(());
        }
        // keeps the copy from being used again
        let _pin = crossbeam_epoch::pin();
        let near = tier.near(addr).ok_or(pool::Error::Away(addr))?;
        Ok(self.pool.read(near, 0, whole)?)
    }

    /// A part of a block that is on a device, if it is in memory; whether it is the one that has
    /// this checksum. All of it had it when it came there: a copy in a slice was compared before it
    /// became one, a page when it was read.
    pub fn read_part_below(
        &self,
        addr: BlockAddr,
        crc: u32,
        at: usize,
        out: &mut [u8],
    ) -> Result<bool> {
        let Some(tier) = &self.tier else { return Err(pool::Error::Away(addr).into()) };
        if let Some(page) = tier.page(addr) {
            out.copy_from_slice(&page.bytes()[at..at + out.len()]);
            let fits = pmem::crc_fits(page.crc(), crc);
            if fits {
                page.set_compared();
            }
            return Ok(fits);
        }
        // keeps the copy from being used again
        let _pin = crossbeam_epoch::pin();
        let near = tier.near(addr).ok_or(pool::Error::Away(addr))?;
        // where that memory fails, the device has it
        Ok(self.pool.read(near, at as u64, out).is_ok())
    }

    /// A whole block, whether it is in memory or not: for who keeps nobody waiting.
    pub fn read_past_caches(&self, addr: BlockAddr, whole: &mut [u8; BLOCK]) -> Result<()> {
        match addr.device() {
            Some(_) => Ok(tier::read(self.pool.devices(), addr, whole)?),
            None => Ok(self.pool.read(addr, 0, whole)?),
        }
    }

    /// Brings blocks into memory, for this thread until [`let_go`](Core::let_go). The caller holds
    /// no lock, nor an epoch.
    #[cold]
    pub fn fetch(&self, addrs: &[BlockAddr]) -> Result<()> {
        match &self.tier {
            Some(tier) => Ok(tier.fetch(self.pool.devices(), addrs)?),
            // an address that the pool does not have is met when it is loaded
            None => Err(pool::Error::Away(addrs.first().copied().unwrap_or_default()).into()),
        }
    }

    /// What was fetched for this thread may go.
    #[inline]
    pub fn let_go(&self) {
        if let Some(tier) = &self.tier {
            tier.let_go();
        }
    }

    /// What a device gives back of a block does not match its checksum: nobody else is to get its
    /// place, until the pool is opened anew.
    #[cold]
    pub fn withdraw(&self, addr: BlockAddr) {
        if self.pool.withdraw(addr) {
            let place = addr.place();
            tracing::warn!("the data at {place} is damaged: its place is not used again");
        }
    }

    /// What is cached of a block does not match its checksum: the next one who wants it reads it
    /// anew. True if that may help: it was not read for this very call.
    #[cold]
    pub fn forget_page(&self, addr: BlockAddr) -> bool {
        let tier = self.tier.as_ref().filter(|_| addr.device().is_some());
        tier.is_some_and(|tier| {
            let was_read = tier.is_held(addr) && !tier.is_near(addr);
            tier.forget(addr);
            !was_read
        })
    }
}
