//! Requests about locks, and those that end them.

use super::{Transport, node};
use crate::locks::Ask;
use crate::wire::{Operation, Reply, Request};

impl Transport {
    pub(super) fn serve_locks(&self, request: &Request<'_>, reply: Reply<'_>) {
        match &request.operation {
            Operation::Getlk(lock) => {
                match self.locks.holder(&Ask::new(&request.head, lock, false)) {
                    Some(holder) => reply.lock(&holder),
                    None => reply.error(libc::EINVAL),
                }
            }
            Operation::Setlk { lock, wait } => {
                self.locks.set(&Ask::new(&request.head, lock, *wait), reply);
            }
            Operation::Flush { lock_owner, .. } if self.locks.are_kept() => {
                self.locks.flushed(node(request), *lock_owner);
                reply.done();
            }
            // Nothing is left to flush at a close, and the kernel keeps the locks. It remembers
            // this answer and asks no more.
            Operation::Flush { .. } => reply.error(libc::ENOSYS),
            Operation::Interrupt { unique } => match self.locks.interrupt(*unique) {
                true => reply.nothing(),
                false => reply.error(libc::EAGAIN),
            },
            _ => reply.error(libc::ENOSYS),
        }
    }
}
