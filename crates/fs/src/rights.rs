//! Who may do what: the rules of Linux for a process with given ids, from what an inode says of
//! itself. Nothing is looked up or locked here; `permits.rs` does that.
//!
//! Sources: path_resolution(7), chmod(2), chown(2), utimensat(2), unlink(2), rename(2), xattr(7),
//! acl(5), and where those are silent the kernel (`acl_permission_check`, `setattr_prepare`,
//! `chown_common`, `mode_strip_sgid`, `xattr_permission`).

use crate::acl::{self, Acl};
use crate::error::{Error, Result};
use crate::inode::{Inode, Meta};
use crate::types::{Attr, Creation, FileKind, SetAttr};

/// Set-user-id.
const SET_USER_ID: u16 = 0o4000;
/// Set-group-id.
const SET_GROUP_ID: u16 = 0o2000;
/// Of a directory: who may write there removes only what is his.
const STICKY: u16 = 0o1000;
/// The group may execute.
const GROUP_EXECUTE: u16 = 0o010;
/// Anybody may execute.
const ANY_EXECUTE: u16 = 0o111;
/// Bits that mkdir(2) takes.
const DIRECTORY_BITS: u16 = 0o1777;

/// For whom a call is made: what of a process counts for its rights, as its fsuid, fsgid and
/// supplementary groups do in Linux. User 0 has every right that root has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    uid: u32,
    gid: u32,
    /// In ascending order.
    groups: Vec<u32>,
}

impl Caller {
    /// The caller with this user, this group, and these groups besides.
    pub fn new(uid: u32, gid: u32, mut groups: Vec<u32>) -> Caller {
        groups.sort_unstable();
        Caller { uid, gid, groups }
    }

    /// Its user: the owner of what it makes.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Its group: that of what it makes.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Its groups besides, in ascending order.
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Whether it is root.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the group is one of its own.
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.binary_search(&gid).is_ok()
    }

    /// The permission bits of a file when this caller has changed its owner or content: root's
    /// change of content leaves them, and is not asked for here.
    pub fn without_set_id(&self, attr: &Attr) -> u16 {
        let Attr { kind, mode, uid, gid, .. } = *attr;
        Owned { kind, mode, uid, gid }.without_set_id(self)
    }

    /// Whether it is the owner, or may act as if.
    pub(crate) fn owns(&self, it: &Owned) -> bool {
        self.is_root() || self.uid == it.uid
    }

    /// Whether it is in the group, or may act as if.
    pub(crate) fn has_group(&self, gid: u32) -> bool {
        self.is_root() || self.is_in(gid)
    }
}

/// What is wanted of an inode: bits as in one class of its permission bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(u16);

impl Access {
    /// To read a file, or to list a directory.
    pub const READ: Access = Access(4);
    /// To change a file, or the names in a directory.
    pub const WRITE: Access = Access(2);
    /// To go through a directory.
    pub const SEARCH: Access = Access(1);
    /// To make, remove or rename what is in a directory.
    pub(crate) const NAMES: Access = Access(3);

    /// Both.
    pub const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    /// As bits of one class.
    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    /// The error of who does not have it.
    pub(crate) fn denied(self, kind: FileKind) -> Error {
        Error::Denied(match (kind, self) {
            (FileKind::Directory, Access::SEARCH) => {
                "a directory of the path may not be searched; it needs permission x"
            }
            (FileKind::Directory, Access::NAMES) => {
                "names in this directory may not be changed; it needs permissions w and x"
            }
            (FileKind::Directory, Access::READ) => {
                "the directory may not be listed; it needs permission r"
            }
            (FileKind::Directory, _) => {
                "the directory itself may not be changed; it needs permission w"
            }
            (_, Access::READ) => "the file may not be read; it needs permission r",
            (_, Access::WRITE) => "the file may not be written; it needs permission w",
            (_, Access::SEARCH) => "the file may not be executed; it needs permission x",
            _ => "the file may not be read and written; it needs permissions r and w",
        })
    }
}

/// What of an inode decides about rights, apart from its access list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owned {
    pub kind: FileKind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
}

impl Owned {
    /// That of this inode.
    pub fn of(inode: &Inode, meta: &Meta) -> Owned {
        Owned { kind: inode.kind, mode: meta.mode, uid: meta.uid, gid: meta.gid }
    }

