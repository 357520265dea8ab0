//! Requests about attributes, extended ones, and space.

use nearside::files::{NAME_BYTES_MAX, Timestamp};

use super::{Changes, Transport, answer_done, caller, node};
use crate::convert::{statx, timestamp};
use crate::kernel_pages::Way;
use crate::service::{Change, Served};
use crate::wire::{Operation, Reply, Request, Setattr, SetattrTime, SpaceAnswer};

impl Transport {
    /// A kernel forgets so many look-ups of an inode.
    pub fn forget(&self, ino: nearside::files::Ino, lookups: u64) {
        self.service.forget(ino, lookups);
    }

    pub(super) fn serve_attributes(&self, request: &Request<'_>, reply: Reply<'_>) {
        let (service, ino) = (&self.service, node(request));
        match &request.operation {
            // Nobody waits for an answer to these two.
            Operation::Forget { lookups } => {
                service.forget(ino, *lookups);
                reply.nothing();
            }
            Operation::BatchForget(forgets) => {
                for (number, lookups) in *forgets {
                    service.forget(nearside::files::Ino(number), lookups);
                }
                reply.nothing();
            }
            Operation::Getattr { .. } => self.answer_attr(service.getattr(ino), reply),
            Operation::Statx { .. } => match service.getattr(ino) {
                Ok(attr) => reply.statx(&statx(&attr, self.trusted_for)),
                Err(errno) => reply.error(errno.0),
            },
            Operation::Setattr(set) => {
                let by = caller(request);
                let asked = || service.setattr(ino, change(set), set.handle, by);
                let how = (Changes::Said(set.kill_set_id), Way::Cut);
                self.answer_attr(self.changing(request, how, asked), reply);
            }
            Operation::Statfs => reply.space(&self.space()),
            Operation::Setxattr { name, value, flags, kill_set_gid } => {
                let served = service.setxattr(ino, (name, value), *flags, *kill_set_gid);
                answer_done(served, reply);
            }
            Operation::Getxattr { name, room } => {
                answer_sized(service.getxattr(ino, name), *room, reply);
            }
            Operation::Listxattr { room } => {
                answer_sized(service.listxattr(ino, caller(request)), *room, reply);
            }
            Operation::Removexattr { name } => answer_done(service.removexattr(ino, name), reply),
            Operation::Destroy => reply.done(),
            _ => reply.error(libc::ENOSYS),
        }
    }

    fn space(&self) -> SpaceAnswer {
        let space = self.service.statfs();
        SpaceAnswer {
            blocks: space.blocks,
            blocks_free: space.blocks_free,
            blocks_available: space.blocks_free,
            inodes: space.inodes + space.inodes_free,
            inodes_free: space.inodes_free,
            block_bytes: space.block_bytes,
            name_bytes: NAME_BYTES_MAX as u32,
            fragment_bytes: space.block_bytes,
            ..SpaceAnswer::default()
        }
    }
}

fn change(set: &Setattr) -> Change {
    let now = Timestamp::now();
    let touches = [set.accessed, set.modified] == [Some(SetattrTime::Now); 2];
    let given = |time: Option<SetattrTime>| time.filter(|_| !touches);
    Change {
        mode: set.mode,
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        accessed: given(set.accessed).map(|time| timestamp(time, now)),
        modified: given(set.modified).map(|time| timestamp(time, now)),
        touches,
    }
}

/// Answers a question for a value of unknown size: its size when no room was offered.
fn answer_sized(served: Served<Vec<u8>>, room: u32, reply: Reply<'_>) {
    match served {
        Ok(value) if room == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() <= room as usize => reply.bytes(&value),
        Ok(_) => reply.error(libc::ERANGE),
        Err(errno) => reply.error(errno.0),
    }
}
