//! What a kernel on another machine calls the inodes of a mount.
//!
//! A kernel asks by inode. One that may have all of a pool names inodes as they are; one that may
//! have a part of it gets names that only the service makes: the inode's number in a cipher of 64
//! bits, whose key is the pool's and the mount's. So it can name what it was told of, now and when
//! another service has followed, and nobody has to remember what that was. Whoever guesses hits
//! one of `n` inodes at one guess in 2^64 / n.
//!
//! The cipher is a Feistel network of four rounds, whose function is SipHash-2-4.

use std::borrow::Cow;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use zerocopy::{FromBytes, IntoBytes};

use crate::locks::RECORD_BYTES;
use crate::wire::{DirentHead, EntryAnswer};

/// The inode that a kernel knows as the root of a mount.
const KERNEL_ROOT: u64 = 1;
const ROUNDS: u32 = 4;

/// Names of inodes.
#[derive(Clone, Copy, Debug)]
pub struct Nodes {
    root: u64,
    /// Of names that only the service makes.
    key: Option<[u8; 16]>,
}

impl Nodes {
    /// Those of a mount with this root; with a key its kernel knows no others than it is told of.
    pub fn new(root: u64, key: Option<[u8; 16]>) -> Nodes {
        Nodes { root, key }
    }

    /// What the kernel calls an inode.
    pub fn name(&self, ino: u64) -> u64 {
        let Some(key) = &self.key else { return ino };
        match ino {
            0 => 0,
            ino if ino == self.root => KERNEL_ROOT,
            // a name that means something else is none
            ino => std::iter::successors(Some(encrypt(key, ino)), |name| Some(encrypt(key, *name)))
                .find(|name| *name > KERNEL_ROOT)
                .unwrap_or(0),
        }
    }

    /// The inode that the kernel calls so; `None`: it was never told of it.
    pub fn inode(&self, name: u64) -> Option<u64> {
        match (&self.key, name) {
            (_, KERNEL_ROOT) => Some(self.root),
            (None, name) => Some(name),
            (Some(_), 0) => Some(0),
            (Some(key), name) => {
                let mut inos =
                    std::iter::successors(Some(decrypt(key, name)), |ino| Some(decrypt(key, *ino)));
                // inodes have small numbers, but for the first ones, which are no names
                inos.find(|ino| *ino > KERNEL_ROOT).filter(|ino| *ino != self.root)
            }
        }
    }

    /// Puts names in the place of inodes, where a directory's entries stand with their attributes.
    pub fn name_listing(&self, bytes: &mut [u8]) {
        let mut at = 0;
        let head_at = size_of::<EntryAnswer>();
        while let Some(entry) = bytes.get_mut(at..).filter(|rest| rest.len() > head_at) {
            self.name_first(entry);
            let Ok((head, _)) = DirentHead::read_from_prefix(&entry[head_at..]) else { return };
            let len = size_of::<DirentHead>() + head.name_bytes as usize;
            at += head_at + len.next_multiple_of(size_of::<u64>());
        }
    }

    /// The same for records of locks.
    pub fn name_records(&self, records: &mut [u8]) {
        records.chunks_exact_mut(RECORD_BYTES).for_each(|record| self.name_first(record));
    }

    /// Those of these records whose names are some, with the inodes; what is no record stays.
    pub fn records_of<'r>(&self, records: &'r [u8]) -> Cow<'r, [u8]> {
        if self.are_inodes() {
            return Cow::Borrowed(records);
        }
        let all = records.chunks(RECORD_BYTES).filter_map(|record| {
            let Some((name, rest)) = record.split_first_chunk() else { return Some(record.into()) };
            Some([&self.inode(u64::from_ne_bytes(*name))?.to_ne_bytes()[..], rest].concat())
        });
        Cow::Owned(all.collect::<Vec<Vec<u8>>>().concat())
    }

    /// Puts a name in the place of the inode that these bytes begin with.
    pub fn name_first(&self, bytes: &mut [u8]) {
        if let Some(ino) = bytes.first_chunk_mut() {
            *ino = self.name(u64::from_ne_bytes(*ino)).to_ne_bytes();
        }
    }

    /// Whether names are the inodes themselves.
    pub fn are_inodes(&self) -> bool {
        self.key.is_none()
    }
}

fn round(key: &[u8; 16], round: u32, half: u32) -> u32 {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write([round, half].as_bytes());
    hasher.finish() as u32
}

fn encrypt(key: &[u8; 16], number: u64) -> u64 {
    let halves = ((number >> 32) as u32, number as u32);
    let (left, right) =
        (0..ROUNDS).fold(halves, |(left, right), at| (right, left ^ round(key, at, right)));
    u64::from(left) << 32 | u64::from(right)
}

fn decrypt(key: &[u8; 16], number: u64) -> u64 {
    let halves = ((number >> 32) as u32, number as u32);
    let (left, right) =
        (0..ROUNDS).rev().fold(halves, |(left, right), at| (right ^ round(key, at, left), left));
    u64::from(left) << 32 | u64::from(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_is_its_inodes_alone(
            key in any::<[u8; 16]>(), ino in 2..u64::MAX, other in any::<u64>(), root in 1..99u64,
        ) {
            let nodes = Nodes::new(root, Some(key));
            let name = nodes.name(ino);
            prop_assert_eq!(nodes.inode(name), Some(ino));
            if ino != root {
                prop_assert!(name > KERNEL_ROOT && name != ino);
            }
            let of_other = nodes.inode(other).map(|ino| nodes.name(ino));
            prop_assert!(of_other.is_none_or(|name| name == other), "{:?}", of_other);
            let elsewhere = Nodes::new(root, Some(key.map(|byte| byte ^ 1)));
            prop_assert_ne!(elsewhere.name(ino.max(100)), nodes.name(ino.max(100)));
        }
    }

    #[test]
    fn a_root_has_one_name_and_nothing_has_none() {
        for key in [None, Some([7; 16])] {
            let nodes = Nodes::new(5, key);
            assert_eq!((nodes.inode(KERNEL_ROOT), nodes.inode(0)), (Some(5), Some(0)));
            assert_eq!(nodes.name(0), 0);
        }
        let nodes = Nodes::new(5, Some([7; 16]));
        assert_eq!(nodes.name(5), KERNEL_ROOT);
        assert_eq!(nodes.inode(encrypt(&[7; 16], 5)), None, "and no other");
    }
}
