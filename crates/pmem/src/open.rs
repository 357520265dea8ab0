//! Finding out what a path is, and mapping it accordingly.

use crate::domain::{Domain, Medium};
use crate::error::{Error, Result};
use crate::kernel::Flush;
use crate::lock::{self, Locked};
use crate::map::{Addresses, Sharing};
use crate::mapping::Parts;
use crate::sysfs::{Backing, Device, Sysfs};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// How to map.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapOptions {
    /// Map for reading only.
    pub read_only: bool,
    /// The `process` domain is asked for: a plain file or volatile DAX memory is taken without
    /// fsync.
    pub process: bool,
    /// What is stored is seen by this mapping alone, and the medium stays as it is (to try what a
    /// repair would do).
    pub private: bool,
}

/// Opens, locks and maps `path`.
pub(crate) fn open(path: &Path, options: &MapOptions, sysfs: &Sysfs) -> Result<Parts> {
    open_with(path, options, sysfs, &|file| lock::lock(file, path, options.read_only))
}

/// The same for a file whose lock this process has, through another descriptor.
pub(crate) fn open_locked(path: &Path, options: &MapOptions, sysfs: &Sysfs) -> Result<Parts> {
    open_with(path, options, sysfs, &|file| Ok(Locked::new(file)))
}

/// Maps a file that another process opened, and whose domain it says.
pub(crate) fn given(file: File, domain: Domain) -> Result<Parts> {
    let path = Path::new("the file that was given");
    let io = |error| Error::io("map", path, error);
    let len = mappable_len(file.metadata().map_err(io)?.len(), path)?;
    if domain > Domain::Sync && !Flush::exists() {
        return Err(Error::NoFlush { path: path.to_owned() });
    }
    let (sharing, medium) = match domain > Domain::Sync {
        true => (Sharing::Synchronous, Medium::Dax),
        false => (Sharing::Shared, Medium::File),
    };
    let addresses = Addresses::of_file(&file, len, sharing, false).map_err(io)?;
    Ok(Parts {
        addresses,
        read_only: false,
        private: false,
        domain,
        medium,
        backing: Backing::default(),
        file: Some(Locked::new(file)),
    })
}

fn open_with(
    path: &Path,
    options: &MapOptions,
    sysfs: &Sysfs,
    lock: &dyn Fn(File) -> Result<Locked>,
) -> Result<Parts> {
    // O_NONBLOCK: a FIFO must not wait for its other end, nor a terminal for its line.
    let file = OpenOptions::new()
        .read(true)
        .write(!options.read_only && !options.private)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| refusal(path).unwrap_or_else(|| not_opened(path, options, error)))?;
    let metadata = file.metadata().map_err(|error| Error::io("stat", path, error))?;
    let parts = if metadata.is_file() {
        let file = lock(file)?;
        map_file(file, path, options, sysfs)?
    } else if let Some(device) = devdax(&metadata, sysfs) {
        let file = lock(file)?;
        map_devdax(file, &metadata, device.size_bytes, path, options, sysfs)?
    } else {
        return Err(Error::NotMappable { path: path.to_owned(), kind: kind(&metadata) });
    };
    if parts.domain > Domain::Sync && !Flush::exists() && !options.read_only {
        return Err(Error::NoFlush { path: path.to_owned() });
    }
    Ok(parts)
}

/// Why the kernel did not open `path`.
fn not_opened(path: &Path, options: &MapOptions, source: io::Error) -> Error {
    let refused = [libc::EACCES, libc::EPERM, libc::EROFS].contains(&code(&source));
    if refused && !options.read_only && File::open(path).is_ok() {
        return Error::NotWritable { path: path.to_owned(), source };
    }
    Error::io("open", path, source)
}

fn code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_default()
}

/// Why a path that cannot even be opened could not be mapped anyway, where that says more.
fn refusal(path: &Path) -> Option<Error> {
    let metadata = path.metadata().ok()?;
    if metadata.is_file() || metadata.file_type().is_char_device() {
        return None;
    }
    Some(Error::NotMappable { path: path.to_owned(), kind: kind(&metadata) })
}

fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() {
        "a block device (use a file on it, or make the namespace devdax)"
    } else if kind.is_char_device() {
        "a character device other than device-dax"
    } else {
        "of no known kind"
    }
}

fn devdax(metadata: &Metadata, sysfs: &Sysfs) -> Option<crate::sysfs::DevDax> {
    metadata.file_type().is_char_device().then(|| sysfs.devdax(metadata.rdev())).flatten()
}

fn map_devdax(
    file: Locked,
    metadata: &Metadata,
    size_bytes: u64,
    path: &Path,
    options: &MapOptions,
    sysfs: &Sysfs,
) -> Result<Parts> {
    let backing = sysfs.backing(Device::Character(metadata.rdev()));
    let domain = memory_domain(&backing, path, options)?;
    let len = mappable_len(size_bytes, path)?;
    let io = |error| Error::io("map", path, error);
    let (read_only, private) = (options.read_only, options.private);
    let shared = Addresses::of_file(&file, len, Sharing::Shared, read_only || private);
    let mut addresses = shared.map_err(io)?;
    if private {
        // device-dax maps nothing privately
        addresses = addresses.copied().map_err(io)?;
    }
    let medium = Medium::DevDax;
    Ok(Parts { addresses, read_only, private, domain, medium, backing, file: Some(file) })
}

