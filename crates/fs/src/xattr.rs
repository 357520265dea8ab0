//! Extended attributes.
//!
//! An attribute has a number; its parts lie under `number << 8 | part`. Part 0 begins with
//! `name length u8, name, value length u32`; the parts together hold the value.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::inode::{Inode, Meta};
use crate::item;
use crate::keys;
use crate::types::{Ino, XATTR_BYTES_MAX, XattrMode};
use pool::tree::Change;
use pool::{KIND_CHANGE, RecordBuffer};
use std::collections::BTreeMap;
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
    /// Numbers in use are below this.
    fn number_next(&self) -> u64 {
        self.values.values().map(|(number, _)| number + 1).max().unwrap_or(0)
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
            xattrs.values.insert(name, (number, value));
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
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let mut meta = inode.meta.write();
        let xattrs = self.xattrs(&inode, &mut meta)?;
        xattrs.values.get(name).map(|(_, value)| value.clone()).ok_or(Error::NoAttribute)
    }

    /// Names of all attributes.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let inode = self.inode(ino)?;
        let mut meta = inode.meta.write();
        Ok(self.xattrs(&inode, &mut meta)?.values.keys().cloned().collect())
    }

    /// Sets (`value`) or removes an attribute.
    pub fn change_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        if name.is_empty() || name.len() > 255 {
            return Err(Error::Invalid("an attribute's name has 1 to 255 bytes"));
        }
        if value.is_some_and(|value| value.len() > XATTR_BYTES_MAX) {
            return Err(Error::AttributeSize);
        }
        let inode = self.inode(ino)?;
        self.change(|| {
            let mut meta = inode.meta.write();
            let meta = &mut *meta;
            if meta.gone {
                return Err(Error::NotFound);
            }
            let xattrs = self.xattrs(&inode, meta)?;
            let old = xattrs.values.get(name).map(|(number, value)| (*number, value.len()));
            match (mode, &old) {
                (XattrMode::Create, Some(_)) => return Err(Error::Exists),
                (XattrMode::Replace, None) => return Err(Error::NoAttribute),
                _ => {}
            }
            if value.is_some() {
                self.check_room()?;
            }
            let number = xattrs.number_next();
            let mut changes = BTreeMap::new();
            if let Some((number, len)) = old {
                for part in 0..parts(name, &vec![0; len]).len() as u64 {
                    let key = keys::key(ino, keys::XATTR, number << 8 | part);
                    changes.insert(key, Change::Delete);
                }
            }
            for (part, bytes) in
                value.map(|v| parts(name, v)).unwrap_or_default().iter().enumerate()
            {
                let key = keys::key(ino, keys::XATTR, number << 8 | part as u64);
                changes.insert(key, Change::Put(bytes.clone()));
            }
            self.log_values(&inode, meta, changes)?;
            let xattrs = self.xattrs(&inode, meta)?;
            match value {
                Some(value) => xattrs.values.insert(name.to_vec(), (number, value.to_vec())),
                None => xattrs.values.remove(name),
            };
            Ok(())
        })
    }

    /// Logs and takes over values of an inode, with its attributes.
    fn log_values(
        &self,
        inode: &std::sync::Arc<Inode>,
        meta: &mut Meta,
        changes: BTreeMap<pool::tree::Key, Change>,
    ) -> Result<()> {
        let now = crate::core::now();
        let mut record = RecordBuffer::new(KIND_CHANGE, now);
        for (key, change) in &changes {
            match change {
                Change::Put(value) => {
                    item::push_put(&mut record, key.object, key.kind, key.index, value);
                }
                Change::Delete => item::push_delete(&mut record, key.object, key.kind, key.index),
            }
        }
        let mut stored = inode.stored(meta);
        stored.changed.0 = now;
        item::push_put(&mut record, inode.ino.0, keys::INODE, 0, &stored.encode());
        if record.payload_len() > self.payload_max {
            return Err(Error::AttributeSize);
        }
        self.log(&mut record, &[inode], || {
            inode.changed.store(now, std::sync::atomic::Ordering::Relaxed);
            self.mark_dirty(inode);
            let units = changes.len() as u64 * PART_UNITS;
            self.dirty_units.fetch_add(units, std::sync::atomic::Ordering::Relaxed);
        })?;
        meta.pending.extend(changes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
