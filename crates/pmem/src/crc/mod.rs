//! CRC-32C (Castagnoli; RFC 3720 appendix B.4).

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod hardware;
pub(crate) mod polynomial;
pub(crate) mod table;

/// CRC-32C (Castagnoli) of `data`, going on from `seed` (0 at the start).
///
/// `crc32c(crc32c(0, a), b)` is the CRC of `a` followed by `b`.
#[inline]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    let kernels = crate::cpu::kernels();
    // SAFETY: the slice is valid for its length, and these kernels were chosen for this CPU.
    !unsafe { (kernels.crc)(data.as_ptr(), data.len(), !seed) }
}

/// Whether data whose checksum is `found` are those of which `stored` was written down.
///
/// Everything that reads a medium asks here, so that the crash explorer can see what would come of
/// a place that does not look.
#[inline(always)]
#[cfg_attr(feature = "recorder", track_caller)]
pub fn crc_fits(found: u32, stored: u32) -> bool {
    let fits = found == stored;
    #[cfg(feature = "recorder")]
    let fits = crate::recorder::compared(fits);
    fits
}

/// The CRC-32C of `a` followed by `b`, from that of `a`, that of `b`, and the bytes in `b`.
pub fn crc32c_combine(crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    let (mut moved, mut rest) = (crc_a, len_b);
    while rest != 0 {
        moved = polynomial::multiply(moved, polynomial::DOUBLINGS[rest.trailing_zeros() as usize]);
        rest &= rest - 1;
    }
    moved ^ crc_b
}

/// The same for a `b` of at most 4096 bytes, in a few nanoseconds.
#[inline]
pub fn crc32c_append(crc_a: u32, crc_b: u32, len_b: usize) -> u32 {
    assert!(len_b <= BEHIND_BYTES_MAX, "at most a page");
    let kernels = crate::cpu::kernels();
    // SAFETY: this kernel was chosen for this CPU.
    unsafe { (kernels.shift)(crc_a, len_b) ^ crc_b }
}

/// The CRC-32C of `len` zeros.
pub const fn crc32c_of_zeros(len: u64) -> u32 {
    !polynomial::multiply(polynomial::power_of_x(8 * len), !0)
}

/// Most bytes by which a CRC is moved.
pub(crate) const BEHIND_BYTES_MAX: usize = 4096;

/// What the CRC-32C of data changes by (exclusive or) when `old` in it becomes `new`, as many
/// bytes; `behind` bytes of the data follow them, at most 4096.
///
/// A CRC is linear: that of the bytes' difference, moved to its place, is the difference of the
/// CRCs. So it costs what the bytes cost that changed, not what the data would.
#[inline]
pub fn crc32c_difference(old: &[u8], new: &[u8], behind: usize) -> u32 {
    assert!(old.len() == new.len() && behind <= BEHIND_BYTES_MAX, "one page, as many bytes");
    let kernels = crate::cpu::kernels();
    // SAFETY: both slices are valid for their length, and these kernels were chosen for this CPU.
    unsafe { (kernels.shift)((kernels.difference)(old.as_ptr(), new.as_ptr(), old.len()), behind) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn check_values_of_the_standard() {
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
        // RFC 3720 B.4
        assert_eq!(crc32c(0, &[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(0, &[0xFF; 32]), 0x62A8_AB43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(0, &rising), 0x46DD_794E);
        assert_eq!(crc32c(0, b""), 0);
        assert_eq!(crc32c(77, b""), 77);
        assert_eq!(crc32c_of_zeros(32), 0x8A91_36AA);
        assert_eq!(crc32c_of_zeros(4096), crc32c(0, &[0; 4096]));
    }

    proptest! {
        #[test]
        fn chains_and_combines(
            a in proptest::collection::vec(any::<u8>(), 0..6000),
            b in proptest::collection::vec(any::<u8>(), 0..6000),
            seed: u32,
        ) {
            let joined = [a.as_slice(), b.as_slice()].concat();
            let whole = crc32c(seed, &joined);
            prop_assert_eq!(crc32c(crc32c(seed, &a), &b), whole);
            let (crc_a, crc_b) = (crc32c(seed, &a), crc32c(0, &b));
            prop_assert_eq!(crc32c_combine(crc_a, crc_b, b.len() as u64), whole);
            let page = &b[..b.len().min(BEHIND_BYTES_MAX)];
            let appended = crc32c_append(crc_a, crc32c(0, page), page.len());
            prop_assert_eq!(appended, crc32c(crc_a, page));
        }

        #[test]
        fn a_replaced_part_gives_the_checksum_of_the_whole(
            mut page in proptest::collection::vec(any::<u8>(), 4096),
            part in proptest::collection::vec(any::<u8>(), 0..4096),
            at: usize,
        ) {
            let before = crc32c(0, &page);
            let at = at % (page.len() - part.len() + 1);
            let end = at + part.len();
            let difference = crc32c_difference(&page[at..end], &part, page.len() - end);
            page[at..end].copy_from_slice(&part);
            prop_assert_eq!(before ^ difference, crc32c(0, &page));
        }
    }
}
