//! Blocks in memory as devices like them: each begins where a page does.

use pool::BLOCK_BYTES;

/// One block.
#[repr(C, align(4096))]
#[derive(Clone, Copy, Debug)]
pub struct Block([u8; BLOCK_BYTES as usize]);

impl Block {
    /// One that is all zero.
    pub fn zeroed() -> Block {
        Block([0; BLOCK_BYTES as usize])
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Neighbouring blocks.
pub struct Blocks(Vec<Block>);

impl Blocks {
    /// So many, all zero.
    pub fn new(count: usize) -> Blocks {
        Blocks(vec![Block::zeroed(); count])
    }

    /// Their bytes.
    pub fn bytes(&self) -> &[u8] {
        bytes_of(&self.0)
    }

    /// The same, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = size_of_val(&self.0[..]);
        // SAFETY: as in `bytes_of`.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), len) }
    }
}

/// Blocks one behind the other. The memory of those that go is kept for those that come.
#[derive(Debug, Default)]
pub struct BlockList {
    blocks: Vec<Block>,
    /// How many of them count.
    len: usize,
}

impl BlockList {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One more, with whatever bytes, to be stored.
    pub fn push(&mut self) -> &mut [u8; BLOCK_BYTES as usize] {
        if self.len == self.blocks.len() {
            self.blocks.push(Block::zeroed());
        }
        self.len += 1;
        &mut self.blocks[self.len - 1].0
    }

    /// Only the first ones stay.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The bytes of all.
    pub fn bytes(&self) -> &[u8] {
        bytes_of(&self.blocks[..self.len])
    }
}

fn bytes_of(blocks: &[Block]) -> &[u8] {
    // SAFETY: a block is its bytes, without any between: its size is that of the array.
    unsafe { std::slice::from_raw_parts(blocks.as_ptr().cast(), size_of_val(blocks)) }
}

const _: () = assert!(size_of::<Block>() == BLOCK_BYTES as usize);

/// Whether these bytes lie as devices like them.
pub fn is_aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(align_of::<Block>())
        && bytes.len().is_multiple_of(BLOCK_BYTES as usize)
}
