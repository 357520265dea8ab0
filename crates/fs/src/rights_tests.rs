//! The rules over what an inode says of itself. What Linux answers to the same is asked by the
//! tests of the crate `nearside` (`rights`), which have all of the rules.

use crate::acl::Acl;
use crate::rights::{Access, Caller, Owned, birth, check_sticky, settle, to_get, to_set};
use crate::types::{Creation, FileKind, SetAttr};

const EXECUTE: Access = Access::SEARCH;

fn caller(uid: u32, groups: &[u32]) -> Caller {
    Caller::new(uid, 2000 + uid, groups.to_vec())
}

fn owned(kind: FileKind, mode: u16) -> Owned {
    Owned { kind, mode, uid: 1, gid: 2001 }
}

fn file(mode: u16) -> Owned {
    owned(FileKind::File, mode)
}

fn may(it: &Owned, caller: &Caller, list: Option<&Acl>, want: Access) -> bool {
    it.allows_without_list(caller, want).unwrap_or_else(|| it.allows(caller, list, want))
}

#[test]
fn one_class_decides() {
    for bits in 0..0o1000 {
        let it = file(bits);
        let callers = [caller(1, &[]), caller(2, &[7, 2001, 9]), caller(3, &[])];
        for (caller, shift) in callers.iter().zip([6, 3, 0]) {
            for (want, bit) in [(Access::READ, 4), (Access::WRITE, 2), (EXECUTE, 1)] {
                let fits = bits >> shift & bit != 0;
                assert_eq!(may(&it, caller, None, want), fits, "{bits:o} {want:?}");
            }
            let both = bits >> shift & 6 == 6;
            assert_eq!(may(&it, caller, None, Access::READ.and(Access::WRITE)), both);
        }
    }
}

#[test]
fn root_may_all_but_execute_what_nobody_may() {
    let root = caller(0, &[]);
    for bits in 0..0o1000 {
        assert!(may(&file(bits), &root, None, Access::READ.and(Access::WRITE)));
        assert!(may(&owned(FileKind::Directory, bits), &root, None, Access::NAMES));
        assert_eq!(may(&file(bits), &root, None, EXECUTE), bits & 0o111 != 0);
    }
}

#[test]
fn groups_are_found_in_any_order() {
    let caller = Caller::new(1, 5, vec![9, 2, 9, 7]);
    assert_eq!(caller.groups(), [2, 7, 9, 9]);
    assert!([2, 5, 7, 9].into_iter().all(|gid| caller.is_in(gid)));
    assert!([0, 1, 3, 10].into_iter().all(|gid| !caller.is_in(gid)));
}

#[test]
fn a_list_is_asked_for_whom_the_bits_do_not_settle() {
    let want = Access::READ;
    assert!(file(0o070).allows_without_list(&caller(1, &[]), want).is_some(), "the owner");
    assert!(file(0o070).allows_without_list(&caller(0, &[]), want).is_some(), "root");
    assert!(file(0o707).allows_without_list(&caller(2, &[]), want).is_some(), "the mask is empty");
    assert!(file(0o040).allows_without_list(&caller(2, &[]), want).is_none());
}

#[test]
fn the_rest_of_a_change_is_not_settled_away() {
    let change = SetAttr { uid: Some(5), gid: Some(6), ..SetAttr::default() };
    let settled = settle(&caller(0, &[]), &file(0o6755), &change).expect("root may");
    assert_eq!((settled.uid, settled.gid, settled.mode), (Some(5), Some(6), Some(0o755)));
    let settled = settle(&caller(0, &[]), &file(0o755), &change).expect("root may");
    assert_eq!(settled.mode, None, "there is nothing to take away");
    let both = SetAttr { mode: Some(0o2755), ..change };
    let settled = settle(&caller(0, &[]), &file(0o6755), &both).expect("root may");
    assert_eq!(settled.mode, Some(0o2755), "what is asked for");
    // the group that it will have
    let change = SetAttr { mode: Some(0o2755), gid: Some(8), ..SetAttr::default() };
    let owner = Caller::new(1, 8, vec![]);
    let settled = settle(&owner, &file(0), &change).expect("it is his");
    assert_eq!(settled.mode, Some(0o2755));
    let size = SetAttr { size: Some(0), ..SetAttr::default() };
    let settled = settle(&caller(2, &[]), &file(0o4777), &size).expect("he has it open");
    assert_eq!((settled.size, settled.mode), (Some(0), Some(0o777)));
}

#[test]
fn each_refusal_has_its_errno() {
    let (other, sticky) = (caller(2, &[]), owned(FileKind::Directory, 0o1777));
    let times = SetAttr { accessed: Some(Default::default()), ..SetAttr::default() };
    let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let disk = (FileKind::BlockDevice, 0x800);
    let not_permitted = [
        check_sticky(&other, &sticky, &file(0o777)).err(),
        settle(&other, &file(0o777), &SetAttr { mode: Some(0), ..SetAttr::default() }).err(),
        settle(&other, &file(0o777), &SetAttr { uid: Some(2), ..SetAttr::default() }).err(),
        settle(&other, &file(0o777), &SetAttr { gid: Some(2002), ..SetAttr::default() }).err(),
        settle(&other, &file(0o777), &times).err(),
        birth(&other, &sticky, disk, by).err(),
        to_set(&other, &file(0o777), b"trusted.a").err(),
        to_set(&other, &file(0o777), b"security.a").err(),
        to_set(&other, &file(0o777), b"system.posix_acl_access").err(),
        to_set(&other, &sticky, b"user.a").err(),
        to_set(&caller(0, &[]), &owned(FileKind::Fifo, 0o777), b"user.a").err(),
    ];
    for (n, error) in not_permitted.into_iter().enumerate() {
        assert_eq!(error.map(|error| error.errno()), Some(libc::EPERM), "{n}");
    }
    let hidden = to_get(&other, &file(0o777), b"trusted.a").err();
    assert_eq!(hidden.map(|error| error.errno()), Some(libc::ENODATA));
    assert_eq!(Access::READ.denied(FileKind::File).errno(), libc::EACCES);
    assert_eq!(to_get(&other, &file(0), b"user.a").ok(), Some(Some(Access::READ)));
}
