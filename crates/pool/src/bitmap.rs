//! Bitmaps of free space, and their bytes in the trees.

/// Blocks of one group (32 MiB).
pub const GROUP_BLOCKS: u64 = 8192;
/// Bytes of a group's bitmap.
pub const GROUP_BYTES: usize = GROUP_BLOCKS as usize / 8;
/// Words of it.
pub const WORDS: usize = GROUP_BLOCKS as usize / 64;

/// A bitmap over the blocks of one group; a set bit is a used block.
pub type GroupBits = [u64; WORDS];

/// Reads a group's bitmap from its bytes in the tree.
pub fn bits_from_bytes(bytes: &[u8]) -> Option<GroupBits> {
    let mut bits = [0u64; WORDS];
    if bytes.len() != GROUP_BYTES {
        return None;
    }
    for (word, bytes) in bits.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(bits)
}

/// A group's bitmap as bytes for the tree.
pub fn bits_to_bytes(bits: &GroupBits) -> Vec<u8> {
    bits.iter().flat_map(|word| word.to_le_bytes()).collect()
}
