//! What is asked of an image that a crash left.
//!
//! Without any one of its devices it is refused, and stays as it is. With all of them: `check`
//! finds nothing; it opens; what it shows is a legal state; opened again after recovery it
//! shows the same; it can be used; and when everything in it is deleted all space is free again.

use crate::arena::Arena;
use crate::events::{Event, Trace};
use crate::images::{Outcome, failed};
use crate::requests::{Asked, CLIENT};
use crate::snapshot::Snapshot;
use crate::world::{BY, pattern};
use fs::{FileKind, FileSystem, Ino, NewNode, SetAttr};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// What recovery of an image did.
#[derive(Debug)]
pub struct Recovered {
    /// Its stores, where they were asked for.
    pub events: Vec<Event>,
    /// What it shows.
    pub state: Snapshot,
    /// What it says of the requests that it was asked for.
    pub done: Vec<bool>,
}

impl Recovered {
    /// Whether what a second recovery must show is the same.
    pub fn same(&self, other: &Recovered) -> bool {
        (&self.state, &self.done) == (&other.state, &other.done)
    }
}

/// How much is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Depth {
    /// Recover what recovery left.
    pub again: bool,
    /// Use it, and delete everything.
    pub used: bool,
    /// Note the stores of recovery.
    pub inside: bool,
}

/// Verifies the image in `arena`.
pub fn verify(
    arena: &Arena,
    legal: &[&Snapshot],
    asked: &Asked,
    blocks_free: u64,
    depth: Depth,
) -> Outcome<Recovered> {
    guarded(|| {
        if depth.again {
            refused(arena)?;
        }
        arena.check()?;
        let trace = depth.inside.then(Arc::<Trace>::default);
        let mut fs = arena.take_over(trace.as_ref(), &asked.take_over())?;
        let state = Snapshot::of(&fs).map_err(|e| failed("after recovery")(&e))?;
        compare(&state, legal)?;
        count(&fs, &state)?;
        let done = asked.done(&fs);
        asked.agree(&done, &state, legal)?;
        let events = trace.map_or_else(Vec::new, |trace| trace.take());
        let recovered = Recovered { events, state, done };
        if depth.again {
            drop(fs);
            refused(arena)?;
            for file in arena.spare_files()? {
                compare(&Snapshot::of(&arena.look_without(file)?)?, &[&recovered.state])
                    .map_err(|e| failed(&format!("recovered, then without file {file}"))(&e))?;
            }
            fs = again(arena, &recovered, asked).map_err(|e| failed("recovered twice")(&e))?;
        }
        if depth.used {
            fs.forget_client(CLIENT);
            use_it(&fs).map_err(|e| failed("using it")(&e))?;
            all_free(&fs, blocks_free).map_err(|e| failed("after deleting everything")(&e))?;
            drop(fs);
            let empty = || {
                arena.check()?;
                all_free(&arena.open(None)?, blocks_free)
            };
            empty().map_err(|e| failed("opened again after deleting everything")(&e))?;
        }
        Ok(recovered)
    })
}

/// The same of an image that a crash inside recovery left.
pub fn verify_again(arena: &Arena, recovered: &Recovered, asked: &Asked) -> Outcome<()> {
    guarded(|| again(arena, recovered, asked).map(drop))
}

/// A crash may take any one of the devices with it.
fn refused(arena: &Arena) -> Outcome<()> {
    (0..arena.devices()).try_for_each(|device| arena.refused_without(device))
}

fn again(arena: &Arena, recovered: &Recovered, asked: &Asked) -> Outcome<FileSystem> {
    arena.check()?;
    let fs = arena.take_over(None, &asked.take_over())?;
    compare(&Snapshot::of(&fs)?, &[&recovered.state])?;
    count(&fs, &recovered.state)?;
    match asked.done(&fs) {
        done if done == recovered.done => Ok(fs),
        done => Err(format!("requests done were {:?}, and now {done:?}", recovered.done)),
    }
}

/// Nothing is kept that has no name: recovery dropped the orphans.
fn count(fs: &FileSystem, state: &Snapshot) -> Outcome<()> {
    match (fs.statfs().inodes, state.inodes()) {
        (inodes, named) if inodes == named => Ok(()),
        (inodes, named) => Err(format!("{inodes} inodes exist, {named} have names")),
    }
}

