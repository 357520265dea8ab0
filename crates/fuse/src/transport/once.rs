//! A change is made once, though two servers may be given the request for it.
//!
//! A request that was read and not answered when its server died is given to the next one. Its
//! change may be durable: then its record in the log has the request's id, and what is left to do
//! is the answer. The kernel takes one answer to a request and refuses a second.
//!
//! A request that asks for several changes makes those before the last ones that can be repeated.
//! Copies are not here: they read what they write, so doing them again is doing them.

use super::{Transport, caller, node};
use crate::wire::{Operation, Reply, Request};

/// Whether a request asks for a change that must not be made twice.
pub(crate) fn changes(request: &Request<'_>) -> bool {
    match &request.operation {
        Operation::Open { flags, .. } => flags & libc::O_TRUNC != 0,
        operation => matches!(
            operation,
            Operation::Write { .. }
                | Operation::Create { .. }
                | Operation::Tmpfile { .. }
                | Operation::Mknod { .. }
                | Operation::Mkdir { .. }
                | Operation::Symlink { .. }
                | Operation::Link { .. }
                | Operation::Unlink { .. }
                | Operation::Rmdir { .. }
                | Operation::Rename { .. }
                | Operation::Setattr(_)
                | Operation::Setxattr { .. }
                | Operation::Removexattr { .. }
                | Operation::Fallocate { .. }
        ),
    }
}

impl Transport {
    /// Serves such a request, or answers for the server that has.
    pub(super) fn serve_once(&self, request: &Request<'_>, reply: Reply<'_>) {
        let unique = request.head.unique;
        if request.again && self.service.was_done(unique) {
            self.answer_for_another(request, reply);
        } else {
            self.service.within(unique, || self.dispatch(request, reply));
        }
    }

    /// Answers a request whose change an earlier server has made.
    fn answer_for_another(&self, request: &Request<'_>, reply: Reply<'_>) {
        let (service, ino) = (&self.service, node(request));
        match &request.operation {
            Operation::Create { name, flags, .. } => {
                self.answer_created(request, service.reopen(ino, name, *flags), reply);
            }
            Operation::Tmpfile { .. } => {
                self.answer_created(request, service.reopen_unnamed(request.head.unique), reply);
            }
            Operation::Mknod { name, .. }
            | Operation::Mkdir { name, .. }
            | Operation::Symlink { name, .. }
            | Operation::Link { name, .. } => self.answer_named(request, name, reply),
            Operation::Open { flags, .. } => {
                let served = service.open(ino, flags & !libc::O_TRUNC);
                self.answer_opened(request, served, reply);
            }
            Operation::Setattr(_) => self.answer_attr(service.getattr(ino), reply),
            Operation::Write { handle, offset, data, past_pages, .. } => {
                if !past_pages {
                    service.write_came_back((*handle, ino), *offset, data);
                }
                reply.size(data.len() as u32);
            }
            _ => reply.done(),
        }
    }

    /// The entry that was made; somebody else may have taken it away again.
    fn answer_named(&self, request: &Request<'_>, name: &[u8], reply: Reply<'_>) {
        match self.service.lookup(node(request), name, caller(request)) {
            Ok(Some(attr)) => reply.entry(&self.entry(&attr)),
            Ok(None) => reply.error(libc::ENOENT),
            Err(errno) => reply.error(errno.0),
        }
    }
}
