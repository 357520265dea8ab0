//! Where an image is used: files in a directory, or memory.

use crate::corpus::requests;
use crate::image::Image;
use fs::{CheckReport, FileSystem, TakeOver};
use pool::{Candidate, OpenOptions};
use std::path::{Path, PathBuf};

/// Memory that the file system's caches may use, bytes.
const MEMORY_BYTES: u64 = 16 << 20;

/// A place for an image, which opens the pool there. Checkpoints are made by the calls that need
/// them.
pub trait Place {
    /// The image as it is now.
    fn image(&self) -> Image;

    /// A checksum of all of it.
    fn checksum(&self) -> u32 {
        self.image().slices.iter().fold(0, |crc, slice| pmem::crc32c(crc, slice))
    }

    /// Its slices.
    fn candidates(&self, read_only: bool) -> pool::Result<Vec<Candidate>>;

    /// How pools are opened here.
    fn options(&self) -> OpenOptions {
        OpenOptions { memory_bytes: Some(MEMORY_BYTES), ..OpenOptions::default() }
    }

    /// Opens the pool.
    fn open(&self, read_only: bool) -> fs::Result<FileSystem> {
        let options = OpenOptions { read_only, ..self.options() };
        FileSystem::open_candidates(self.candidates(read_only)?, &options, false)
    }

    /// Opens the pool as one whose clients are still there.
    fn take_over(&self) -> fs::Result<FileSystem> {
        let asked = TakeOver { requests: requests().collect(), keep_orphans: true };
        let candidates = self.candidates(false)?;
        FileSystem::take_over_candidates(candidates, &self.options(), &asked, false)
    }

    /// Checks the pool.
    fn check(&self) -> fs::Result<CheckReport> {
        fs::check_candidates(self.candidates(true)?, &self.options())
    }
}

/// Files in a directory of their own.
#[derive(Clone, Debug)]
pub struct Files {
    dir: PathBuf,
    slices: usize,
}

impl Files {
    /// The slices in `dir`, so many.
    pub fn new(dir: &Path, slices: usize) -> Files {
        Files { dir: dir.to_path_buf(), slices }
    }

    /// Puts the image's slices there, and nothing else.
    pub fn hold(&mut self, image: &Image) {
        let fail = |path: &Path, error| -> ! { panic!("{}: {error}", path.display()) };
        let _ = std::fs::remove_dir_all(&self.dir);
        std::fs::create_dir_all(&self.dir).unwrap_or_else(|error| fail(&self.dir, error));
        for (slice, bytes) in image.slices.iter().enumerate() {
            let path = self.path(slice);
            std::fs::write(&path, bytes).unwrap_or_else(|error| fail(&path, error));
        }
        self.slices = image.slices.len();
    }

    /// Path of a slice.
    pub fn path(&self, slice: usize) -> PathBuf {
        self.dir.join(format!("slice.{slice:03}"))
    }
}

impl Place for Files {
    fn image(&self) -> Image {
        let bytes = |slice| {
            let path = self.path(slice);
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        Image { slices: (0..self.slices).map(bytes).collect() }
    }

    fn candidates(&self, read_only: bool) -> pool::Result<Vec<Candidate>> {
        pool::candidates(&self.dir, &|path| Candidate::open(path, read_only))
            .map(|(found, _)| found)
    }
}
