//! How far the model of kernel pages is explored.

use super::fault::Fault;
use super::state::KERNELS;

/// How often something may be done, and where: a bit for each place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    /// How often.
    pub times: u8,
    /// At which bytes, pages or sizes of the file: bit `n` for `n`.
    pub at: u8,
}

impl Uses {
    /// Never.
    pub const NEVER: Uses = Uses { times: 0, at: 0 };

    /// So often, at the places that have a bit in `at`.
    pub const fn of(times: u8, at: u8) -> Uses {
        Uses { times, at }
    }

    /// The places that are left after so many uses.
    pub(super) fn places(self, used: u8) -> impl Iterator<Item = usize> {
        let left = if used < self.times { self.at } else { 0 };
        (0..8).filter(move |place| left >> place & 1 == 1)
    }
}

/// What a kernel may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelBounds {
    /// Faults of pages that are not cached.
    pub reads: Uses,
    /// Stores by a mapping, by their bytes.
    pub stores: Uses,
    /// Stores of what a byte was before the kernel's own write, which has returned.
    pub stores_again: Uses,
    /// `write(2)` of one byte.
    pub writes: Uses,
    /// `write(2)` of a whole page.
    pub whole_writes: Uses,
    /// Direct writes of one byte.
    pub directs: Uses,
    /// Truncations, by the new size.
    pub cuts: Uses,
    /// Clean pages that the kernel drops to get memory back.
    pub evictions: u8,
    /// GETATTRs, when the kernel takes the file for shorter or longer than it is.
    pub size_asks: u8,
}

impl KernelBounds {
    /// Nothing.
    pub const IDLE: KernelBounds = KernelBounds {
        reads: Uses::NEVER,
        stores: Uses::NEVER,
        stores_again: Uses::NEVER,
        writes: Uses::NEVER,
        whole_writes: Uses::NEVER,
        directs: Uses::NEVER,
        cuts: Uses::NEVER,
        evictions: 0,
        size_asks: 2,
    };
}

/// How far is explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// What each kernel may do.
    pub kernels: [KernelBounds; KERNELS],
    /// Writes of one byte by the library.
    pub library_writes: Uses,
    /// Truncations by the library, by the new size.
    pub library_cuts: Uses,
    /// Times that the server is killed, and another one takes its place.
    pub kills: u8,
    /// A mapping may store to a page that is under write-back. Linux lets it wait.
    pub stores_under_write_back: bool,
    /// A kernel learns the size of the file from a READ that ends there. Linux does, unless it has
    /// heard of other attributes while the READ was under way.
    pub short_reads_tell_size: bool,
    /// The server serves READs also where somebody has their range.
    pub reads_beside: bool,
    /// What is done wrong, if anything.
    pub fault: Option<Fault>,
}

impl Bounds {
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}
