//! The bytes of a pool's slices, of the devices below them, and of a process's lane.

use crate::arena::{Arena, devices_in};
use crate::attached;
use crate::events::{Trace, apply_all};
use crate::world::clock;
use fs::format_mappings;
use pmem::Domain;
use pool::{FormatOptions, SliceSpec};
use std::sync::Arc;

/// The bytes of each slice, then of each device, and then those of a process that is attached.
pub type Images = Vec<Vec<u8>>;

/// What went wrong, in words.
pub type Outcome<T> = Result<T, String>;

/// The shape of a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shape {
    /// Slices.
    pub slices: usize,
    /// Bytes of each.
    pub slice_bytes: usize,
    /// Bytes of each one's log.
    pub log_bytes: u64,
    /// Bytes of a line of its log.
    pub log_line_bytes: u32,
    /// When its stores are safe.
    pub domain: Domain,
    /// Devices of its capacity tier: the first as large as a slice, each other one larger by half
    /// a slice than the one before it.
    pub devices: usize,
    /// Copies of the data; with two each file has twice the bytes of a slice.
    pub copies: u32,
    /// Whether a process is attached, with a lane of its own.
    pub attached: bool,
}

impl Shape {
    /// The smallest pool of two slices.
    pub const SMALL: Shape = Shape {
        slices: 2,
        slice_bytes: 1 << 20,
        log_bytes: 64 << 10,
        log_line_bytes: 64,
        domain: Domain::CpuFlush,
        devices: 0,
        copies: 1,
        attached: false,
    };
    /// The same, with a log as on DIMMs that write longer lines.
    pub const LONG_LINES: Shape = Shape { log_line_bytes: 256, ..Shape::SMALL };
    /// The same with two copies of everything.
    pub const MIRRORED: Shape = Shape { copies: 2, ..Shape::SMALL };
    /// The same with a capacity tier.
    pub const TIERED: Shape = Shape { devices: 1, ..Shape::SMALL };
    /// The same with two devices, of different sizes.
    pub const TWO_DEVICES: Shape = Shape { devices: 2, ..Shape::SMALL };
    /// The same with a process that is attached, for whose lane blocks are kept.
    pub const ATTACHED: Shape = Shape { attached: true, slice_bytes: 4 << 20, ..Shape::SMALL };

    /// Memory for its slices, then for its devices, and then for what a process has.
    fn zeroed(&self) -> Images {
        let slices = (0..self.slices).map(|_| self.slice_bytes * self.copies as usize);
        let devices = (0..self.devices).map(|device| self.slice_bytes * (2 + device) / 2);
        let attached = attached::BYTES.into_iter().filter(|_| self.attached);
        slices.chain(devices).chain(attached).map(|bytes| vec![0; bytes]).collect()
    }

    fn format_options(&self) -> FormatOptions {
        FormatOptions {
            slices: vec![SliceSpec::default(); self.slices],
            slice_bytes: self.slice_bytes as u64,
            virtual_nodes: Some(self.slices as u32),
            log_bytes: Some(self.log_bytes),
            log_line_bytes: Some(self.log_line_bytes),
            identity: Some(0x51),
            data_copies: self.copies,
            ..FormatOptions::default()
        }
    }
}

/// Says what failed, and why.
pub fn failed(what: &str) -> impl Fn(&dyn std::fmt::Display) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// The images of an empty pool.
pub fn format(shape: &Shape) -> Outcome<Images> {
    clock(0);
    let mut images = shape.zeroed();
    let trace = Arc::new(Trace::default());
    let mut mappings = Arena::new(shape.domain, &images)?.mappings(Some(&trace))?;
    let mut others = mappings.split_off(shape.slices);
    others.truncate(shape.devices);
    let devices = devices_in(others);
    let options = FormatOptions { devices, ..shape.format_options() };
    format_mappings(mappings, &options).map_err(|error| failed("format")(&error))?;
    apply_all(&trace.events(), &mut images);
    Ok(images)
}
