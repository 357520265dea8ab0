//! What a forked child has of a pool that its parent is attached to: nothing that it can use, and
//! nothing that it can harm.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::in_child;
use engine::{FormatOptions, LockKind, OpenFlags, Pool, SliceSpec};
use std::sync::Arc;

#[test]
fn a_forked_child_has_no_part_in_its_parents_attachment() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("pool");
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: 32 << 20,
        process: true,
        ..FormatOptions::default()
    };
    Pool::format(&dir, &options).unwrap();
    let owned = Arc::new(Pool::open(&dir).unwrap());
    let door = server::Door::open(&dir.join(engine::ATTACH_SOCKET), 0o600).unwrap();
    let service = server::Service::start(owned.clone(), door, &server::Options::default()).unwrap();
    let pool = Pool::attach(&dir).unwrap();
    let file = pool.create_file("/f").unwrap();
    file.write_all_at(b"mine", 0).unwrap();
    file.lock(LockKind::Write, ..).unwrap();
    let mut all = Some((pool, file));
    in_child(|| {
        let (pool, file) = all.take().unwrap();
        let refused: Vec<engine::Result<()>> = vec![
            pool.open_file("/f", &OpenFlags::new().read(true)).map(drop),
            pool.create_dir("/dir"),
            pool.metadata("/f").map(drop),
            pool.rename("/f", "/lost"),
            pool.read_dir("/").map(drop),
            pool.sync(),
            file.read_at(&mut [0], 0).map(drop),
            file.write_at(b"x", 0).map(drop),
            file.append(b"x").map(drop),
            file.set_len(0),
            file.unlock(..),
        ];
        for (number, result) in refused.into_iter().enumerate() {
            let error = result.unwrap_err();
            assert_eq!(error.errno(), libc::EPERM, "{number}: {error}");
            assert!(error.to_string().contains("process"), "{error}");
        }
        drop((pool, file));
    });
    let (pool, file) = all.unwrap();
    assert_eq!(service.sessions(), 1);
    let other = Pool::attach(&dir).unwrap();
    let theirs = other.open_file("/f", &OpenFlags::new().read(true)).unwrap();
    assert!(!theirs.try_lock(LockKind::Read, ..).unwrap(), "the child let go of nothing");
    assert_eq!(pool.read("/f").unwrap(), b"mine");
    drop((file, pool, theirs, other, service));
    owned.close().unwrap();
}
