//! One mapped slice, and what it says of itself.

use crate::cpu::{self, Cpu};
use crate::domain::{Domain, Medium};
use crate::error::Result;
use crate::kernel::{Flush, Kernels};
use crate::lock::Locked;
use crate::map::Addresses;
use crate::memory;
use crate::mirror::Mirror;
use crate::open::{self, MapOptions};
use crate::sysfs::{Backing, Device, Sysfs};
use crate::through_file;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// One mapped slice. Offsets are bytes from its start. Calls may come from many threads.
///
/// Threads that write the same bytes at the same time, or read bytes that another writes, get a
/// mixture of old and new: aligned 8-byte words are whole, more is not.
#[derive(Debug)]
pub struct Mapping {
    pub(crate) addresses: Addresses,
    /// Bytes that may be stored to: all, or none where it is read-only.
    pub(crate) writable_len: usize,
    pub(crate) kernels: &'static Kernels,
    /// How stores reach the medium, [`Flush::None`] where the domain asks for none.
    pub(crate) flush: Flush,
    pub(crate) domain: Domain,
    pub(crate) medium: Medium,
    pub(crate) backing: Backing,
    /// Keeps the lock; none for anonymous memory. Its parts share it.
    pub(crate) file: Option<Arc<Locked>>,
    /// Where it begins in the file.
    pub(crate) file_offset: u64,
    /// Whether nobody else sees its stores.
    pub(crate) private: bool,
    /// Whether stores go through the file: see the `through_file` module.
    pub(crate) through_file: bool,
    /// Bytes that may be stored to straight away: none where stores take a longer way than to the
    /// memory alone, through the file, or to a mirror.
    pub(crate) direct_len: usize,
    /// The second copy of all that is here: see the `mirror` module.
    pub(crate) mirror: Option<Box<Mirror>>,
    /// Who makes accesses wait: see the `charge` module.
    pub(crate) charge: Option<crate::charge::Charged>,
    /// Whether a store was lost: see the `media` module.
    pub(crate) broken: Arc<AtomicBool>,
    /// Whether a sync has failed. Held during a sync: of two at a time the kernel reports a lost
    /// page to one only.
    pub(crate) poisoned: Arc<Mutex<bool>>,
    #[cfg(feature = "recorder")]
    pub(crate) tap: Arc<crate::recorder::Tap>,
}

/// What [`Mapping`] is made of.
pub(crate) struct Parts {
    pub(crate) addresses: Addresses,
    pub(crate) read_only: bool,
    pub(crate) private: bool,
    pub(crate) domain: Domain,
    pub(crate) medium: Medium,
    pub(crate) backing: Backing,
    pub(crate) file: Option<Locked>,
}

impl Mapping {
    /// Maps a file or device, found out what it is, exclusively locked.
    ///
    /// A read-only mapping shares its lock with other readers.
    ///
    /// # Errors
    /// `Busy`, `Empty`, `Sparse`, `NotMappable`, `Volatile`, `NoFlush`, `Setting`, or what the
    /// kernel says.
    pub fn open(path: &Path, options: &MapOptions) -> Result<Mapping> {
        Mapping::open_with(path, options, &Sysfs::default())
    }

    /// [`open`](Mapping::open), with a sysfs of one's own.
    pub fn open_with(path: &Path, options: &MapOptions, sysfs: &Sysfs) -> Result<Mapping> {
        let cpu = cpu::chosen()?;
        Ok(Mapping::from_parts(open::open(path, options, sysfs)?, cpu))
    }

    /// Maps all of a file that another process opened and gave to this one, which says what its
    /// domain is. Nothing is locked.
    ///
    /// # Errors
    /// `Empty`, `NoFlush`, `Setting`, or what the kernel says.
    pub fn of_file(file: File, domain: Domain) -> Result<Mapping> {
        Ok(Mapping::from_parts(open::given(file, domain)?, cpu::chosen()?))
    }

    /// Anonymous memory of `len` bytes, zeroed (tests and the crash explorer).
    ///
    /// It runs the code of `domain`, and keeps nothing.
    pub fn memory(len: usize, domain: Domain) -> Result<Mapping> {
        let cpu = cpu::chosen()?;
        Mapping::memory_on(len, domain, cpu)
    }

    /// [`memory`](Mapping::memory) with the bytes of `image`.
    pub fn memory_from(image: &[u8], domain: Domain) -> Result<Mapping> {
        let mapping = Mapping::memory(image.len(), domain)?;
        // Not a store of the file system's: no recorder is set yet.
        // SAFETY: the mapping is new, of the image's length, and nobody else knows it.
        unsafe { mapping.addresses.base().copy_from_nonoverlapping(image.as_ptr(), image.len()) };
        Ok(mapping)
    }

