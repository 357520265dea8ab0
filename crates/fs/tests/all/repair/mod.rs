//! Repair: whatever is damaged, all that can be read comes back, nothing is made up, and what
//! comes back is a pool like any other.

mod damage;
mod files;
mod log_records;
mod maps;
mod names;
pub mod planted;
mod roots;
mod vouched;
