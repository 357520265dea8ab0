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
    /// The server can find `.` and `..` for knfsd(8).
    EXPORT_SUPPORT = 4,
    /// Writes may be larger than a page.
    BIG_WRITES = 5,
    /// The server applies the umask.
    DONT_MASK = 6,
    /// The device may be written to by splice(2).
    SPLICE_WRITE = 7,
    /// Pages that are spliced may be moved.
    SPLICE_MOVE = 8,
    /// The device may be read by splice(2).
    SPLICE_READ = 9,
    /// The server keeps flock(2) locks.
    FLOCK_LOCKS = 10,
    /// Directories may have ioctl(2).
    HAS_IOCTL_DIR = 11,
    /// Cached pages go when the modification time or the size changed.
    AUTO_INVAL_DATA = 12,
    /// READDIRPLUS is there.
    DO_READDIRPLUS = 13,
    /// The kernel chooses between READDIR and READDIRPLUS.
    READDIRPLUS_AUTO = 14,
    /// Direct I/O need not wait for each request.
    ASYNC_DIO = 15,
    /// Writes stay in the kernel's pages until it writes them back.
    WRITEBACK_CACHE = 16,
    /// The kernel answers for opens without asking.
    NO_OPEN_SUPPORT = 17,
    /// Look-ups and listings of one directory may overlap.
    PARALLEL_DIROPS = 18,
    /// The server takes set-id bits away, whoever writes.
    HANDLE_KILLPRIV = 19,
    /// The server has POSIX ACLs, and the kernel checks them.
    POSIX_ACL = 20,
    /// The number of pages of a request can be agreed on.
    MAX_PAGES = 22,
    /// Targets of symbolic links are cached.
    CACHE_SYMLINKS = 23,
    /// The kernel answers for opens of directories without asking.
    NO_OPENDIR_SUPPORT = 24,
    /// Cached pages go only when the server says so.
    EXPLICIT_INVAL_DATA = 25,
    /// Mappings of the server's memory have an alignment.
    MAP_ALIGNMENT = 26,
    /// Directories of the server may be mounts of their own.
    SUBMOUNTS = 27,
    /// The server takes set-id bits away where the kernel says so.
    HANDLE_KILLPRIV_V2 = 28,
    /// SETXATTR has flags of its own.
    SETXATTR_EXT = 29,
    /// There is an upper half of these bits.
    INIT_EXT = 30,
    /// Requests that make an inode bring its security label.
    SECURITY_CTX = 32,
    /// The server says for each file whether it is mapped as DAX.
    HAS_INODE_DAX = 33,
    /// Requests that make an inode tell of a group of the caller's.
    CREATE_SUPP_GROUP = 34,
    /// Names can be made to expire without being dropped.
    HAS_EXPIRE_ONLY = 35,
    /// Files opened for direct I/O can be mapped, shared.
    DIRECT_IO_ALLOW_MMAP = 36,
    /// The kernel reads and writes a file of another file system by itself.
    PASSTHROUGH = 37,
    /// File handles need not outlive the kernel's cache.
    NO_EXPORT_SUPPORT = 38,
    /// Requests that were read and not answered can be asked for again.
    HAS_RESEND = 39,
    /// Mounts may map users and groups.
    ALLOW_IDMAP = 40,
    /// Requests and replies go through rings of io_uring.
    OVER_IO_URING = 41,
    /// Requests that take too long end the connection.
    REQUEST_TIMEOUT = 42,
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
