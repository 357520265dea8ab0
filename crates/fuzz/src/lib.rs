//! Damaged and hostile images, made at random and used.
//!
//! A case is a number. It chooses an image from a `corpus` of real pools, changes it in a few
//! places that `image` knows (`mutate`), in half of the cases makes all checksums fit again
//! (`seal`), and uses it in every way (`exercise`). Cases run in processes of their own
//! (`worker`), watched by another (`runner`): so a crash, a hang and memory without bounds are
//! failures with a number, like a panic.
//!
//! What must hold: nothing panics or hangs; an error says where and what; readers change nothing;
//! damage to one block leaves what was true since the last checkpoint, or an error, damage to more
//! of them what was true at some time; what `check` is content with opens, reads and changes, and
//! `check` is content after.
#![forbid(unsafe_code)]

pub mod case;
pub mod corpus;
pub mod devices;
pub mod exercise;
pub mod fields;
pub mod image;
pub mod mutate;
pub mod page;
pub mod place;
pub mod plan;
pub mod random;
pub mod runner;
pub mod seal;
pub mod seen;
pub mod targets;
pub mod worker;
