//! Files and names.

use crate::answer::{Answer, Errno, answer, bytes, bytes_mut, done, give, path};
use crate::pool::{ns_pool_t, pool};
use crate::table::Table;
use engine::{File, Metadata, OpenFlags};
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// A file that is open.
#[allow(non_camel_case_types)]
pub type ns_file_t = u64;

/// What is known of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct ns_stat_t {
    /// Number of the inode.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes that it takes.
    pub blocks: u64,
    /// Time of the last change of the content, seconds since 1970.
    pub mtime_s: i64,
    /// The rest of it, nanoseconds.
    pub mtime_ns: u32,
    /// What it is, and its permission bits, as in `stat(2)`.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// 0.
    pub reserved: u32,
}

static FILES: Table<File> = Table::new();

/// The file of this number.
pub fn file(number: ns_file_t) -> Answer<Arc<File>> {
    FILES.get(number)
}

/// What `open(2)`'s flags say; those that mean nothing here are refused.
fn flags(flags: c_int, mode: u32) -> Answer<OpenFlags> {
    let known = libc::O_ACCMODE | libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC;
    if flags & !known != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let (read, write) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(Errno(libc::EINVAL)),
    };
    let creates = flags & libc::O_CREAT != 0;
    Ok(OpenFlags::new()
        .read(read)
        .write(write)
        .create(creates)
        .create_new(creates && flags & libc::O_EXCL != 0)
        .truncate(flags & libc::O_TRUNC != 0)
        .mode((mode & 0o7777) as u16))
}

/// Opens a file, with the flags of `open(2)`; `mode` is for a new one.
///
/// # Safety
/// `name` is a string that ends; `file` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_open(
    in_pool: ns_pool_t,
    name: *const c_char,
    open_flags: c_int,
    mode: u32,
    file: *mut ns_file_t,
) -> c_int {
    done(|| {
        // SAFETY: the caller has promised it.
        let opened = pool(in_pool)?.open_file(unsafe { path(name) }?, &flags(open_flags, mode)?)?;
        let number = FILES.add(opened)?;
        // SAFETY: the caller has promised it.
        unsafe { give(file, number) }.inspect_err(|_| drop(FILES.remove(number)))
    })
}

/// Closes a file.
#[unsafe(no_mangle)]
pub extern "C" fn ns_close(file: ns_file_t) -> c_int {
    done(|| FILES.remove(file).map(drop))
}

/// Reads at `offset`; gives the bytes read, fewer than asked for only at the end.
///
/// # Safety
/// `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_pread(
    from: ns_file_t,
    buffer: *mut u8,
    len: usize,
    offset: u64,
) -> isize {
    answer(|| {
        // SAFETY: the caller has promised it.
        let buffer = unsafe { bytes_mut(buffer, len) }?;
        Ok(file(from)?.read_at(buffer, offset)? as i64)
    }) as isize
}

/// Writes at `offset`, up to 2 MiB atomically; gives the bytes written.
///
/// # Safety
/// There are `len` bytes at `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_pwrite(
    to: ns_file_t,
    data: *const u8,
    len: usize,
    offset: u64,
) -> isize {
    answer(|| {
        // SAFETY: the caller has promised it.
        let data = unsafe { bytes(data, len) }?;
        Ok(file(to)?.write_at(data, offset)? as i64)
    }) as isize
}

/// What was written before is durable when this returns (elsewhere than in the `sync` domain it was
/// already).
#[unsafe(no_mangle)]
pub extern "C" fn ns_fsync(of: ns_file_t) -> c_int {
    done(|| Ok(file(of)?.sync()?))
}

/// The file ends at `size`.
#[unsafe(no_mangle)]
pub extern "C" fn ns_ftruncate(of: ns_file_t, size: u64) -> c_int {
    done(|| Ok(file(of)?.set_len(size)?))
}

fn stat_of(found: &Metadata) -> ns_stat_t {
    let attr = found.attr();
    let (mtime_s, mtime_ns) = attr.modified.parts();
    ns_stat_t {
        ino: found.ino(),
        size: found.len(),
        blocks: attr.sectors,
        mtime_s,
        mtime_ns,
        mode: found.kind().type_bits() | u32::from(found.mode()),
        links: found.links(),
        uid: attr.uid,
        gid: attr.gid,
        reserved: 0,
    }
}

/// What is known of the file of this name; symbolic links are followed.
///
/// # Safety
/// `name` is a string that ends; `to` has room for a stat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_stat(
    in_pool: ns_pool_t,
    name: *const c_char,
    to: *mut ns_stat_t,
) -> c_int {
    done(|| {
        // SAFETY: the caller has promised it.
        let found = pool(in_pool)?.metadata(unsafe { path(name) }?)?;
        // SAFETY: the caller has promised it.
        unsafe { give(to, stat_of(&found)) }
    })
}

/// What is known of a file that is open.
///
/// # Safety
/// `to` has room for a stat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_fstat(of: ns_file_t, to: *mut ns_stat_t) -> c_int {
    done(|| {
        let found = file(of)?.metadata()?;
        // SAFETY: the caller has promised it.
        unsafe { give(to, stat_of(&found)) }
    })
}

/// Makes a directory. No umask applies; set-id bits of `mode` are ignored, as by mkdir(2).
///
/// # Safety
/// `name` is a string that ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_mkdir(in_pool: ns_pool_t, name: *const c_char, mode: u32) -> c_int {
    done(|| {
        // SAFETY: the caller has promised it.
        let (pool, name) = (pool(in_pool)?, unsafe { path(name) }?);
        Ok(pool.create_dir_with_mode(name, (mode & 0o7777) as u16)?)
    })
}

/// Removes a file's name.
///
/// # Safety
/// `name` is a string that ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_unlink(in_pool: ns_pool_t, name: *const c_char) -> c_int {
    // SAFETY: the caller has promised it.
    done(|| Ok(pool(in_pool)?.remove_file(unsafe { path(name) }?)?))
}

/// Removes an empty directory.
///
/// # Safety
/// `name` is a string that ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_rmdir(in_pool: ns_pool_t, name: *const c_char) -> c_int {
    // SAFETY: the caller has promised it.
    done(|| Ok(pool(in_pool)?.remove_dir(unsafe { path(name) }?)?))
}

/// Renames, in one atomic step.
///
/// # Safety
/// `from` and `to` are strings that end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_rename(
    in_pool: ns_pool_t,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller has promised it.
    done(|| Ok(pool(in_pool)?.rename(unsafe { path(from) }?, unsafe { path(to) }?)?))
}
