//! What concerns a pool as a whole, and what one for a caller shares with it.

use nearside::{Caller, RegionSettings};

use crate::support::{ANN, BEN, Scratch, denied, not_permitted};

#[test]
fn the_whole_pool_is_root_s_and_its_process_s() {
    let pool = Scratch::new();
    let ann = pool.of(ANN, &[0]);
    let mut each = |_: u64, _: u64| true;
    not_permitted(ann.checkpoint());
    not_permitted(ann.scrub(None, &mut each));
    not_permitted(ann.resilver(&mut each));
    not_permitted(ann.set_region_settings(&RegionSettings::default()));
    not_permitted(ann.close());
    // whom they keep from nothing
    assert_eq!(ann.info().uuid, pool.info().uuid);
    assert_eq!(ann.statfs().blocks, pool.statfs().blocks);
    ann.sync().unwrap();
    let process = nix::unistd::geteuid().as_raw();
    for uid in [0, process] {
        let all = pool.for_caller(Caller::new(uid, 7, vec![]));
        all.checkpoint().unwrap();
        all.scrub(None, &mut each).unwrap();
        all.resilver(&mut each).unwrap();
    }
    pool.root().close().unwrap();
    pool.was_closed();
}

#[test]
fn words_say_what_is_missing() {
    let pool = Scratch::new();
    pool.dir("/d", ANN, 0o700);
    pool.file("/f", ANN, 0o600);
    let ben = pool.of(BEN, &[]);
    for (error, words) in [
        (ben.read("/d/f").unwrap_err(), "/d/f: permission denied: a directory of the path"),
        (ben.read("/f").unwrap_err(), "/f: permission denied: the file may not be read"),
        (ben.close().unwrap_err(), "operation not permitted: this concerns the whole pool"),
        (ben.set_permissions("/f", 0).unwrap_err(), "/f: operation not permitted: only the owner"),
    ] {
        assert!(error.to_string().starts_with(words), "{error}");
    }
}

#[test]
fn pools_for_callers_share_files_and_locks_but_not_regions() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o644);
    let (ann, ben) = (pool.of(ANN, &[]), pool.of(BEN, &[]));
    assert_eq!((ann.caller().unwrap().uid(), pool.caller()), (ANN.0, None));
    let file = ann.open_file("/f", &nearside::OpenFlags::new().read(true).write(true)).unwrap();
    ann.map(&file, 0, 4096).unwrap();
    assert!(ann.regions_info().is_some() && ben.regions_info().is_none());
    ann.write("/f", "changed").unwrap();
    assert_eq!(ben.read("/f").unwrap(), b"changed");
    // for another caller again: its rights are his alone
    denied(ann.for_caller(Caller::new(BEN.0, BEN.1, vec![])).write("/f", "x"));
}

#[test]
fn a_directory_as_the_root_is_all_that_a_caller_sees() {
    let pool = Scratch::new();
    pool.dir("/sub", ANN, 0o755);
    pool.dir("/sub/deep", ANN, 0o755);
    pool.file("/secret", ANN, 0o644);
    pool.file("/sub/file", ANN, 0o644);
    pool.symlink("../../secret", "/sub/deep/above").unwrap();
    pool.symlink("/file", "/sub/deep/absolute").unwrap();
    let ann = Caller::new(ANN.0, ANN.1, vec![]);
    let inside = pool.for_caller_in(ann, "/sub").unwrap();
    let root = inside.metadata("/").unwrap().attr().ino;
    assert_eq!(root, pool.metadata("/sub").unwrap().attr().ino);
    for path in ["/..", "..", "/deep/../..", "/deep/../../../deep/.."] {
        assert_eq!(inside.metadata(path).unwrap().attr().ino, root, "{path}");
    }
    for path in ["/secret", "/../secret", "/deep/above", "/deep/../../secret"] {
        assert_eq!(inside.metadata(path).unwrap_err().errno(), libc::ENOENT, "{path}");
    }
    assert!(inside.metadata("/deep/absolute").is_ok());
    inside.write("/deep/../../new", "x").unwrap();
    assert_eq!(pool.read("/sub/new").unwrap(), b"x");
    // of a view there are views
    let deeper = inside.for_caller_in(Caller::new(ANN.0, ANN.1, vec![]), "/deep").unwrap();
    assert!(deeper.metadata("/above").is_err() && deeper.symlink_metadata("/../above").is_ok());
    let error = pool.for_caller_in(Caller::new(0, 0, vec![]), "/secret").unwrap_err();
    assert_eq!(error.errno(), libc::ENOTDIR);
}
