//! Counts of DRAM that are kept apart by slice: what caches hold belongs to the slice where it lies
//! on the medium.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};

/// A count for each slice.
#[derive(Debug)]
pub struct BySlice(Box<[CachePadded<AtomicU64>]>);

impl BySlice {
    /// Nothing yet, for so many slices.
    pub fn new(slices: usize) -> BySlice {
        BySlice((0..slices).map(|_| CachePadded::default()).collect())
    }

    /// Adds to a slice's; below zero where `more` is meant to be negative.
    pub fn add(&self, slice: u8, more: u64) {
        if let Some(count) = self.0.get(usize::from(slice)) {
            // ordering: an account only; wraps where it falls
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// What a slice's is from now on.
    pub fn set(&self, slice: usize, now: u64) {
        if let Some(count) = self.0.get(slice) {
            count.store(now, Ordering::Relaxed);
        }
    }

    /// A slice's.
    pub fn of(&self, slice: usize) -> u64 {
        self.0.get(slice).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// All slices'.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}
