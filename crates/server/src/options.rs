//! How a service is to serve.

use std::path::PathBuf;
use std::time::Duration;

/// How a service serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that serve calls.
    pub workers: usize,
    /// Processes that may be attached at once.
    pub sessions_max: usize,
    /// Of one user, root apart: so that nobody keeps all others out.
    pub sessions_of_user_max: usize,
    /// The file of what one service tells the next about those who are attached
    /// ([`ATTACHED_NAME`](crate::ATTACHED_NAME) in the pool's directory). None: nobody comes back
    /// to the next one. It belongs to who has the pool open.
    pub attached: Option<PathBuf>,
    /// After a service that did not end in order: how long it is remembered what processes did that
    /// have not come back, and files stay that they may have open.
    pub grace: Duration,
    /// How long a process keeps what it has open when the network has lost its connection.
    pub linger: Duration,
    /// How long nobody gets locks then but those who come back with them.
    pub grace_of_locks: Duration,
    /// The pool's directory, where the lanes of processes are to lie. None: there are none, and no
    /// read caches; all reads and writes go through the service.
    pub lanes: Option<PathBuf>,
    /// Memory for what processes have mapped as regions or have read, of all of them together.
    pub copies_bytes: u64,
    /// Files without a name that were open before are another door's, too, which lets go of them.
    pub keeps_orphans: bool,
}

/// What processes that were attached are waited for.
const GRACE: Duration = Duration::from_secs(60);
/// What those are waited for whose connection is lost: longer than they try to come back, and than
/// they may take to notice.
const LINGER: Duration = Duration::from_secs(60);
/// Memory for what processes have mapped, where nothing else is asked for.
const COPIES_BYTES: u64 = 1 << 30;
/// What those are waited for that had locks.
const GRACE_OF_LOCKS: Duration = Duration::from_secs(1);

impl Default for Options {
    fn default() -> Options {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            workers: cpus.clamp(2, 16),
            sessions_max: 16_384,
            sessions_of_user_max: 2048,
            attached: None,
            lanes: None,
            grace: GRACE,
            linger: LINGER,
            grace_of_locks: GRACE_OF_LOCKS,
            keeps_orphans: false,
            copies_bytes: COPIES_BYTES,
        }
    }
}
