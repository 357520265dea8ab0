//! A pool that is served on a network, in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearside::{AttachOptions, FormatOptions, Pool, SliceSpec};
use server::{Door, Options, Service};

/// Longest wait for an event that must come, on a busy machine too. It hides no fallback to a
/// time-out of the product: a call that waits 30 s for a service returns an error, which the test
/// notices; no service here follows another one, except in `grace`, which sets its own times.
pub const SOON: Duration = Duration::from_secs(120);
/// How long it waits for those whose connection is lost. Peers that leave answers unread reset
/// their connection, and the tests wait until this time has ended their sessions.
pub const LINGER: Duration = Duration::from_secs(5);
/// The same for tests which show that the service does not wait.
pub const LONG_LINGER: Duration = Duration::from_secs(300);

/// KiB of memory of its own that this process has.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A pool that is served on a network.
pub struct Served {
    pub service: Service,
    owned: Arc<Pool>,
    pub address: String,
    dir: tempfile::TempDir,
}

impl Served {
    pub fn new() -> Served {
        Served::with(Options::default())
    }

    /// As these say, but for what they cannot know.
    pub fn with(options: Options) -> Served {
        Served::lingering(LINGER, options)
    }

    /// The same, with this grace period for lost connections.
    pub fn lingering(linger: Duration, options: Options) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let format = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: 256 << 20,
            process: true,
            ..FormatOptions::default()
        };
        Pool::format(dir.path(), &format).unwrap();
        let owned = Arc::new(Pool::open(dir.path()).unwrap());
        let door = Door::open(&dir.path().join(nearside::ATTACH_SOCKET), 0o666).unwrap();
        let options = Options { linger, fabrics: crate::fabrics(), ..options };
        let mut service = Service::start(owned.clone(), door, &options).unwrap();
        let address = crate::listen(dir.path(), &mut service);
        Served { service, owned, address, dir }
    }

    pub fn attach(&self) -> Pool {
        self.attach_at(&self.address)
    }

    /// By another way.
    pub fn attach_at(&self, address: &str) -> Pool {
        Pool::attach_with(address, &self.options()).unwrap()
    }

    /// As what one attaches who may do everything.
    pub fn options(&self) -> AttachOptions {
        crate::options(self.dir())
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn wait_for_sessions(&self, count: usize) {
        let until = Instant::now() + SOON;
        while self.service.sessions() != count {
            assert!(Instant::now() < until, "{} sessions, not {count}", self.service.sessions());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn finish(self) {
        let Served { service, owned, dir, .. } = self;
        drop(service);
        owned.close().unwrap();
        drop(owned);
        let report = nearside::check(dir.path()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}
