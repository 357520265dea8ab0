//! Pages that a kernel keeps: page caches of two mounts, and a library that writes past both.
//!
//! A file of two pages of two bytes. Each kernel reads pages into its cache, stores to them by
//! mappings, writes them back, writes through them and past them, truncates, and drops pages when
//! the server sends it a notice. The server marks what it gives to a kernel, keeps what the kernel
//! was given as a base when another door changes it, and merges write-backs by that base.

mod base;
mod bounds;
mod byte_values;
mod calls;
mod fault;
mod flaw;
mod kernel;
mod marks;
mod notices;
mod requests;
mod server;
mod state;

pub use base::PageBase;
pub use bounds::{Bounds, KernelBounds, Uses};
pub use fault::Fault;
pub use flaw::Flaw;
pub use kernel::KernelStep;
pub use server::ServerStep;
pub use state::{
    Byte, Call, Change, Counts, Door, FILE_BYTES, FIRST, GivenPage, Image, Invalidation, KERNELS,
    Kernel, PAGE_BYTES, PAGES, Page, Phase, Read, Snapshot, State, VALUES, Waits, WriteBack,
};

crate::machine::machine!(State, Bounds, KERNELS, KernelStep, ServerStep, |state: &State| state
    .flaw());
