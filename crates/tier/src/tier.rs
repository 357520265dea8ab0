//! The tier of one pool: reading blocks through the caches, and writing them.

use crate::cache::{Cache, Found};
use crate::copies::Copies;
use crate::evictor::Evictor;
use crate::held;
use crate::load::Load;
use crate::page::Page;
use parking_lot::Mutex;
use pool::{BLOCK_BYTES, BlockAddr, Capacity, Error, Extent, Reclaim, Result, Scatter, Transfer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Hot blocks that are remembered.
const HOT_BLOCKS_MAX: usize = 512;
/// Neighbouring blocks that are in the cache of one slice: 1 MiB.
const RANGE_BLOCKS: u64 = 256;

/// What was read and written, since open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TierCounts {
    /// Looks that found a block in DRAM, or in a slice.
    pub hits: u64,
    /// Blocks that were read from devices.
    pub read_blocks: u64,
    /// Of these ahead of who reads in order.
    pub ahead_blocks: u64,
    /// Blocks that were written to them.
    pub written_blocks: u64,
    /// Bytes of DRAM in the caches.
    pub cached_bytes: u64,
}

/// What the cache of a slice may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheRoom {
    /// DRAM, bytes.
    pub bytes: u64,
    /// The node where that is to be, as the kernel numbers nodes; `None`: anywhere.
    pub node: Option<u32>,
}

/// The capacity tier of an open pool.
#[derive(Debug)]
pub struct Tier {
    /// Tells the tiers of a process apart.
    number: u64,
    caches: Vec<Arc<Cache>>,
    /// Those who keep room in the caches.
    evictors: Mutex<Vec<Evictor>>,
    copies: Copies,
    /// Blocks in DRAM that are looked at often.
    hot: Mutex<Vec<BlockAddr>>,
    /// Takes the blocks of copies that are let go of.
    reclaim: Arc<Reclaim>,
    hits: AtomicU64,
    read_blocks: AtomicU64,
    ahead_blocks: AtomicU64,
    written_blocks: AtomicU64,
}

static TIERS: AtomicU64 = AtomicU64::new(0);

impl Tier {
    /// With such a cache for each slice; the free blocks of the slices `reclaim` has.
    pub fn new(rooms: &[CacheRoom], reclaim: Arc<Reclaim>) -> Tier {
        let pages = |room: &CacheRoom| (room.bytes / BLOCK_BYTES) as usize;
        let cache = |room: &CacheRoom| Arc::new(Cache::new(pages(room), room.node));
        let none = [CacheRoom::default()];
        let caches = if rooms.is_empty() { &none } else { rooms }.iter().map(cache).collect();
        Tier {
            // ordering: only uniqueness matters
            number: TIERS.fetch_add(1, Ordering::Relaxed),
            caches,
            evictors: Mutex::default(),
            copies: Copies::new(rooms.len()),
            hot: Mutex::default(),
            reclaim,
            hits: AtomicU64::new(0),
            read_blocks: AtomicU64::new(0),
            ahead_blocks: AtomicU64::new(0),
            written_blocks: AtomicU64::new(0),
        }
    }

    /// Has threads keep room in the caches until this is dropped: one for each slice, on these CPUs
    /// (on any where there are none).
    pub fn start_evictors(&self, cpus: impl Fn(u8) -> Vec<u32>) -> std::io::Result<()> {
        let mut evictors = self.evictors.lock();
        for (slice, cache) in (0..).zip(&self.caches) {
            evictors.push(Evictor::start(cache, format!("ns-evict {slice}"), cpus(slice))?);
        }
        Ok(())
    }

    /// Whether the pages of a slice's cache lie on its node, as long as there is memory.
    pub fn is_bound(&self, slice: usize) -> bool {
        self.caches.get(slice).is_some_and(|cache| cache.is_bound())
    }

    pub(crate) fn cache(&self, addr: BlockAddr) -> &Cache {
        &self.caches[self.cache_of(addr)]
    }

    /// Holds a page for this thread.
    pub(crate) fn hold(&self, addr: BlockAddr, page: Arc<Page>) {
        held::hold(self.number, addr, page);
    }

