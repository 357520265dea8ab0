//! An open pool: its slices, trees, gate and block caches.

use crate::addr::BlockAddr;
use crate::device::Capacity;
use crate::epoch::Epochs;
use crate::error::{Error, Result};
use crate::gate::{Closed, Entered, Gate};
use crate::log::LaneGuard;
use crate::mirror::Mirrors;
use crate::nodes::Nodes;
use crate::options::{DeviceInfo, OpenOptions, PoolInfo};
use crate::page_cache::PageCache;
use crate::reclaim::Reclaim;
use crate::slice::{Slice, domain_of};
use crate::spill::SpilledBlocks;
use crate::state::State;
use crate::superblock::{BLOCK_BYTES, FORMAT_VERSION};
use crate::tree::{self, Key, PAGE_BYTES, PageCopy, PagePtr, PageRead, Root, TreeError};
use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;
use locks::Mutex;
use pmem::{Deferred, Domain};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use topology::place_of;

/// Tree pages take one part in this many of the memory for caches.
const PAGE_CACHE_SHARE: u64 = 32;

/// The trees of one generation.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The checkpoint's generation.
    pub generation: u64,
    /// Tree of each slice.
    pub trees: Vec<Root>,
    /// Free-space tree of each slice.
    pub spaces: Vec<Root>,
    /// Root slot of each slice that holds this generation.
    pub slots: Vec<usize>,
}

/// Bytes stored in place, with their slice.
type InPlace = Mutex<Vec<(u8, Deferred)>>;

/// An open pool.
#[derive(Debug)]
pub struct Pool {
    pub(crate) slices: Vec<Slice>,
    pub(crate) devices: Vec<Capacity>,
    pub(crate) roots: ArcSwap<Roots>,
    /// Highest generation in any slot, complete or not: a new one goes above it.
    pub(crate) generation_highest: Mutex<u64>,
    pub(crate) reclaim: Arc<Reclaim>,
    gate: Gate,
    nodes: Nodes,
    poison: OnceLock<String>,
    options: OpenOptions,
    pub(crate) notes: Mutex<Vec<String>>,
    /// What was read from its second copy.
    pub(crate) second_copies: Mutex<Vec<String>>,
    inodes_at_open: u64,
    /// Of a mirrored pool: whose files are current.
    pub(crate) mirrors: Option<Mirrors>,
    pub(crate) epochs: Epochs,
    /// Bytes stored in place since the last cut, by CPU: to be flushed before the next roots.
    in_place: Box<[CachePadded<InPlace>]>,
    /// Pages of all trees.
    pub(crate) tree_pages: AtomicU64,
    pub(crate) page_cache: PageCache,
    /// Blocks of records that no chunk of the log holds.
    pub(crate) spilled: SpilledBlocks,
}

impl Pool {
    pub(crate) fn assemble(
        (slices, devices, options): (Vec<Slice>, Vec<Capacity>, OpenOptions),
        roots: Roots,
        generation_highest: u64,
        nodes: Nodes,
        notes: Vec<String>,
        inodes_at_open: u64,
    ) -> Pool {
        let spaces = slices.iter().map(|slice| slice.space.clone()).collect();
        let below = devices.iter().map(|device| device.space.clone()).collect();
        let weakest = slices.iter().map(|slice| slice.superblock.domain).min();
        let synced = domain_of(weakest.unwrap_or(Domain::Sync as u8)) == Domain::Sync;
        let blocks = slices.iter().map(|slice| slice.space.blocks()).sum();
        let page_cache = PageCache::new(options.memory() / PAGE_CACHE_SHARE, blocks);
        Pool {
            reclaim: Arc::new(Reclaim::new(spaces, below, nodes.cpus(), synced)),
            gate: Gate::new(nodes.cpus()),
            in_place: (0..nodes.cpus()).map(|_| CachePadded::default()).collect(),
            slices,
            devices,
            roots: ArcSwap::from_pointee(roots),
            generation_highest: Mutex::new(generation_highest),
            nodes,
            poison: OnceLock::new(),
            options,
            notes: Mutex::new(notes),
            second_copies: Mutex::default(),
            inodes_at_open,
            mirrors: None,
            epochs: Epochs::default(),
            tree_pages: AtomicU64::new(0),
            page_cache,
            spilled: SpilledBlocks::default(),
        }
    }

    /// The slices.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// The devices of the capacity tier.
    pub fn devices(&self) -> &[Capacity] {
        &self.devices
    }

    /// Inodes that existed at the last checkpoint before open.
    pub fn inodes_at_open(&self) -> u64 {
        self.inodes_at_open
    }

    /// Pages of all trees.
    pub fn tree_pages(&self) -> u64 {
        self.tree_pages.load(Ordering::Relaxed)
    }

