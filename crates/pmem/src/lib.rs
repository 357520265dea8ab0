//! Persistent memory: map, store, flush, fence; durability domains; the crash recorder's hook.
//!
//! A [`Mapping`] is one slice of persistent memory: a device, a file on a DAX file system, or a
//! plain file. What a store needs in order to be durable depends on its [`Domain`]; the calls are
//! the same in all of them: write, [`fence`], and [`Mapping::sync`] where the domain is `sync`.
//!
//! ```
//! use pmem::{Domain, Mapping, fence};
//! let mapping = Mapping::memory(1 << 20, Domain::Process)?;
//! let (data, checksum) = mapping.write_crc(4096, &[7; 4096]);
//! let record = mapping.write(0, &checksum.to_le_bytes());
//! fence(data.and(record)); // both are durable here, with one fence
//! assert_eq!(mapping.crc(4096, 4096)?, checksum);
//! # Ok::<(), pmem::Error>(())
//! ```
//!
//! What holds throughout:
//!
//! - Every store to a mapping is made in the `store` module (for a plain file in the `sync` domain
//!   by a call from there), so that a recorder sees each one.
//! - Mapped bytes are only ever copied in or out. No reference to them is handed out, because
//!   other threads write them at any time; readers find out by a protocol of their own (a
//!   checksum, a stamp) whether what they copied is whole.
//! - An aligned 8-byte word that lies wholly inside a written range changes at once, for other
//!   threads and for a power cut. In the `sync` domain only `store_u64` promises that.
//!
//! The instructions used are the best that the CPU has. The environment variable `NEARSIDE_CPU`
//! names others, for tools that do not know those (Valgrind 3.19 ends at clwb and AVX-512) and for
//! comparisons: `portable`, `sse2`, `avx2` or `avx512`, and `noclwb` to flush with clflush; several
//! with commas between.
//!
//! Memory with an uncorrectable error, and a file that another program cut short under a mapping,
//! raise SIGBUS at the next load. The first mapping of a file installs a handler that makes an
//! error of the range out of it ([`Error::Media`]), and hands on what is about other memory.
//!
//! What this crate is not: it allocates nothing, has no format and no recovery.

mod access;
mod broken;
mod charge;
mod copy;
mod cpu;
mod crc;
mod domain;
mod error;
mod faults;
mod kernel;
mod lock;
mod map;
mod mapping;
mod media;
mod medium_id;
mod memory;
mod mirror;
mod open;
#[cfg(feature = "recorder")]
mod poison;
mod private;
mod process;
#[cfg(feature = "recorder")]
pub mod recorder;
mod state;
mod store;
mod sync;
mod sysfs;
mod through_file;

pub use charge::Charge;
pub use crc::{
    crc_fits, crc32c, crc32c_append, crc32c_combine, crc32c_difference, crc32c_of_zeros,
};
pub use domain::{Domain, Medium};
pub use error::{Error, Result};
#[cfg(feature = "recorder")]
pub use faults::fail;
pub use faults::{Fault, fails};
pub use lock::Holder;
pub use mapping::Mapping;
pub use media::pass_on;
pub use memory::Memory;
pub use mirror::sync_all;
pub use open::MapOptions;
pub use process::Process;
pub use state::{Clean, Deferred, Dirty, InFlight, fence};
pub use sysfs::Sysfs;

/// Bytes of a CPU cache line: the unit of a flush and of a non-temporal store.
pub const LINE_BYTES: usize = 64;
