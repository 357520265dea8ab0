//! A pool in memory: its slices' bytes, opened and checked.

use crate::events::{Trace, apply_all};
use fs::{FileSystem, TakeOver, check_candidates, format_mappings};
use pmem::{Domain, Mapping};
use pool::{Atime, Candidate, FormatOptions, OpenOptions, SliceSpec};
use std::path::Path;
use std::sync::Arc;

/// The bytes of each slice.
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
}

impl Shape {
    /// The smallest pool of two slices.
    pub const SMALL: Shape =
        Shape { slices: 2, slice_bytes: 1 << 20, log_bytes: 64 << 10, log_line_bytes: 64 };
    /// The same, with a log as on DIMMs that write longer lines.
    pub const LONG_LINES: Shape = Shape { log_line_bytes: 256, ..Shape::SMALL };

    fn format_options(&self) -> FormatOptions {
        FormatOptions {
            slices: vec![SliceSpec::default(); self.slices],
            slice_bytes: self.slice_bytes as u64,
            virtual_nodes: Some(self.slices as u32),
            log_bytes: Some(self.log_bytes),
            log_line_bytes: Some(self.log_line_bytes),
            ..FormatOptions::default()
        }
    }
}

/// Says what failed, and why.
pub fn failed(what: &str) -> impl Fn(&dyn std::fmt::Display) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// Memory with these images; `trace` is told of every store.
fn mappings(images: &Images, trace: Option<&Arc<Trace>>) -> Outcome<Vec<Mapping>> {
    let mut mappings = Vec::new();
    for (index, image) in images.iter().enumerate() {
        let mapping = Mapping::memory_from(image, Domain::CpuFlush);
        let mapping = mapping.map_err(|error| failed("mapping memory")(&error))?;
        mapping.set_id(index as u32);
        if let Some(trace) = trace {
            mapping.set_recorder(Some(trace.clone()));
        }
        mappings.push(mapping);
    }
    Ok(mappings)
}

fn candidates(images: &Images, trace: Option<&Arc<Trace>>, look: bool) -> Outcome<Vec<Candidate>> {
    mappings(images, trace)?
        .into_iter()
        .map(|mapping| Candidate::from_mapping(Path::new("memory"), mapping, look))
        .collect::<pool::Result<_>>()
        .map_err(|error| failed("reading the superblock")(&error))
}

/// The images of an empty pool.
pub fn format(shape: &Shape) -> Outcome<Images> {
    let mut images = vec![vec![0; shape.slice_bytes]; shape.slices];
    let trace = Arc::new(Trace::default());
    let mappings = mappings(&images, Some(&trace))?;
    format_mappings(mappings, &shape.format_options()).map_err(|error| failed("format")(&error))?;
    apply_all(&trace.events(), &mut images);
    Ok(images)
}

/// Opens and recovers; `trace` is told of every store, those of recovery included.
pub fn open(images: &Images, trace: Option<&Arc<Trace>>) -> Outcome<FileSystem> {
    take_over(images, trace, &TakeOver::default())
}

/// The same where a server was killed.
pub fn take_over(
    images: &Images,
    trace: Option<&Arc<Trace>>,
    asked: &TakeOver,
) -> Outcome<FileSystem> {
    let options =
        OpenOptions { memory_bytes: Some(64 << 20), atime: Atime::Never, ..OpenOptions::default() };
    FileSystem::take_over_candidates(candidates(images, trace, false)?, &options, asked, false)
        .map_err(|error| failed("open")(&error))
}

/// An error unless `check` finds nothing.
pub fn check(images: &Images) -> Outcome<()> {
    let report = check_candidates(candidates(images, None, true)?)
        .map_err(|error| failed("check")(&error))?;
    if report.findings.is_empty() {
        return Ok(());
    }
    let findings: Vec<String> =
        report.findings.iter().take(5).map(|f| format!("{}: {}", f.place, f.what)).collect();
    Err(format!("check found {}: {}", report.findings.len(), findings.join("; ")))
}
