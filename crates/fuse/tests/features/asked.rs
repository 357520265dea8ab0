//! A pool's server that notes what the kernel asks it, and how much of it at once.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use nearside_fuse::wire::{Operation, Reply, Request};
use nearside_fuse::{Connected, Result, Server, Wishes};

/// Longest time that one request waits for another to be under way, too.
const MEETING_MAX: Duration = Duration::from_secs(120);
/// Times that a watched request lets others run before it is served, so that those which may
/// overlap do.
const YIELDS: usize = 20;

/// What was asked, as far as the tests look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Lookup,
    Readdir,
    Readdirplus,
    Readlink,
    Open { truncates: bool },
    Create { mode: u32, umask: u32 },
    Resize,
    Chmod,
    Read { bytes: usize },
    Write { bytes: usize, kill_set_id: bool },
}

impl Asked {
    fn of(operation: &Operation<'_>) -> Option<Asked> {
        Some(match operation {
            Operation::Lookup { .. } => Asked::Lookup,
            Operation::Readdir { .. } => Asked::Readdir,
            Operation::Readdirplus { .. } => Asked::Readdirplus,
            Operation::Readlink => Asked::Readlink,
            Operation::Open { flags, .. } => Asked::Open { truncates: flags & libc::O_TRUNC != 0 },
            Operation::Create { mode, umask, .. } => {
                Asked::Create { mode: mode & 0o7777, umask: *umask }
            }
            Operation::Setattr(set) if set.size.is_some() => Asked::Resize,
            Operation::Setattr(set) if set.mode.is_some() => Asked::Chmod,
            Operation::Read { size, .. } => Asked::Read { bytes: *size as usize },
            Operation::Write { data, kill_set_id, .. } => {
                Asked::Write { bytes: data.len(), kill_set_id: *kill_set_id }
            }
            _ => return None,
        })
    }

    /// Whether it is a look-up or a read, which may overlap.
    fn overlaps(&self) -> bool {
        matches!(self, Asked::Lookup | Asked::Read { .. })
    }
}

/// What was asked so far.
#[derive(Debug, Default)]
pub struct Seen {
    pub all: Vec<Asked>,
    under_way: usize,
    /// Most look-ups and reads that were under way at once.
    pub under_way_max: usize,
    /// Whether these let others run before they are served.
    dawdles: bool,
    /// Whether the first of these waits for a second.
    meets: bool,
}

impl Seen {
    pub fn count(&self, which: impl Fn(&Asked) -> bool) -> usize {
        self.all.iter().filter(|asked| which(asked)).count()
    }

    pub fn has(&self, asked: &Asked) -> bool {
        self.all.contains(asked)
    }
}

/// Shared by the server and its test.
#[derive(Clone, Default)]
pub struct Notes(Arc<(Mutex<Seen>, Condvar)>);

impl Notes {
    /// What was asked since the last time.
    pub fn take(&self) -> Seen {
        std::mem::take(&mut self.0.0.lock().unwrap())
    }

    /// From now on look-ups and reads give others time to come before they are served.
    pub fn watch(&self) {
        self.0.0.lock().unwrap().dawdles = true;
    }

    /// From now on look-ups and reads wait until two of them are under way.
    pub fn meet(&self) {
        self.0.0.lock().unwrap().meets = true;
    }

    fn begin(&self, asked: Asked) {
        let (seen, more) = &*self.0;
        let mut seen = seen.lock().unwrap();
        let overlaps = asked.overlaps();
        seen.all.push(asked);
        if !overlaps {
            return;
        }
        seen.under_way += 1;
        seen.under_way_max = seen.under_way_max.max(seen.under_way);
        more.notify_all();
        let alone = |seen: &mut Seen| seen.meets && seen.under_way_max < 2;
        let yields = if seen.dawdles { YIELDS } else { 0 };
        drop(more.wait_timeout_while(seen, MEETING_MAX, alone).unwrap());
        (0..yields).for_each(|_| std::thread::yield_now());
    }

    fn end(&self, overlaps: bool) {
        let mut seen = self.0.0.lock().unwrap();
        if overlaps {
            seen.under_way = seen.under_way.saturating_sub(1);
        }
    }
}

/// The server `of` a pool, and its notes.
pub struct Noting<S> {
    pub of: S,
    pub notes: Notes,
}

impl<S: Server> Server for Noting<S> {
    fn wishes(&self) -> Wishes {
        self.of.wishes()
    }

    fn connected(&self, connected: Connected) -> Result<()> {
        self.of.connected(connected)
    }

    fn serve(&self, request: &Request<'_>, reply: Reply<'_>) {
        let asked = Asked::of(&request.operation);
        let overlaps = asked.as_ref().is_some_and(Asked::overlaps);
        if let Some(asked) = asked {
            self.notes.begin(asked);
        }
        // Before the answer: after it the caller's next request may come.
        self.notes.end(overlaps);
        self.of.serve(request, reply);
    }

    fn answered(&self, unique: u64) {
        self.of.answered(unique);
    }

    fn leaves(&self) {
        self.of.leaves();
    }
}
