//! Pools: made, opened, closed.

use crate::answer::{Answer, Errno, done, give, path};
use crate::table::Table;
use engine::{FormatOptions, OpenOptions, Pool, RegionSettings, SliceSpec};
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::Arc;

/// A pool that is open.
#[allow(non_camel_case_types)]
pub type ns_pool_t = u64;

/// Of `ns_format_options`: what is written survives a killed process, not a power cut.
pub const NS_FORMAT_PROCESS: u32 = 1;
/// Of `ns_format_options`: slices and devices may have been another pool's, which then is lost.
pub const NS_FORMAT_FORCE: u32 = 2;
/// Of `ns_pool_open` and `ns_open_options`: nothing is changed, not even by recovery.
pub const NS_OPEN_READ_ONLY: u32 = 1;

/// A file or device that a pool is made of.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct ns_part {
    /// Where it is; null: a file in the pool's directory.
    pub path: *const c_char,
    /// Its size, bytes; 0: that which it has.
    pub bytes: u64,
}

/// How a pool is made. What is 0 or null is chosen by itself.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct ns_format_options {
    /// Slices; 0: one.
    pub slices: u32,
    /// `NS_FORMAT_PROCESS` and `NS_FORMAT_FORCE`, or 0.
    pub flags: u32,
    /// Bytes of each slice that does not say its own; 0: 1 GiB.
    pub slice_bytes: u64,
    /// Where each of the slices is; null: they are files in the pool's directory.
    pub slice_parts: *const ns_part,
    /// Files and block devices of the capacity tier, so many as `devices` says.
    pub device_parts: *const ns_part,
    /// Devices of the capacity tier; 0: there is no such tier.
    pub devices: u32,
}

/// How a pool is opened. What is 0 is chosen by itself.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct ns_open_options {
    /// `NS_OPEN_READ_ONLY`, or 0.
    pub flags: u32,
    /// The share of a slice, in percent, above which its blocks are written back to the capacity
    /// tier, 1 to 90; 0: 30.
    pub write_back_percent: u32,
    /// DRAM that caches may use, bytes; 0: 1 GiB.
    pub memory_bytes: u64,
    /// DRAM for blocks of the capacity tier, bytes for each node; 0: a quarter of the former for
    /// all.
    pub tier_cache_bytes: u64,
    /// DRAM for pages of regions, bytes; 0: 1 GiB. Where it is not 0, all that serves regions is
    /// there when the pool is open, and else with the first region or transaction.
    pub region_bytes: u64,
}

/// More slices or devices than any pool has.
const PARTS_MAX: u32 = 1 << 10;
/// Most that can be asked for of a slice that is not written back, percent.
const WRITE_BACK_PERCENT_MAX: u32 = 90;

static POOLS: Table<Pool> = Table::new();

/// The pool of this number.
pub fn pool(number: ns_pool_t) -> Answer<Arc<Pool>> {
    POOLS.get(number)
}

/// The parts that a caller has named.
///
/// # Safety
/// `parts` is null or points to so many, whose paths are null or strings that end.
unsafe fn specs(parts: *const ns_part, count: u32) -> Answer<Vec<SliceSpec>> {
    if parts.is_null() || count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller has promised it.
    let parts = unsafe { std::slice::from_raw_parts(parts, count as usize) };
    let spec = |part: &ns_part| {
        let bytes = (part.bytes > 0).then_some(part.bytes);
        let is_named = !part.path.is_null();
        // SAFETY: the caller has promised it.
        let path = is_named.then(|| unsafe { path(part.path) }).transpose()?;
        Ok(SliceSpec { path: path.map(Path::to_path_buf), bytes })
    };
    parts.iter().map(spec).collect()
}

