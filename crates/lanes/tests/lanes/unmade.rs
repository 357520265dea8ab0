//! A service that dies while it makes the files of a connection.

use std::fs::File;
use std::path::{Path, PathBuf};

use lanes::{Recovered, Stored};

use super::{CONNECTION, connect, make, open, piece, scratch};

fn path(dir: &Path, what: &str) -> PathBuf {
    dir.join("lanes").join(format!("{CONNECTION:032x}.{what}"))
}

/// What is there of the connection's files when it dies, the last one cut to so many bytes.
const DEATHS: [&[(&str, u64)]; 6] = [
    &[("lane", 0)],
    &[("lane", lanes::LANE_BYTES)],
    &[("lane", lanes::LANE_BYTES), ("words", 0)],
    &[("lane", lanes::LANE_BYTES), ("words", 4096)],
    &[("lane", lanes::LANE_BYTES), ("words", 4096), ("leases", 0)],
    // as a power cut may leave it
    &[("leases", 0)],
];

#[test]
fn files_that_nobody_was_given_are_removed() {
    for left in DEATHS {
        let (dir, fs) = scratch();
        drop(connect(dir.path(), &fs));
        drop(fs);
        for what in ["lane", "words", "leases"] {
            match left.iter().find(|(name, _)| *name == what) {
                Some((_, bytes)) => {
                    let file = File::options().write(true).open(path(dir.path(), what)).unwrap();
                    file.set_len(*bytes).unwrap();
                }
                None => std::fs::remove_file(path(dir.path(), what)).unwrap(),
            }
        }
        let fs = open(dir.path());
        // one who only reads leaves them there
        assert_eq!(lanes::recover(dir.path(), &fs, true).unwrap(), Recovered::default());
        assert!(dir.path().join("lanes").exists());
        assert_eq!(lanes::recover(dir.path(), &fs, false).unwrap(), Recovered::default());
        assert!(!dir.path().join("lanes").exists(), "{left:?}");
        drop(connect(dir.path(), &fs));
    }
}

#[test]
fn others_keep_what_they_have() {
    let (dir, fs) = scratch();
    let handle = make(&fs, "file");
    let mut both = connect(dir.path(), &fs);
    let generation = both.lend(0, &handle, 0..=9);
    assert_eq!(both.lane.commit(&[piece(0, generation, 0, b"kept")]), Stored::Done);
    drop((both, handle, fs));
    let other = path(dir.path(), "leases").with_file_name(format!("{:032x}.leases", 3));
    File::create(other).unwrap();

    let fs = open(dir.path());
    let recovered = lanes::recover(dir.path(), &fs, false).unwrap();
    assert_eq!(recovered, Recovered { lanes: 1, leases: 1 });
    assert_eq!(super::content(&fs, "file"), b"kept");
}
