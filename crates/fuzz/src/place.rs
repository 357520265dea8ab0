//! Where an image is used: files in a directory, or memory.

use crate::corpus::requests;
use crate::image::Image;
use fs::{CheckReport, FileSystem, Finding, TakeOver};
use pool::{Candidate, Device, OpenOptions, PlainDevice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Memory that the file system's caches may use, bytes.
const MEMORY_BYTES: u64 = 16 << 20;

/// A place for an image, which opens the pool there. Checkpoints are made by the calls that need
/// them.
pub trait Place {
    /// The image as it is now.
    fn image(&self) -> Image;

    /// A checksum of all of it.
    fn checksum(&self) -> u32 {
        self.image().checksum()
    }

    /// Its slices.
    fn candidates(&self, read_only: bool) -> pool::Result<Vec<Candidate>>;

    /// Its devices.
    fn devices(&self, _read_only: bool) -> pool::Result<Vec<Arc<dyn Device>>> {
        Ok(Vec::new())
    }

    /// How pools are opened here.
    fn options(&self) -> OpenOptions {
        OpenOptions { memory_bytes: Some(MEMORY_BYTES), ..OpenOptions::default() }
    }

    /// Opens the pool.
    fn open(&self, read_only: bool) -> fs::Result<FileSystem> {
        let devices = self.devices(read_only)?;
        let options = OpenOptions { read_only, devices, ..self.options() };
        FileSystem::open_candidates(self.candidates(read_only)?, &options, false)
    }

    /// Opens the pool as one whose clients are still there.
    fn take_over(&self) -> fs::Result<FileSystem> {
        let asked =
            TakeOver { requests: requests().collect(), keep_orphans: true, returning: true };
        let options = OpenOptions { devices: self.devices(false)?, ..self.options() };
        let candidates = self.candidates(false)?;
        FileSystem::take_over_candidates(candidates, &options, &asked, false)
    }

    /// Checks the pool.
    fn check(&self) -> fs::Result<CheckReport> {
        let options = OpenOptions { devices: self.devices(true)?, ..self.options() };
        fs::check_candidates(self.candidates(true)?, &options)
    }

    /// Repairs the pool; gives what was done.
    fn repair(&self) -> fs::Result<Vec<Finding>> {
        Ok(fs::repair_candidates(self.candidates(false)?)?.done)
    }
}

/// Files in a directory of their own.
#[derive(Clone, Debug)]
pub struct Files {
    dir: PathBuf,
    slices: usize,
    devices: usize,
}

impl Files {
    /// The slices in `dir`, so many.
    pub fn new(dir: &Path, slices: usize) -> Files {
        Files { dir: dir.to_path_buf(), slices, devices: 0 }
    }

    /// The same with so many devices.
    pub fn with_devices(self, devices: usize) -> Files {
        Files { devices, ..self }
    }

    /// Puts the image's slices and devices there, and nothing else.
    pub fn hold(&mut self, image: &Image) {
        let fail = |path: &Path, error| -> ! { panic!("{}: {error}", path.display()) };
        let _ = std::fs::remove_dir_all(&self.dir);
        std::fs::create_dir_all(&self.dir).unwrap_or_else(|error| fail(&self.dir, error));
        let put = |path: PathBuf, bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap_or_else(|error| fail(&path, error));
        };
        (0..).zip(&image.slices).for_each(|(slice, bytes)| put(self.path(slice), bytes));
        (0..).zip(&image.devices).for_each(|(device, bytes)| put(self.device(device), bytes));
        (self.slices, self.devices) = (image.slices.len(), image.devices.len());
    }

    /// Path of a slice.
    pub fn path(&self, slice: usize) -> PathBuf {
        self.dir.join(format!("slice.{slice:03}"))
    }

    /// Path of a device.
    pub fn device(&self, device: usize) -> PathBuf {
        self.dir.join(format!("capacity.{device}"))
    }
}

impl Place for Files {
    fn image(&self) -> Image {
        let bytes = |path: PathBuf| {
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        Image {
            slices: (0..self.slices).map(|slice| bytes(self.path(slice))).collect(),
            devices: (0..self.devices).map(|device| bytes(self.device(device))).collect(),
        }
    }

    fn candidates(&self, read_only: bool) -> pool::Result<Vec<Candidate>> {
        pool::candidates(&self.dir, &|path| Candidate::open(path, read_only))
            .map(|(found, _)| found)
    }
    fn devices(&self, read_only: bool) -> pool::Result<Vec<Arc<dyn Device>>> {
        let open = |path: &PathBuf| -> pool::Result<Arc<dyn Device>> {
            Ok(Arc::new(PlainDevice::open(path, read_only)?))
        };
        pool::device_paths(&self.dir)?.iter().map(open).collect()
    }

    fn repair(&self) -> fs::Result<Vec<Finding>> {
        // as its owner does: it is written once it is known what is to be
        let Some(repair) = fs::repair(&self.dir, &mut |_, _| ())? else { return Ok(Vec::new()) };
        let done = repair.report().done.clone();
        repair.write(&self.dir.join("undo"))?;
        Ok(done)
    }
}
