//! Extended attributes.
//!
//! An attribute has a number; its parts lie under `number << 8 | part`. Part 0 begins with
//! `name length u8, name, value length u32`; the parts together hold the value.

use crate::acl;
use crate::attr::Stored;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::{Inode, Meta};
use crate::item;
use crate::keys;
use crate::privileges::{CAPABILITY, RAISES};
use crate::rights::{self, Caller, Owned};
use crate::types::{FileKind, Ino, Timestamp, XATTR_BYTES_MAX, XattrMode};
use pool::tree::{Change, Key};
use pool::{KIND_CHANGE, RecordBuffer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a part.
const PART_BYTES: usize = 1400;
/// Its units.
const PART_UNITS: u64 = 23;

/// All attributes of one inode.
#[derive(Debug, Default)]
pub struct Xattrs {
    /// By name: number and value.
    pub values: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    /// Numbers in use are below this. Kept, since looking for it would make the thousandth
    /// attribute of an inode cost a thousand times the first.
    number_next: u64,
}

fn parts(name: &[u8], value: &[u8]) -> Vec<Vec<u8>> {
    let mut whole = Vec::with_capacity(5 + name.len() + value.len());
    whole.push(name.len() as u8);
    whole.extend_from_slice(name);
    whole.extend_from_slice(&(value.len() as u32).to_le_bytes());
    whole.extend_from_slice(value);
    whole.chunks(PART_BYTES).map(<[u8]>::to_vec).collect()
}

fn join(whole: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut bytes = crate::bytes::Bytes(whole);
    let name_len = usize::from(bytes.u8()?);
    let name = bytes.take(name_len)?.to_vec();
    let len = bytes.u32()? as usize;
    let value = bytes.take(len)?.to_vec();
    (bytes.is_empty() && !name.is_empty()).then_some((name, value))
}

impl Xattrs {
    fn insert(&mut self, name: &[u8], number: u64, value: Vec<u8>) {
        self.number_next = self.number_next.max(number + 1);
        self.values.insert(name.to_vec(), (number, value));
    }

    /// The attributes that parts of the tree say; `None` if they make no sense.
    pub fn from_parts(parts: &BTreeMap<u64, Vec<u8>>) -> Option<Xattrs> {
        let mut wholes: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (index, part) in parts {
            wholes.entry(index >> 8).or_default().extend_from_slice(part);
        }
        let mut xattrs = Xattrs::default();
        for (number, whole) in wholes {
            let (name, value) = join(&whole)?;
            xattrs.insert(&name, number, value);
        }
        Some(xattrs)
    }
}

impl Core {
    /// The attributes, loaded if need be.
    pub fn xattrs<'m>(&self, inode: &Inode, meta: &'m mut Meta) -> Result<&'m mut Xattrs> {
        if meta.xattrs.is_none() {
            let mut parts = BTreeMap::new();
            let (from, to) = keys::from_index(inode.ino, keys::XATTR, 0);
            if inode.stored.load(Ordering::Relaxed) {
                self.pool.scan(keys::home(inode.ino), from, to, &mut |key, value| {
                    parts.insert(key.index, value.to_vec());
                    true
                })?;
            }
            // what replay brought is not in the tree yet
            for (key, change) in meta.pending.range(from..to) {
                match change {
                    Change::Put(value) => parts.insert(key.index, value.clone()),
                    Change::Delete => parts.remove(&key.index),
                };
            }
            let xattrs =
                Xattrs::from_parts(&parts).ok_or_else(|| crate::core::damaged_value(&from))?;
            meta.xattrs = Some(Box::new(xattrs));
        }
        Ok(meta.xattrs.get_or_insert_default())
    }

    /// Value of an attribute.
    pub fn getxattr(&self, ino: Ino, name: &[u8], caller: Option<&Caller>) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let mut meta = inode.meta.write();
        if let Some(asking) = caller
            && let Some(want) = rights::to_get(asking, &Owned::of(&inode, &meta), name)?
        {
            self.permit(caller, &inode, &mut meta, want)?;
        }
        let xattrs = self.xattrs(&inode, &mut meta)?;
        xattrs.values.get(name).map(|(_, value)| value.clone()).ok_or(Error::NoAttribute)
    }

    /// Names of all attributes.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let inode = self.inode(ino)?;
        let mut meta = inode.meta.write();
        Ok(self.xattrs(&inode, &mut meta)?.values.keys().cloned().collect())
    }

    /// Sets (`value`) or removes an attribute; `in_group` is for access control lists.
    pub fn change_xattr(
        &self,
        ino: Ino,
        (name, value): (&[u8], Option<&[u8]>),
        mode: XattrMode,
        in_group: bool,
        caller: Option<&Caller>,
    ) -> Result<()> {
        if name.is_empty() || name.len() > 255 {
            return Err(Error::Invalid("an attribute's name has 1 to 255 bytes"));
        }
        if value.is_some_and(|value| value.len() > XATTR_BYTES_MAX) {
            return Err(Error::AttributeSize);
        }
        let inode = self.inode(ino)?;
        if name == acl::ACCESS || name == acl::DEFAULT {
            return self.change_acl(&inode, (name, value), mode, in_group, caller);
        }
        self.change(|| {
            // who changes the content has looked what privileges it takes away, and has done so
            let raises = name == CAPABILITY && value.is_some() && inode.kind == FileKind::File;
            let _range = raises.then(|| inode.ranges.lock(0, u64::MAX));
            if raises {
                self.check_leased(&inode, 0, u64::MAX)?;
            }
            let mut meta = inode.meta.write();
            if meta.gone {
                return Err(Error::NotFound);
            }
            self.permit_xattr(caller, &inode, &mut meta, name)?;
            check_mode(self.xattrs(&inode, &mut meta)?, name, mode)?;
            let bits = meta.mode;
            self.log_xattr(&inode, &mut meta, name, value, bits)?;
            if raises {
                inode.marks.set(RAISES, true);
            }
            Ok(())
        })
    }

    /// An error unless the caller may set or remove the attribute of the inode, which is locked.
    pub(crate) fn permit_xattr(
        &self,
        caller: Option<&Caller>,
        inode: &Inode,
        meta: &mut Meta,
        name: &[u8],
    ) -> Result<()> {
        let Some(asking) = caller else { return Ok(()) };
        match rights::to_set(asking, &Owned::of(inode, meta), name)? {
            Some(want) => self.permit(caller, inode, meta, want),
            None => Ok(()),
        }
    }

    /// Logs and takes over one attribute, with the permission bits.
    pub(crate) fn log_xattr(
        &self,
        inode: &Arc<Inode>,
        meta: &mut Meta,
        name: &[u8],
        value: Option<&[u8]>,
        mode: u16,
    ) -> Result<()> {
        if value.is_some() {
            self.check_room()?;
        }
        let change = XattrChange::new(inode.ino, self.xattrs(inode, meta)?, name, value);
        let now = crate::clock::now();
        let mut record = RecordBuffer::new(KIND_CHANGE, now);
        change.push(&mut record);
        let stored = Stored { mode, changed: Timestamp(now), ..inode.stored(meta) };
        item::push_put(&mut record, inode.ino.0, keys::INODE, 0, &stored.encode());
        if record.payload_len() > self.payload_max {
            return Err(Error::AttributeSize);
        }
        self.log(&mut record, &[inode], || {
            meta.mode = mode;
            inode.changed.store(now, Ordering::Relaxed);
            self.mark_dirty(inode);
            self.take_over(change, meta);
        })
    }

    /// Takes a change over whose record is durable.
    pub(crate) fn take_over(&self, change: XattrChange<'_>, meta: &mut Meta) {
        // ordering: a hint
        self.dirty_units.fetch_add(change.values.len() as u64 * PART_UNITS, Ordering::Relaxed);
        meta.pending.extend(change.values);
        let xattrs = meta.xattrs.get_or_insert_default();
        match change.value {
            Some(value) => xattrs.insert(change.name, change.number, value),
            None => drop(xattrs.values.remove(change.name)),
        }
    }
}

