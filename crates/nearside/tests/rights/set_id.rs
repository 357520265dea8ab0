//! Set-user-id and set-group-id of files that are written to.

use nearside::{File, OpenFlags};

use crate::support::{ANN, BEN, Scratch, TEAM};

/// What changes a file that is open for writing and appending.
type Change = fn(&File);

const CHANGES: [(&str, Change); 6] = [
    ("write", |file| assert_eq!(file.write_at(b"x", 0).unwrap(), 1)),
    ("append", |file| assert_eq!(file.append(b"x").unwrap(), 7)),
    ("set_len", |file| file.set_len(7).unwrap()),
    ("punch_hole", |file| file.punch_hole(0, 4096).unwrap()),
    ("allocate", |file| file.allocate(0, 4096).unwrap()),
    ("copy_to", |file| assert_eq!(file.copy_to(0, file, 4096, 1).unwrap(), 1)),
];

#[test]
fn a_change_of_content_takes_the_set_id_bits_away() {
    let pool = Scratch::new();
    let flags = OpenFlags::new().read(true).write(true).append(true);
    for (name, change) in CHANGES {
        for (mode, left) in [(0o6777, 0o777), (0o6767, 0o767), (0o1777, 0o1777)] {
            pool.file("/f", ANN, 0o777);
            let file = pool.of(BEN, &[]).open_file("/f", &flags).unwrap();
            pool.settle("/f", ANN, mode);
            file.write_at(b"", 0).unwrap();
            assert_eq!(pool.mode("/f"), mode, "nothing was written");
            change(&file);
            assert_eq!(pool.mode("/f"), left, "{name} {mode:o}");
            drop(file);
            pool.remove_file("/f").unwrap();
        }
    }
}

#[test]
fn set_group_id_without_execution_stays_for_the_group_s_members() {
    let pool = Scratch::new();
    pool.file("/f", (ANN.0, TEAM), 0o2666);
    pool.of(BEN, &[TEAM]).write("/f", "x").unwrap();
    assert_eq!(pool.mode("/f"), 0o2666);
    pool.of(BEN, &[]).write("/f", "x").unwrap();
    assert_eq!(pool.mode("/f"), 0o666);
}

#[test]
fn emptying_a_file_takes_them_away_and_root_leaves_them() {
    let pool = Scratch::new();
    let truncate = OpenFlags::new().write(true).truncate(true);
    pool.file("/f", ANN, 0o6777);
    pool.root().write("/f", "content").unwrap();
    pool.write("/f", "the process's own").unwrap();
    assert_eq!(pool.mode("/f"), 0o6777);
    pool.of(BEN, &[]).open_file("/f", &OpenFlags::new().write(true)).unwrap();
    assert_eq!(pool.mode("/f"), 0o6777, "an open changes nothing");
    pool.of(BEN, &[]).open_file("/f", &truncate).unwrap();
    assert_eq!((pool.mode("/f"), pool.metadata("/f").unwrap().len()), (0o777, 0));
}
