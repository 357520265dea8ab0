//! Where the records lie: in a region of a pool, with a capacity tier or without, or in a file of
//! the disk's file system.

use super::RECORD_BYTES;
use crate::caller::Aligned;
use crate::error::{Result, io};
use crate::lab::PIECE_BYTES;
use crate::scratch::Scratch;
use crate::tiered::{PoolShape, Tiered};
use region::{Region, Regions, Settings};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Records, each read and written as a whole.
pub trait Store {
    /// Reads a record.
    fn read(&mut self, record: u32, buffer: &mut [u8]) -> Result<()>;
    /// Writes one; it is durable when this returns.
    fn write(&mut self, record: u32, data: &[u8]) -> Result<()>;
}

/// A region over one file with all records.
pub struct InRegion {
    region: Region,
    regions: Regions,
    /// Bytes of the pool's log.
    pub log_bytes: u64,
    /// The last one to go.
    _pool: Tiered,
}

impl InRegion {
    /// A pool in a directory in `dir`, its device as a file in one in `disk`; all records written.
    pub fn new(dir: &Path, disk: &Path, shape: &PoolShape, bytes: u64) -> Result<InRegion> {
        let pool = Tiered::new(dir, disk, shape)?;
        let (fs, log_bytes) = (pool.fs.clone(), pool.log_bytes());
        let file = pool.fill("records", bytes)?;
        let settings = Settings { memory_bytes: shape.memory_bytes, faults: None };
        let regions = Regions::new(&fs, &settings)?;
        let region = Region::map(&regions, &file, 0, bytes)?;
        Ok(InRegion { region, regions, log_bytes, _pool: pool })
    }
}

impl Store for InRegion {
    fn read(&mut self, record: u32, buffer: &mut [u8]) -> Result<()> {
        Ok(self.region.load(record as usize * RECORD_BYTES, buffer)?)
    }

    fn write(&mut self, record: u32, data: &[u8]) -> Result<()> {
        let mut tx = self.regions.begin()?;
        tx.write(&self.region, record as usize * RECORD_BYTES, data)?;
        Ok(tx.commit()?)
    }
}

/// A file, synced after each write.
pub struct InFile {
    file: File,
    path: PathBuf,
    /// Records pass through it where the page cache is passed by.
    aligned: Option<Aligned>,
    _scratch: Scratch,
}

impl InFile {
    /// In a directory in `disk`; all records written and synced. Where it `is_direct`, nothing is
    /// read from or kept in the page cache, which has all of the machine's DRAM otherwise.
    ///
    /// # Errors
    /// Also where the file system has no files past the page cache.
    pub fn new(disk: &Path, bytes: u64, is_direct: bool) -> Result<InFile> {
        let scratch = Scratch::new(disk)?;
        let path = scratch.path().join("records");
        let mut options = File::options();
        options.read(true).write(true).create(true);
        let file = options.open(&path).map_err(io(&path))?;
        let piece = vec![0x5A; PIECE_BYTES as usize];
        for at in (0..bytes).step_by(PIECE_BYTES as usize) {
            let piece = &piece[..PIECE_BYTES.min(bytes - at) as usize];
            file.write_all_at(piece, at).map_err(io(&path))?;
        }
        file.sync_all().map_err(io(&path))?;
        if is_direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let file = options.open(&path).map_err(io(&path))?;
        Ok(InFile { file, path, aligned: is_direct.then(Aligned::new), _scratch: scratch })
    }
}

impl Store for InFile {
    fn read(&mut self, record: u32, buffer: &mut [u8]) -> Result<()> {
        let at = u64::from(record) * RECORD_BYTES as u64;
        let read = match &mut self.aligned {
            Some(aligned) => {
                let aligned = &mut aligned.bytes()[..buffer.len()];
                let read = self.file.read_exact_at(aligned, at);
                buffer.copy_from_slice(aligned);
                read
            }
            None => self.file.read_exact_at(buffer, at),
        };
        read.map_err(io(&self.path))
    }

    fn write(&mut self, record: u32, data: &[u8]) -> Result<()> {
        let at = u64::from(record) * RECORD_BYTES as u64;
        let data = match &mut self.aligned {
            Some(aligned) => {
                let aligned = &mut aligned.bytes()[..data.len()];
                aligned.copy_from_slice(data);
                &*aligned
            }
            None => data,
        };
        let written = self.file.write_all_at(data, at).and_then(|()| self.file.sync_data());
        written.map_err(io(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    const RECORDS: u32 = 400;
    const BYTES: u64 = RECORDS as u64 * RECORD_BYTES as u64;

    /// Where there is a device, more than the slice holds: what is read was on it meanwhile.
    fn keeps_what_was_written(store: &mut impl Store) {
        let mut dice = Dice::new(4);
        let mut model = vec![0x5A; RECORDS as usize];
        let mut buffer = vec![0; RECORD_BYTES];
        for number in 0..1200u32 {
            let record = dice.below(u64::from(RECORDS)) as usize;
            if number % 3 == 0 {
                store.read(record as u32, &mut buffer).unwrap();
                assert!(buffer.iter().all(|byte| *byte == model[record]), "record {record}");
            } else {
                model[record] = number as u8;
                store.write(record as u32, &vec![number as u8; RECORD_BYTES]).unwrap();
            }
        }
        for record in 0..RECORDS {
            store.read(record, &mut buffer).unwrap();
            assert!(buffer.iter().all(|byte| *byte == model[record as usize]), "at the end");
        }
    }

    #[test]
    fn every_store_gives_back_what_it_was_given() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let dir = scratch.path();
        let shape = PoolShape {
            slice_bytes: 16 << 20,
            log_bytes: None,
            device_bytes: 64 << 20,
            memory_bytes: 4 << 20,
            tier_cache_bytes: None,
        };
        keeps_what_was_written(&mut InRegion::new(dir, dir, &shape, BYTES).unwrap());
        let shape = PoolShape { slice_bytes: 80 << 20, device_bytes: 0, ..shape };
        keeps_what_was_written(&mut InRegion::new(dir, dir, &shape, BYTES).unwrap());
        keeps_what_was_written(&mut InFile::new(dir, BYTES, false).unwrap());
        match InFile::new(dir, BYTES, true) {
            Ok(mut file) => keeps_what_was_written(&mut file),
            Err(error) => assert_eq!(error.errno(), libc::EINVAL, "{error}"),
        }
    }
}