    /// Whether the caller has the right, where that can be said without the access list.
    pub fn allows_without_list(&self, caller: &Caller, want: Access) -> Option<bool> {
        if caller.is_root() {
            let execute = want.0 & Access::SEARCH.0 != 0 && self.kind != FileKind::Directory;
            return Some(!execute || self.mode & ANY_EXECUTE != 0);
        }
        if caller.uid == self.uid {
            return Some(want.0 & !(self.mode >> 6) == 0);
        }
        // Linux asks no list where the group's bits, which are its mask, are empty: whom it names
        // is one of the others then.
        (self.mode & 0o070 == 0).then(|| self.allows_by_bits(caller, want))
    }

    /// The same with the list, or that there is none, for who is neither root nor the owner.
    pub fn allows(&self, caller: &Caller, list: Option<&Acl>, want: Access) -> bool {
        match list {
            Some(list) => list.allows(caller, self, want),
            None => self.allows_by_bits(caller, want),
        }
    }

    fn allows_by_bits(&self, caller: &Caller, want: Access) -> bool {
        let class = if caller.is_in(self.gid) { self.mode >> 3 } else { self.mode };
        want.0 & !class == 0
    }

    /// The mode after what takes set-id bits away has happened by this caller. Set-group-id of a
    /// file that its group may not execute is no set-id, and stays for who is in the group.
    pub fn without_set_id(&self, caller: &Caller) -> u16 {
        let mode = self.mode & !SET_USER_ID;
        let stays = mode & GROUP_EXECUTE == 0 && caller.has_group(self.gid);
        if stays { mode } else { mode & !SET_GROUP_ID }
    }

    /// The mode after this caller changed the content, if that changes it.
    pub fn after_write(&self, caller: &Caller) -> Option<u16> {
        let drops = self.kind == FileKind::File && !caller.is_root();
        Some(self.without_set_id(caller)).filter(|mode| drops && *mode != self.mode)
    }
}

/// Whether the caller may remove or rename an entry of a directory where it may change names.
pub(crate) fn check_sticky(caller: &Caller, dir: &Owned, entry: &Owned) -> Result<()> {
    if dir.mode & STICKY == 0 || caller.owns(entry) || caller.owns(dir) {
        return Ok(());
    }
    Err(Error::NotPermitted(
        "the directory is sticky: an entry is moved and removed by its owner, the directory's, or \
         root",
    ))
}

/// Whether the caller may read the inode without a new time of the last read.
pub(crate) fn check_access_time(caller: &Caller, it: &Owned) -> Result<()> {
    match caller.owns(it) {
        true => Ok(()),
        false => Err(Error::NotPermitted("only the owner and root open with O_NOATIME")),
    }
}

/// What becomes of an inode that the caller makes in `dir`.
pub(crate) fn birth(
    caller: &Caller,
    dir: &Owned,
    (kind, rdev): (FileKind, u32),
    asked: Creation,
) -> Result<Creation> {
    let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    // a whiteout opens no device
    let whiteout = kind == FileKind::CharDevice && rdev == 0;
    if device && !whiteout && !caller.is_root() {
        return Err(Error::NotPermitted("only root makes devices"));
    }
    let mut mode = asked.mode;
    if kind == FileKind::Directory {
        mode &= DIRECTORY_BITS;
    } else if mode & GROUP_EXECUTE != 0
        && dir.mode & SET_GROUP_ID != 0
        && !caller.has_group(dir.gid)
    {
        // it gets the directory's group, and would act for that
        mode &= !SET_GROUP_ID;
    }
    Ok(Creation { mode, uid: caller.uid, gid: caller.gid, ..asked })
}

