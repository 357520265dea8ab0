//! Accesses that somebody else's memory would make wait: an emulated machine is told of each before
//! it is made, and holds it up. Without one nothing is asked on the way of a store or load.

use crate::mapping::Mapping;
use crate::media;
use std::fmt::Debug;
use std::sync::Arc;

/// Who is told of accesses to a mapping.
pub trait Charge: Debug + Send + Sync {
    /// The calling thread reads so many bytes there.
    fn read(&self, offset: u64, bytes: usize);
    /// It stores so many bytes there.
    fn write(&self, offset: u64, bytes: usize);
}

impl Mapping {
    /// From now on accesses to this copy wait for as long as `charge` says.
    pub fn set_charge(&mut self, charge: Arc<dyn Charge>) {
        // stores take the long way, and reads look once more
        self.direct_len = 0;
        media::look_always();
        self.charge = Some(charge);
    }

    #[inline]
    pub(crate) fn charge_write(&self, offset: u64, bytes: usize) {
        if let Some(charge) = &self.charge {
            charge.write(offset, bytes);
        }
    }
}
