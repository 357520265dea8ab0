//! The devices of a tier, for people.

use super::facts::{DeviceFacts, bytes};
use crate::output;
use crate::size::show;

/// A row for each.
pub fn table(devices: &[DeviceFacts]) -> String {
    let heads = ["DEVICE", "NODE", "SIZE", "USED", "FREE", "ACCESS", "PATH"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(devices.iter().map(|device| {
        vec![
            device.index.to_string(),
            device.node.map_or_else(|| "-".to_owned(), |node| node.to_string()),
            show(device.bytes),
            show(bytes(device.blocks.saturating_sub(device.blocks_free))),
            show(bytes(device.blocks_free)),
            output::shown(device.access.as_bytes()),
            output::shown(device.path.as_bytes()),
        ]
    }));
    output::table(&rows)
}
