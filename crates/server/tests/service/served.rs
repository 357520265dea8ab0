//! A pool with a service, for a test.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearside::{FormatOptions, Pool, SliceSpec};
use server::{Door, Options, Service};

/// Longest wait for an event that must come, on a busy machine too.
pub const SOON: Duration = Duration::from_secs(120);
/// The grace period and the linger time of a service, unless a test sets its own. A wait that only
/// one of them ends is longer than `SOON`, and so fails. Clients keep their 30 s: a call that waits
/// longer for a service returns an error, which the test notices.
pub const LONG_GRACE: Duration = Duration::from_secs(300);

/// A pool with a service.
pub struct Served {
    pub service: Service,
    pub owned: Arc<Pool>,
    pub dir: PathBuf,
    pub _root: tempfile::TempDir,
}

impl Served {
    pub fn new() -> Served {
        Served::with("pool", 0o666, &Options::default())
    }

    /// In a directory of this name, with a socket of this mode. `LONG_GRACE` replaces the times of
    /// the options.
    pub fn with(name: &str, mode: u32, options: &Options) -> Served {
        let (root, dir) = formatted(name);
        let owned = Arc::new(Pool::open(&dir).unwrap());
        let door = Door::open(&socket(&dir), mode).unwrap();
        let (grace, linger) = (LONG_GRACE, LONG_GRACE);
        let options = Options { lanes: Some(dir.clone()), grace, linger, ..options.clone() };
        let service = Service::start(owned.clone(), door, &options).unwrap();
        Served { service, owned, dir, _root: root }
    }

    pub fn attach(&self) -> Pool {
        Pool::attach(&self.dir).unwrap()
    }

    pub fn socket(&self) -> PathBuf {
        socket(&self.dir)
    }

    /// Waits until so many processes are attached.
    pub fn wait_for_sessions(&self, count: usize) {
        eventually(|| self.service.sessions() == count);
    }

    /// Ends it, and verifies all that the pool stores.
    pub fn finish(self) {
        let Served { service, owned, dir, _root } = self;
        drop(service);
        assert!(!socket(&dir).exists(), "the socket goes with the service");
        owned.close().unwrap();
        drop(owned);
        assert!(!dir.join("lanes").exists(), "the lanes go with their processes");
        let report = nearside::check(&dir).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// An empty pool in a directory of this name, and the directory above; others than its owner may go
/// through both.
pub fn formatted(name: &str) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join(name);
    let format = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: 64 << 20,
        process: true,
        ..FormatOptions::default()
    };
    Pool::format(&dir, &format).unwrap();
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    for dir in [root.path(), &dir] {
        std::fs::set_permissions(dir, mode(0o711)).unwrap();
    }
    (root, dir)
}

fn socket(dir: &Path) -> PathBuf {
    dir.join(nearside::ATTACH_SOCKET)
}

/// Waits until it is so.
#[track_caller]
pub fn eventually(is_so: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < until, "not so after {SOON:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
