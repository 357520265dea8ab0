//! Mounts of a measurement, and a file in one, read and written around the kernel's page cache.
//!
//! A measurement with mounts runs in a mount namespace of its own. It ends with the measurement's
//! threads, however they end, and the mounts with it.

use crate::error::{Error, Result, io};
use nearside_fuse::{Mount, MountOptions};
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of one call, and of the request that the kernel makes of it.
pub const CALL_BYTES: usize = 1 << 20;
/// What direct I/O wants a buffer to be aligned to, so that it is 256 pages and not 257.
const PAGE_BYTES: usize = 4096;

/// Why nothing can be mounted here; `None` if it can.
pub fn missing() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("a mount in a namespace of its own takes root");
    }
    let device = File::options().read(true).write(true).open("/dev/fuse");
    device.is_err().then_some("/dev/fuse cannot be opened")
}

/// Runs `measure` in a thread whose mounts nobody else sees.
pub fn apart<T: Send>(measure: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let root = Path::new("/");
            let failed = |errno: nix::Error| io(root)(errno.into());
            nix::sched::unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            nix::mount::mount(None::<&str>, root, None::<&str>, private, None::<&str>)
                .map_err(failed)?;
            measure()
        });
        thread.join().map_err(|_| Error::Panicked)?
    })
}

/// How both sides are mounted: as `nearside mount` does.
pub fn options() -> MountOptions {
    MountOptions { sole_door: true, ..MountOptions::default() }
}

/// A file in a mount.
pub struct Door {
    // before the mount: it would stay in use
    file: File,
    mount: Mount,
    path: PathBuf,
}

impl Door {
    /// Opens the file `name` in `mount` with O_DIRECT: else the page cache would answer reads.
    pub fn open(mount: Mount, name: &str) -> Result<Door> {
        let path = mount.dir().join(name);
        let file = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path);
        Ok(Door { file: file.map_err(io(&path))?, mount, path })
    }

    /// One call that reads.
    pub fn read(&self, place: u64, buffer: &mut Aligned) -> Result<()> {
        self.file.read_exact_at(buffer.bytes_mut(), place).map_err(io(&self.path))
    }

    /// One call that writes.
    pub fn write(&self, place: u64, buffer: &Aligned) -> Result<()> {
        self.file.write_all_at(buffer.bytes(), place).map_err(io(&self.path))
    }

    /// Closes the file and takes the mount away; its threads have ended after that.
    pub fn close(self) -> Result<()> {
        drop(self.file);
        self.mount.unmount()?;
        Ok(self.mount.wait()?)
    }
}

/// A buffer of one call, at the start of a page.
pub struct Aligned {
    room: Vec<u8>,
    start: usize,
}

impl Aligned {
    /// Filled with bytes that `seed` chooses.
    pub fn new(seed: u8) -> Aligned {
        let room: Vec<u8> =
            (0..CALL_BYTES + PAGE_BYTES).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
        let start = room.as_ptr().align_offset(PAGE_BYTES);
        Aligned { room, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.start + CALL_BYTES]
    }

    /// The bytes, to be read into.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.start + CALL_BYTES]
    }
}
