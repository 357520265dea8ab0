//! What kernel and server can agree on.

/// A set of capabilities, as bits of the flags in INIT, both halves.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(pub u64);

/// Names and bits.
macro_rules! capabilities {
    ($($(#[$doc:meta])* $name:ident = $bit:literal,)*) => {
        impl Capabilities {
            $($(#[$doc])* pub const $name: Capabilities = Capabilities(1 << $bit);)*
        }
        /// Every one that has a name here.
        const NAMES: &[(&str, Capabilities)] = &[$((stringify!($name), Capabilities::$name),)*];
    };
}

capabilities! {
    /// Reads of one file need not wait for each other.
    ASYNC_READ = 0,
    /// The server keeps record locks.
    POSIX_LOCKS = 1,
    /// O_TRUNC comes with OPEN.
    ATOMIC_O_TRUNC = 3,
    /// Writes may be larger than a page.
    BIG_WRITES = 5,
    /// The server applies the umask.
    DONT_MASK = 6,
    /// The server keeps flock(2) locks.
    FLOCK_LOCKS = 10,
    /// Cached pages go when the modification time or the size changed.
    AUTO_INVAL_DATA = 12,
    /// READDIRPLUS is there.
    DO_READDIRPLUS = 13,
    /// The kernel chooses between READDIR and READDIRPLUS.
    READDIRPLUS_AUTO = 14,
    /// Direct I/O need not wait for each request.
    ASYNC_DIO = 15,
    /// The kernel answers for opens without asking.
    NO_OPEN_SUPPORT = 17,
    /// Look-ups and listings of one directory may overlap.
    PARALLEL_DIROPS = 18,
    /// The server has POSIX ACLs, and the kernel checks them.
    POSIX_ACL = 20,
    /// The number of pages of a request can be agreed on.
    MAX_PAGES = 22,
    /// Targets of symbolic links are cached.
    CACHE_SYMLINKS = 23,
    /// The server takes set-id bits away where the kernel says so.
    HANDLE_KILLPRIV_V2 = 28,
    /// SETXATTR has flags of its own.
    SETXATTR_EXT = 29,
    /// There is an upper half of these bits.
    INIT_EXT = 30,
    /// Requests that make an inode tell of a group of the caller's.
    CREATE_SUPP_GROUP = 34,
    /// Files opened for direct I/O can be mapped, shared.
    DIRECT_IO_ALLOW_MMAP = 36,
    /// The kernel reads and writes a file of another file system by itself.
    PASSTHROUGH = 37,
    /// Requests that were read and not answered can be asked for again.
    HAS_RESEND = 39,
}

impl Capabilities {
    /// Whether all of `those` are in it.
    pub fn has(self, those: Capabilities) -> bool {
        self.0 & those.0 == those.0
    }

    /// Those in either.
    #[must_use]
    pub const fn and(self, more: Capabilities) -> Capabilities {
        Capabilities(self.0 | more.0)
    }

    /// Those in both.
    #[must_use]
    pub fn common(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 & other.0)
    }

    /// Those that are not in `others`.
    #[must_use]
    pub fn without(self, others: Capabilities) -> Capabilities {
        Capabilities(self.0 & !others.0)
    }
}

impl std::fmt::Debug for Capabilities {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = NAMES.iter().filter(|(_, bit)| self.has(*bit)).map(|(name, _)| name);
        to.debug_list().entries(names).finish()
    }
}
