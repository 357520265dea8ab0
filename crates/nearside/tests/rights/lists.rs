//! Access control lists: acl(5).

use nearside::{OpenFlags, Pool, XattrMode};

use crate::support::{ANN, BEN, Scratch, TEAM, denied, not_permitted};

pub const ACCESS: &str = "system.posix_acl_access";
pub const DEFAULT: &str = "system.posix_acl_default";

/// Tags of entries.
pub const USER_OBJ: u16 = 1;
pub const USER: u16 = 2;
pub const GROUP_OBJ: u16 = 4;
pub const GROUP: u16 = 8;
pub const MASK: u16 = 16;
pub const OTHER: u16 = 32;

/// A list: tag, permissions and id of each entry.
pub fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        let id = if matches!(*tag, USER | GROUP) { *id } else { u32::MAX };
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&permissions.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

fn set(pool: &Pool, path: &str, name: &str, value: &[u8]) -> nearside::Result<()> {
    pool.set_xattr(path, name, value, XattrMode::Any)
}

/// What the pool may open the file for: `r`, `w`.
fn rights(pool: &Pool, path: &str) -> (bool, bool) {
    let may = |flags: OpenFlags| pool.open_file(path, &flags).is_ok();
    let (read, write) = (OpenFlags::new().read(true), OpenFlags::new().write(true));
    let both = may(read.write(true));
    assert!(!both || (may(read) && may(write)));
    (may(read), may(write))
}

#[test]
fn the_first_entry_that_is_about_the_caller_decides() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o600);
    let entries = [
        (USER_OBJ, 6, 0),
        (USER, 6, BEN.0),
        (USER, 0, 1003),
        (GROUP_OBJ, 4, 0),
        (GROUP, 2, TEAM),
        (MASK, 6, 0),
        (OTHER, 6, 0),
    ];
    set(&pool, "/f", ACCESS, &list(&entries)).unwrap();
    let of = |user, groups: &[u32]| rights(&pool.of(user, groups), "/f");
    assert_eq!(of(ANN, &[]), (true, true));
    assert_eq!(of(BEN, &[ANN.1]), (true, true), "named");
    assert_eq!(of((1003, 9), &[ANN.1, TEAM]), (false, false), "named, with nothing");
    assert_eq!(of((1004, 9), &[ANN.1]), (true, false), "in the file's group");
    assert_eq!(of((1004, TEAM), &[]), (false, true), "in a named group");
    assert_eq!(of((1004, 9), &[]), (true, true), "one of the others");
    // each alone, but no entry of a group gives both
    let both = pool.of((1004, 9), &[ANN.1, TEAM]);
    assert_eq!(rights(&both, "/f"), (true, true));
    denied(both.open_file("/f", &OpenFlags::new().read(true).write(true)));
    assert_eq!(rights(&pool.root(), "/f"), (true, true));
}

#[test]
fn the_mask_bounds_all_but_the_owner_and_the_others() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o600);
    let entries =
        [(USER_OBJ, 6, 0), (USER, 6, BEN.0), (GROUP_OBJ, 6, 0), (MASK, 4, 0), (OTHER, 0, 0)];
    set(&pool, "/f", ACCESS, &list(&entries)).unwrap();
    let of = |user, groups: &[u32]| rights(&pool.of(user, groups), "/f");
    assert_eq!(of(ANN, &[]), (true, true));
    assert_eq!(of(BEN, &[]), (true, false));
    assert_eq!(of((1003, ANN.1), &[]), (true, false));
    assert_eq!(of((1003, 9), &[]), (false, false));
    // chmod changes the mask
    pool.of(ANN, &[]).set_permissions("/f", 0o620).unwrap();
    assert_eq!(of(BEN, &[]), (false, true));
    // as in Linux: with an empty mask the list is not asked
    pool.of(ANN, &[]).set_permissions("/f", 0o604).unwrap();
    assert_eq!(of(BEN, &[]), (true, false));
}

#[test]
fn a_list_counts_for_directories_and_after_the_pool_was_opened_again() {
    let pool = Scratch::new();
    pool.dir("/d", ANN, 0o700);
    pool.file("/d/f", ANN, 0o644);
    let entries =
        [(USER_OBJ, 7, 0), (USER, 1, BEN.0), (GROUP_OBJ, 0, 0), (MASK, 7, 0), (OTHER, 0, 0)];
    set(&pool, "/d", ACCESS, &list(&entries)).unwrap();
    pool.checkpoint().unwrap();
    let (ben, third) = (pool.of(BEN, &[]), pool.of((1003, 9), &[]));
    assert!(ben.read("/d/f").is_ok());
    denied(ben.read_dir("/d"));
    denied(ben.write("/d/new", "x"));
    denied(third.read("/d/f"));
}

#[test]
fn only_the_owner_sets_lists() {
    let pool = Scratch::new();
    pool.dir("/d", ANN, 0o777);
    let entries = [(USER_OBJ, 7, 0), (GROUP_OBJ, 7, 0), (MASK, 7, 0), (OTHER, 7, 0)];
    let (ann, ben) = (pool.of(ANN, &[]), pool.of(BEN, &[ANN.1]));
    for name in [ACCESS, DEFAULT] {
        not_permitted(set(&ben, "/d", name, &list(&entries)));
        not_permitted(ben.remove_xattr("/d", name));
        set(&ann, "/d", name, &list(&entries)).unwrap();
        assert!(ben.xattr("/d", name).unwrap().is_some(), "anybody may read it");
        not_permitted(ben.remove_xattr("/d", name));
        ann.remove_xattr("/d", name).unwrap();
        set(&pool.root(), "/d", name, &list(&entries)).unwrap();
    }
}

#[test]
fn a_list_takes_set_group_id_away_where_the_owner_is_not_in_the_group() {
    let pool = Scratch::new();
    let entries =
        [(USER_OBJ, 7, 0), (USER, 7, BEN.0), (GROUP_OBJ, 5, 0), (MASK, 7, 0), (OTHER, 5, 0)];
    for (groups, left) in [(&[][..], 0o4775), (&[TEAM][..], 0o6775)] {
        pool.file("/f", (ANN.0, TEAM), 0o6755);
        set(&pool.of(ANN, groups), "/f", ACCESS, &list(&entries)).unwrap();
        assert_eq!(pool.mode("/f"), left);
        pool.remove_file("/f").unwrap();
    }
}

#[test]
fn a_default_list_gives_what_is_made_its_rights() {
    let pool = Scratch::new();
    pool.dir("/d", ANN, 0o777);
    let entries =
        [(USER_OBJ, 7, 0), (USER, 6, BEN.0), (GROUP_OBJ, 0, 0), (MASK, 6, 0), (OTHER, 0, 0)];
    set(&pool.of(ANN, &[]), "/d", DEFAULT, &list(&entries)).unwrap();
    pool.of(ANN, &[]).write("/d/f", "content").unwrap();
    assert_eq!(rights(&pool.of(BEN, &[]), "/d/f"), (true, false), "0644 was asked for");
    assert_eq!(rights(&pool.of((1003, 9), &[]), "/d/f"), (false, false));
}
