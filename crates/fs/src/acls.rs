//! Access control lists of inodes: set, kept in step with the permission bits, handed on.
//!
//! Who may do what is decided elsewhere (`rights.rs`, or the kernel); here it is kept true that
//! - the access list and the permission bits say the same, and change in one record;
//! - a list that says no more than the bits is not stored;
//! - what is made in a directory with a default list has its lists from birth.

use crate::acl::{ACCESS, Acl, DEFAULT};
use crate::core::{Core, damaged_value};
use crate::error::{Error, Result};
use crate::inode::{Inode, Meta};
use crate::keys;
use crate::rights::Caller;
use crate::types::{Creation, FileKind, XattrMode};
use crate::xattr::{XattrChange, Xattrs, check_mode};
use std::sync::Arc;

/// Set-group-id.
const SET_GROUP_ID: u16 = 0o2000;

/// What a new inode gets.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Its permission bits.
    pub mode: u16,
    /// Its lists: names and values.
    pub lists: Vec<(&'static [u8], Vec<u8>)>,
}

impl Core {
    /// Sets or removes a list. Without `in_group`, the caller is not in the inode's group, nor
    /// may it act as if: then the inode loses set-group-id.
    pub(crate) fn change_acl(
        &self,
        inode: &Arc<Inode>,
        (name, value): (&[u8], Option<&[u8]>),
        mode: XattrMode,
        in_group: bool,
        caller: Option<&Caller>,
    ) -> Result<()> {
        let acl = value.map(Acl::decode).transpose()?.flatten();
        if inode.kind == FileKind::Symlink {
            return Err(Error::Unsupported("access control lists of symbolic links"));
        }
        if name == DEFAULT && inode.kind != FileKind::Directory {
            return match acl {
                Some(_) => Err(Error::Denied("only a directory has a list to hand on")),
                None => Ok(()),
            };
        }
        self.change(|| {
            let mut meta = inode.meta.write();
            if meta.gone {
                return Err(Error::NotFound);
            }
            self.permit_xattr(caller, inode, &mut meta, name)?;
            let in_group = in_group && caller.is_none_or(|caller| caller.has_group(meta.gid));
            let xattrs = self.xattrs(inode, &mut meta)?;
            if acl.is_none() && !xattrs.values.contains_key(name) {
                return Ok(());
            }
            check_mode(xattrs, name, mode)?;
            let mut bits = meta.mode;
            let mut kept = acl.as_ref();
            if let (true, Some(acl)) = (name == ACCESS, &acl) {
                bits = acl.mode(bits) & if in_group { !0 } else { !SET_GROUP_ID };
                kept = Some(acl).filter(|acl| !acl.is_minimal());
            }
            let value = kept.map(Acl::encode);
            self.log_xattr(inode, &mut meta, name, value.as_deref(), bits)
        })
    }

    /// The change of the access list that goes with new permission bits, if there is one.
    pub(crate) fn acl_with_mode(
        &self,
        inode: &Inode,
        meta: &mut Meta,
        mode: u16,
    ) -> Result<Option<XattrChange<'static>>> {
        let xattrs = self.xattrs(inode, meta)?;
        let acl = list(inode, xattrs, ACCESS)?;
        let Some(acl) = acl.filter(|acl| acl.mode(mode) != mode) else { return Ok(None) };
        let value = acl.with_mode(mode).encode();
        Ok(Some(XattrChange::new(inode.ino, xattrs, ACCESS, Some(&value))))
    }

    /// What a new inode of this kind gets from directory `dir`.
    #[inline]
    pub(crate) fn inherit(
        &self,
        dir: &Inode,
        meta: &mut Meta,
        kind: FileKind,
        by: &Creation,
    ) -> Result<Inherited> {
        if kind == FileKind::Symlink {
            return Ok(Inherited { mode: by.mode & 0o7777, lists: Vec::new() });
        }
        let xattrs = self.xattrs(dir, meta)?;
        if xattrs.values.is_empty() {
            return Ok(Inherited { mode: by.mode & !by.umask & 0o7777, lists: Vec::new() });
        }
        inherit_list(dir, xattrs, kind, by)
    }
}

fn inherit_list(dir: &Inode, xattrs: &Xattrs, kind: FileKind, by: &Creation) -> Result<Inherited> {
    let Some(default) = list(dir, xattrs, DEFAULT)? else {
        return Ok(Inherited { mode: by.mode & !by.umask & 0o7777, lists: Vec::new() });
    };
    let access = default.inherited(by.mode);
    let mut lists = Vec::new();
    if !access.is_minimal() {
        lists.push((ACCESS, access.encode()));
    }
    if kind == FileKind::Directory {
        lists.push((DEFAULT, default.encode()));
    }
    Ok(Inherited { mode: access.mode(by.mode & 0o7777), lists })
}

/// The list of this name.
pub(crate) fn list(inode: &Inode, xattrs: &Xattrs, name: &[u8]) -> Result<Option<Acl>> {
    let Some((number, value)) = xattrs.values.get(name) else { return Ok(None) };
    // it was checked when it was set
    Acl::decode(value).map_err(|_| damaged_value(&keys::key(inode.ino, keys::XATTR, number << 8)))
}

/// What is wrong with lists of an inode that has these permission bits.
pub fn wrong(xattrs: &Xattrs, mode: u16) -> Option<String> {
    let list = |name| xattrs.values.get(name).map(|(_, value)| Acl::decode(value));
    match (list(ACCESS), list(DEFAULT)) {
        (Some(Err(_) | Ok(None)), _) | (_, Some(Err(_) | Ok(None))) => {
            Some("an access control list makes no sense".to_owned())
        }
        (Some(Ok(Some(acl))), _) if acl.mode(mode) != mode => {
            Some(format!("its mode is {mode:o}, but its access control list says otherwise"))
        }
        _ => None,
    }
}
