//! Memory that outlives the process that works in it, or that it shares with another.
//!
//! It is a memfd: whoever holds a descriptor keeps it, and what a killed process stored in it is
//! there for the next one. Three things stay true:
//!
//! - Its size never changes. It is sealed against that, and memory without the seals is refused:
//!   in a mapping of pages that are gone, every load would be a SIGBUS.
//! - One process at a time has it mapped. [`map`] takes a lock that ends with the mapping,
//!   also when the process is killed; the second one is refused. So the bytes of an area are its
//!   owner's alone, as references demand. (The lock binds all who come this way; a descriptor is
//!   given to nobody else.)
//! - Areas do not overlap: they are cut off one after the other ([`Cutter`]).
//!
//! Nothing here knows what the bytes mean. Whoever takes memory over checks them.
//!
//! Memory that two processes share which do not trust each other is something else: [`Shared`],
//! and [`Words`] that only one of them can store. Of copies of files' bytes each page comes and
//! goes by itself ([`page_by_page`]).

mod area;
mod error;
mod mapped;
mod mapping;
mod pages;
mod peer;
mod shared;
mod words;

pub use area::{Area, Cutter};
pub use error::{Error, Result};
pub use mapping::{create, map};
pub use pages::{page_by_page, punch};
pub use peer::{peer_groups, refuse_descriptors};
pub use shared::{Shared, publish, sleep_at, wake_all};
pub use words::Words;