/// Whether the attribute may be set or removed, by what is there.
pub(crate) fn check_mode(xattrs: &Xattrs, name: &[u8], mode: XattrMode) -> Result<()> {
    match (mode, xattrs.values.contains_key(name)) {
        (XattrMode::Create, true) => Err(Error::Exists),
        (XattrMode::Replace, false) => Err(Error::NoAttribute),
        _ => Ok(()),
    }
}

/// A change of one attribute, to go into a record.
#[derive(Debug)]
pub(crate) struct XattrChange<'n> {
    name: &'n [u8],
    number: u64,
    value: Option<Vec<u8>>,
    /// What changes in the tree.
    values: BTreeMap<Key, Change>,
}

impl<'n> XattrChange<'n> {
    /// Attribute `name` of inode `ino` becomes `value`, or goes.
    pub fn new(ino: Ino, xattrs: &Xattrs, name: &'n [u8], value: Option<&[u8]>) -> Self {
        let mut values = BTreeMap::new();
        if let Some((number, old)) = xattrs.values.get(name) {
            for part in 0..parts(name, old).len() as u64 {
                values.insert(keys::key(ino, keys::XATTR, number << 8 | part), Change::Delete);
            }
        }
        let number = xattrs.number_next;
        let new = value.map(|value| parts(name, value)).unwrap_or_default();
        for (part, bytes) in new.into_iter().enumerate() {
            let key = keys::key(ino, keys::XATTR, number << 8 | part as u64);
            values.insert(key, Change::Put(bytes));
        }
        XattrChange { name, number, value: value.map(<[u8]>::to_vec), values }
    }

    /// Adds it to a record.
    pub fn push(&self, record: &mut RecordBuffer) {
        for (key, change) in &self.values {
            match change {
                Change::Put(value) => {
                    item::push_put(record, key.object, key.kind, key.index, value);
                }
                Change::Delete => item::push_delete(record, key.object, key.kind, key.index),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_attribute_takes_a_number_that_no_other_has() {
        let one = |name: &[u8]| parts(name, b"value").remove(0);
        let stored = BTreeMap::from([(7 << 8, one(b"user.b")), (2 << 8, one(b"user.a"))]);
        let mut xattrs = Xattrs::from_parts(&stored).expect("just made");
        let number =
            |xattrs: &Xattrs| XattrChange::new(Ino(5), xattrs, b"user.new", Some(b"value")).number;
        assert_eq!(number(&xattrs), 8);
        xattrs.insert(b"user.c", 20, Vec::new());
        xattrs.insert(b"user.d", 12, Vec::new());
        assert_eq!(number(&xattrs), 21);
        // What goes does not give its number back: its deletion may still be pending.
        xattrs.values.remove(&b"user.c"[..]);
        assert_eq!(number(&xattrs), 21);
    }

    #[test]
    fn an_attribute_of_any_size_is_put_together_again() {
        for len in [0, 1, 1400, 1401, 65_536] {
            let value: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let parts = parts(b"user.name", &value);
            let stored =
                parts.into_iter().enumerate().map(|(i, p)| (3 << 8 | i as u64, p)).collect();
            let xattrs = Xattrs::from_parts(&stored).expect("just made");
            assert_eq!(xattrs.values.get(&b"user.name"[..]), Some(&(3, value)));
        }
    }
}
