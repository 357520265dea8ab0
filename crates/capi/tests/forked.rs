//! What a forked child has of a pool: nothing that it can use, and nothing that it can harm.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::in_child;
use engine::{File, FormatOptions, LockKind, OpenFlags, Pool, ReadDir, Region, Regions};
use engine::{RegionSettings, SliceSpec, Transaction};
use std::borrow::Borrow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A child has a copy of all descriptors, those of other tests' pools among them.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The regions of a pool, for a transaction that has the pool itself.
#[derive(Debug)]
struct Held(Arc<Pool>);

impl Borrow<Regions> for Held {
    fn borrow(&self) -> &Regions {
        self.0.regions().unwrap()
    }
}

/// All that a process may have of a pool.
struct All {
    pool: Arc<Pool>,
    /// It has lost its name, and goes with its last close.
    orphan: File,
    list: ReadDir,
    region: Region,
    /// Of a region that was unmapped, of a file that has lost its name and was closed.
    transaction: Option<Transaction<Held>>,
}

fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

impl All {
    fn of(dir: &Path) -> All {
        let options = FormatOptions {
            slices: vec![SliceSpec::default(); 2],
            slice_bytes: 32 << 20,
            process: true,
            capacity: vec![SliceSpec { path: None, bytes: Some(64 << 20) }],
            ..FormatOptions::default()
        };
        Pool::format(dir, &options).unwrap();
        let pool = Arc::new(Pool::open(dir).unwrap());
        pool.write("/kept", b"kept").unwrap();
        let [orphan, mapped] = ["/orphan", "/mapped"].map(|name| {
            let file = pool.create_file(name).unwrap();
            file.write_all_at(&[7; 100_000], 0).unwrap();
            file
        });
        let region = pool.map(&orphan, 0, 1 << 20).unwrap();
        assert_eq!(region.get::<u8>(99_999).unwrap(), 7);
        let mut transaction = Transaction::begin(Held(pool.clone()), Default::default()).unwrap();
        transaction.write(&pool.map(&mapped, 0, 4096).unwrap(), 0, b"later").unwrap();
        pool.remove_file("/orphan").unwrap();
        pool.remove_file("/mapped").unwrap();
        drop(mapped);
        let list = pool.read_dir("/").unwrap();
        pool.checkpoint().unwrap();
        All { pool, orphan, list, region, transaction: Some(transaction) }
    }

    /// Calls everything; fails unless each answers EPERM.
    fn is_refused(&mut self) {
        let (pool, file, region) = (&self.pool, &self.orphan, &self.region);
        let (mut buffer, kept) = ([0; 8], "/kept");
        let mut tx = self.transaction.take().unwrap();
        let refused: Vec<engine::Result<()>> = vec![
            pool.open_file(kept, &OpenFlags::new().read(true)).map(drop),
            pool.create_dir("/dir"),
            pool.create_dir_all("/"),
            pool.metadata(kept).map(drop),
            pool.exists(kept).map(drop),
            pool.rename(kept, "/lost"),
            pool.remove_file(kept),
            pool.read_dir("/").map(drop),
            pool.set_permissions(kept, 0),
            pool.xattr(kept, "user.x").map(drop),
            pool.sync(),
            pool.checkpoint(),
            pool.scrub(None, &mut |_, _| true).map(drop),
            pool.close(),
            file.read_at(&mut buffer, 0).map(drop),
            file.write_at(b"x", 0).map(drop),
            file.append(b"x").map(drop),
            file.copy_to(0, file, 1 << 20, 10).map(drop),
            file.set_len(0),
            file.sync(),
            file.punch_hole(0, 4096),
            file.allocate(0, 1 << 20),
            file.seek_data(0).map(drop),
            file.seek_hole(0).map(drop),
            file.metadata().map(drop),
            file.lock(LockKind::Read, ..),
            file.try_lock(LockKind::Write, ..).map(drop),
            file.unlock(..),
            self.list.metadata().map(drop),
            self.list.next().unwrap().map(drop),
            pool.map(file, 0, 4096).map(drop),
            pool.begin().map(drop),
            pool.set_region_settings(&RegionSettings::default()),
            region.load(0, &mut buffer).map_err(Into::into),
            region.get::<u64>(0).map(drop).map_err(Into::into),
            tx.write(region, 0, b"x").map_err(Into::into),
            tx.write_at(region.as_ptr(), b"x").map_err(Into::into),
            tx.read(region, 0, &mut buffer).map_err(Into::into),
            tx.read_at(region.as_ptr(), &mut buffer).map_err(Into::into),
            tx.commit().map_err(Into::into),
        ];
        for (number, result) in refused.into_iter().enumerate() {
            assert_eq!(result.map_err(|error| error.errno()), Err(libc::EPERM), "{number}");
        }
    }
}

/// Every byte that is stored.
fn stored(dir: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn every_call_of_a_forked_child_is_refused() {
    let _one = alone();
    let scratch = scratch();
    let mut all = All::of(&scratch.path().join("pool"));
    in_child(|| all.is_refused());
    let tx = all.transaction.take().unwrap();
    tx.commit().unwrap();
    assert_eq!(all.list.next().unwrap().unwrap().name_bytes(), b"kept");
    assert_eq!(all.region.get::<u8>(5).unwrap(), 7);
}

#[test]
fn what_a_forked_child_drops_stays_with_its_parent() {
    let _one = alone();
    let scratch = scratch();
    let dir = scratch.path().join("pool");
    let all = All::of(&dir);
    let before = stored(&dir);
    // the child's own copy of it all
    let mut mine = Some(all);
    in_child(|| drop(mine.take()));
    assert!(stored(&dir) == before, "the child wrote to the pool");
    let all = mine.unwrap();
    let mut bytes = [0; 10];
    all.orphan.read_exact_at(&mut bytes, 50_000).unwrap();
    assert_eq!(bytes, [7; 10]);
    assert_eq!(all.region.get::<u8>(200_000).unwrap(), 0, "a page that was not there yet");
    all.transaction.unwrap().commit().unwrap();
    assert!(Pool::open(&dir).is_err(), "the parent has it still");
    all.pool.close().unwrap();
    drop((all.pool, all.orphan, all.list, all.region));
    let found = engine::check(&dir).unwrap().findings;
    assert!(found.is_empty(), "{found:?}");
}

/// Its threads are not there: who waited for them would wait for ever.
#[test]
fn the_last_of_a_pool_can_be_dropped_in_a_forked_child() {
    let _one = alone();
    let scratch = scratch();
    let dir = scratch.path().join("pool");
    let All { pool, orphan, list, region, transaction } = All::of(&dir);
    drop((list, region, transaction));
    pool.close().unwrap();
    drop((pool, orphan));
    let mut pool = Some(Pool::open(&dir).unwrap());
    let mut file = Some(pool.as_ref().unwrap().create_file("/file").unwrap());
    let before = stored(&dir);
    in_child(|| drop((pool.take(), file.take())));
    assert!(stored(&dir) == before, "the child wrote to the pool");
    file.unwrap().write_all_at(b"parent", 0).unwrap();
    assert_eq!(pool.unwrap().read("/file").unwrap(), b"parent");
}
