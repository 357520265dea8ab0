//! What bytes of the file are.

use super::state::{Byte, Door, KERNELS};

/// The value that the change number `change` of a door writes.
pub(super) fn value_of(door: Door, change: u8) -> Byte {
    let door = match door {
        Door::Kernel(number) => number as u8,
        Door::Library => KERNELS as u8,
    };
    2 + door * 10 + change
}

/// Marks, for the second kernel one bit higher, that the kernel stored a value which the byte had
/// before: a comparison of bytes does not see it.
const AGAIN: Byte = 1 << 6;

/// This value, stored again by a kernel.
pub(super) fn again_of(kernel: usize, value: Byte) -> Byte {
    plain(value) | AGAIN << kernel
}

/// A value as a comparison of bytes sees it.
pub(super) fn plain(value: Byte) -> Byte {
    value & (AGAIN - 1)
}

/// Whether the value is one that this kernel stored or wrote.
pub(super) fn is_value_of(value: Byte, kernel: usize) -> bool {
    match value == plain(value) {
        true => value >= 2 && usize::from((value - 2) / 10) == kernel,
        false => value & AGAIN << kernel != 0,
    }
}
