//! A request's bytes, taken from the front.

use zerocopy::FromBytes;

/// A request whose bytes are not what its kind asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request ends early, or a name in it does not end")]
pub struct Malformed;

/// What is left of a request.
pub(super) struct Reader<'r>(&'r [u8]);

impl<'r> Reader<'r> {
    pub(super) fn new(bytes: &'r [u8]) -> Reader<'r> {
        Reader(bytes)
    }

    /// A fixed part.
    pub(super) fn take<T: FromBytes>(&mut self) -> Result<T, Malformed> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Malformed)?;
        self.0 = rest;
        Ok(value)
    }

    /// A name: what comes before a NUL.
    pub(super) fn name(&mut self) -> Result<&'r [u8], Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let (name, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).ok_or(Malformed)?;
        Ok(name)
    }

    /// The next `len` bytes.
    pub(super) fn bytes(&mut self, len: usize) -> Result<&'r [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// The last `len` bytes.
    pub(super) fn tail(&mut self, len: usize) -> Result<&'r [u8], Malformed> {
        let start = self.0.len().checked_sub(len).ok_or(Malformed)?;
        let (rest, tail) = self.0.split_at_checked(start).ok_or(Malformed)?;
        self.0 = rest;
        Ok(tail)
    }

    /// All that is left.
    pub(super) fn rest(&self) -> &'r [u8] {
        self.0
    }
}
