//! Requests about open files and their bytes.

use nearside::files::{Ino, trace_as};

use super::{Changes, Transport, answer_done, answer_size, node};
use crate::kernel_pages::Way;
use crate::service::Served;
use crate::wire::{Operation, Reply, Request};

impl Transport {
    pub(super) fn serve_data(&self, request: &Request<'_>, reply: Reply<'_>) {
        let (service, ino) = (&self.service, node(request));
        match &request.operation {
            Operation::Open { flags, kill_set_id } => {
                let open = || service.open(ino, *flags);
                let how = (Changes::Said(*kill_set_id), Way::Cut);
                let served = self.changing(request, how, open);
                self.answer_opened(request, served, reply);
            }
            Operation::Read { handle, offset, size, flags, for_pages } => {
                trace_as(u64::from(request.head.pid));
                let read = || self.read((*handle, ino), (*offset, *size), *for_pages, reply);
                service.reading(ino, *flags, read);
            }
            Operation::Write { .. } => answer_size(self.write(request), reply),
            Operation::Release { handle, lock_owner, unlock_flock, .. } => {
                self.locks.closed(*handle, (ino, unlock_flock.then_some(*lock_owner)));
                answer_done(service.release((*handle, ino)), reply);
            }
            Operation::Fsync { handle, .. } => answer_done(service.fsync((*handle, ino)), reply),
            Operation::Fallocate { handle, offset, len, mode } => {
                let change = || service.fallocate((*handle, ino), *mode, *offset, *len);
                answer_done(self.changing(request, (Changes::Unsaid, Way::Past), change), reply);
            }
            Operation::Lseek { handle, offset, whence } => {
                match service.seek((*handle, ino), *offset, *whence) {
                    Ok(found) => reply.offset(found as u64),
                    Err(errno) => reply.error(errno.0),
                }
            }
            Operation::CopyFileRange { wide, .. } => match (self.copy(request), wide) {
                (Ok(bytes), false) => reply.size(bytes),
                (Ok(bytes), true) => reply.offset(bytes.into()),
                (Err(errno), _) => reply.error(errno.0),
            },
            Operation::Syncfs => answer_done(service.sync(), reply),
            _ => reply.error(libc::ENOSYS),
        }
    }

    fn read(
        &self,
        file: (u64, Ino),
        (offset, size): (u64, u32),
        for_pages: bool,
        reply: Reply<'_>,
    ) {
        let mut reply = Some(reply);
        // The reply goes out of the thread's buffer, so it is sent before the buffer is given back.
        let served = self.service.read(file, (offset, size as usize), for_pages, |bytes| {
            if let Some(reply) = reply.take() {
                reply.bytes(bytes);
            }
        });
        if let (Err(errno), Some(reply)) = (served, reply) {
            reply.error(errno.0);
        }
    }

    fn write(&self, request: &Request<'_>) -> Served<u32> {
        let Operation::Write { handle, offset, data, flags, from_cache, past_pages, kill_set_id } =
            &request.operation
        else {
            return Ok(0);
        };
        trace_as(u64::from(request.head.pid));
        let (service, file) = (&self.service, (*handle, node(request)));
        if *from_cache {
            // pages of a mapping go where they lie, also when the file was opened for appending
            let write = || service.write_back(file, *offset, data);
            return Ok(self.changing(request, (Changes::Stored, Way::Back), write)? as u32);
        }
        let way = match past_pages {
            true => service.writes_past(file).map(|()| Way::Past)?,
            false => service.writes_through(file, *offset, data).map(|()| Way::Through(*offset))?,
        };
        let how = (Changes::Said(*kill_set_id), way);
        let bytes = self.changing(request, how, || match flags & libc::O_APPEND != 0 {
            true => service.append(file, data),
            false => service.write(file, *offset, data),
        })?;
        Ok(bytes as u32)
    }

    fn copy(&self, request: &Request<'_>) -> Served<u32> {
        let Operation::CopyFileRange { handle, offset, to_node, to_handle, to_offset, len, .. } =
            &request.operation
        else {
            return Ok(0);
        };
        let from = ((*handle, node(request)), *offset);
        let to = ((*to_handle, Ino(*to_node)), *to_offset);
        let how = (Changes::Unsaid, Way::Past);
        self.changing_of(Ino(*to_node), request, how, || self.service.copy(from, to, *len))
    }
}
