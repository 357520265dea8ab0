//! What stands in for object stores in a build without them.

use pool::{Device, Error, Result};
use std::sync::Arc;

/// Makes a device of so many bytes of an object store.
pub fn make_object_device(url: &str, _bytes: u64) -> Result<Arc<dyn Device>> {
    Err(not_here(url))
}

/// Opens the device that was made of an object store.
pub fn open_object_device(url: &str, _read_only: bool) -> Result<Arc<dyn Device>> {
    Err(not_here(url))
}

fn not_here(url: &str) -> Error {
    Error::Device(format!(
        "{url}: this build knows no object stores; make one with the feature object-store (cargo \
         build --features object-store)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_object_stores_says_what_it_lacks() {
        let url = "s3://bucket/prefix";
        for refused in [make_object_device(url, 1 << 30), open_object_device(url, false)] {
            let message = refused.unwrap_err().to_string();
            assert!(message.contains(url) && message.contains("feature object-store"), "{message}");
        }
    }
}
