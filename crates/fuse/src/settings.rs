//! What the mount agrees on with the kernel.

use fuser::{InitFlags, KernelConfig};

use crate::service::REQUEST_BYTES_MAX;

/// Requests that the kernel may have on their way in the background (read-ahead, direct I/O).
const BACKGROUND_REQUESTS_MAX: u16 = 64;

/// What the kernel is asked to do, where it can. Not among it: the write-back cache.
fn capabilities(sole_door: bool) -> Vec<InitFlags> {
    let mut wanted = vec![
        InitFlags::FUSE_ASYNC_READ,
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_BIG_WRITES,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_CACHE_SYMLINKS,
        // Else every write asks first for the file's security.capability.
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    ];
    if !sole_door {
        wanted.push(InitFlags::FUSE_AUTO_INVAL_DATA);
    }
    wanted
}

/// Agrees on what every mount of ours has; for the `init` of a server.
pub fn negotiate(config: &mut KernelConfig, sole_door: bool) {
    for capability in capabilities(sole_door) {
        if config.add_capabilities(capability).is_err() {
            tracing::info!(?capability, "this kernel does not have it");
        }
    }
    // Each gives the nearest value that it takes when it refuses ours.
    let bytes = REQUEST_BYTES_MAX as u32;
    let _ = config.set_max_write(bytes).or_else(|near| config.set_max_write(near));
    let _ = config.set_max_readahead(bytes).or_else(|near| config.set_max_readahead(near));
    let _ = config.set_max_background(BACKGROUND_REQUESTS_MAX);
}
