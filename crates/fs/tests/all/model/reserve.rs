//! Reserving, punching and zeroing, against the reference.

use crate::model::compare;
use crate::model::harness::{Harness, Verdict, same};
use crate::model::ops::{Pick, Place};
use fs::Fallocate;

impl Harness {
    pub fn step_fallocate(
        &mut self,
        handle: Pick,
        mode: Fallocate,
        place: Place,
        len: u64,
    ) -> Verdict {
        let Some((ino, handle)) = self.handle(handle) else { return Ok(()) };
        let offset = self.offset(ino, place);
        let blocks = len / 4096 + 2;
        // Refused where there cannot be room, and only there.
        let free = self.fs().statfs().blocks_free;
        let has_room = blocks <= free;
        let takes = !matches!(mode, Fallocate::PunchHole);
        // Where there may be room all the same, as the file has blocks there, the pool may be full
        // afterwards, and nothing more be made in it.
        let is_large = self.model.blocks() + blocks > self.blocks_max;
        if takes && is_large && blocks <= free + self.model.blocks() + 2 {
            return Ok(());
        }
        let done = self.fs().fallocate(&handle, mode, offset, len);
        if done.as_ref().is_err_and(|error| error.errno() == libc::ENOSPC) && !has_room {
            let unchanged = compare::node(self.fs(), ino, &self.model.nodes[&ino]);
            if unchanged.is_ok() || !matches!(mode, Fallocate::Zero { .. }) {
                return unchanged;
            }
            // what becomes zero is given back before it is reserved: a checkpoint in the background
            // may have the room by then
            let zeroed = self.model.fallocate(ino, Fallocate::PunchHole, offset, len);
            same("what is left of it", Ok(()), zeroed)?;
            return compare::node(self.fs(), ino, &self.model.nodes[&ino]);
        }
        same("fallocate", done, self.model.fallocate(ino, mode, offset, len))?;
        compare::node(self.fs(), ino, &self.model.nodes[&ino])
    }
}
