//! Set-user-id and set-group-id of files that are written to.

use nearside::{File, OpenFlags, Pool, XattrMode};

use crate::support::{ANN, BEN, Scratch, TEAM};

/// The attribute by which a file names capabilities for whoever runs it.
const CAPABILITY: &str = "security.capability";

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

fn is_capable(pool: &Pool) -> bool {
    pool.xattr("/f", CAPABILITY).unwrap().is_some()
}

/// Root's changes take them away, too: they were given for the bytes that were there.
#[test]
fn a_change_of_content_takes_capabilities_away_whoever_makes_it() {
    let pool = Scratch::new();
    let flags = OpenFlags::new().read(true).write(true).append(true);
    let empty: Change = |_| {};
    for (name, change) in CHANGES.into_iter().chain([("open", empty)]) {
        for (user, mode) in [(None, 0o4777), (Some((0, 0)), 0o4777), (Some(BEN), 0o777)] {
            let of_user = user.map(|user| pool.of(user, &[]));
            let door: &Pool = of_user.as_ref().unwrap_or(&pool);
            pool.file("/f", ANN, 0o777);
            let file = door.open_file("/f", &flags).unwrap();
            pool.settle("/f", ANN, 0o4777);
            pool.set_xattr("/f", CAPABILITY, b"some", XattrMode::Any).unwrap();
            file.write_at(b"", 0).unwrap();
            assert_eq!((pool.mode("/f"), is_capable(&pool)), (0o4777, true), "nothing was written");
            match name {
                "open" => drop(door.open_file("/f", &flags.truncate(true)).unwrap()),
                _ => change(&file),
            }
            assert_eq!((pool.mode("/f"), is_capable(&pool)), (mode, false), "{name} by {user:?}");
            // given again, they go again
            pool.set_xattr("/f", CAPABILITY, b"some", XattrMode::Any).unwrap();
            file.write_at(b"y", 1).unwrap();
            assert!(!is_capable(&pool), "{name} by {user:?}");
            drop((file, of_user));
            pool.remove_file("/f").unwrap();
        }
    }
}

#[test]
fn what_is_said_of_a_file_and_not_in_it_leaves_them() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o4777);
    pool.set_xattr("/f", CAPABILITY, b"some", XattrMode::Any).unwrap();
    pool.set_xattr("/f", "user.name", b"some", XattrMode::Any).unwrap();
    pool.set_permissions("/f", 0o4755).unwrap();
    pool.hard_link("/f", "/g").unwrap();
    pool.rename("/g", "/h").unwrap();
    assert_eq!((pool.mode("/f"), is_capable(&pool)), (0o4755, true));
    // a new owner is not whom they were given to
    pool.set_owner("/f", Some(BEN.0), None).unwrap();
    assert!(!is_capable(&pool));
}

#[test]
fn a_commit_to_a_region_takes_privileges_away() {
    let pool = Scratch::new();
    for (user, left) in [(None, 0o6777), (Some((0, 0)), 0o6777), (Some(BEN), 0o777)] {
        let of_user = user.map(|user| pool.of(user, &[]));
        let door: &Pool = of_user.as_ref().unwrap_or(&pool);
        pool.file("/f", ANN, 0o777);
        let file = door.open_file("/f", &OpenFlags::new().read(true).write(true)).unwrap();
        file.set_len(8192).unwrap();
        let region = door.map(&file, 0, 8192).unwrap();
        pool.settle("/f", ANN, 0o6777);
        pool.set_xattr("/f", CAPABILITY, b"some", XattrMode::Any).unwrap();
        for writes in [1, 2] {
            let mut tx = door.begin().unwrap();
            for at in 0..writes {
                tx.put(&region, at * 4096, &7u64).unwrap();
            }
            tx.commit().unwrap();
            assert_eq!((pool.mode("/f"), is_capable(&pool)), (left, false), "{user:?} {writes}");
            pool.settle("/f", ANN, 0o6777);
            pool.set_xattr("/f", CAPABILITY, b"some", XattrMode::Any).unwrap();
        }
        drop((region, file, of_user));
        pool.remove_file("/f").unwrap();
    }
}

/// What was given before the pool was opened is looked up then.
#[test]
fn privileges_that_are_in_the_pool_already_go_as_well() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o6777);
    pool.set_xattr("/f", CAPABILITY, b"some", XattrMode::Any).unwrap();
    let pool = pool.reopened();
    pool.of(BEN, &[]).open_file("/f", &OpenFlags::new().write(true)).unwrap().append(b"x").unwrap();
    assert_eq!((pool.mode("/f"), is_capable(&pool)), (0o777, false));
    let pool = pool.reopened();
    assert_eq!((pool.mode("/f"), is_capable(&pool)), (0o777, false), "durably");
}
