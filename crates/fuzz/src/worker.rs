//! The process that runs cases, one after the other, and says on its standard output what it does:
//! whatever a case does to the process, its parent knows which one it was.
//!
//! ```text
//! begin NUMBER STORY
//! end NUMBER STAGE
//! fail NUMBER MESSAGE      and the process ends
//! ```

use crate::case::Corpus;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Address space of a worker, bytes: what asks for more has no bounds.
const MEMORY_BYTES_MAX: u64 = 2 << 30;

static CURRENT: AtomicU64 = AtomicU64::new(0);

/// Runs the cases `first`, `first + step` and so on until it is killed, with scratch space in
/// `dir`.
pub fn work(dir: &Path, first: u64, step: u64) {
    prepare();
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        let line = format!("{place}: {text}").replace('\n', " ");
        say(&format!("fail {} {line}", CURRENT.load(Ordering::SeqCst)));
        // also from a thread that is not ours to join
        std::process::exit(101);
    }));
    let corpus = Corpus::make(dir);
    let image = dir.join("image");
    for number in (0..).map(|n| first + n * step) {
        CURRENT.store(number, Ordering::SeqCst);
        let case = corpus.case(number);
        say(&format!("begin {number} {}", case.story));
        let stage = case.run(&image);
        say(&format!("end {number} {stage:?}"));
    }
}

/// One CPU, so that the lanes are the same on every run, and bounded memory.
pub fn prepare() {
    if let Ok(cpus) = topology::allowed_cpus() {
        let _ = topology::pin_current_thread(&cpus[..cpus.len().min(1)]);
    }
    let limit = rustix::process::Rlimit {
        current: Some(MEMORY_BYTES_MAX),
        maximum: Some(MEMORY_BYTES_MAX),
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::As, limit);
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    if written.is_err() {
        // the parent is gone
        std::process::exit(0);
    }
}
