//! A pool with a capacity tier: its slice in one place, the device below it as a file in another.

use crate::error::Result;
use crate::lab::{OWNER, PIECE_BYTES, touch_slice};
use crate::scratch::Scratch;
use fs::{FileSystem, Handle, Ino, NewNode, TierStats};
use pool::{FormatOptions, OpenOptions, SliceSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What such a pool is to be like.
#[derive(Clone, Copy, Debug)]
pub struct PoolShape {
    /// Bytes of its one slice.
    pub slice_bytes: u64,
    /// Bytes of its log; `None`: its own choice.
    pub log_bytes: Option<u64>,
    /// Bytes of a device below the slice; 0: there is none.
    pub device_bytes: u64,
    /// DRAM for the engine's caches.
    pub memory_bytes: u64,
    /// DRAM for blocks of the device; `None`: the engine's own choice.
    pub tier_cache_bytes: Option<u64>,
}

/// A pool in scratch directories.
#[derive(Debug)]
pub struct Tiered {
    /// The pool's file system.
    pub fs: Arc<FileSystem>,
    /// The directories of the pool and of its device; the last ones to go.
    scratch: (Scratch, Scratch),
}

impl Tiered {
    /// An empty one in a directory in `dir`, its device as a file in one in `disk`. All pages of
    /// its slice were touched.
    pub fn new(dir: &Path, disk: &Path, shape: &PoolShape) -> Result<Tiered> {
        let scratch = (Scratch::new(dir)?, Scratch::new(disk)?);
        let pool = scratch.0.path().join("pool");
        let device = SliceSpec { path: Some(device(&scratch.1)), bytes: Some(shape.device_bytes) };
        let format = FormatOptions {
            slice_bytes: shape.slice_bytes,
            process: true,
            log_bytes: shape.log_bytes,
            capacity: if shape.device_bytes > 0 { vec![device] } else { Vec::new() },
            ..FormatOptions::default()
        };
        fs::format(&pool, &format)?;
        touch_slice(&pool.join("slice.0"))?;
        let open = OpenOptions {
            memory_bytes: Some(shape.memory_bytes),
            tier_cache_bytes: shape.tier_cache_bytes,
            ..OpenOptions::default()
        };
        Ok(Tiered { fs: Arc::new(FileSystem::open_pool(&pool, &open)?), scratch })
    }

    /// A directory beside the pool.
    pub fn dir(&self) -> &Path {
        self.scratch.0.path()
    }

    /// The file that is the device.
    pub fn device(&self) -> PathBuf {
        device(&self.scratch.1)
    }

    /// Bytes of the log.
    pub fn log_bytes(&self) -> u64 {
        self.fs.info().slices.iter().map(|slice| slice.log_bytes).sum()
    }

    /// A new file of so many bytes, all of them written, and a checkpoint.
    pub fn fill(&self, name: &str, bytes: u64) -> Result<Arc<Handle>> {
        let ino = self.fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, OWNER)?.ino;
        let file = self.fs.open(ino)?;
        let piece = vec![0x5A; PIECE_BYTES as usize];
        for at in (0..bytes).step_by(PIECE_BYTES as usize) {
            self.fs.write(&file, at, &piece[..PIECE_BYTES.min(bytes - at) as usize])?;
        }
        self.fs.checkpoint()?;
        Ok(file)
    }

    /// What its tier did, and holds.
    pub fn tier(&self) -> TierStats {
        self.fs.tier_stats().unwrap_or_default()
    }

    /// Moves everything that can be there to the device, and forgets what is in memory of it.
    pub fn move_down(&self) -> Result<()> {
        self.fs.checkpoint()?;
        self.fs.write_back_all()?;
        self.forget();
        Ok(())
    }

    /// Forgets what is in memory of the device's blocks.
    pub fn forget(&self) {
        self.fs.evict_caches();
    }
}

fn device(scratch: &Scratch) -> PathBuf {
    scratch.path().join("device")
}