fn map_file(file: Locked, path: &Path, options: &MapOptions, sysfs: &Sysfs) -> Result<Parts> {
    // Again, now that nobody else who asks for the lock can change it.
    let metadata = file.metadata().map_err(|error| Error::io("stat", path, error))?;
    let len = mappable_len(metadata.len(), path)?;
    let (read_only, private) = (options.read_only, options.private);
    let map = |sharing| {
        let sharing = if private { Sharing::Private } else { sharing };
        Addresses::of_file(&file, len, sharing, read_only)
            .map_err(|error| Error::io("map", path, error))
    };
    let synchronous = Addresses::of_file(&file, len, Sharing::Synchronous, read_only || private);
    if let Ok(synchronous) = synchronous {
        let backing = sysfs.backing(Device::Block(metadata.dev()));
        let domain = memory_domain(&backing, path, options)?;
        allocate(&file, &metadata, path, options, Medium::Dax)?;
        let medium = Medium::Dax;
        let addresses = if private { map(Sharing::Private)? } else { synchronous };
        let file = Some(file);
        return Ok(Parts { addresses, read_only, private, domain, medium, backing, file });
    }
    let medium = if is_in_memory(&file, path)? { Medium::Tmpfs } else { Medium::File };
    allocate(&file, &metadata, path, options, medium)?;
    let addresses = map(Sharing::Shared)?;
    Ok(Parts {
        addresses,
        read_only,
        private,
        domain: if options.process { Domain::Process } else { Domain::Sync },
        medium,
        backing: Backing::default(),
        file: Some(file),
    })
}

/// The domain of persistent memory.
fn memory_domain(backing: &Backing, path: &Path, options: &MapOptions) -> Result<Domain> {
    if options.process {
        return Ok(Domain::Process);
    }
    backing.domain().map_err(|reason| Error::Volatile { path: path.to_owned(), reason })
}

fn mappable_len(size_bytes: u64, path: &Path) -> Result<usize> {
    if size_bytes == 0 {
        return Err(Error::Empty { path: path.to_owned() });
    }
    usize::try_from(size_bytes)
        .map_err(|_| Error::io("map", path, io::Error::from_raw_os_error(libc::EFBIG)))
}

/// Sees to it that stores never find the file system full, which would be a SIGBUS.
///
/// Holes of a plain file in the `sync` domain are refused rather than filled: whoever made it
/// did not mean it as a slice, which `format` allocates in full. In memory, and in the `process`
/// domain, filling is cheap and harmless.
fn allocate(
    file: &File,
    metadata: &Metadata,
    path: &Path,
    options: &MapOptions,
    medium: Medium,
) -> Result<()> {
    let (size_bytes, allocated_bytes) = (metadata.len(), metadata.blocks() * STAT_BLOCK_BYTES);
    if options.read_only || options.private || allocated_bytes >= size_bytes {
        return Ok(());
    }
    if !options.process && medium == Medium::File {
        return Err(Error::Sparse { path: path.to_owned(), allocated_bytes, size_bytes });
    }
    loop {
        // SAFETY: it touches no memory of this process, and the descriptor is open.
        let outcome = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, size_bytes as libc::off_t) };
        let error = io::Error::last_os_error();
        match (outcome, error.raw_os_error()) {
            (0, _) => return Ok(()),
            (_, Some(libc::EINTR)) => {}
            // Nothing is promised over a power cut here, so the risk is the asker's.
            (_, Some(libc::EOPNOTSUPP)) if options.process => return Ok(()),
            _ => return Err(Error::io("allocate", path, error)),
        }
    }
}

/// As statfs(2) tells a ramfs (linux/magic.h).
const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;

/// Unit of `st_blocks`, whatever the file system's blocks are.
const STAT_BLOCK_BYTES: u64 = 512;

/// Whether a file lies in memory alone: no power cut, and no restart, leaves anything of it.
fn is_in_memory(file: &File, path: &Path) -> Result<bool> {
    let kind = file_system_type(file, path)?;
    Ok(kind == libc::TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

/// The kind of the file system that a file is on, as statfs(2) tells it.
pub(crate) fn file_system_type(file: &File, path: &Path) -> Result<libc::c_long> {
    let mut status = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the kernel fills the structure in, or fails.
    if unsafe { libc::fstatfs(file.as_raw_fd(), status.as_mut_ptr()) } != 0 {
        return Err(Error::last_os("statfs", path));
    }
    // SAFETY: the call succeeded.
    Ok(unsafe { status.assume_init() }.f_type)
}
