//! How a service is to serve.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wire::Provider;

use crate::mount::Mounts;

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
    /// How long at most nobody gets locks then but those of this machine who come back with them.
    pub grace_of_locks: Duration,
    /// The pool's directory, where the lanes of processes are to lie. None: there are none, and no
    /// read caches; all reads and writes go through the service.
    pub lanes: Option<PathBuf>,
    /// Memory for what processes have mapped as regions or have read, of all of them together.
    pub copies_bytes: u64,
    /// Memory of their own into which processes on networks have mapped regions, of all of them
    /// together: the service remembers of each page that it is there, some 100 bytes.
    pub copies_there_bytes: u64,
    /// Memory for calls that are coming over networks, and for answers that are not taken, of all
    /// connections together, but for 32 KiB that each has.
    pub streams_bytes: usize,
    /// How long one of them may keep others waiting for some of that.
    pub streams_patience: Duration,
    /// Where sysfs is mounted, by which it is known on which node a network card is: who comes by
    /// it is served there. None: by any thread, as on a machine of one node.
    pub sysfs: Option<PathBuf>,
    /// Fabrics over which those may go on who come over a network.
    pub fabrics: Vec<Provider>,
    /// What serves mounts of other machines. None: they are refused.
    pub mounts: Option<Arc<dyn Mounts>>,
    /// Files without a name that were open before are another door's, too, which lets go of them;
    /// and so are locks, until it says that it is back ([`Service::other_door_is_back`]).
    ///
    /// [`Service::other_door_is_back`]: crate::Service::other_door_is_back
    pub keeps_orphans: bool,
}

/// What processes that were attached are waited for.
const GRACE: Duration = Duration::from_secs(60);
/// What those are waited for whose connection is lost: longer than they try to come back, and than
/// they may take to notice.
const LINGER: Duration = Duration::from_secs(60);
/// Memory for what processes have mapped, where nothing else is asked for.
const COPIES_BYTES: u64 = 1 << 30;
/// And for those who come over networks: of a million pages 100 MiB are remembered.
const COPIES_THERE_BYTES: u64 = 4 << 30;
/// Memory for what comes over networks.
const STREAMS_BYTES: usize = 256 << 20;
/// Time for one call, while others wait for its memory: some 100 KiB/s for the longest.
const STREAMS_PATIENCE: Duration = Duration::from_secs(10);
/// What those of this machine are waited for that had locks.
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
            mounts: None,
            sysfs: Some("/sys".into()),
            fabrics: Vec::new(),
            grace: GRACE,
            linger: LINGER,
            grace_of_locks: GRACE_OF_LOCKS,
            keeps_orphans: false,
            copies_bytes: COPIES_BYTES,
            copies_there_bytes: COPIES_THERE_BYTES,
            streams_bytes: STREAMS_BYTES,
            streams_patience: STREAMS_PATIENCE,
        }
    }
}
