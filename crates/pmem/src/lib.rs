//! Persistent memory: map, store, flush, fence; durability domains; the crash recorder's hook.
//!
//! Skeleton of the interface.

use std::path::Path;

/// When a write is safe. The order is from weakest to strongest promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Domain {
    /// Survives a killed process, not a power cut; asked for explicitly. Runs exactly the `CpuFlush` code.
    Process = 1,
    /// Plain file: safe after fsync.
    Sync = 2,
    /// Safe once flushed from the CPU's caches and fenced.
    CpuFlush = 3,
    /// The CPU's caches are inside the persistence domain (eADR, GPF): safe once stored and fenced.
    CpuCache = 4,
}

/// What the bytes lie on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// A plain file in the page cache.
    File,
    /// A file on a DAX file system, mapped MAP_SYNC.
    Dax,
    /// A device-dax character device.
    DevDax,
    /// Anonymous memory of this process (tests).
    Memory,
}

/// How to map.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapOptions {
    /// Map for reading only.
    pub read_only: bool,
    /// The `process` domain is asked for: a plain file or volatile DAX memory is taken without fsync.
    pub process: bool,
}

/// Why memory could not be mapped or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel said no.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
}

impl Error {
    /// The errno that a POSIX caller sees.
    pub fn errno(&self) -> i32 {
        libc::EIO
    }
}

/// Result of a call on memory.
pub type Result<T> = std::result::Result<T, Error>;

/// Stores made with ordinary instructions, still in the CPU's caches: to be flushed.
#[must_use]
#[derive(Debug)]
pub struct Dirty(());

/// Stores on their way to the medium: to be fenced.
#[must_use]
#[derive(Debug)]
pub struct InFlight(());

/// Proof that what was in flight has been fenced (and, but in the `sync` domain, is durable).
#[derive(Debug, Clone, Copy)]
pub struct Clean(());

/// One mapped slice. Offsets are bytes from its start. Calls may come from many threads.
#[derive(Debug)]
pub struct Mapping {}

impl Mapping {
    /// Maps a file or device, found out what it is, exclusively locked.
    pub fn open(path: &Path, options: &MapOptions) -> Result<Mapping> {
        let _ = (path, options);
        todo!()
    }
    /// Anonymous memory of `len` bytes, zeroed (tests and the crash explorer).
    pub fn memory(len: usize, domain: Domain) -> Result<Mapping> {
        let _ = (len, domain);
        todo!()
    }
    /// Bytes mapped.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        todo!()
    }
    /// When a write is safe here.
    pub fn domain(&self) -> Domain {
        todo!()
    }
    /// What the bytes lie on.
    pub fn medium(&self) -> Medium {
        todo!()
    }
    /// NUMA node of the memory, where the system says.
    pub fn node(&self) -> Option<u32> {
        todo!()
    }
    /// Copies out.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let _ = (offset, buffer);
        todo!()
    }
    /// Copies out and gives the CRC-32C of the bytes, in one pass.
    pub fn read_crc(&self, offset: u64, buffer: &mut [u8]) -> Result<u32> {
        let _ = (offset, buffer);
        todo!()
    }
    /// CRC-32C of `len` bytes in place.
    pub fn crc(&self, offset: u64, len: usize) -> Result<u32> {
        let _ = (offset, len);
        todo!()
    }
    /// Writes with non-temporal stores (whole lines) and store + flush (edges).
    pub fn write(&self, offset: u64, data: &[u8]) -> InFlight {
        let _ = (offset, data);
        todo!()
    }
    /// The same, and gives the CRC-32C of the data, in one pass.
    pub fn write_crc(&self, offset: u64, data: &[u8]) -> (InFlight, u32) {
        let _ = (offset, data);
        todo!()
    }
    /// Ordinary stores, to be flushed.
    pub fn store(&self, offset: u64, data: &[u8]) -> Dirty {
        let _ = (offset, data);
        todo!()
    }
    /// Writes zeros like `write`.
    pub fn zero(&self, offset: u64, len: usize) -> InFlight {
        let _ = (offset, len);
        todo!()
    }
    /// Flushes what `store` made dirty there.
    pub fn flush(&self, dirty: Dirty, offset: u64, len: usize) -> InFlight {
        let _ = (dirty, offset, len);
        todo!()
    }
    /// `sync` domain: everything written before reaches the medium. A no-op in the others.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
}

impl InFlight {
    /// Nothing in flight.
    pub fn none() -> InFlight {
        InFlight(())
    }
    /// Both.
    pub fn and(self, other: InFlight) -> InFlight {
        let _ = other;
        self
    }
}

/// Orders this thread's stores in flight before everything later.
pub fn fence(in_flight: InFlight) -> Clean {
    let _ = in_flight;
    todo!()
}

/// CRC-32C (Castagnoli) of `data`, going on from `seed` (0 at the start).
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    let _ = (seed, data);
    todo!()
}
