//! The pool of a test.

use std::ops::Deref;

use nearside::{FileSystem, FormatOptions, Pool, SliceSpec};

/// A pool that the test has open.
pub struct Scratch {
    pool: Pool,
    dir: tempfile::TempDir,
}

impl Deref for Scratch {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
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
        let pool = Pool::open(dir.path()).unwrap();
        Scratch { pool, dir }
    }

    /// The engine below it.
    pub fn engine(&self) -> &FileSystem {
        self.pool.fs()
    }

    /// The same pool, dropped without being closed: the next open recovers it from the log.
    pub fn dropped_and_opened(self) -> Scratch {
        let Scratch { pool, dir } = self;
        drop(pool);
        let pool = Pool::open(dir.path()).unwrap();
        Scratch { pool, dir }
    }

    /// Closes and verifies everything that is stored.
    pub fn finish(self) {
        self.pool.close().unwrap();
        let Scratch { pool, dir } = self;
        drop(pool);
        let report = nearside::check(dir.path()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}
