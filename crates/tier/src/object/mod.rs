//! A device whose blocks are kept in an object store: at a cloud's, in a directory, or, for tests,
//! in this process.
//!
//! An object holds [`OBJECT_BLOCKS`] neighbouring blocks and 16 bytes that differ in everything
//! that was ever put, and is named by its number, in hexadecimal digits; one that is not there is
//! all zeros. It is put as a whole, so a part of it is read, changed and put again. What is put is
//! durable when the store says so.
//!
//! A store of the network may do what it was asked for long after the answer was given up. So
//! nothing is put there but on the condition that the object is still the one that was looked at
//! before: what comes late finds another one, and changes nothing. That holds for who was the
//! device's user once, too; see `lease`.
//!
//! Requests are made by a thread of the device's own, and callers wait for it: they may be anybody,
//! also a program's tasks that run in a runtime.

#[cfg(test)]
mod fake;
mod lease;
mod requests;
mod store;

use lease::Lease;
use pool::{BLOCK_BYTES, Device, Error, Result, Transfer};
use requests::{Patch, Piece, Requests};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use store::{Claim, Place};
use tokio::runtime::{Builder, Runtime};

/// Blocks of an object: 1 MiB, which is what a cache takes of a device for one slice. A request to
/// a store far away takes as long as moving about so much; larger objects would have more read and
/// put again for each part that changes, smaller ones have more requests to be paid.
pub const OBJECT_BLOCKS: u64 = 256;
/// Their bytes.
const OBJECT_BYTES: usize = (OBJECT_BLOCKS * BLOCK_BYTES) as usize;
/// Threads that wait for a local file system, at most.
const BLOCKING_THREADS_MAX: usize = 16;

/// Makes a device of so many bytes of an object store.
pub fn make_object_device(url: &str, bytes: u64) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(ObjectDevice::make(url, bytes, ObjectDevice::LEASE)?))
}

/// Opens the device that was made of an object store.
pub fn open_object_device(url: &str, read_only: bool) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(ObjectDevice::open(url, read_only, ObjectDevice::LEASE)?))
}

/// A device.
#[derive(Debug)]
pub struct ObjectDevice {
    url: String,
    bytes: u64,
    read_only: bool,
    requests: Arc<Requests>,
    lease: Option<Lease>,
    /// `None` only when it goes.
    runtime: Option<Runtime>,
    /// Nobody else has the device while this is there.
    _claim: Claim,
}

/// Waits for work that the runtime's thread does. No future is polled here, so that a caller who
/// runs in a runtime himself is as good as any.
fn wait<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = sync_channel(1);
    runtime.spawn(async move { drop(sender.send(work.await)) });
    receiver.recv().unwrap_or_else(|_| Err(io::Error::other("the object store's thread failed")))
}

impl ObjectDevice {
    /// How long a lease is good: as long as others have to see it unchanged before it is theirs.
    pub const LEASE: Duration = Duration::from_secs(30);

    /// Makes a device of so many bytes, and opens it; with a lease of that length where there is
    /// one.
    pub fn make(url: &str, bytes: u64, lease: Duration) -> Result<ObjectDevice> {
        let place = Place::parse(url)?;
        place.prepare()?;
        let mut device = ObjectDevice::claim(place, false, lease)?;
        let requests = device.requests.clone();
        let has_data = device.wait(async move { requests.exists(0).await })?;
        if has_data {
            return Err(Error::Device(format!(
                "{url}: holds a device of a capacity tier already; remove its objects first, or \
                 choose another place"
            )));
        }
        let requests = device.requests.clone();
        device.wait(async move { requests.put_size(bytes).await })?;
        device.bytes = bytes;
        Ok(device)
    }

    /// Opens a device that was made before.
    pub fn open(url: &str, read_only: bool, lease: Duration) -> Result<ObjectDevice> {
        let mut device = ObjectDevice::claim(Place::parse(url)?, read_only, lease)?;
        let requests = device.requests.clone();
        let Some(bytes) = device.wait(async move { requests.size().await })? else {
            return Err(Error::Device(format!("{url}: is no device of a capacity tier")));
        };
        device.bytes = bytes;
        Ok(device)
    }