/// Makes an empty pool in a directory, which is made if it is missing. `options` may be null.
///
/// # Safety
/// `dir` is a string that ends; `options` is null or points to options, whose parts are as many as
/// they say.
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
            let is_known = options.flags & !(NS_FORMAT_PROCESS | NS_FORMAT_FORCE) == 0;
            let count = options.slices.max(1);
            if !is_known || count.max(options.devices) > PARTS_MAX {
                return Err(Errno(libc::EINVAL));
            }
            if options.devices > 0 && options.device_parts.is_null() {
                return Err(Errno(libc::EFAULT));
            }
            // SAFETY: the caller has promised it.
            (format.slices, format.capacity) = unsafe {
                (specs(options.slice_parts, count)?, specs(options.device_parts, options.devices)?)
            };
            format.slices.resize(count as usize, SliceSpec::default());
            if options.slice_bytes > 0 {
                format.slice_bytes = options.slice_bytes;
            }
            format.process = options.flags & NS_FORMAT_PROCESS != 0;
            format.force = options.flags & NS_FORMAT_FORCE != 0;
        }
        Ok(Pool::format(dir, &format)?)
    })
}

/// Opens a pool; gives its number.
///
/// # Safety
/// `dir` is a string that ends; `pool` has room for a number.
unsafe fn open(
    dir: *const c_char,
    (open, regions): (&OpenOptions, Option<&RegionSettings>),
    pool: *mut ns_pool_t,
) -> Answer<()> {
    // SAFETY: the caller has promised it.
    let opened = Pool::open_with(unsafe { path(dir) }?, open)?;
    // else they begin with the first one
    regions.map_or(Ok(()), |regions| opened.set_region_settings(regions))?;
    let number = POOLS.add(opened)?;
    // SAFETY: the caller has promised it.
    unsafe { give(pool, number) }.inspect_err(|_| drop(POOLS.remove(number)))
}

fn is_read_only(flags: u32) -> Answer<bool> {
    match flags {
        0 => Ok(false),
        NS_OPEN_READ_ONLY => Ok(true),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Opens the pool in a directory, exclusively, and recovers it if it was not closed. `flags` is
/// `NS_OPEN_READ_ONLY`, or 0.
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
        let options = OpenOptions { read_only: is_read_only(flags)?, ..OpenOptions::default() };
        // SAFETY: the caller has promised it.
        unsafe { open(dir, (&options, None), pool) }
    })
}

/// The same with more options, which may be null.
///
/// # Safety
/// `dir` is a string that ends; `options` is null or points to options; `pool` has room for a
/// number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_pool_open_with(
    dir: *const c_char,
    options: *const ns_open_options,
    pool: *mut ns_pool_t,
) -> c_int {
    done(|| {
        let (mut how, mut regions) = (OpenOptions::default(), None);
        // SAFETY: the caller has promised it.
        if let Some(options) = unsafe { options.as_ref() } {
            let given = |bytes: u64| (bytes > 0).then_some(bytes);
            let percent = options.write_back_percent;
            if percent > WRITE_BACK_PERCENT_MAX {
                return Err(Errno(libc::EINVAL));
            }
            how.read_only = is_read_only(options.flags)?;
            how.write_back_percent = (percent > 0).then_some(percent as u8);
            how.memory_bytes = given(options.memory_bytes);
            how.tier_cache_bytes = given(options.tier_cache_bytes);
            regions = given(options.region_bytes)
                .map(|memory_bytes| RegionSettings { memory_bytes, ..RegionSettings::default() });
        }
        // SAFETY: the caller has promised it.
        unsafe { open(dir, (&how, regions.as_ref()), pool) }
    })
}

/// Attaches to the service that owns the pool in the directory `place`, or that listens at the
/// socket `place`: the same calls ask the service. What may be done is what this process's user and
/// groups may. `near://HOST[:PORT]` is one on another machine: this process shows it credentials,
/// those that `NEARSIDE_CREDENTIALS` names or that are in `~/.config/nearside/credentials` or
/// `/etc/nearside/credentials`, and may do what they may. `near+insecure://HOST[:PORT]` is one
/// that encrypts nothing and asks nobody who it is.
///
/// # Safety
/// `place` is a string that ends; `pool` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_pool_attach(place: *const c_char, pool: *mut ns_pool_t) -> c_int {
    done(|| {
        // SAFETY: the caller has promised it.
        let number = POOLS.add(Pool::attach(unsafe { path(place) }?)?)?;
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
