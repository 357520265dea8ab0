//! What bounds the memory of all sessions together.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::options::Options;
use crate::read_cache::Reigns;
use crate::room::Room;

/// What bounds the memory of all sessions together.
#[derive(Debug)]
pub struct Bounds {
    /// Of what they have mapped, and of what they have read.
    pub copies: Arc<Room>,
    /// Of what those have mapped who come over networks, in memory of their own.
    pub copies_there: Arc<Room>,
    /// What they have read is cached.
    pub reigns: Option<Arc<Reigns>>,
    /// Bytes of transactions that are longer than a call.
    pub staged: Arc<AtomicUsize>,
}

impl Bounds {
    /// As options say.
    pub fn new(options: &Options) -> Bounds {
        Bounds {
            copies: Room::new(options.copies_bytes),
            copies_there: Room::new(options.copies_there_bytes),
            reigns: options.lanes.as_deref().map(|dir| Arc::new(Reigns::new(dir))),
            staged: Arc::new(AtomicUsize::new(0)),
        }
    }
}
