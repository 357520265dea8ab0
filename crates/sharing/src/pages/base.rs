//! The base of a page: what a kernel was given, once another door has changed that.

use super::byte_values::plain;
use super::state::{Byte, Image, PAGE_BYTES};

/// What a kernel's page was before others changed it. Where that is not sure there is more than one
/// possibility for a byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageBase {
    /// What the kernel was given.
    pub bytes: Image,
    /// What it may have instead.
    pub other: Image,
    /// From this byte of the page on it may have zeros, for the file was cut here.
    pub zeros_from: u8,
}

impl PageBase {
    pub(super) fn of(bytes: Image) -> PageBase {
        PageBase { bytes, other: bytes, zeros_from: PAGE_BYTES as u8 }
    }

    /// The kernel has stored this value of the byte: it is none that the base knows.
    pub(super) fn is_own(&self, at: usize, value: Byte) -> bool {
        let is_cut = plain(value) == 0 && at >= usize::from(self.zeros_from);
        let is_same = |known: Byte| plain(value) == plain(known);
        !is_same(self.bytes[at]) && !is_same(self.other[at]) && !is_cut
    }

    /// The kernel has this value of the byte.
    pub(super) fn set(&mut self, at: usize, value: Byte) {
        (self.bytes[at], self.other[at]) = (value, value);
    }

    /// The kernel may have zeros from here on.
    pub(super) fn cut(&mut self, at: usize) {
        self.zeros_from = self.zeros_from.min(at as u8);
    }
}
