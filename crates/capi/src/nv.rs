//! The interface of vNVML: `nv.h`.
//!
//! One pool, which the environment names: when it is first needed, the process attaches to its
//! service, or opens it where there is none. By a process that is killed nothing is lost that was
//! committed.

use crate::answer::{Answer, Errno, answer, bytes, done, path};
use crate::region::{begin, ended, map_whole, unmap, within};
use engine::{File, Isolation, OpenFlags, OpenOptions, Pool, Process};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The variable that names the pool's directory.
const POOL_VARIABLE: &str = "NEARSIDE_POOL";
/// Of `nv_allocate`: other processes may map the file, too, where a service has the pool. Both are
/// alike: who may do it is said by permission bits, and neither makes a copy.
const NV_SHARED: c_int = 0x10000;
/// Permission bits of a new file.
const MODE_BITS: c_int = 0o7777;
/// Most transactions that have not ended.
const TRANSACTIONS_MAX: usize = 1 << 20;

/// What `nv_allocate` mapped: by its address, its number.
static MAPPED: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());
/// Transactions that have not ended, by the number that callers know.
static OPEN: Mutex<Open> = Mutex::new(Open { numbers: Vec::new(), free: Vec::new() });

struct Open {
    /// 0: it has ended.
    numbers: Vec<u64>,
    free: Vec<usize>,
}

/// The process that opened the pool; 0: none did.
static OPENED_BY: AtomicU64 = AtomicU64::new(0);

/// Refuses a child that was forked since, before it takes any lock.
fn check_process() -> Answer<()> {
    // ordering: a child finds what was stored before the fork
    match OPENED_BY.load(Ordering::Relaxed) {
        process if process != 0 && process != Process::here().number() => Err(Errno(libc::EPERM)),
        _ => Ok(()),
    }
}

fn pool() -> Answer<Arc<Pool>> {
    check_process()?;
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    static OPENING: Mutex<()> = Mutex::new(());
    let _one = OPENING.lock();
    if let Some(pool) = POOL.get() {
        return Ok(pool.clone());
    }
    let dir = std::env::var_os(POOL_VARIABLE).ok_or(Errno(libc::ENOENT))?;
    let opened = Arc::new(Pool::attach_or_open(dir, &OpenOptions::default())?);
    OPENED_BY.store(Process::here().number(), Ordering::Relaxed);
    Ok(POOL.get_or_init(|| opened).clone())
}

static ALLOCATING: Mutex<()> = Mutex::new(());

fn allocate(name: *const c_char, bytes: usize, mode: c_int) -> Answer<i64> {
    if mode & !(MODE_BITS | NV_SHARED) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller has promised that it is a string that ends.
    let name = unsafe { path(name) }?;
    let pool = pool()?;
    let bits = (mode & MODE_BITS) as u16;
    let flags = OpenFlags::new().read(true).write(true);
    let flags = if bits == 0 { flags } else { flags.mode(bits) };
    let (new, there) = (flags.create_new(true), flags.create(true));
    // of a file that is taken back nobody else has got anything
    let _one = ALLOCATING.lock();
    let (file, is_new) = match pool.open_file(name, &new) {
        Ok(file) => (file, true),
        Err(error) if error.errno() == libc::EEXIST => (pool.open_file(name, &there)?, false),
        Err(error) => return Err(error.into()),
    };
    let mapped = map_at_least(&pool, &file, bytes as u64);
    if mapped.is_err() && is_new {
        // nothing is left of a call that failed
        let _ = pool.remove_file(name);
    }
    let (number, start) = mapped?;
    MAPPED.lock().insert(start, number);
    Ok(start as i64)
}

/// Maps so many bytes of a file, which it has then at least.
fn map_at_least(pool: &Arc<Pool>, file: &File, bytes: u64) -> Answer<(u64, usize)> {
    if file.len()? < bytes {
        file.set_len(bytes)?;
    }
    map_whole(pool, file, bytes)
}

/// Maps `filesize` bytes of a file of the pool as memory; it is made if it is missing, with the
/// permission bits of `mode`. Null on an error, and errno says which.
///
/// # Safety
/// `filepath` is a string that ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_allocate(
    filepath: *const c_char,
    filesize: usize,
    mode: c_int,
) -> *mut c_void {
    match answer(|| allocate(filepath, filesize, mode)) {
        address @ 1.. => address as *mut c_void,
        errno => {
            // SAFETY: the place is this thread's own.
            unsafe { *libc::__errno_location() = -errno as c_int };
            std::ptr::null_mut()
        }
    }
}

fn number_of(tid: c_int) -> Answer<u64> {
    check_process()?;
    let index = usize::try_from(tid).map_err(|_| Errno(libc::EINVAL))?;
    let number = OPEN.lock().numbers.get(index).copied().unwrap_or(0);
    if number == 0 { Err(Errno(libc::EINVAL)) } else { Ok(number) }
}

fn end(tid: c_int) -> Answer<u64> {
    let number = number_of(tid)?;
    let mut open = OPEN.lock();
    let index = tid as usize;
    // of two who end it, one does
    if open.numbers.get(index) != Some(&number) {
        return Err(Errno(libc::EINVAL));
    }
    open.numbers[index] = 0;
    open.free.push(index);
    Ok(number)
}

/// Begins a transaction; gives its number.
#[unsafe(no_mangle)]
pub extern "C" fn nv_txbegin() -> c_int {
    answer(|| {
        let number = begin(&pool()?, Isolation::Committed)?;
        let mut open = OPEN.lock();
        let index = match open.free.pop() {
            Some(index) => index,
            None if open.numbers.len() < TRANSACTIONS_MAX => {
                open.numbers.push(0);
                open.numbers.len() - 1
            }
            None => {
                drop(ended(number));
                return Err(Errno(libc::EMFILE));
            }
        };
        open.numbers[index] = number;
        Ok(index as i64)
    }) as c_int
}

/// Puts `n` bytes from `src` at `dst`, inside what was allocated, when the transaction commits.
///
/// # Safety
/// There are `n` bytes at `src`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_write(
    tid: c_int,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
) -> c_int {
    done(|| {
        // SAFETY: the caller has promised it.
        let data = unsafe { bytes(src.cast(), n) }?;
        within(number_of(tid)?, |tx| tx.write_at(dst.cast(), data))
    })
}

/// Makes all that was written happen, in one step, durably.
#[unsafe(no_mangle)]
pub extern "C" fn nv_commit(tid: c_int) -> c_int {
    done(|| Ok(ended(end(tid)?)?.commit()?))
}

/// Ends a transaction: nothing of it happened.
#[unsafe(no_mangle)]
pub extern "C" fn nv_abort(tid: c_int) -> c_int {
    done(|| ended(end(tid)?).map(drop))
}

/// Unmaps what was allocated; the file stays.
#[unsafe(no_mangle)]
pub extern "C" fn nv_free(ptr: *mut c_void) -> c_int {
    done(|| {
        check_process()?;
        let mut mapped = MAPPED.lock();
        let number = *mapped.get(&(ptr as usize)).ok_or(Errno(libc::EINVAL))?;
        unmap(number)?;
        mapped.remove(&(ptr as usize));
        Ok(())
    })
}
