//! POSIX access control lists: entries, and what they have to do with the permission bits.
//!
//! As an extended attribute a list has the kernel's own format: version 2 as a u32, then entries of
//! 8 bytes: `tag u16, permissions u16, id u32`. Rules: acl(5).

use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::rights::{Access, Caller, Owned};
use smallvec::SmallVec;

/// Name of the list that decides about access.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the list that a directory hands on.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";
/// Most entries: a new directory has two lists in one record, whatever the log's chunks.
pub const ENTRIES_MAX: usize = 500;

const VERSION: u32 = 2;
/// The id of entries that are about nobody in particular.
const NOBODY: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A list whose entries make sense together: one each for the owner, the group and others, and a
/// mask if there is any for a named user or group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    entries: SmallVec<[Entry; 8]>,
}

impl Acl {
    /// The list that a value says; `None` if it has no entry, which means that there is none.
    pub fn decode(value: &[u8]) -> Result<Option<Acl>> {
        const SENSELESS: Error = Error::Invalid("the access control list makes no sense");
        let mut bytes = Bytes(value);
        match bytes.u32() {
            Some(VERSION) => {}
            Some(_) => return Err(Error::Unsupported("lists of a version other than 2")),
            None => return Err(SENSELESS),
        }
        let mut entries = SmallVec::new();
        while !bytes.is_empty() {
            let entry = (bytes.u16(), bytes.u16(), bytes.u32());
            let (Some(tag), Some(permissions), Some(id)) = entry else { return Err(SENSELESS) };
            entries.push(Entry { tag, permissions, id });
        }
        if entries.len() > ENTRIES_MAX {
            return Err(Error::AttributeSize);
        }
        let acl = Acl { entries };
        match acl.entries.is_empty() {
            true => Ok(None),
            false if acl.makes_sense() => Ok(Some(acl)),
            false => Err(SENSELESS),
        }
    }

    /// As a value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            let id = if matches!(entry.tag, USER | GROUP) { entry.id } else { NOBODY };
            out.extend_from_slice(&entry.tag.to_le_bytes());
            out.extend_from_slice(&entry.permissions.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    /// Entries come in the order of their tags, which are single bits.
    fn makes_sense(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag == tag).count();
        let named = count(USER) + count(GROUP) > 0;
        let fine = |entry: &Entry| {
            let about = !matches!(entry.tag, USER | GROUP) || entry.id != NOBODY;
            entry.permissions <= 7 && entry.tag.is_power_of_two() && entry.tag <= OTHER && about
        };
        self.entries.iter().all(fine)
            && self.entries.is_sorted_by_key(|entry| entry.tag)
            && [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1)
            && count(MASK) <= 1
            && (!named || count(MASK) == 1)
    }

