//! When a write is safe, and what it lies on.

/// When a write is safe. The order is from weakest to strongest promise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Domain {
    /// Survives a killed process, not a power cut; asked for explicitly. Runs exactly the
    /// `CpuFlush` code.
    Process = 1,
    /// Plain file: safe after fsync.
    Sync = 2,
    /// Safe once flushed from the CPU's caches and fenced.
    CpuFlush = 3,
    /// The CPU's caches are inside the persistence domain (eADR, GPF): safe once stored and
    /// fenced.
    CpuCache = 4,
}

impl Domain {
    /// The word for it in messages and documents: `process`, `sync`, `cpu-flush`, `cpu-cache`.
    pub fn name(self) -> &'static str {
        match self {
            Domain::Process => "process",
            Domain::Sync => "sync",
            Domain::CpuFlush => "cpu-flush",
            Domain::CpuCache => "cpu-cache",
        }
    }

    /// The domain of this name.
    pub fn named(name: &str) -> Option<Domain> {
        let all = [Domain::Process, Domain::Sync, Domain::CpuFlush, Domain::CpuCache];
        all.into_iter().find(|domain| domain.name() == name)
    }

    /// Whether stores have to be flushed from the CPU's caches.
    ///
    /// Not in `sync` (the page cache is coherent memory, fsync reads it) nor in `cpu-cache`.
    pub(crate) fn flushes(self) -> bool {
        matches!(self, Domain::Process | Domain::CpuFlush)
    }
}

impl std::fmt::Display for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What the bytes lie on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Medium {
    /// A plain file in the page cache.
    File,
    /// A file of a tmpfs or ramfs, which has no other place than the page cache.
    Tmpfs,
    /// A file on a DAX file system, mapped MAP_SYNC.
    Dax,
    /// A device-dax character device.
    DevDax,
    /// Anonymous memory of this process (tests).
    Memory,
}
