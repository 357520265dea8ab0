//! Storage below the slices: what a device of the capacity tier can do, and how a pool knows its
//! own again.
//!
//! Each slice has a table of the pool's devices (block 8), and each device a header (block 0). Both
//! are written once, at format. A device that is not in the table, or that the table says is
//! another one, is refused: nothing of it is read, and nothing written to it.

use crate::addr::BlockAddr;
use crate::error::{Error, Result};
use crate::scatter::{Scatter, scatter_by_copy};
use crate::space::Space;
use crate::superblock::BLOCK_BYTES;
use pmem::{Mapping, crc_fits};
use std::fmt::Debug;
use std::io;
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// First bytes of the table.
const TABLE_MAGIC: [u8; 8] = *b"NSCAPAC1";
/// Block of a slice that holds it.
pub const TABLE_BLOCK: u64 = 8;
/// First bytes of a device.
pub const DEVICE_MAGIC: [u8; 8] = *b"NSDEVICE";
/// Version of a device's header.
const DEVICE_VERSION: u32 = 1;
/// First block of a device that holds data.
pub const DEVICE_BLOCK_FIRST: u64 = 16;
/// Smallest device, bytes.
pub const DEVICE_BYTES_MIN: u64 = 1 << 20;
/// Bytes of the header that have a checksum.
const HEADER_BYTES: usize = 512;

