//! Reading little-endian fields from bytes that may be anything.

/// A cursor over bytes; every read may find too few.
#[derive(Clone, Copy)]
pub struct Bytes<'b>(pub &'b [u8]);

impl<'b> Bytes<'b> {
    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Option<&'b [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// The next 16-bit number.
    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    /// The next 32-bit number.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// The next 64-bit number.
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// The next 128-bit number.
    pub fn u128(&mut self) -> Option<u128> {
        Some(u128::from_le_bytes(self.take(16)?.try_into().ok()?))
    }

    /// The next signed 64-bit number.
    pub fn i64(&mut self) -> Option<i64> {
        Some(self.u64()? as i64)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
