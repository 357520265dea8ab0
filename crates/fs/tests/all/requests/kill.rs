//! A pool in memory whose server is killed at any store, which may be torn by it.

use crate::common::options;
use fs::{CheckReport, FileSystem, TakeOver};
use pmem::recorder::{Event, EventKind, Recorder};
use pmem::{Domain, Mapping};
use pool::{Candidate, FormatOptions, OpenOptions};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The bytes of each slice.
pub type Images = Vec<Vec<u8>>;

/// What others see of the slices: all that was stored until the kill.
pub struct Mirror {
    state: Mutex<State>,
}

struct State {
    images: Images,
    /// Stores until the kill.
    left: u64,
    /// Bytes that the last store still makes.
    torn: usize,
}

impl Mirror {
    fn new(images: &Images, left: u64, torn: usize) -> Arc<Mirror> {
        let state = State { images: images.clone(), left, torn };
        Arc::new(Mirror { state: Mutex::new(state) })
    }

    /// Whether the server was killed.
    pub fn dead(&self) -> bool {
        self.state.lock().unwrap().left == 0
    }

    /// Kills it now, if it was not, and gives what it left.
    pub fn kill(&self) -> Images {
        let mut state = self.state.lock().unwrap();
        state.left = 0;
        state.images.clone()
    }
}

impl Recorder for Mirror {
    fn event(&self, event: Event<'_>) {
        let (EventKind::Store { offset, data } | EventKind::NtStore { offset, data }) = event.kind
        else {
            return;
        };
        let mut state = self.state.lock().unwrap();
        if state.left == 0 {
            return;
        }
        state.left -= 1;
        let len = if state.left == 0 { data.len().min(state.torn) } else { data.len() };
        let place = &mut state.images[event.mapping as usize];
        place[offset as usize..offset as usize + len].copy_from_slice(&data[..len]);
    }
}

fn candidates(images: &Images, mirror: Option<&Arc<Mirror>>, look: bool) -> Vec<Candidate> {
    let candidate = |(id, image): (usize, &Vec<u8>)| {
        let mapping = Mapping::memory_from(image, Domain::Process).unwrap();
        mapping.set_id(id as u32);
        mapping.set_recorder(mirror.map(|mirror| mirror.clone() as Arc<dyn Recorder>));
        Candidate::from_mapping(Path::new("memory"), mapping, look).unwrap()
    };
    images.iter().enumerate().map(candidate).collect()
}

/// An empty pool with a small log.
pub fn formatted(slices: usize, slice_bytes: u64) -> Images {
    let mut images = vec![vec![0; slice_bytes as usize]; slices];
    let mirror = Mirror::new(&images, u64::MAX, 0);
    let mappings = (0..slices).map(|id| {
        let mapping = Mapping::memory(slice_bytes as usize, Domain::Process).unwrap();
        mapping.set_id(id as u32);
        mapping.set_recorder(Some(mirror.clone()));
        mapping
    });
    let log_bytes = Some(256 << 10);
    let options = FormatOptions { log_bytes, ..options(slices, slice_bytes) };
    fs::format_mappings(mappings.collect(), &options).unwrap();
    images = mirror.kill();
    images
}

/// A server: its file system, and what a kill leaves of it.
pub struct Server {
    pub fs: FileSystem,
    pub mirror: Arc<Mirror>,
}

impl Server {
    /// One that is killed by its store number `left`, of which `torn` bytes are made.
    pub fn start(images: &Images, asked: &TakeOver, (left, torn): (u64, usize)) -> Server {
        let mirror = Mirror::new(images, left, torn);
        let candidates = candidates(images, Some(&mirror), false);
        // little: what is not held is let go of
        let options = OpenOptions { memory_bytes: Some(200_000), ..OpenOptions::default() };
        let fs = FileSystem::take_over_candidates(candidates, &options, asked, false).unwrap();
        Server { fs, mirror }
    }

    /// One that lives until it is killed by hand.
    pub fn immortal(images: &Images, asked: &TakeOver) -> Server {
        Server::start(images, asked, (u64::MAX, 0))
    }
}

/// Checks what a kill left; nothing may be wrong with it.
#[track_caller]
pub fn assert_clean(images: &Images) -> CheckReport {
    let report =
        fs::check_candidates(candidates(images, None, true), &OpenOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "check found: {:#?}", report.findings);
    report
}