    pub(crate) fn was_read(&self, blocks: u64) {
        self.read_blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    fn cache_of(&self, addr: BlockAddr) -> usize {
        (addr.block() / RANGE_BLOCKS) as usize % self.caches.len()
    }

    /// A block, if it is in memory.
    pub fn page(&self, addr: BlockAddr) -> Option<Arc<Page>> {
        if !held::is_empty()
            && let Some(page) = held::find(self.number, addr)
        {
            return Some(page);
        }
        let page = self.cache(addr).get(addr)?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        if page.look()
            && let Some(mut hot) = self.hot.try_lock()
            && hot.len() < HOT_BLOCKS_MAX
        {
            hot.push(addr);
        }
        Some(page)
    }

    /// Blocks in DRAM that many looked at, where a cache has no room for more, and that are the
    /// caller's `own`: he is to [`promote`](Tier::promote) them.
    pub fn take_hot(&self, own: impl Fn(BlockAddr) -> bool) -> Vec<BlockAddr> {
        let mut hot: Vec<BlockAddr> = self.hot.lock().extract_if(.., |addr| own(*addr)).collect();
        if !hot.is_empty() {
            let full: Vec<bool> = self.caches.iter().map(|cache| cache.is_full()).collect();
            hot.retain(|addr| full[self.cache_of(*addr)] && !self.is_near(*addr));
        }
        hot
    }

    /// Makes a copy of a block that is in DRAM in this block of a slice, which nobody has, with
    /// what `write` writes there. False: nobody has it still. A page that was read ahead, or again,
    /// and that nobody has compared since is not copied.
    pub fn promote(&self, addr: BlockAddr, near: BlockAddr, write: impl FnOnce(&[u8])) -> bool {
        let page = self.cache(addr).get(addr).filter(|page| page.is_compared());
        let Some(page) = page else { return false };
        write(page.bytes());
        // a page that is held stays in its cache: whoever gives its place away says so to it first,
        // and takes the copy away then
        self.copies.put_if(addr, near, || !page.is_dead())
    }

    /// Whether a block was fetched for this thread.
    pub fn is_held(&self, addr: BlockAddr) -> bool {
        !held::is_empty() && held::find(self.number, addr).is_some()
    }

    /// Whether a block is in memory, for who does not want it yet.
    pub fn has(&self, addr: BlockAddr) -> bool {
        self.is_held(addr) || self.cache(addr).get(addr).is_some() || self.is_near(addr)
    }

    /// Where the block lies in a slice, too. The caller holds an epoch until he has read it.
    #[inline]
    pub fn near(&self, addr: BlockAddr) -> Option<BlockAddr> {
        let near = self.copies.get(addr)?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(near)
    }

    /// Whether the block lies in a slice, too, for who does not want it yet.
    pub fn is_near(&self, addr: BlockAddr) -> bool {
        self.copies.get(addr).is_some()
    }

    /// The same for who counts those: none of them is used thereby.
    pub fn has_copy(&self, addr: BlockAddr) -> bool {
        self.copies.has(addr)
    }

    /// A block that is on the tier lies in a slice, too, where nobody owns it any more. False: it
    /// has a copy already, and the caller is to retire that block.
    pub fn keep(&self, addr: BlockAddr, near: BlockAddr) -> bool {
        self.copies.put_if(addr, near, || true)
    }

    /// How many blocks lie in slices, too.
    pub fn copies(&self) -> u64 {
        self.copies.len()
    }

    /// How many of these in one slice.
    pub fn copies_in(&self, slice: usize) -> u64 {
        self.copies.in_slice(slice)
    }

    /// Lets go of up to so many of those that nobody read lately; gives how many.
    pub fn evict_copies(&self, count: u64) -> u64 {
        let evicted = self.copies.evict(count, |_| true);
        self.reclaim.retire(&evicted);
        evicted.len() as u64
    }

    /// The same of those in one slice.
    pub fn evict_copies_in(&self, slice: usize, count: u64) -> u64 {
        let count = count.min(self.copies_in(slice));
        let evicted = self.copies.evict(count, |near| usize::from(near.slice()) == slice);
        self.reclaim.retire(&evicted);
        evicted.len() as u64
    }

    /// A record took these places away: before they are retired.
    pub fn free(&self, addrs: &[BlockAddr]) {
        if self.copies.len() == 0 {
            return;
        }
        let far = addrs.iter().filter(|addr| addr.device().is_some());
        let near: Vec<BlockAddr> = far.filter_map(|addr| self.copies.take(*addr)).collect();
        self.reclaim.retire(&near);
    }

    /// Reads blocks into the caches, and holds them for this thread until [`let_go`](Tier::let_go).
    /// The caller holds no lock.
    pub fn fetch(&self, devices: &[Capacity], addrs: &[BlockAddr]) -> Result<()> {
        self.fetch_with(devices, addrs, &[])
    }

    /// Blocks that may be read ahead at one time, so that the caches still hold others.
    pub fn ahead_max(&self) -> u64 {
        self.caches.iter().map(|cache| cache.pages_max()).min().unwrap_or(0) as u64 / 8
    }

    /// The same, and in the same calls to the devices those that somebody may want soon.
    pub fn fetch_with(
        &self,
        devices: &[Capacity],
        addrs: &[BlockAddr],
        ahead: &[BlockAddr],
    ) -> Result<()> {
        let (mut to_load, mut of_others) = (Vec::new(), Vec::new());
        for addr in addrs {
            if self.is_near(*addr) {
                continue;
            }
            match self.cache(*addr).look(*addr) {
                Found::There(page) => self.hold(*addr, page),
                Found::ToLoad(number) => to_load.push(self.to_load(*addr, number)),
                Found::Loading => of_others.push(*addr),
            }
        }
        let wanted = to_load.len();
        for addr in ahead.iter().filter(|addr| !self.is_near(**addr)) {
            let cache = self.cache(*addr);
            if let Found::ToLoad(number) = cache.look(*addr) {
                match cache.frame() {
                    Some(frame) => to_load.push(Load { addr: *addr, number, frame }),
                    None => cache.loaded(*addr, number, None),
                }
            }
        }
        let more = (to_load.len() - wanted) as u64;
        self.load(devices, to_load)?;
        self.ahead_blocks.fetch_add(more, Ordering::Relaxed);
        for addr in of_others {
            self.cache(addr).wait(addr);
            if let Found::ToLoad(number) = self.cache(addr).look(addr) {
                self.load(devices, vec![self.to_load(addr, number)])?;
            }
            // what a third one reads is there when the caller asks again, or is fetched again
            if let Some(page) = self.cache(addr).get(addr) {
                self.hold(addr, page);
            }
        }
        Ok(())
    }

    /// Lets go of what was fetched for this thread.
    #[inline]
    pub fn let_go(&self) {
        if !held::is_empty() {
            self.let_go_of(held::take());
        }
    }

    #[cold]
    fn let_go_of(&self, held: held::Held) {
        for ((_, addr), page) in held {
            let is_on_heap = page.is_on_heap();
            drop(page);
            if is_on_heap {
                self.cache(addr).let_go_of(addr);
            }
        }
    }

    /// The place of a block is given to another: what is known of it is forgotten.
    pub fn forget(&self, addr: BlockAddr) {
        self.cache(addr).forget(addr);
        // whatever the count says: who makes a copy just now asks under the same lock whether the
        // page is dead
        let near = self.copies.take(addr);
        self.reclaim.retire(near.as_slice());
    }

    /// Lets go of all that is cached and that nobody reads just now, and of all copies in slices;
    /// gives how many bytes.
    pub fn evict_all(&self) -> u64 {
        let pages: usize = self.caches.iter().map(|cache| cache.evict_all()).sum();
        (pages as u64 + self.evict_copies(u64::MAX)) * BLOCK_BYTES
    }

    /// Writes blocks that are to take these places: nobody knows of them yet.
    pub fn write(&self, devices: &[Capacity], places: &[Extent], data: &[u8]) -> Result<()> {
        let mut rest = data;
        // one call for what comes together on a device: an object store puts what lies in one
        // object at once
        for places in places.chunk_by(|one, next| one.addr.device() == next.addr.device()) {
            let forget = || places.iter().flat_map(Extent::blocks).for_each(|it| self.forget(it));
            let mut transfers = Vec::new();
            for extent in places {
                let (part, more) = rest.split_at((extent.count * BLOCK_BYTES) as usize);
                rest = more;
                transfers.push(Transfer::Write(extent.addr.block(), part));
            }
            forget();
            transfer(devices, places[0].addr, &mut transfers)?;
            // somebody may have read what was there before meanwhile
            forget();
            let count: u64 = places.iter().map(|extent| extent.count).sum();
            self.written_blocks.fetch_add(count, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What was read and written since open.
    pub fn counts(&self) -> TierCounts {
        let pages: usize = self.caches.iter().map(|cache| cache.pages()).sum();
        TierCounts {
            hits: self.hits.load(Ordering::Relaxed),
            read_blocks: self.read_blocks.load(Ordering::Relaxed),
            ahead_blocks: self.ahead_blocks.load(Ordering::Relaxed),
            written_blocks: self.written_blocks.load(Ordering::Relaxed),
            cached_bytes: pages as u64 * BLOCK_BYTES,
        }
    }
}

/// Reads or writes blocks of the device that this one is on.
pub(crate) fn transfer(
    devices: &[Capacity],
    addr: BlockAddr,
    transfers: &mut [Transfer<'_>],
) -> Result<()> {
    let device = device_of(devices, addr)?;
    device.device.transfer(transfers).map_err(|source| io(device, source))
}

/// Reads blocks of the device that this one is on into memory in pieces.
pub(crate) fn scatter(
    devices: &[Capacity],
    addr: BlockAddr,
    runs: &mut [Scatter<'_>],
) -> Result<()> {
    let device = device_of(devices, addr)?;
    device.device.scatter(runs).map_err(|source| io(device, source))
}

fn device_of(devices: &[Capacity], addr: BlockAddr) -> Result<&Capacity> {
    let device = addr.device().and_then(|device| devices.get(device));
    device.ok_or_else(|| Error::Device(format!("{addr} is on no device of this pool")))
}

fn io(device: &Capacity, source: std::io::Error) -> Error {
    Error::Io { path: device.device.path().into(), source }
}

/// Reads blocks past all caches.
pub fn read(devices: &[Capacity], first: BlockAddr, bytes: &mut [u8]) -> Result<()> {
    transfer(devices, first, &mut [Transfer::Read(first.block(), bytes)])
}

/// What was written before to the devices of these places is durable when this returns.
pub fn sync(devices: &[Capacity], places: &[Extent]) -> Result<()> {
    for (number, device) in devices.iter().enumerate() {
        if places.iter().any(|place| place.addr.device() == Some(number)) {
            device.device.sync().map_err(|source| io(device, source))?;
        }
    }
    Ok(())
}