    /// Whether the permission bits say all of it.
    pub fn is_minimal(&self) -> bool {
        self.entries.iter().all(|entry| matches!(entry.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    /// The entry that the group's permission bits stand for.
    fn group_class(&self) -> u16 {
        let mask = self.entries.iter().any(|entry| entry.tag == MASK);
        if mask { MASK } else { GROUP_OBJ }
    }

    /// Where the permission bits hold what this entry says.
    fn shift(&self, tag: u16) -> Option<u32> {
        match tag {
            USER_OBJ => Some(6),
            OTHER => Some(0),
            tag if tag == self.group_class() => Some(3),
            _ => None,
        }
    }

    /// `mode` with the permission bits that the list stands for.
    pub fn mode(&self, mode: u16) -> u16 {
        let bits = |entry: &Entry| Some(entry.permissions << self.shift(entry.tag)?);
        self.entries.iter().filter_map(bits).fold(mode & !0o777, |mode, bits| mode | bits)
    }

    /// The list after the permission bits became those of `mode`.
    pub fn with_mode(mut self, mode: u16) -> Acl {
        let shifts: SmallVec<[_; 8]> =
            self.entries.iter().map(|entry| self.shift(entry.tag)).collect();
        for (entry, shift) in self.entries.iter_mut().zip(shifts) {
            entry.permissions = shift.map_or(entry.permissions, |shift| mode >> shift & 7);
        }
        self
    }

    /// Whether the list of `it` gives the caller this right: the first entry that is about it
    /// decides, among those of its groups any that gives all of it.
    pub(crate) fn allows(&self, caller: &Caller, it: &Owned, want: Access) -> bool {
        let gives = |permissions: u16| want.bits() & !permissions == 0;
        let mask = self.entries.iter().find(|entry| entry.tag == MASK);
        let masked = mask.map_or(7, |mask| mask.permissions);
        let mut in_group = false;
        for entry in &self.entries {
            match entry.tag {
                USER_OBJ if caller.uid() == it.uid => return gives(entry.permissions),
                USER if caller.uid() == entry.id => return gives(entry.permissions & masked),
                GROUP_OBJ | GROUP => {
                    let group = if entry.tag == GROUP { entry.id } else { it.gid };
                    let applies = caller.is_in(group);
                    in_group |= applies;
                    if applies && gives(entry.permissions) {
                        return gives(masked);
                    }
                }
                OTHER => return !in_group && gives(entry.permissions),
                _ => {}
            }
        }
        false
    }

    /// The list that a new inode gets from this default, when `mode` is asked for: no class gets
    /// more than both say.
    pub fn inherited(&self, mode: u16) -> Acl {
        self.clone().with_mode(self.mode(0) & mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&permissions.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    fn acl(entries: &[(u16, u16, u32)]) -> Option<Acl> {
        Acl::decode(&value(entries)).ok().flatten()
    }

    const FULL: [(u16, u16, u32); 6] = [
        (USER_OBJ, 7, NOBODY),
        (USER, 6, 1000),
        (GROUP_OBJ, 4, NOBODY),
        (GROUP, 7, 50),
        (MASK, 5, NOBODY),
        (OTHER, 0, NOBODY),
    ];

    #[test]
    fn a_list_round_trips_and_stands_for_permission_bits() {
        let full = acl(&FULL).expect("makes sense");
        assert_eq!(full.encode(), value(&FULL));
        assert!(!full.is_minimal());
        assert_eq!(full.mode(0o4011), 0o4750, "the mask is the group's class");
        let changed = full.clone().with_mode(0o624);
        assert_eq!(changed.mode(0), 0o624);
        let entry = |tag| changed.entries.iter().find(|entry| entry.tag == tag).copied();
        assert_eq!(entry(GROUP_OBJ).map(|entry| entry.permissions), Some(4), "as before");
        assert_eq!(entry(MASK).map(|entry| entry.permissions), Some(2));
        let minimal = acl(&[FULL[0], FULL[2], FULL[5]]).expect("makes sense");
        assert!(minimal.is_minimal());
        assert_eq!(minimal.mode(0o777), 0o740);
        assert_eq!(minimal.with_mode(0o421).mode(0), 0o421);
    }

    #[test]
    fn what_is_inherited_is_no_more_than_was_asked_for() {
        let full = acl(&FULL).expect("makes sense");
        assert_eq!(full.inherited(0o666).mode(0), 0o640);
        assert_eq!(full.inherited(0o777).mode(0), 0o750);
        assert_eq!(full.inherited(0o000).mode(0), 0);
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |entries: &[(u16, u16, u32)]| acl(entries).is_none();
        let [user, named, group, named_group, mask, other] = FULL;
        assert!(refused(&[user, group]), "none for others");
        assert!(refused(&[user, named, group, other]), "named, but no mask");
        assert!(refused(&[user, group, named_group, other]));
        assert!(refused(&[group, user, other]), "not in order");
        assert!(refused(&[user, user, group, other]));
        assert!(refused(&[user, group, mask, mask, other]));
        assert!(refused(&[user, (USER, 6, NOBODY), group, mask, other]), "about nobody");
        assert!(refused(&[(USER_OBJ, 8, 0), group, other]), "permissions");
        assert!(refused(&[user, group, other, (0x40, 0, 0)]), "an unknown tag");
        assert!(refused(&[user, group, (3, 0, 0), other]));
        for len in 0..value(&FULL).len() {
            assert!(!matches!(Acl::decode(&value(&FULL)[..len]), Ok(Some(_))), "{len} bytes");
        }
        assert!(matches!(Acl::decode(&value(&[])), Ok(None)), "none");
        assert!(matches!(Acl::decode(&[1, 0, 0, 0]), Err(Error::Unsupported(_))));
        let many: Vec<_> = (0..501u32).map(|id| (USER, 0, id)).collect();
        assert!(matches!(Acl::decode(&value(&many)), Err(Error::AttributeSize)));
    }
}
