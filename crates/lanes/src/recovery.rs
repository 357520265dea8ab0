//! What connections of a service that has ended left in their lanes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fs::{Caller, FileSystem};
use pmem::{Domain, MapOptions};

use crate::files::{Files, connections, directory, noted_at, remove, remove_unmade};
use crate::reign::Reign;
use crate::state::State;
use crate::unfolded;
use crate::{Connection, Happened, Ledger, Result, Target};

/// What is noted of a connection that has ended is kept for so long, for a process that asks what
/// became of a write.
const KEPT: Duration = Duration::from_secs(3600);

/// What recovery found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Connections whose lanes were folded.
    pub lanes: usize,
    /// Leases that were ended.
    pub leases: usize,
}

/// Ends the leases of all connections to the pool in `pool_dir`, whose service has ended, and folds
/// their lanes: before anybody else reads or changes anything in the pool.
///
/// # Errors
/// Something that a process had committed is not in the pool: what the medium says, or what is
/// noted of its leases is damaged.
pub fn recover(pool_dir: &Path, fs: &FileSystem, read_only: bool) -> Result<Recovered> {
    let (info, directory) = (fs.info(), directory(pool_dir));
    let mut recovered = Recovered::default();
    unfolded::remind(&directory);
    if !read_only {
        // what its processes have from it is not looked at any more
        Reign::end_last(&directory)?;
        remove_unmade(&directory).map_err(crate::Error::io("removing what was not made"))?;
    }
    let found = connections(&directory).map_err(crate::Error::io("readdir"))?;
    for connection in found {
        let process = info.domain == Domain::Process.name();
        let options = MapOptions { process, read_only, ..MapOptions::default() };
        let (state, files) = Files::find(&directory, &info.uuid, connection, &options)?;
        let Some(files) = files else {
            // what is noted of one that is folded
            forget_old(&directory, connection);
            continue;
        };
        if read_only {
            return Err(crate::Error::Unfolded);
        }
        recovered.leases += end_leases(fs, (state, files), &info.uuid, connection)?;
        recovered.lanes += 1;
    }
    Ok(recovered)
}

/// Folds what a connection left in its lane, and ends its leases; how many there were.
pub(crate) fn end_leases(
    fs: &FileSystem,
    (state, files): (State, Files),
    pool: &str,
    connection: Connection,
) -> Result<usize> {
    let slots = state.slots.clone();
    let mut ledger = Ledger::of(fs, files, pool, connection, state);
    let leased = || (0..).zip(&slots).filter(|(_, slot)| slot.is_leased);
    for (number, slot) in leased() {
        // a file that is gone has no bytes to be written
        if let Ok(handle) = fs.open(slot.blocks.ino) {
            let caller = slot.drops_set_id.then(nobody);
            ledger.is_of(number, Target { handle, caller });
        }
    }
    ledger.end_all(fs)?;
    ledger.end();
    Ok(leased().count())
}

/// One whose writes take all set-id bits away.
fn nobody() -> Arc<Caller> {
    Arc::new(Caller::new(u32::MAX, u32::MAX, Vec::new()))
}

/// Removes what is noted of a connection that ended long ago.
fn forget_old(directory: &Path, connection: Connection) {
    let is_old = |time: SystemTime| time.elapsed().is_ok_and(|age| age > KEPT);
    if noted_at(directory, connection).is_ok_and(is_old) {
        remove(directory, connection);
    }
}

/// Whether a request of a connection to the pool in `pool_dir` that has ended happened.
pub fn happened(
    pool_dir: &Path,
    pool: &str,
    connection: Connection,
    (slot, generation, number): (u8, u64, u64),
) -> Happened {
    match Files::noted(&directory(pool_dir), pool, connection) {
        Ok(state) => state.happened(slot, generation, number),
        Err(_) => Happened::Forgotten,
    }
}
