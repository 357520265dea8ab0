//! Files as transactional memory.
//!
//! A [`Region`] is a file, or a part of one, in the address space: loads are plain loads from DRAM,
//! where pages are brought when they are first touched. Nobody stores there: stores go through a
//! [`Transaction`], and when it has committed, every load sees them.
//!
//! What this crate keeps true of a page of a region:
//! - it holds what the file held when it was brought, and every change since: who changes the file
//!   tells of it before his call returns, while the range is his (`fs::Mapped`);
//! - a page that is being brought when its bytes change is brought again, and only then seen;
//! - nothing but what the file holds is ever stored there, so that a page can go at any time.
//!
//! `unsafe` is in `memory`, `userfault` and `signals`.

mod asked;
mod error;
mod evict;
mod fill;
mod memory;
mod overlay;
mod page_states;
mod passing;
mod reading;
mod region;
mod regions;
mod service;
mod signals;
mod source;
mod stores;
mod transaction;
mod transaction_there;
mod userfault;

pub use error::{Error, Result};
pub use region::Region;
pub use regions::{Regions, RegionsInfo, Settings};
pub use service::{Bytes, Seen, ServedFile, Service, Shows};
pub use source::Faults;
pub use transaction::{Isolation, Transaction};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
