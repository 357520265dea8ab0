//! What a pool asks of a machine that is played.

use std::fmt::Debug;
use std::sync::Arc;
use topology::Topology;

/// A machine that is not here, and that makes accesses wait for as long as it would take, only that
/// its time is stretched: see the `emulate` crate.
pub trait Emulated: Debug + Send + Sync {
    /// Its nodes.
    fn topology(&self) -> Topology;
    /// The memory of one of them.
    fn memory(&self, node: u32) -> Arc<dyn pmem::Charge>;
    /// Seconds at hand for one of its seconds.
    fn stretch(&self) -> f64;
    /// A worker waits for as long as a request takes to come to it.
    fn hand_over(&self);
}