/// An error that tells the differences unless the state is one of the legal ones.
pub fn compare(state: &Snapshot, legal: &[&Snapshot]) -> Outcome<()> {
    if legal.contains(&state) {
        return Ok(());
    }
    let differences: Vec<String> = legal.iter().map(|legal| state.difference(legal)).collect();
    Err(format!("an illegal state; against the legal ones: [{}]", differences.join("] or [")))
}

/// Creates, writes, reads back, and deletes everything. On a full pool, after deleting.
pub fn use_it(fs: &FileSystem) -> Outcome<()> {
    let enospc = fs::Error::NoSpace.to_string();
    match write_and_read(fs) {
        Err(what) if what.ends_with(&enospc) => {
            delete_all(fs, Ino::ROOT).map_err(|e| failed("on a full pool")(&e))?;
            fs.checkpoint().map_err(|e| failed("checkpoint of a full pool")(&e))?;
            write_and_read(fs)?;
        }
        done => done?,
    }
    delete_all(fs, Ino::ROOT)
}

fn write_and_read(fs: &FileSystem) -> Outcome<()> {
    let of = failed("create, write and read");
    let data = pattern(77, 3 * 4096 + 100);
    let mut read = vec![0; data.len()];
    for name in [&b"used-1"[..], b"used-2"] {
        let attr = fs.create(Ino::ROOT, name, NewNode::File, BY).map_err(|e| of(&e))?;
        let handle = fs.open(attr.ino).map_err(|e| of(&e))?;
        fs.write(&handle, 0, &data).map_err(|e| of(&e))?;
        fs.write(&handle, 4096, &data[4096..8192]).map_err(|e| of(&e))?;
        fs.write(&handle, 50, &data[50..60]).map_err(|e| of(&e))?;
        fs.read(&handle, 0, &mut read).map_err(|e| of(&e))?;
        if read != data {
            return Err("what was written is not what is read".to_owned());
        }
    }
    Ok(())
}

/// Deletes everything below `dir`.
pub fn delete_all(fs: &FileSystem, dir: Ino) -> Outcome<()> {
    let mut entries = Vec::new();
    let listed = fs.readdir(dir, 0, &mut |entry| {
        entries.push(entry.clone());
        true
    });
    listed.map_err(|e| failed("readdir")(&e))?;
    for entry in entries {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let result = if entry.kind == FileKind::Directory {
            delete_all(fs, entry.ino)?;
            fs.rmdir(dir, &entry.name)
        } else {
            fs.unlink(dir, &entry.name)
        };
        result.map_err(|e| failed(&format!("removing {name}"))(&e))?;
    }
    Ok(())
}

/// Nothing is there any more, and all space is free.
pub fn all_free(fs: &FileSystem, blocks_free: u64) -> Outcome<()> {
    let checkpoint = || fs.checkpoint().map_err(|e| failed("checkpoint")(&e));
    checkpoint()?;
    // a tree's topmost page that is left with one child goes at the next change
    fs.setattr(Ino::ROOT, &SetAttr::default()).map_err(|e| failed("setattr")(&e))?;
    checkpoint()?;
    let names = Snapshot::of(fs)?.names();
    let begun = Instant::now();
    loop {
        let space = fs.statfs();
        match (names, space.inodes, space.blocks_free) {
            (0, 1, free) if free == blocks_free => return Ok(()),
            (0, 1, _) if begun.elapsed() < GIVEN => std::thread::sleep(Duration::from_millis(1)),
            (names, inodes, free) => {
                return Err(format!(
                    "{names} names and {inodes} inodes are left, \
                     {free} blocks are free of {blocks_free} in an empty pool"
                ));
            }
        }
    }
}

/// Blocks that readers may have held are given back by whichever thread of the program comes to it,
/// one that explores another pool, too; while it does, they are counted nowhere. On a busy machine
/// that thread waits for a CPU. What is lost is not there later, either.
const GIVEN: Duration = Duration::from_secs(5);

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static WHERE: Cell<String> = const { Cell::new(String::new()) };
}

/// Runs `act`; a panic of the engine is a failure like others.
pub fn guarded<T>(act: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                WHERE.set(info.location().map(ToString::to_string).unwrap_or_default());
            } else {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(act));
    QUIET.set(false);
    result.unwrap_or_else(|panic| Err(format!("panic at {}: {}", WHERE.take(), message(&*panic))))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
