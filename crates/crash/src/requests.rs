//! Requests that are not answered yet: after each crash the file system says of them what its state
//! says.

use crate::images::Outcome;
use crate::points::Under;
use crate::recording::Recording;
use crate::snapshot::Snapshot;
use crate::world::World;
use fs::{FileSystem, RequestId, TakeOver};

/// Who sends them all.
pub const CLIENT: u128 = 0x51;

/// The request that operation `number` of a recording is made for.
pub fn id(number: usize) -> RequestId {
    RequestId { client: CLIENT, sequence: number as u64 }
}

/// Runs operation `number` as a request.
pub fn within<T>(world: &mut World, number: usize, run: impl FnOnce(&mut World) -> T) -> T {
    let fs = world.fs.clone();
    fs.with_request(id(number), || run(world))
}

/// What is known of the requests when a crash comes.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Of those that have returned, whether they changed anything.
    returned: Vec<bool>,
    /// The same of the one under way.
    under_way: Option<bool>,
}

impl Asked {
    /// Of a recording, this far; of one whose operations are no requests there is nothing.
    pub fn at(recording: &Recording, under: Under) -> Asked {
        let mut rest = recording.requests.iter().copied();
        let returned = rest.by_ref().take(under.done).collect();
        Asked { returned, under_way: rest.next().filter(|_| under.under_way) }
    }

    /// What an open is asked for.
    pub fn take_over(&self) -> TakeOver {
        let count = self.returned.len() + usize::from(self.under_way.is_some());
        TakeOver { requests: (0..count).map(id).collect(), ..TakeOver::default() }
    }

    /// What the file system says of each.
    pub fn done(&self, fs: &FileSystem) -> Vec<bool> {
        self.take_over().requests.iter().map(|id| fs.was_done(*id)).collect()
    }

    /// An error if that does not go with `state`, one of the legal ones: before what is under way,
    /// and after it.
    pub fn agree(&self, done: &[bool], state: &Snapshot, legal: &[&Snapshot]) -> Outcome<()> {
        let mut expected = self.returned.clone();
        if let (Some(changes), Some(found)) = (self.under_way, done.last()) {
            // a change that nobody can see, of a time, is there or not
            let seen = if legal.first() == legal.last() { *found } else { legal[0] != state };
            expected.push(changes && seen);
        }
        if done == expected {
            return Ok(());
        }
        Err(format!("requests done are said to be {done:?}, but {expected:?} were"))
    }
}
