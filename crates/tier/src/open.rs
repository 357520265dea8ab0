//! Finding the devices of a pool.

use pool::{Device, PlainDevice, Result};
use std::path::Path;
use std::sync::Arc;

/// The devices in a pool's directory.
pub fn open_devices(dir: &Path, read_only: bool) -> Result<Vec<Arc<dyn Device>>> {
    let paths = pool::device_paths(dir)?;
    let open = |path: &std::path::PathBuf| -> Result<Arc<dyn Device>> {
        Ok(Arc::new(PlainDevice::open(path, read_only)?))
    };
    paths.iter().map(open).collect()
}
