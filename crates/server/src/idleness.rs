//! Whether nobody is attached.

use std::sync::Arc;
use std::time::Duration;

use crate::shared::Shared;

/// Tells whether anybody is attached to a service.
#[derive(Debug)]
pub struct Idleness(Arc<Shared>);

impl Idleness {
    /// Of this service.
    pub(crate) fn of(shared: Arc<Shared>) -> Idleness {
        Idleness(shared)
    }

    /// Waits until no process has been attached for so long.
    pub fn wait(&self, time: Duration) {
        let mut idle_since = self.0.idle_since.lock();
        loop {
            let left = idle_since.map(|since| time.saturating_sub(since.elapsed()));
            match left {
                Some(Duration::ZERO) => return,
                Some(left) => drop(self.0.idles.wait_for(&mut idle_since, left)),
                None => self.0.idles.wait(&mut idle_since),
            }
        }
    }
}