/// A part of a device that is read or written, in whole blocks.
#[derive(Debug)]
pub enum Transfer<'b> {
    /// From this block on, into these bytes.
    Read(u64, &'b mut [u8]),
    /// From this block on, these bytes.
    Write(u64, &'b [u8]),
}

/// Storage that holds whole blocks: slower than memory, and reached by calls that wait.
pub trait Device: Debug + Send + Sync {
    /// Its size, bytes.
    fn bytes(&self) -> u64;

    /// Makes all transfers, in any order and side by side, and returns when they are done. On an
    /// error any of them may be.
    fn transfer(&self, transfers: &mut [Transfer<'_>]) -> io::Result<()>;

    /// Reads runs of blocks into memory in pieces, side by side, and returns when all are read. On
    /// an error any of them may be.
    fn scatter(&self, runs: &mut [Scatter<'_>]) -> io::Result<()> {
        scatter_by_copy(self, runs)
    }

    /// What was written before is durable when this returns.
    fn sync(&self) -> io::Result<()>;

    /// NUMA node that it is near, as the kernel numbers nodes, if that is known.
    fn node(&self) -> Option<u32> {
        None
    }

    /// Where it is, for a report.
    fn path(&self) -> String;

    /// By which calls it is read and written, for a report.
    fn access(&self) -> &'static str {
        "calls"
    }
}

/// A device of an open pool.
#[derive(Debug)]
pub struct Capacity {
    /// How it is read and written.
    pub device: Arc<dyn Device>,
    /// Its identity.
    pub uuid: [u8; 16],
    /// Its free blocks.
    pub space: Arc<Space>,
}

impl Capacity {
    /// Its size, bytes.
    pub fn bytes(&self) -> u64 {
        (self.space.blocks() + DEVICE_BLOCK_FIRST) * BLOCK_BYTES
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
struct Entry {
    uuid: [u8; 16],
    blocks: U64,
    reserved: [u8; 16],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
struct Stored {
    magic: [u8; 8],
    pool_uuid: [u8; 16],
    count: U32,
    reserved: U32,
    entries: [Entry; BlockAddr::DEVICES_MAX],
    room: [u8; 1540],
    crc: U32,
}

// docs/FORMAT.md says these
const _: () = assert!(size_of::<Stored>() == BLOCK_BYTES as usize);
const _: () = assert!(offset_of!(Stored, entries) == 32);
const _: () = assert!(size_of::<Entry>() == 40);
const _: () = assert!(offset_of!(Stored, crc) == 4092);

/// The devices that a pool has, as its slices know them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    pool_uuid: [u8; 16],
    /// Identity and blocks of each.
    devices: Vec<([u8; 16], u64)>,
}

impl Table {
    /// The devices of a new pool; their identities come from `identity`.
    pub fn new(
        pool_uuid: [u8; 16],
        devices: &[Arc<dyn Device>],
        identity: &dyn Fn(usize) -> [u8; 16],
    ) -> Result<Table> {
        if devices.len() > BlockAddr::DEVICES_MAX {
            return Err(Error::Size(format!(
                "a capacity tier has at most {} devices, not {}",
                BlockAddr::DEVICES_MAX,
                devices.len()
            )));
        }
        let mut table = Table { pool_uuid, devices: Vec::new() };
        for (index, device) in devices.iter().enumerate() {
            let bytes = device.bytes();
            if bytes < DEVICE_BYTES_MIN {
                return Err(Error::Size(format!(
                    "{}: a device of the capacity tier has at least {DEVICE_BYTES_MIN} bytes, not \
                     {bytes}",
                    device.path()
                )));
            }
            let blocks = (bytes / BLOCK_BYTES).min(BlockAddr::BLOCKS_MAX);
            table.devices.push((identity(index), blocks));
        }
        Ok(table)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// As it is stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut stored: Stored = FromZeros::new_zeroed();
        stored.magic = TABLE_MAGIC;
        stored.pool_uuid = self.pool_uuid;
        stored.count = U32::new(self.devices.len() as u32);
        for (entry, (uuid, blocks)) in stored.entries.iter_mut().zip(&self.devices) {
            entry.uuid = *uuid;
            entry.blocks = U64::new(*blocks);
        }
        stored.crc = U32::new(pmem::crc32c(0, &stored.as_bytes()[..offset_of!(Stored, crc)]));
        stored.as_bytes().to_vec()
    }

    fn decode(bytes: &[u8], pool_uuid: &[u8; 16]) -> Option<Table> {
        let stored = Stored::read_from_bytes(bytes).ok()?;
        let crc = pmem::crc32c(0, &bytes[..offset_of!(Stored, crc)]);
        let devices = stored.entries.get(..stored.count.get() as usize)?;
        let makes_sense = |entry: &Entry| {
            let blocks = DEVICE_BYTES_MIN / BLOCK_BYTES..=BlockAddr::BLOCKS_MAX;
            blocks.contains(&entry.blocks.get())
        };
        let is_whole = stored.magic == TABLE_MAGIC
            && stored.pool_uuid == *pool_uuid
            && crc_fits(crc, stored.crc.get())
            && !devices.is_empty()
            && devices.iter().all(makes_sense);
        is_whole.then(|| Table {
            pool_uuid: *pool_uuid,
            devices: devices.iter().map(|entry| (entry.uuid, entry.blocks.get())).collect(),
        })
    }

    /// The table in a slice's memory, if it is whole.
    pub fn read(mapping: &Mapping, pool_uuid: &[u8; 16]) -> Option<Table> {
        let mut bytes = [0; BLOCK_BYTES as usize];
        mapping.read(TABLE_BLOCK * BLOCK_BYTES, &mut bytes).ok()?;
        Table::decode(&bytes, pool_uuid)
    }

    /// Makes each device one of this pool's, durably.
    pub fn write_headers(&self, devices: &[Arc<dyn Device>]) -> Result<()> {
        for (index, device) in devices.iter().enumerate() {
            let Some(header) = self.header(index) else { continue };
            let mut block = [0; BLOCK_BYTES as usize];
            block[..HEADER_BYTES].copy_from_slice(header.as_bytes());
            let written = device.transfer(&mut [Transfer::Write(0, &block)]);
            written.and_then(|()| device.sync()).map_err(|source| device_io(device, source))?;
        }
        Ok(())
    }

    fn header(&self, index: usize) -> Option<Header> {
        let (uuid, blocks) = *self.devices.get(index)?;
        let mut header: Header = FromZeros::new_zeroed();
        header.magic = DEVICE_MAGIC;
        header.version = U32::new(DEVICE_VERSION);
        header.index = U32::new(index as u32);
        header.pool_uuid = self.pool_uuid;
        header.uuid = uuid;
        header.blocks = U64::new(blocks);
        header.crc = U32::new(header.checksum());
        Some(header)
    }

    /// The devices of the pool in their order, out of those that were found.
    pub fn join(&self, found: &[Arc<dyn Device>]) -> Result<Vec<Capacity>> {
        let mut all: Vec<Option<Capacity>> = self.devices.iter().map(|_| None).collect();
        for device in found {
            let header = Header::read(device)?;
            let index = header.index.get() as usize;
            let own = self.header(index).filter(|own| own.as_bytes() == header.as_bytes());
            let (Some(_), Some(place)) = (own, all.get_mut(index)) else {
                let whose = match header.pool_uuid == self.pool_uuid {
                    true => "is no device that this pool was made with",
                    false => "belongs to another pool",
                };
                return Err(bad_device(device, whose));
            };
            let blocks = header.blocks.get();
            if device.bytes() / BLOCK_BYTES < blocks {
                return Err(bad_device(device, "is smaller than it was when the pool was made"));
            }
            if place.is_some() {
                return Err(bad_device(device, "is there twice; remove the copy"));
            }
            *place = Some(Capacity {
                device: device.clone(),
                uuid: header.uuid,
                space: Arc::new(Space::new(DEVICE_BLOCK_FIRST, blocks, 0)),
            });
        }
        let missing = all.iter().position(Option::is_none);
        match (missing, missing.and_then(|index| self.devices.get(index))) {
            (Some(index), Some((uuid, blocks))) => Err(Error::Device(format!(
                "device {index} of the capacity tier ({}, {} bytes) is not there; put it back, or \
                 the link capacity.{index} to it in the pool's directory",
                uuid::Uuid::from_bytes(*uuid),
                blocks * BLOCK_BYTES
            ))),
            _ => Ok(all.into_iter().flatten().collect()),
        }
    }
}

/// What the kernel said about a device.
fn device_io(device: &Arc<dyn Device>, source: io::Error) -> Error {
    Error::Io { path: device.path().into(), source }
}

fn bad_device(device: &Arc<dyn Device>, what: &str) -> Error {
    Error::Device(format!("{}: {what}", device.path()))
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: U32,
    index: U32,
    pool_uuid: [u8; 16],
    uuid: [u8; 16],
    blocks: U64,
    reserved: [u8; 448],
    crc: U32,
    tail: U32,
}

// docs/FORMAT.md says these
const _: () = assert!(size_of::<Header>() == HEADER_BYTES);
const _: () = assert!(offset_of!(Header, blocks) == 48);
const _: () = assert!(offset_of!(Header, crc) == 504);

impl Header {
    fn checksum(&self) -> u32 {
        pmem::crc32c(0, &self.as_bytes()[..offset_of!(Header, crc)])
    }

    fn read(device: &Arc<dyn Device>) -> Result<Header> {
        let mut block = [0; BLOCK_BYTES as usize];
        let read = device.transfer(&mut [Transfer::Read(0, &mut block)]);
        read.map_err(|source| device_io(device, source))?;
        let header = Header::read_from_prefix(&block).map(|(header, _)| header);
        let header = header.ok().filter(|header| header.magic == DEVICE_MAGIC);
        let Some(header) = header else {
            return Err(bad_device(device, "is no device of a capacity tier"));
        };
        if header.version.get() > DEVICE_VERSION {
            let path = device.path().into();
            let found = header.version.get();
            return Err(Error::Version { path, found, known: DEVICE_VERSION });
        }
        match header.checksum() == header.crc.get() {
            true => Ok(header),
            false => Err(bad_device(device, "its header is damaged")),
        }
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
