//! What the pages of a block may be, but for what was stored to them by mappings.

use nearside::files::BLOCK_BYTES;

/// Bytes of a block.
pub(super) const BLOCK: usize = BLOCK_BYTES as usize;

/// A block, as the kernel has it in its pages. A byte of them was stored there if it is neither
/// what was given nor what was written, nor a zero where the kernel may have put zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    /// What the kernel was given.
    pub(super) given: Box<[u8]>,
    /// The same with what it wrote through its pages, of which nobody knows whether they have it.
    pub(super) written: Option<Box<[u8]>>,
    /// The kernel may have filled the block with zeros from there on: it does so by itself when it
    /// hears that the file ends there.
    pub(super) zeros_from: usize,
}

impl Base {
    /// These bytes and zeros behind them were given.
    pub(super) fn of(bytes: &[u8]) -> Base {
        let mut given = vec![0; BLOCK].into_boxed_slice();
        let len = bytes.len().min(BLOCK);
        given[..len].copy_from_slice(&bytes[..len]);
        Base { given, written: None, zeros_from: BLOCK }
    }

    /// Puts into `now` those bytes of the pages, from `at` in the block on, that were stored there.
    pub(super) fn merge(&self, at: usize, pages: &[u8], now: &mut [u8]) {
        let written = self.written.as_ref().unwrap_or(&self.given);
        let was = self.given.iter().zip(written.iter()).enumerate().skip(at);
        for ((now, page), (place, (given, written))) in now.iter_mut().zip(pages).zip(was) {
            let is_zeroed = *page == 0 && place >= self.zeros_from;
            if page != given && page != written && !is_zeroed {
                *now = *page;
            }
        }
    }

    /// The pages may have zeros from there on.
    pub(super) fn may_be_zero_from(&mut self, from: u64) {
        self.zeros_from = self.zeros_from.min(usize::try_from(from).unwrap_or(BLOCK));
    }

    /// The pages have zeros from there on for certain.
    pub(super) fn zero(&mut self, from: usize) {
        for image in [Some(&mut self.given), self.written.as_mut()].into_iter().flatten() {
            image[from.min(BLOCK)..].fill(0);
        }
    }

    /// The pages have these bytes for certain.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        for image in [Some(&mut self.given), self.written.as_mut()].into_iter().flatten() {
            image[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// The pages may have these bytes.
    pub(super) fn put_maybe(&mut self, at: usize, bytes: &[u8]) {
        let written = self.written.get_or_insert_with(|| self.given.clone());
        written[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(base: &Base, pages: &[u8]) -> Vec<u8> {
        let mut now = vec![b'.'; pages.len()];
        base.merge(0, pages, &mut now);
        now
    }

    #[test]
    fn what_is_neither_given_nor_written_was_stored() {
        let mut base = Base::of(b"abcdef");
        assert_eq!(merged(&base, b"abcdef\0"), b".......");
        assert_eq!(merged(&base, b"aBcdeF"), b".B...F");
        base.put_maybe(1, b"xy");
        assert_eq!(merged(&base, b"abydef"), b"......");
        assert_eq!(merged(&base, b"abzdef"), b"..z...");
        base.put(2, b"z");
        assert_eq!(merged(&base, b"abzdef"), b"......");
        assert_eq!(merged(&base, b"abcdef"), b"..c...");
    }

    /// A zero is a store where the kernel itself cut the file, and wrote there since.
    #[test]
    fn zeros_behind_a_cut_that_is_over_were_stored() {
        let mut base = Base::of(b"abcdef");
        base.zero(4);
        assert_eq!(merged(&base, b"abcd\0\0"), b"......");
        base.put(4, b"ww");
        assert_eq!(merged(&base, b"abcd\0w"), b"....\0.");
        base.zero(BLOCK + 1);
        assert_eq!(merged(&base, b"abcdww"), b"......");
    }

    #[test]
    fn zeros_of_the_kernel_were_not_stored() {
        let mut base = Base::of(b"abcdef");
        assert_eq!(merged(&base, b"abc\0\0\0"), b"...\0\0\0");
        base.zeros_from = 4;
        assert_eq!(merged(&base, b"abc\0\0\0"), b"...\0..");
        assert_eq!(merged(&base, b"abcdXf"), b"....X.");
        // a write does not tell whether they come after it
        base.put(4, b"ww");
        assert_eq!(merged(&base, b"abcd\0w"), b"......");
    }
}
