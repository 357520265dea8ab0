//! Listing directories.

use crate::answer::{Answer, Errno, answer, done, give, path};
use crate::pool::{ns_pool_t, pool};
use crate::table::Table;
use engine::{FileKind, ReadDir};
use parking_lot::Mutex;
use std::ffi::{c_char, c_int};

/// A directory that is being listed.
#[allow(non_camel_case_types)]
pub type ns_dir_t = u64;

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct ns_dirent_t {
    /// Number of the inode.
    pub ino: u64,
    /// 1 for a directory, 0 for anything else.
    pub is_dir: u8,
    /// Bytes of the name.
    pub name_len: u8,
    /// The name, and a 0 behind it.
    pub name: [c_char; 256],
}

static DIRS: Table<Mutex<ReadDir>> = Table::new();

/// Begins to list a directory.
///
/// # Safety
/// `name` is a string that ends; `dir` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_opendir(
    in_pool: ns_pool_t,
    name: *const c_char,
    dir: *mut ns_dir_t,
) -> c_int {
    done(|| {
        // SAFETY: the caller has promised it.
        let listing = pool(in_pool)?.read_dir(unsafe { path(name) }?)?;
        let number = DIRS.add(Mutex::new(listing))?;
        // SAFETY: the caller has promised it.
        unsafe { give(dir, number) }.inspect_err(|_| drop(DIRS.remove(number)))
    })
}

/// The next entry: 1, or 0 where there is none any more. `.` and `..` are not listed.
///
/// # Safety
/// `entry` has room for an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_readdir(dir: ns_dir_t, entry: *mut ns_dirent_t) -> c_int {
    answer(|| {
        let dir = DIRS.get(dir)?;
        let Some(found) = dir.lock().next() else { return Ok(0) };
        let found = found?;
        let bytes = found.name_bytes();
        let mut name = [0; 256];
        let fits: Answer<u8> = u8::try_from(bytes.len()).map_err(|_| Errno(libc::ENAMETOOLONG));
        for (to, byte) in name.iter_mut().zip(bytes) {
            *to = *byte as c_char;
        }
        let is_dir = u8::from(found.kind() == FileKind::Directory);
        let value = ns_dirent_t { ino: found.ino(), is_dir, name_len: fits?, name };
        // SAFETY: the caller has promised it.
        unsafe { give(entry, value) }?;
        Ok(1)
    }) as c_int
}

/// Ends a listing.
#[unsafe(no_mangle)]
pub extern "C" fn ns_closedir(dir: ns_dir_t) -> c_int {
    done(|| DIRS.remove(dir).map(drop))
}
