//! Regions and transactions.

use crate::answer::{Answer, Errno, bytes, bytes_mut, done, give};
use crate::file::{file, ns_file_t};
use crate::pool::{ns_pool_t, pool};
use crate::table::Table;
use engine::{Isolation, Pool, Region, RegionError, Regions, Transaction};
use parking_lot::Mutex;
use std::borrow::Borrow;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// A file, or a part of one, that is mapped as memory.
#[allow(non_camel_case_types)]
pub type ns_region_t = u64;
/// A transaction that has not ended.
#[allow(non_camel_case_types)]
pub type ns_tx_t = u64;

/// Of `ns_tx_begin`: reads see what is committed.
pub const NS_TX_COMMITTED: u32 = 0;
/// All reads are of one moment; and what it writes, nobody else wrote since then.
pub const NS_TX_SNAPSHOT: u32 = 1;
/// It is as if no other transaction had happened meanwhile.
pub const NS_TX_SERIALISABLE: u32 = 2;

static REGIONS: Table<Region> = Table::new();
static TRANSACTIONS: Table<Mutex<Option<Open>>> = Table::new();

/// The regions of a pool that a transaction keeps open.
#[derive(Debug)]
pub struct Held(Arc<Pool>);

impl Borrow<Regions> for Held {
    fn borrow(&self) -> &Regions {
        match self.0.regions() {
            Ok(regions) => regions,
            // they were made before it was
            Err(error) => panic!("{error}"),
        }
    }
}

type Open = Transaction<Held>;

/// Begins a transaction in a pool.
pub fn begin(pool: &Arc<Pool>, isolation: Isolation) -> Answer<u64> {
    pool.regions()?;
    let transaction = Transaction::begin(Held(pool.clone()), isolation)?;
    TRANSACTIONS.add(Mutex::new(Some(transaction)))
}

/// What is said of a transaction that is not there.
fn has_ended(errno: Errno) -> Errno {
    if errno == Errno(libc::EBADF) { Errno(libc::EINVAL) } else { errno }
}

/// Does something in a transaction that has not ended.
pub fn within<T>(number: u64, act: impl FnOnce(&mut Open) -> Result<T, RegionError>) -> Answer<T> {
    let transaction = TRANSACTIONS.get(number).map_err(has_ended)?;
    let mut transaction = transaction.lock();
    Ok(act(transaction.as_mut().ok_or(Errno(libc::EINVAL))?)?)
}

/// Takes a transaction that ends.
pub fn ended(number: u64) -> Answer<Open> {
    let transaction = TRANSACTIONS.remove(number).map_err(has_ended)?;
    transaction.lock().take().ok_or(Errno(libc::EINVAL))
}

/// Maps `bytes` bytes of a file from `offset` on, a multiple of 4096, as memory to load from; gives
/// where they are. Nobody may store there: that ends the process.
///
/// # Safety
/// `region` and `address` have room for one each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_region_map(
    in_pool: ns_pool_t,
    of: ns_file_t,
    offset: u64,
    bytes: u64,
    region: *mut ns_region_t,
    address: *mut *const c_void,
) -> c_int {
    done(|| {
        let mapped = pool(in_pool)?.map(&*file(of)?, offset, bytes)?;
        let start: *const u8 = mapped.as_ptr();
        let number = REGIONS.add(mapped)?;
        // SAFETY: the caller has promised it.
        let given = unsafe { give(address, start.cast()).and_then(|()| give(region, number)) };
        given.inspect_err(|_| drop(REGIONS.remove(number)))
    })
}

/// Unmaps a region. Transactions that wrote to it still commit.
#[unsafe(no_mangle)]
pub extern "C" fn ns_region_unmap(region: ns_region_t) -> c_int {
    done(|| unmap(region))
}

/// Begins a transaction, for one thread at a time; a thread may have many.
///
/// # Safety
/// `tx` has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_tx_begin(
    in_pool: ns_pool_t,
    isolation: u32,
    tx: *mut ns_tx_t,
) -> c_int {
    done(|| {
        let isolation = match isolation {
            NS_TX_COMMITTED => Isolation::Committed,
            NS_TX_SNAPSHOT => Isolation::Snapshot,
            NS_TX_SERIALISABLE => Isolation::Serialisable,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let number = begin(&pool(in_pool)?, isolation)?;
        // SAFETY: the caller has promised it.
        unsafe { give(tx, number) }.inspect_err(|_| drop(ended(number)))
    })
}

/// Puts `len` bytes from `data` at an address inside a region when the transaction commits.
///
/// # Safety
/// There are `len` bytes at `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_tx_write(
    tx: ns_tx_t,
    address: *mut c_void,
    data: *const c_void,
    len: usize,
) -> c_int {
    done(|| {
        // SAFETY: the caller has promised it.
        let data = unsafe { bytes(data.cast(), len) }?;
        within(tx, |tx| tx.write_at(address.cast(), data))
    })
}

/// Reads `len` bytes at an address inside a region into `buffer`, with what the transaction wrote
/// there.
///
/// # Safety
/// `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_tx_read(
    tx: ns_tx_t,
    address: *const c_void,
    buffer: *mut c_void,
    len: usize,
) -> c_int {
    done(|| {
        // SAFETY: the caller has promised it.
        let buffer = unsafe { bytes_mut(buffer.cast(), len) }?;
        within(tx, |tx| tx.read_at(address.cast(), buffer))
    })
}

/// Makes all that was written happen, in one step, durably; the transaction ends. -EAGAIN: another
/// one was faster, and this one did not happen.
#[unsafe(no_mangle)]
pub extern "C" fn ns_tx_commit(tx: ns_tx_t) -> c_int {
    done(|| Ok(ended(tx)?.commit()?))
}

/// Ends a transaction: nothing of it happened.
#[unsafe(no_mangle)]
pub extern "C" fn ns_tx_abort(tx: ns_tx_t) -> c_int {
    done(|| ended(tx).map(drop))
}

/// Maps a file for `nv.h`: the number and where its bytes are.
pub fn map_whole(pool: &Pool, of: &engine::File, bytes: u64) -> Answer<(u64, usize)> {
    let mapped = pool.map(of, 0, bytes)?;
    let start = mapped.as_ptr() as usize;
    Ok((REGIONS.add(mapped)?, start))
}

/// Unmaps a region.
pub fn unmap(number: u64) -> Answer<()> {
    REGIONS.remove(number).map(drop)
}
