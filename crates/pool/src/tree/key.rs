//! What the tree is ordered by.

/// Bytes of a key on the medium.
pub const KEY_BYTES: usize = OFF_INDEX + 8;

const OFF_OBJECT: usize = 0;
const OFF_KIND: usize = OFF_OBJECT + 8;
const OFF_INDEX: usize = OFF_KIND + 1;
const _: () = assert!(KEY_BYTES == 17);

/// The name of an entry: which object, which kind of fact about it, which one of that kind.
///
/// On the medium a key is 17 bytes, each number big-endian, so that the bytes compare as the keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The object (an inode, or a keyspace of the pool's own).
    pub object: u64,
    /// The kind of fact.
    pub kind: u8,
    /// Which one of that kind: a file offset, a name's hash, a block's number.
    pub index: u64,
}

impl Key {
    /// The lowest key.
    pub const MIN: Key = Key::new(0, 0, 0);
    /// The highest key. Ranges end before their upper key, so that none covers this one.
    pub const MAX: Key = Key::new(u64::MAX, u8::MAX, u64::MAX);

    /// The key of these three.
    pub const fn new(object: u64, kind: u8, index: u64) -> Key {
        Key { object, kind, index }
    }

    /// The key as it is stored.
    pub fn encode(&self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[OFF_OBJECT..OFF_KIND].copy_from_slice(&self.object.to_be_bytes());
        bytes[OFF_KIND] = self.kind;
        bytes[OFF_INDEX..].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    /// The key that `bytes` say; all bytes are a key.
    pub fn decode(bytes: &[u8; KEY_BYTES]) -> Key {
        let [a, b, c, d, e, f, g, h, kind, index @ ..] = *bytes;
        Key {
            object: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            kind,
            index: u64::from_be_bytes(index),
        }
    }
}