/// What of a change of attributes happens when this caller asks for it. Whether it may change the
/// size was asked before; what says where blocks lie goes with that.
pub(crate) fn settle(caller: &Caller, it: &Owned, asked: &SetAttr) -> Result<SetAttr> {
    let mut change = *asked;
    check_owner(caller, it, asked)?;
    let chowns = asked.uid.is_some() || asked.gid.is_some();
    if asked.mode.is_none() && chowns && it.kind != FileKind::Directory {
        change.mode = Some(it.without_set_id(caller)).filter(|mode| *mode != it.mode);
    }
    if let Some(mode) = change.mode {
        if !caller.owns(it) {
            return Err(Error::NotPermitted("only the owner and root change permission bits"));
        }
        let keeps = caller.has_group(asked.gid.unwrap_or(it.gid));
        change.mode = Some(if keeps { mode } else { mode & !SET_GROUP_ID });
    }
    if (asked.accessed.is_some() || asked.modified.is_some()) && !caller.owns(it) {
        return Err(Error::NotPermitted("only the owner and root set times"));
    }
    if asked.size.is_some() && change.mode.is_none() {
        change.mode = it.after_write(caller);
    }
    Ok(change)
}

/// Whether the caller may give the inode to this owner and group.
fn check_owner(caller: &Caller, it: &Owned, asked: &SetAttr) -> Result<()> {
    if caller.is_root() {
        return Ok(());
    }
    let is_owner = caller.uid == it.uid;
    if asked.uid.is_some_and(|uid| !is_owner || uid != it.uid) {
        return Err(Error::NotPermitted("only root changes the owner"));
    }
    if asked.gid.is_some_and(|gid| !is_owner || (gid != it.gid && !caller.is_in(gid))) {
        return Err(Error::NotPermitted(
            "only the owner changes the group, to one of his own, and root to any",
        ));
    }
    Ok(())
}

/// What an attribute's name says about who may do what with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NameSpace {
    User,
    Trusted,
    Security,
    List,
    Unknown,
}

impl NameSpace {
    fn of(name: &[u8]) -> NameSpace {
        if name == acl::ACCESS || name == acl::DEFAULT {
            NameSpace::List
        } else if name.starts_with(b"user.") {
            NameSpace::User
        } else if name.starts_with(b"trusted.") {
            NameSpace::Trusted
        } else if name.starts_with(b"security.") {
            NameSpace::Security
        } else {
            NameSpace::Unknown
        }
    }
}

const UNKNOWN: Error =
    Error::Unsupported("attributes are called user., trusted., security. or system.posix_acl_");

/// What of the inode itself the caller must have to read the attribute.
pub(crate) fn to_get(caller: &Caller, it: &Owned, name: &[u8]) -> Result<Option<Access>> {
    match NameSpace::of(name) {
        NameSpace::Trusted if !caller.is_root() => Err(Error::NoAttribute),
        NameSpace::User if !holds_user_attributes(it) => Err(Error::NoAttribute),
        NameSpace::User => Ok(Some(Access::READ)),
        NameSpace::Trusted | NameSpace::Security | NameSpace::List => Ok(None),
        NameSpace::Unknown => Err(UNKNOWN),
    }
}

/// What of the inode itself the caller must have to set or remove the attribute.
pub(crate) fn to_set(caller: &Caller, it: &Owned, name: &[u8]) -> Result<Option<Access>> {
    let refused = match NameSpace::of(name) {
        NameSpace::Unknown => return Err(UNKNOWN),
        NameSpace::Trusted if !caller.is_root() => "only root sets attributes of trusted.",
        NameSpace::Security if !caller.is_root() => "only root sets attributes of security.",
        NameSpace::List if !caller.owns(it) => "only the owner and root set access lists",
        NameSpace::User if !holds_user_attributes(it) => {
            "only files and directories have attributes of user."
        }
        NameSpace::User if is_sticky(it) && !caller.owns(it) => {
            "the directory is sticky: only its owner and root set its attributes"
        }
        NameSpace::User => return Ok(Some(Access::WRITE)),
        NameSpace::Trusted | NameSpace::Security | NameSpace::List => return Ok(None),
    };
    Err(Error::NotPermitted(refused))
}

fn is_sticky(it: &Owned) -> bool {
    it.kind == FileKind::Directory && it.mode & STICKY != 0
}

fn holds_user_attributes(it: &Owned) -> bool {
    matches!(it.kind, FileKind::File | FileKind::Directory)
}

/// Whether a list of names that the caller asks for has this one.
pub(crate) fn is_listed(caller: &Caller, name: &[u8]) -> bool {
    caller.is_root() || NameSpace::of(name) != NameSpace::Trusted
}
