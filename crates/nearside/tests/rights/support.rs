//! A pool, and users of it.

use std::fmt::Debug;
use std::ops::Deref;

use nearside::{Caller, Error, FormatOptions, Pool, SliceSpec};

/// Users, each in a group of his own.
pub const ANN: (u32, u32) = (1001, 2001);
pub const BEN: (u32, u32) = (1002, 2002);
/// A group that both can be in besides.
pub const TEAM: u32 = 3000;

/// A pool that is closed and verified where it is dropped: after those for callers, and their
/// files, which come later in a test.
pub struct Scratch {
    pool: Option<Pool>,
    dir: tempfile::TempDir,
}

impl Deref for Scratch {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        self.pool.as_ref().unwrap()
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
        Scratch { pool: Some(pool), dir }
    }

    /// The pool for one of the users, who is in these groups besides.
    pub fn of(&self, (uid, gid): (u32, u32), groups: &[u32]) -> Pool {
        self.for_caller(Caller::new(uid, gid, groups.to_vec()))
    }

    /// The pool for root.
    pub fn root(&self) -> Pool {
        self.of((0, 0), &[])
    }

    /// Makes a file that is a user's, with these permission bits.
    pub fn file(&self, path: &str, owner: (u32, u32), mode: u16) {
        self.write(path, "content").unwrap();
        self.settle(path, owner, mode);
    }

    /// The same with a directory.
    pub fn dir(&self, path: &str, owner: (u32, u32), mode: u16) {
        self.create_dir(path).unwrap();
        self.settle(path, owner, mode);
    }

    /// Gives what is there an owner and permission bits.
    pub fn settle(&self, path: &str, (uid, gid): (u32, u32), mode: u16) {
        self.set_owner(path, Some(uid), Some(gid)).unwrap();
        self.set_permissions(path, mode).unwrap();
    }

    /// Permission bits of what is there.
    pub fn mode(&self, path: &str) -> u16 {
        self.metadata(path).unwrap().mode()
    }

    /// Owner and group of what is there.
    pub fn owner(&self, path: &str) -> (u32, u32) {
        let metadata = self.symlink_metadata(path).unwrap();
        (metadata.attr().uid, metadata.attr().gid)
    }

    /// The same pool, closed and opened again.
    pub fn reopened(mut self) -> Scratch {
        self.pool.take().unwrap().close().unwrap();
        self.pool = Some(Pool::open(self.dir.path()).unwrap());
        self
    }

    /// Lets go of a pool that somebody closed.
    pub fn was_closed(mut self) {
        self.pool.take();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take().filter(|_| !std::thread::panicking()) else { return };
        pool.close().unwrap();
        drop(pool);
        let report = nearside::check(self.dir.path()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

#[track_caller]
pub fn denied<T: Debug>(result: Result<T, Error>) {
    assert_eq!(result.unwrap_err().errno(), libc::EACCES);
}

#[track_caller]
pub fn not_permitted<T: Debug>(result: Result<T, Error>) {
    assert_eq!(result.unwrap_err().errno(), libc::EPERM);
}

pub fn errno<T: Debug>(result: Result<T, Error>) -> i32 {
    result.unwrap_err().errno()
}