    fn claim(place: Place, read_only: bool, lease: Duration) -> Result<ObjectDevice> {
        let url = place.url.clone();
        let io = |source| Error::Io { path: url.clone().into(), source };
        let claim = place.claim(read_only)?;
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_blocking_threads(BLOCKING_THREADS_MAX);
        let runtime = builder.thread_name("ns-object").enable_all().build().map_err(io)?;
        let mut device = ObjectDevice {
            url: url.clone(),
            bytes: 0,
            read_only,
            requests: Arc::new(Requests::new(&place)),
            lease: None,
            runtime: Some(runtime),
            _claim: claim,
        };
        if let (Some(runtime), Some(validity)) = (&device.runtime, &device.requests.validity) {
            let held = Lease::take(runtime, &device.requests, validity, lease).map_err(io)?;
            device.lease = Some(held.ok_or_else(|| Error::DeviceInUse(url.clone().into()))?);
        }
        Ok(device)
    }

    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.done(work).map_err(|source| Error::Io { path: self.url.clone().into(), source })
    }

    fn done<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        match &self.runtime {
            Some(runtime) => wait(runtime, work),
            None => Err(io::Error::other("the device is closed")),
        }
    }

    /// Whether blocks from this one on, so many bytes, are all there.
    fn check(&self, block: u64, len: usize) -> io::Result<()> {
        let end = block.checked_mul(BLOCK_BYTES).and_then(|from| from.checked_add(len as u64));
        match end.is_some_and(|end| end <= self.bytes) && len.is_multiple_of(BLOCK_BYTES as usize) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not on the device")),
        }
    }
}

/// The objects that so many bytes from a block on lie in: of each its number, where in it, and
/// which of the bytes.
fn pieces(block: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = block * BLOCK_BYTES + done as u64;
        let from = (at % OBJECT_BYTES as u64) as usize;
        let count = (OBJECT_BYTES - from).min(len - done);
        let of = done..done + count;
        done += count;
        (count > 0).then_some(Piece { object: at / OBJECT_BYTES as u64, from, of })
    })
}

impl Device for ObjectDevice {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn transfer(&self, transfers: &mut [Transfer<'_>]) -> io::Result<()> {
        let mut writes: BTreeMap<u64, Vec<Patch>> = BTreeMap::new();
        let mut reads: Vec<(usize, Piece)> = Vec::new();
        for (index, transfer) in transfers.iter().enumerate() {
            match transfer {
                Transfer::Read(block, bytes) => {
                    self.check(*block, bytes.len())?;
                    reads.extend(pieces(*block, bytes.len()).map(|piece| (index, piece)));
                }
                Transfer::Write(..) if self.read_only => {
                    return Err(io::Error::from_raw_os_error(libc::EBADF));
                }
                Transfer::Write(block, bytes) => {
                    self.check(*block, bytes.len())?;
                    for piece in pieces(*block, bytes.len()) {
                        let patch = Patch { from: piece.from, bytes: bytes[piece.of].to_vec() };
                        writes.entry(piece.object).or_default().push(patch);
                    }
                }
            }
        }
        let requests = self.requests.clone();
        let wanted: Vec<Piece> = reads.iter().map(|(_, piece)| piece.clone()).collect();
        let found = self.done(async move { requests.make(wanted, writes).await })?;
        for ((index, piece), bytes) in reads.into_iter().zip(found) {
            if let (Transfer::Read(_, room), Some(bytes)) = (&mut transfers[index], &bytes) {
                room[piece.of].copy_from_slice(bytes);
            } else if let Transfer::Read(_, room) = &mut transfers[index] {
                room[piece.of].fill(0);
            }
        }
        Ok(())
    }

    /// Nothing is left to do: what was put is durable since the store said so, and the files of a
    /// local one, and their names, are synced before it does.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self) -> String {
        self.url.clone()
    }

    fn access(&self) -> &'static str {
        "object store"
    }
}

impl Drop for ObjectDevice {
    fn drop(&mut self) {
        drop(self.lease.take());
        if let Some(runtime) = self.runtime.take() {
            // one that waits may not be dropped by who runs in a runtime himself
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_cut_where_objects_end() {
        let cut = |block, blocks: u64| -> Vec<(u64, usize, std::ops::Range<usize>)> {
            let pieces = pieces(block, (blocks * BLOCK_BYTES) as usize);
            pieces.map(|piece| (piece.object, piece.from, piece.of)).collect()
        };
        assert_eq!(cut(0, 0), []);
        assert_eq!(cut(0, 256), [(0, 0, 0..1 << 20)]);
        assert_eq!(cut(257, 1), [(1, 4096, 0..4096)]);
        assert_eq!(
            cut(255, 258),
            [(0, 255 << 12, 0..4096), (1, 0, 4096..257 << 12), (2, 0, 257 << 12..258 << 12)]
        );
    }
}
