//! Requests about the entries of directories.

use super::{Transport, answer_done, node};
use crate::convert::node_attr;
use crate::service::{Errno, Listed, May, Served};
use crate::wire::{Listing, Operation, Reply, Request};

/// Entries that one question to the engine brings.
const ENTRIES_MAX: usize = 64;

impl Transport {
    pub(super) fn serve_directories(&self, request: &Request<'_>, reply: Reply<'_>) {
        let (service, ino) = (&self.service, node(request));
        let (listing, served) = match &request.operation {
            Operation::Opendir { flags } => {
                return self.answer_opened(request, service.opendir(ino, *flags), reply);
            }
            Operation::Releasedir { handle } => {
                return answer_done(service.release((*handle, ino)), reply);
            }
            Operation::Fsyncdir { handle, .. } => {
                return answer_done(service.fsync((*handle, ino)), reply);
            }
            Operation::Readdir { offset, room, .. } => {
                let mut listing = Listing::new(*room);
                let served = self.list(request, *offset, |entry| {
                    listing.add(entry.ino.0, entry.kind.type_bits(), entry.offset, &entry.name)
                });
                (listing, served)
            }
            Operation::Readdirplus { offset, room, .. } => {
                let mut listing = Listing::new(*room);
                // who may not look names up learns no more than these
                let looks = service.permit_search(ino).is_ok();
                let served =
                    self.list(request, *offset, |entry| self.plus(&mut listing, entry, looks));
                (listing, served)
            }
            _ => return reply.error(libc::ENOSYS),
        };
        match served {
            Ok(()) => reply.bytes(listing.bytes()),
            Err(errno) => reply.error(errno.0),
        }
    }

    /// Shows entries after `offset` to `add`, until one does not fit.
    fn list(
        &self,
        request: &Request<'_>,
        mut offset: u64,
        mut add: impl FnMut(&Listed) -> bool,
    ) -> Served<()> {
        let (Operation::Readdir { handle, flags, .. }
        | Operation::Readdirplus { handle, flags, .. }) = request.operation
        else {
            return Err(Errno(libc::ENOSYS));
        };
        let ino = node(request);
        self.service.permit_use((handle, ino), May::READ)?;
        loop {
            let list = || self.service.list(ino, offset, ENTRIES_MAX);
            let list = self.service.reading(ino, flags, list)?;
            for entry in &list {
                if !add(entry) {
                    return Ok(());
                }
                offset = entry.offset;
            }
            if list.len() < ENTRIES_MAX {
                return Ok(());
            }
        }
    }

    fn plus(&self, listing: &mut Listing, entry: &Listed, looks: bool) -> bool {
        let attr = if entry.is_dots() || !looks {
            // The kernel knows where these lead, and takes no attributes from here.
            Err((entry.ino.0, entry.kind.type_bits()))
        } else {
            match self.service.getattr(entry.ino) {
                Ok(attr) => Ok((node_attr(&attr), self.trusted_for)),
                // Removed since it was listed.
                Err(Errno(libc::ENOENT | libc::ESTALE)) => return true,
                // Who asks for it by its name is told what is wrong with it.
                Err(_) => Err((entry.ino.0, entry.kind.type_bits())),
            }
        };
        listing.add_plus(attr, entry.offset, &entry.name)
    }
}
