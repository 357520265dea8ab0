//! A fuzzer's bytes, read as numbers. When they are used up, all that follows is zero.

/// What is left of them.
#[derive(Clone, Copy, Debug)]
pub struct Input<'i>(pub &'i [u8]);

impl<'i> Input<'i> {
    /// Whether all of them were read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next so many bytes; fewer at the end.
    pub fn take(&mut self, len: usize) -> &'i [u8] {
        let (head, tail) = self.0.split_at(len.min(self.0.len()));
        self.0 = tail;
        head
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// The next little-endian number of so many bytes, 8 at most.
    pub fn number(&mut self, bytes: usize) -> u64 {
        crate::image::number(self.take(bytes))
    }
}