    /// DRAM in pages of the trees that are cached, bytes, by the slice that they lie in.
    pub fn cached_page_bytes(&self) -> Vec<u64> {
        self.page_cache.bytes(self.slices.len())
    }

    /// CPUs that are told apart.
    pub fn cpus(&self) -> usize {
        self.nodes.cpus()
    }

    /// The slice nearest to a CPU.
    #[inline]
    pub fn slice_near(&self, cpu: usize) -> u8 {
        self.nodes.near(cpu)
    }

    /// The machine's nodes, and the slices on them.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Bytes of log in use.
    pub fn log_used_bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.log.used_bytes()).sum()
    }

    /// Whether nothing may be changed.
    pub fn read_only(&self) -> bool {
        self.options.read_only
    }

    /// What it was opened with.
    pub fn options(&self) -> &OpenOptions {
        &self.options
    }

    /// The pool's domain: that of its weakest slice.
    pub fn domain(&self) -> Domain {
        let weakest = self.slices.iter().map(|slice| slice.superblock.domain).min();
        domain_of(weakest.unwrap_or(Domain::Sync as u8))
    }

    /// The slice nearest to the CPU that runs this.
    #[inline]
    pub fn near_slice(&self) -> u8 {
        self.slice_near(topology::recent_cpu() as usize)
    }

    /// Blocks between owners: allocation and retirement.
    #[inline]
    pub fn reclaim(&self) -> &Arc<Reclaim> {
        &self.reclaim
    }

    /// Starts a change; see [`Gate`].
    #[inline]
    pub fn enter(&self) -> Entered<'_> {
        // what follows in the change looks up the CPU that is remembered here
        self.gate.enter(topology::refresh_cpu() as usize)
    }

    /// Starts a change, if no checkpoint is just being cut.
    pub fn try_enter(&self) -> Option<Entered<'_>> {
        self.gate.try_enter(topology::refresh_cpu() as usize)
    }

    /// Stops all changes, for the cut of a checkpoint.
    pub fn close_gate(&self) -> Closed<'_> {
        self.gate.close()
    }

    /// A lane of the slice nearest to this CPU, and that slice.
    #[inline(always)] // on the way of every change
    pub fn lane(&self) -> (LaneGuard<'_>, &Slice) {
        let cpu = topology::recent_cpu() as usize;
        let slice = &self.slices[usize::from(self.nodes.near(cpu))];
        (slice.log.lane(cpu), slice)
    }

    /// Refuses changes from now on: a persist failed, and what is in DRAM may not be on the medium.
    pub fn poison(&self, why: &str) {
        let _ = self.poison.set(why.to_owned());
    }

    /// An error if the pool takes no changes.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        match self.poison.get() {
            Some(why) => Err(Error::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// A new inode counter of slice `slice`.
    pub fn next_inode(&self, slice: u8) -> u64 {
        // ordering: only uniqueness matters
        self.slices[usize::from(slice)].inode_next.fetch_add(1, Ordering::Relaxed)
    }

    /// Recovery saw this inode counter on `slice`: later ones go above it.
    pub fn inode_seen(&self, slice: u8, counter: u64) {
        if let Some(slice) = self.slices.get(usize::from(slice)) {
            slice.inode_next.fetch_max(counter + 1, Ordering::Relaxed);
        }
    }

    /// Stores bytes into a block that is in use: what they replace, and they, are in the log. They
    /// are durable in the block when the next checkpoint is.
    #[inline]
    pub fn store_in_place(&self, addr: BlockAddr, at: usize, data: &[u8]) {
        debug_assert!(at + data.len() <= BLOCK_BYTES as usize);
        let (slice, offset) = self.place(addr);
        let stored = slice.mapping.store_deferred(offset + at as u64, data);
        let cpu = place_of(topology::recent_cpu() as usize, self.in_place.len());
        self.in_place[cpu].lock().push((addr.slice(), stored));
    }

    /// Bytes stored in place so far, by slice. No change is under way.
    pub(crate) fn take_in_place(&self) -> Vec<Vec<Deferred>> {
        let mut all = vec![Vec::new(); self.slices.len()];
        for cpu in &self.in_place {
            for (slice, stored) in std::mem::take(&mut *cpu.lock()) {
                all[usize::from(slice)].push(stored);
            }
        }
        all
    }

    /// A value of the tree as of the last checkpoint.
    pub fn get(&self, slice: u8, key: &Key) -> Result<Option<Vec<u8>>> {
        // the pin keeps the pages of this generation from being used again
        let _pin = crossbeam_epoch::pin();
        let roots = self.roots.load_full();
        Ok(tree::get(self, &roots.trees[usize::from(slice)], key)?)
    }

    /// Entries of the tree as of the last checkpoint with `from <= key < to`, in order; `each`
    /// returns false to stop.
    pub fn scan(
        &self,
        slice: u8,
        from: Key,
        to: Key,
        each: &mut dyn FnMut(Key, &[u8]) -> bool,
    ) -> Result<()> {
        let _pin = crossbeam_epoch::pin();
        let roots = self.roots.load_full();
        let tree = &roots.trees[usize::from(slice)];
        Ok(tree::scan(self, tree, from, to, |key, value| Ok(each(key, value)))?)
    }

    /// The trees of the last checkpoint.
    pub fn roots(&self) -> Arc<Roots> {
        self.roots.load_full()
    }

    /// Whether some slice has more free blocks than its reserve. A hint, cheap.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.slices.iter().any(|slice| slice.space.has_room())
    }

    /// Writes down whether the pool is open for writing, and in which boot.
    pub fn write_state(&self, open: bool) -> Result<()> {
        let boot = self.options.boot();
        self.slices.iter().try_for_each(|slice| {
            let media: Vec<_> = slice.copies().map(|(_, copy)| copy.medium_id()).collect();
            let open = open.then_some(&media[..]);
            // each copy's memory counts for itself
            slice.copies().try_for_each(|(_, copy)| State::now(copy, open, boot).write(copy))
        })
    }

    /// Blocks in all, and free ones, over all slices and devices.
    pub fn blocks(&self) -> (u64, u64) {
        let held = self.reclaim.held_in();
        let (slices, devices) = held.split_at(self.slices.len());
        let below = self.devices.iter().zip(devices).map(|(device, held)| {
            let space = &device.space;
            (space.blocks(), (space.free() + held).min(space.blocks()))
        });
        sum(self.slices_held(slices).chain(below))
    }

    /// The same over all slices.
    pub fn slice_blocks(&self) -> (u64, u64) {
        sum(self.slices_held(&self.reclaim.held_in()))
    }

    /// The same of one slice.
    pub fn blocks_in(&self, slice: usize) -> (u64, u64) {
        self.slices_held(&self.reclaim.held_in()).nth(slice).unwrap_or_default()
    }

    /// Blocks of each slice, and its free ones, `held` of them between owners.
    fn slices_held(&self, held: &[u64]) -> impl Iterator<Item = (u64, u64)> {
        self.slices.iter().zip(held).map(|(slice, held)| {
            let space = &slice.space;
            let free = (space.free() + held).saturating_sub(space.reserve_min());
            (space.blocks(), free.min(space.blocks()))
        })
    }

    /// What the pool says about itself.
    pub fn info(&self) -> PoolInfo {
        let roots = self.roots.load();
        let first = self.slices.first().map(|slice| slice.superblock.pool_uuid);
        PoolInfo {
            uuid: uuid::Uuid::from_bytes(first.unwrap_or_default()).to_string(),
            format_version: FORMAT_VERSION,
            domain: self.domain().name(),
            generation: roots.generation,
            log_used_bytes: self.log_used_bytes(),
            slices: self.slices.iter().map(Slice::info).collect(),
            devices: (0..).zip(&self.devices).map(|(index, it)| device_info(index, it)).collect(),
            notes: self.notes.lock().clone(),
            remark: self.remark(),
        }
    }
}

