//! Accesses that somebody else's memory would make wait: an emulated machine is told of each before
//! it is made, and holds it up. Without one nothing is asked on the way of a store or load.

use crate::mapping::Mapping;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reasons for reads of this process to look whether there is something to look at: pages that
/// failed, and mappings that want to be told of every read.
pub(crate) static LOOKS: AtomicUsize = AtomicUsize::new(0);

/// Whether reads of this process are to look for pages that failed. Costs next to nothing.
#[inline(always)]
pub(crate) fn any() -> bool {
    // ordering: what this thread's own loads met was noted on this thread; for what others met see
    // `media::note`
    LOOKS.load(Ordering::Relaxed) != 0
}

/// Who is told of accesses to a mapping.
pub trait Charge: Debug + Send + Sync {
    /// The calling thread reads so many bytes there.
    fn read(&self, offset: u64, bytes: usize);
    /// It stores so many bytes there.
    fn write(&self, offset: u64, bytes: usize);
}

/// A mapping that wants to be told of every read, until this is dropped.
#[derive(Debug)]
pub(crate) struct Look;

impl Look {
    pub(crate) fn new() -> Look {
        LOOKS.fetch_add(1, Ordering::SeqCst);
        Look
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        LOOKS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whom a mapping tells.
#[derive(Debug)]
pub(crate) struct Charged {
    pub by: Arc<dyn Charge>,
    _look: Look,
}

impl Mapping {
    /// From now on accesses to this copy wait for as long as `charge` says.
    pub fn set_charge(&mut self, charge: Arc<dyn Charge>) {
        // stores take the long way, and reads look once more
        self.direct_len = 0;
        self.charge = Some(Charged { by: charge, _look: Look::new() });
    }

    #[inline]
    pub(crate) fn charge_write(&self, offset: u64, bytes: usize) {
        if let Some(charge) = &self.charge {
            charge.by.write(offset, bytes);
        }
    }
}
