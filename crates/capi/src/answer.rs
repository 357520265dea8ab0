//! From results to what a caller in C gets, and from his pointers to what Rust knows.

use engine::Error;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// An errno.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        Errno(error.errno())
    }
}

impl From<engine::RegionError> for Errno {
    fn from(error: engine::RegionError) -> Errno {
        Errno(error.errno())
    }
}

/// Result of a call.
pub type Answer<T> = Result<T, Errno>;

/// Makes a call, and answers with a number: an error, a panic among them, is a negative one.
pub fn answer(call: impl FnOnce() -> Answer<i64>) -> i64 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(number)) => number,
        Ok(Err(Errno(errno))) => -i64::from(errno),
        Err(_) => -i64::from(libc::EIO),
    }
}

/// The same for a call that answers 0.
pub fn done(call: impl FnOnce() -> Answer<()>) -> c_int {
    answer(|| call().map(|()| 0)) as c_int
}

/// A path.
///
/// # Safety
/// `path` is null, or a string that ends.
pub unsafe fn path<'p>(path: *const c_char) -> Answer<&'p Path> {
    if path.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller has promised it.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Bytes to read.
///
/// # Safety
/// `bytes` is null, or there are `len` bytes that nobody changes meanwhile.
pub unsafe fn bytes<'b>(bytes: *const u8, len: usize) -> Answer<&'b [u8]> {
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno(libc::EFAULT)),
        (false, _) if len > isize::MAX as usize => Err(Errno(libc::EINVAL)),
        // SAFETY: the caller has promised it.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(bytes, len) }),
    }
}

/// Bytes to fill.
///
/// # Safety
/// `bytes` is null, or there are `len` bytes that nobody else uses meanwhile.
pub unsafe fn bytes_mut<'b>(bytes: *mut u8, len: usize) -> Answer<&'b mut [u8]> {
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Errno(libc::EFAULT)),
        (false, _) if len > isize::MAX as usize => Err(Errno(libc::EINVAL)),
        // SAFETY: the caller has promised it.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(bytes, len) }),
    }
}

/// Gives the caller a value.
///
/// # Safety
/// `to` is null, or has room for one.
pub unsafe fn give<T>(to: *mut T, value: T) -> Answer<()> {
    if to.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller has promised it.
    unsafe { to.write(value) };
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    extern "C" fn breaks(number: c_int) -> c_int {
        done(|| Err::<(), _>(Errno([1, 2][number as usize])))
    }

    #[test]
    fn a_panic_is_an_answer() {
        assert_eq!((breaks(0), breaks(1)), (-1, -2));
        assert_eq!(breaks(7), -libc::EIO);
        assert_eq!(answer(|| panic!("inside")), -i64::from(libc::EIO));
    }

    /// Whoever is called from C begins by answering, so that nothing unwinds past him.
    #[test]
    fn every_call_from_c_answers() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut calls = 0;
        for source in std::fs::read_dir(sources).unwrap() {
            let path = source.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for call in text.split("#[unsafe(no_mangle)]\n").skip(1) {
                let body = call.split_once(" {\n").unwrap().1;
                let lines = body.lines().map(str::trim);
                let first = lines.clone().find(|line| !line.starts_with("//")).unwrap();
                let answers = ["done(|| ", "answer(|| ", "match answer(|| "];
                let is_safe = path.ends_with("strerror.rs");
                let answers = answers.iter().any(|begin| first.starts_with(begin));
                assert!(answers || is_safe, "{}: {first}", path.display());
                calls += 1;
            }
        }
        assert!(calls > 25, "{calls} calls");
    }
}