    /// [`memory_from`](Mapping::memory_from), saying of itself what `sysfs` says of the block
    /// device `number` (tests of what depends on that).
    pub fn memory_of_device(
        image: &[u8],
        domain: Domain,
        sysfs: &Sysfs,
        number: (u32, u32),
    ) -> Result<Mapping> {
        let mut mapping = Mapping::memory_from(image, domain)?;
        mapping.backing = sysfs.backing(Device::Block(libc::makedev(number.0, number.1)));
        Ok(mapping)
    }

    pub(crate) fn memory_on(len: usize, domain: Domain, cpu: Cpu) -> Result<Mapping> {
        Ok(Mapping::of_addresses(memory::anonymous(len)?, domain, cpu))
    }

    /// Over memory that is there.
    pub(crate) fn of_addresses(addresses: Addresses, domain: Domain, cpu: Cpu) -> Mapping {
        let parts = Parts {
            addresses,
            read_only: false,
            private: false,
            domain,
            medium: Medium::Memory,
            backing: Backing::default(),
            file: None,
        };
        Mapping::from_parts(parts, cpu)
    }

    /// Memory of a file's length that is not the file's: it shows which of them a call is about.
    #[cfg(test)]
    pub(crate) fn beside_file(len: usize, domain: Domain, file: std::fs::File) -> Mapping {
        let parts = Parts {
            addresses: Addresses::anonymous(len).unwrap(),
            read_only: false,
            private: false,
            domain,
            medium: Medium::File,
            backing: Backing::default(),
            file: Some(Locked::new(file)),
        };
        Mapping::from_parts(parts, cpu::chosen().unwrap())
    }

    pub(crate) fn from_parts(parts: Parts, cpu: Cpu) -> Mapping {
        let Parts { addresses, read_only, private, domain, medium, backing, file } = parts;
        let through_file = domain == Domain::Sync
            && !read_only
            && !private
            && file.is_some()
            && through_file::allowed(addresses.len() as u64);
        let mapping = Mapping {
            writable_len: if read_only { 0 } else { addresses.len() },
            private,
            through_file,
            direct_len: if read_only || through_file { 0 } else { addresses.len() },
            mirror: None,
            charge: None,
            addresses,
            kernels: cpu.kernels,
            flush: if domain.flushes() { cpu.flush } else { Flush::None },
            domain,
            medium,
            backing,
            file: file.map(Arc::new),
            file_offset: 0,
            broken: Arc::default(),
            poisoned: Arc::default(),
            #[cfg(feature = "recorder")]
            tap: Arc::default(),
        };
        mapping.tell_watch();
        mapping
    }

    /// Bytes mapped.
    #[allow(clippy::len_without_is_empty)] // an empty mapping does not exist
    #[inline]
    pub fn len(&self) -> u64 {
        self.addresses.len() as u64
    }

    /// When a write is safe here.
    #[inline]
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// What the bytes lie on.
    #[inline]
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Whether it was mapped for reading only; then every store panics.
    #[inline]
    pub fn read_only(&self) -> bool {
        self.writable_len == 0
    }

    /// Where it begins in its file.
    pub fn file_offset(&self) -> u64 {
        self.file_offset
    }

    /// NUMA node of the memory, where the system says.
    pub fn node(&self) -> Option<u32> {
        self.backing.node()
    }

    /// Bytes that the memory writes at once, from a multiple of them on: for a part of them it
    /// reads the rest first. The CPU's line where the system says nothing of the DIMMs.
    pub fn line_bytes(&self) -> usize {
        self.backing.line_bytes()
    }

    /// How often the memory's DIMMs lost power with data still on its way, all added up.
    ///
    /// It only ever grows. If it has grown since a pool was opened and not closed, what the
    /// domain promised may not hold. None where no DIMM counts.
    pub fn unsafe_shutdown_count(&self) -> Option<u64> {
        self.backing.unsafe_shutdown_count()
    }

    /// A copy of everything mapped (tests and the crash explorer).
    pub fn copy_image(&self) -> Vec<u8> {
        let mut image = vec![0; self.addresses.len()];
        // SAFETY: both are of that length; the vector is new.
        unsafe {
            image.as_mut_ptr().copy_from_nonoverlapping(self.addresses.base(), image.len());
        }
        image
    }
}
