//! The pool of a test, and an attachment to its service.

use std::ops::Deref;
use std::sync::Arc;

use nearside::{FileSystem, FormatOptions, Pool, SliceSpec};
use server::{Door, Options, Service};

/// A pool that the test is attached to.
pub struct Scratch {
    attached: Pool,
    service: Service,
    owned: Arc<Pool>,
    dir: tempfile::TempDir,
}

impl Deref for Scratch {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.attached
    }
}

impl Scratch {
    pub fn new() -> Scratch {
        let dir = tempfile::tempdir().unwrap();
        let options = FormatOptions {
            slices: vec![SliceSpec::default(); 2],
            slice_bytes: 32 << 20,
            process: true,
            ..FormatOptions::default()
        };
        Pool::format(dir.path(), &options).unwrap();
        Scratch::serving(dir)
    }

    fn serving(dir: tempfile::TempDir) -> Scratch {
        let owned = Arc::new(Pool::open(dir.path()).unwrap());
        let socket = dir.path().join(nearside::ATTACH_SOCKET);
        let door = Door::open(&socket, 0o666).unwrap();
        let fabrics = crate::fabrics();
        let lanes = Some(dir.path().to_owned());
        let options = Options { lanes, fabrics, ..Options::default() };
        let mut service = Service::start(owned.clone(), door, &options).unwrap();
        let attached = crate::attach(dir.path(), &mut service);
        Scratch { attached, service, owned, dir }
    }

    /// The engine behind the service.
    pub fn engine(&self) -> &FileSystem {
        self.owned.fs()
    }

    /// The same pool, dropped by its service without being closed, and served anew.
    pub fn dropped_and_opened(self) -> Scratch {
        let Scratch { attached, service, owned, dir } = self;
        drop((attached, service, owned));
        Scratch::serving(dir)
    }

    /// Ends the attachment and the service, closes and verifies everything that is stored.
    pub fn finish(self) {
        let Scratch { attached, service, owned, dir } = self;
        drop((attached, service));
        owned.close().unwrap();
        drop(owned);
        let report = nearside::check(dir.path()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}
