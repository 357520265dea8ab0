//! The caches of the capacity tier: how large they are, where they lie, and who keeps room in them.

use crate::core::Core;
use crate::error::{Error, Result};
use pool::Pool;
use tier::{CacheRoom, Tier};

/// Blocks of the capacity tier take a part of the memory for caches.
const TIER_SHARE: u64 = 4;

/// The capacity tier of a pool that has one, with a cache for each slice.
pub fn tier_of(pool: &Pool) -> Option<Tier> {
    if pool.devices().is_empty() {
        return None;
    }
    let rooms: Vec<CacheRoom> = (0..pool.slices().len())
        .map(|slice| CacheRoom {
            bytes: cache_bytes(pool, slice as u8),
            node: node_of(pool, slice as u8),
        })
        .collect();
    Some(Tier::new(&rooms, pool.reclaim().clone()))
}

/// What a slice's cache may take: of what was set for a node, a part for each slice on it.
fn cache_bytes(pool: &Pool, slice: u8) -> u64 {
    let options = pool.options();
    let Some(of_node) = options.tier_cache_bytes else {
        return options.memory() / TIER_SHARE / pool.slices().len().max(1) as u64;
    };
    let nodes = pool.nodes();
    let there = nodes.of(slice).map_or(1, |node| nodes.slices_on(node).len());
    of_node / there.max(1) as u64
}

/// The node on which a slice's cache is to lie, where there is a choice: a machine of one node has
/// none, and nodes that are virtual or played have no memory of their own.
fn node_of(pool: &Pool, slice: u8) -> Option<u32> {
    let machine = pool.nodes().topology();
    let is_real = !machine.is_virtual() && pool.options().emulated.is_none();
    pool.nodes().of(slice).filter(|_| is_real && machine.node_count() > 1)
}

impl Core {
    /// Has threads on the slices' nodes keep room in the caches, if there are any, until this is
    /// dropped.
    pub fn start_evictors(&self) -> Result<()> {
        let Some(tier) = &self.tier else { return Ok(()) };
        let cpus = |slice| match node_of(&self.pool, slice) {
            Some(_) => self.pool.nodes().cpus_near(slice).to_vec(),
            None => Vec::new(),
        };
        tier.start_evictors(cpus).map_err(|source| {
            let path = "the threads ns-evict".into();
            Error::from(pool::Error::Io { path, source })
        })
    }
}
