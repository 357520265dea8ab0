//! Pools: made, opened, closed.

use crate::answer::{Answer, Errno, done, give, path};
use crate::table::Table;
use engine::{FormatOptions, OpenOptions, Pool, SliceSpec};
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// A pool that is open.
#[allow(non_camel_case_types)]
pub type ns_pool_t = u64;

/// Of `ns_format_options`: what is written survives a killed process, not a power cut.
pub const NS_FORMAT_PROCESS: u32 = 1;
/// Of `ns_pool_open`: nothing is changed, not even by recovery.
pub const NS_OPEN_READ_ONLY: u32 = 1;

/// How a pool is made. What is 0 or null is chosen by itself.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct ns_format_options {
    /// Slices; 0: one.
    pub slices: u32,
    /// `NS_FORMAT_PROCESS`, or 0.
    pub flags: u32,
    /// Bytes of each slice; 0: 1 GiB.
    pub slice_bytes: u64,
    /// A file or block device of the capacity tier; null: there is no such tier.
    pub capacity_path: *const c_char,
    /// Its size, bytes; 0: that which it has.
    pub capacity_bytes: u64,
}

/// More slices than any pool has.
const SLICES_MAX: u32 = 1 << 10;

static POOLS: Table<Pool> = Table::new();

/// The pool of this number.
pub fn pool(number: ns_pool_t) -> Answer<Arc<Pool>> {
    POOLS.get(number)
}

/// Makes an empty pool in a directory, which is made if it is missing. `options` may be null.
///
/// # Safety
/// `dir` is a string that ends; `options` is null or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_pool_format(
    dir: *const c_char,
    options: *const ns_format_options,
) -> c_int {
    done(|| {
        // SAFETY: the caller has promised it.
        let (dir, options) = unsafe { (path(dir)?, options.as_ref()) };
        let mut format = FormatOptions::default();
        if let Some(options) = options {
            if options.slices > SLICES_MAX {
                return Err(Errno(libc::EINVAL));
            }
            format.slices = vec![SliceSpec::default(); options.slices.max(1) as usize];
            if options.slice_bytes > 0 {
                format.slice_bytes = options.slice_bytes;
            }
            format.process = options.flags & NS_FORMAT_PROCESS != 0;
            if !options.capacity_path.is_null() {
                let bytes = (options.capacity_bytes > 0).then_some(options.capacity_bytes);
                // SAFETY: the caller has promised it.
                let path = Some(unsafe { path(options.capacity_path) }?.to_path_buf());
                format.capacity.push(SliceSpec { path, bytes });
            }
            if options.flags & !NS_FORMAT_PROCESS != 0 {
                return Err(Errno(libc::EINVAL));
            }
        }
        Ok(Pool::format(dir, &format)?)
    })
}

/// Opens the pool in a directory, exclusively, and recovers it if it was not closed.
///
/// # Safety
/// `dir` is a string that ends; `pool` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_pool_open(
    dir: *const c_char,
    flags: u32,
    pool: *mut ns_pool_t,
) -> c_int {
    done(|| {
        if flags & !NS_OPEN_READ_ONLY != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let read_only = flags & NS_OPEN_READ_ONLY != 0;
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        // SAFETY: the caller has promised it.
        let opened = Pool::open_with(unsafe { path(dir) }?, &options)?;
        let number = POOLS.add(opened)?;
        // SAFETY: the caller has promised it.
        unsafe { give(pool, number) }.inspect_err(|_| drop(POOLS.remove(number)))
    })
}

/// Checkpoints and closes a pool. What is open of it is closed first by the caller: others can open
/// the pool only then. A pool that is not closed loses nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ns_pool_close(pool: ns_pool_t) -> c_int {
    done(|| {
        POOLS.get(pool)?.close()?;
        POOLS.remove(pool).map(drop)
    })
}
