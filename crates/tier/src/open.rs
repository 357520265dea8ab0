//! Finding the devices of a pool.

use crate::open_object_device;
use crate::uring::UringDevice;
use pool::{Device, PlainDevice, Result};
use std::path::Path;
use std::sync::Arc;

/// The devices in a pool's directory.
pub fn open_devices(dir: &Path, read_only: bool) -> Result<Vec<Arc<dyn Device>>> {
    let paths = pool::device_paths(dir)?;
    let open = |path: &std::path::PathBuf| -> Result<Arc<dyn Device>> {
        if let Some(url) = pool::linked_url(path) {
            return open_object_device(&url, read_only);
        }
        match UringDevice::open(path, read_only)? {
            Some(device) => Ok(Arc::new(device)),
            // a container that forbids it, say
            None => Ok(Arc::new(PlainDevice::open(path, read_only)?)),
        }
    };
    paths.iter().map(open).collect()
}
