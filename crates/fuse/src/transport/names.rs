//! Requests about names.

use nearside::files::{Attr, Ino, NewNode, changing_for};

use super::{Transport, answer_done, caller, node};
use crate::kernel_pages::Way;
use crate::service::{Changes, Mode, Served};
use crate::wire::{Operation, Reply, Request};

impl Transport {
    pub(super) fn serve_names(&self, request: &Request<'_>, reply: Reply<'_>) {
        let (service, parent) = (&self.service, node(request));
        match &request.operation {
            Operation::Lookup { name } => self.lookup(request, name, reply),
            Operation::Create { .. } => self.create(request, reply),
            Operation::Tmpfile { mode, umask, .. } => {
                let served = service.create_unnamed(
                    parent,
                    Mode { asked: *mode, umask: *umask },
                    caller(request),
                );
                self.answer_created(request, served, reply);
            }
            Operation::Unlink { name } => answer_done(service.unlink(parent, name), reply),
            Operation::Rmdir { name } => answer_done(service.rmdir(parent, name), reply),
            Operation::Rename { name, new_parent, new_name, flags } => {
                let to = (Ino(*new_parent), *new_name);
                let by = caller(request);
                answer_done(service.rename((parent, name), to, *flags, by), reply);
            }
            Operation::Link { of, name } => {
                self.answer_entry(service.link(Ino(*of), parent, name), reply);
            }
            Operation::Readlink => match service.readlink(parent) {
                Ok(target) => reply.bytes(&target),
                Err(errno) => reply.error(errno.0),
            },
            _ => self.answer_entry(self.make(request), reply),
        }
    }

    fn lookup(&self, request: &Request<'_>, name: &[u8], reply: Reply<'_>) {
        match self.service.lookup(node(request), name, caller(request)) {
            Ok(Some(attr)) => reply.entry(&self.entry(&attr)),
            // The kernel remembers that there is no such name.
            Ok(None) if self.sole_door => reply.no_entry(self.trusted_for),
            Ok(None) => reply.error(libc::ENOENT),
            Err(errno) => reply.error(errno.0),
        }
    }

    fn make(&self, request: &Request<'_>) -> Served<Attr> {
        let (service, parent, by) = (&self.service, node(request), caller(request));
        match &request.operation {
            Operation::Mknod { name, mode, rdev, umask } => {
                service.mknod(parent, name, Mode { asked: *mode, umask: *umask }, *rdev, by)
            }
            Operation::Mkdir { name, mode, umask } => service.make(
                parent,
                name,
                NewNode::Directory,
                Mode { asked: *mode, umask: *umask },
                by,
            ),
            Operation::Symlink { name, target } => service.make(
                parent,
                name,
                NewNode::Symlink(target),
                Mode { asked: 0o777, umask: 0 },
                by,
            ),
            _ => Err(crate::service::Errno(libc::ENOSYS)),
        }
    }

    fn create(&self, request: &Request<'_>, reply: Reply<'_>) {
        let Operation::Create { name, mode, umask, flags, kill_set_id } = &request.operation else {
            return reply.error(libc::ENOSYS);
        };
        let (parent, by) = (node(request), caller(request));
        let mode = Mode { asked: *mode, umask: *umask };
        let changer = self.service.changer(by, Changes::Said(*kill_set_id));
        // one that is there may be emptied
        let create = || {
            let create = || self.service.create(parent, name, mode, *flags, by);
            self.service.pages().changing(Way::Cut, create)
        };
        // the reply says what the mode is now
        let (served, _) = changing_for(changer, create);
        self.answer_created(request, served, reply);
    }

    pub(super) fn answer_created(
        &self,
        request: &Request<'_>,
        served: Served<(Attr, u64)>,
        reply: Reply<'_>,
    ) {
        match served {
            Ok((attr, handle)) => {
                let is_taken = reply.created(&self.entry(&attr), handle, self.keep(request));
                self.close_unless(is_taken, (handle, attr.ino));
            }
            Err(errno) => reply.error(errno.0),
        }
    }
}
