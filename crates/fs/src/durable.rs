//! Making all that returned before durable.

use crate::core::Core;
use crate::error::Result;

impl Core {
    /// Everything that returned before is durable when this returns.
    pub fn sync(&self) -> Result<()> {
        if self.pool.domain() != pmem::Domain::Sync || self.pool.read_only() {
            return Ok(());
        }
        self.pool.check_writable()?;
        match self.pool.sync_epoch() {
            // a checkpoint that begins now makes it all durable, too
            Err(pool::Error::LogFull) => {
                self.log_pace.brake.waits();
                self.wait_for_checkpoint()
            }
            result => Ok(result?),
        }
    }
}