/// Blocks in all, and free ones, of these together.
fn sum(parts: impl Iterator<Item = (u64, u64)>) -> (u64, u64) {
    parts.fold((0, 0), |(all, free), part| (all + part.0, free + part.1))
}

fn device_info(index: u32, it: &Capacity) -> DeviceInfo {
    DeviceInfo {
        path: it.device.path(),
        index,
        bytes: it.bytes(),
        node: it.device.node(),
        access: it.device.access(),
        blocks: it.space.blocks(),
        blocks_free: it.space.free(),
        blocks_withdrawn: it.space.withdrawn.len(),
    }
}

impl PageRead for Pool {
    fn read_page(
        &self,
        ptr: &PagePtr,
        page: &mut [u8; PAGE_BYTES],
    ) -> std::result::Result<(), TreeError> {
        self.read_either(ptr, page)
    }

    fn page(&self, ptr: &PagePtr) -> std::result::Result<Arc<PageCopy>, TreeError> {
        if let Some(page) = self.page_cache.get(ptr) {
            return Ok(page);
        }
        let mut page = PageCopy { ptr: *ptr, bytes: [0; PAGE_BYTES] };
        self.read_page(ptr, &mut page.bytes)?;
        let page = Arc::new(page);
        self.page_cache.put(&page);
        Ok(page)
    }
}
