//! Bytes that callers copied themselves, by slice, from its node and from others. What they read is
//! counted only where slices lie on several nodes: elsewhere it tells nothing. Each CPU counts for
//! itself, so that counting disturbs nobody.

use crossbeam_utils::CachePadded;
use placement::Kind;
use pool::Pool;
use std::sync::atomic::{AtomicU64, Ordering};
use topology::place_of;

/// Counts of a slice on one CPU: read and written, there and from elsewhere.
type Counts = [AtomicU64; 4];

/// The counts of all CPUs.
#[derive(Debug)]
pub struct Traffic {
    cpus: Box<[CachePadded<Box<[Counts]>>]>,
    /// Slices lie on several nodes.
    is_apart: bool,
}

/// Bytes that callers copied themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Read by callers on the slice's node.
    pub local_read: u64,
    /// Read by callers on other nodes.
    pub remote_read: u64,
    /// Written by callers on the slice's node.
    pub local_written: u64,
    /// Written by callers on other nodes.
    pub remote_written: u64,
}

impl Traffic {
    /// None yet.
    pub fn of(pool: &Pool) -> Traffic {
        let slices = || (0..pool.slices().len()).map(|_| Counts::default()).collect();
        let cpus = (0..pool.cpus()).map(|_| CachePadded::new(slices())).collect();
        Traffic { cpus, is_apart: pool.nodes().are_apart() }
    }

    /// The calling thread copied so many bytes.
    #[inline]
    pub fn count(&self, pool: &Pool, slice: u8, kind: Kind, bytes: u64) {
        if self.is_apart {
            self.count_apart(pool, slice, kind, bytes);
        } else if kind == Kind::Write {
            // on one node it is all the same who copies
            self.add(topology::recent_cpu() as usize, slice, 2, bytes);
        }
    }

    #[inline(never)]
    fn count_apart(&self, pool: &Pool, slice: u8, kind: Kind, bytes: u64) {
        let cpu = topology::refresh_cpu() as usize;
        let is_remote = usize::from(!pool.nodes().is_local(cpu, slice));
        let kind = if kind == Kind::Read { 0 } else { 2 };
        self.add(cpu, slice, kind + is_remote, bytes);
    }

    #[inline]
    fn add(&self, cpu: usize, slice: u8, index: usize, bytes: u64) {
        let counts = self.cpus[place_of(cpu, self.cpus.len())].get(usize::from(slice));
        if let Some(counts) = counts {
            // ordering: an account only
            counts[index].fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// What was copied of a slice.
    pub fn copied(&self, slice: usize) -> Copied {
        let sum = |index: usize| {
            let of = |cpu: &CachePadded<Box<[Counts]>>| {
                cpu.get(slice).map_or(0, |counts| counts[index].load(Ordering::Relaxed))
            };
            self.cpus.iter().map(of).sum()
        };
        Copied {
            local_read: sum(0),
            remote_read: sum(1),
            local_written: sum(2),
            remote_written: sum(3),
        }
    }
}
