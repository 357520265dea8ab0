//! How a pool is mounted.

use std::ffi::OsString;

use crate::wire::Capabilities;

/// Most threads that serve one mount: each has a buffer of one request.
pub const THREADS_MAX: usize = 256;

/// How a pool is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Threads that serve requests; `None` takes two for each CPU, since a thread that waits for a
    /// sync serves nobody else.
    pub threads: Option<usize>,
    /// Let other users in, each with the rights that the files' attributes give (takes root, or
    /// `user_allow_other` in /etc/fuse.conf).
    pub allow_other: bool,
    /// Set-id bits and device files count. Not where somebody else can write to the pool's slices,
    /// who could make a program root's. Mounts by fusermount3 never have them.
    pub trusted: bool,
    /// Nobody changes the pool but through this mount: the kernel then keeps names, attributes
    /// and pages for as long as it likes. Without it, it asks again every time.
    pub sole_door: bool,
    /// What the mount table shows as source.
    pub source: OsString,
    /// Capabilities that are treated as if the kernel did not have them: for tests of what older
    /// kernels get.
    pub masked: Capabilities,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            threads: None,
            allow_other: nix::unistd::geteuid().is_root(),
            trusted: true,
            sole_door: false,
            source: "nearside".into(),
            masked: Capabilities::default(),
        }
    }
}

impl MountOptions {
    /// Threads that will serve.
    pub(crate) fn thread_count(&self) -> usize {
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        self.threads.unwrap_or_else(|| (2 * cpus).clamp(4, 64)).clamp(1, THREADS_MAX)
    }
}
