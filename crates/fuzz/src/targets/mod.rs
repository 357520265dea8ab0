//! What a coverage-guided fuzzer drives, and what its kept corpus is replayed through.
//!
//! A target takes bytes as the content of one structure of the format, whatever they are, gives it
//! the magic, the identities and the checksums without which nothing would get past the first
//! comparison, and has it read by the doors that everybody uses: open, check, calls. Nothing may
//! panic, and what the doors say must agree: with each other, and with a model where there is one.
//! Four take bytes as what a process says or stores that is attached to a service.
//! `scripts/libfuzzer` runs them, and says how its corpus is kept; `tests/kept.rs` replays that.

mod acl;
mod arena;
mod call;
mod directory;
mod edits;
mod frame;
mod input;
mod lane;
mod log;
mod pages;
mod session;
mod superblock;
mod tree_page;

pub use arena::Arena;

use crate::exercise::{Stage, Terms, exercise, look, mend};
use arena::Left;
use pmem::Domain;
use std::cell::RefCell;
use std::path::Path;
use std::thread::LocalKey;

/// Something to be fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, that of its program's and its corpus's.
    pub name: &'static str,
    /// Reads what these bytes say, and says whether it was sound; panics if the engine is wrong.
    pub run: fn(&[u8]) -> bool,
    /// Bytes that say what real pools hold.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 9] = [
    Target { name: "superblock", run: superblock::run, seeds: superblock::seeds },
    Target { name: "log", run: log::run, seeds: log::seeds },
    Target { name: "tree_page", run: tree_page::run, seeds: tree_page::seeds },
    Target { name: "directory", run: directory::run, seeds: directory::seeds },
    Target { name: "acl", run: acl::run, seeds: acl::seeds },
    Target { name: "lane", run: lane::run, seeds: lane::seeds },
    Target { name: "call", run: call::run, seeds: call::seeds },
    Target { name: "frame", run: frame::run, seeds: frame::seeds },
    Target { name: "session", run: session::run, seeds: session::seeds },
];

/// Runs the target of this name.
///
/// # Panics
/// If the engine is wrong, or there is no such target.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let run = target.map_or_else(|| panic!("no target {name}"), |target| target.run);
    let _ = run(bytes);
}

/// Puts the seeds of all targets into `dir`, a directory each.
pub fn write_seeds(dir: &Path) -> std::io::Result<()> {
    for target in TARGETS {
        let dir = dir.join(target.name);
        std::fs::create_dir_all(&dir)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}

thread_local! {
    static ARENA: RefCell<Arena> = RefCell::new(Arena::new());
    static SYNC_ARENA: RefCell<Arena> = RefCell::new(Arena::of(Domain::Sync));
}

/// Runs `run` on memory that holds the base, and clears up behind it.
fn with_arena<T>(run: impl FnOnce(&mut Arena) -> T) -> T {
    run_in(&ARENA, run)
}

fn run_in<T>(arena: &'static LocalKey<RefCell<Arena>>, run: impl FnOnce(&mut Arena) -> T) -> T {
    arena.with_borrow_mut(|arena| {
        let done = run(arena);
        arena.restore();
        done
    })
}

/// Says how the pool was left, and uses what the arena holds: looks at all of it or, for some of
/// the numbers, since that takes longer, changes it and opens it again, too. Whether it was sound.
fn use_pool(arena: &mut Arena, how: u8) -> bool {
    arena.leave(Left::of(how));
    use_as_left(arena, how)
}

fn use_as_left(arena: &mut Arena, how: u8) -> bool {
    if how & CHANGE == 0 {
        return look(arena).0;
    }
    if how & MEND != 0 {
        mend(arena);
        arena.was_written();
        return false;
    }
    let terms = Terms { legal: None, sound: false, kill: how & KILL != 0, moves: false };
    let stage = exercise(arena, terms);
    arena.was_written();
    stage == Stage::Whole
}

/// In the number that says how a pool is used: it is changed, too.
const CHANGE: u8 = 4;
/// And then killed, not closed.
const KILL: u8 = 8;
/// Or it is repaired.
const MEND: u8 = 16;
