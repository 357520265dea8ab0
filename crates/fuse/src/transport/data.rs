//! Requests about open files and their bytes.

use std::ops::Range;
use std::time::Duration;

use nearside::files::{Ino, trace_as};

use super::{Changes, Transport, answer_done, answer_size, node};
use crate::service::{Errno, Served};
use crate::wire::{Operation, Reply, Request};

/// How long somebody who asks for holes waits for what others have stored to mappings.
const SETTLE_MAX: Duration = Duration::from_secs(2);

impl Transport {
    pub(super) fn serve_data(&self, request: &Request<'_>, reply: Reply<'_>) {
        let (service, ino) = (&self.service, node(request));
        match &request.operation {
            Operation::Open { flags, kill_set_id } => {
                let open = || service.open(ino, *flags);
                let served = self.changing(request, Changes::Said(*kill_set_id), open);
                self.answer_opened(request, served, reply);
            }
            Operation::Read { handle, offset, size, .. } => {
                trace_as(u64::from(request.head.pid));
                self.read((*handle, ino), *offset, *size, reply);
            }
            Operation::Write { .. } => answer_size(self.write(request), reply),
            Operation::Release { handle, lock_owner, unlock_flock, .. } => {
                self.locks.closed(*handle, (ino, unlock_flock.then_some(*lock_owner)));
                answer_done(service.release((*handle, ino)), reply);
            }
            Operation::Fsync { handle, .. } => answer_done(service.fsync((*handle, ino)), reply),
            Operation::Fallocate { handle, offset, len, mode } => {
                let change = || service.fallocate((*handle, ino), *mode, *offset, *len);
                answer_done(self.changing(request, Changes::Unsaid, change), reply);
            }
            Operation::Lseek { handle, offset, whence } => {
                let settle = |range| self.settle_stores(ino, range);
                match service.seek((*handle, ino), *offset, *whence, settle) {
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

    fn read(&self, file: (u64, Ino), offset: u64, size: u32, reply: Reply<'_>) {
        let mut reply = Some(reply);
        // The reply goes out of the thread's buffer, so it is sent before the buffer is given back.
        let served = self.service.read(file, offset, size as usize, |bytes| {
            if let Some(reply) = reply.take() {
                reply.bytes(bytes);
            }
        });
        if let (Err(errno), Some(reply)) = (served, reply) {
            reply.error(errno.0);
        }
    }

    fn write(&self, request: &Request<'_>) -> Served<u32> {
        let Operation::Write { handle, offset, data, flags, from_cache, kill_set_id } =
            &request.operation
        else {
            return Ok(0);
        };
        trace_as(u64::from(request.head.pid));
        let file = (*handle, node(request));
        // Pages of a mapping go where they lie, also when the file was opened for appending.
        let append = flags & libc::O_APPEND != 0 && !from_cache;
        let changes = if *from_cache { Changes::Stored } else { Changes::Said(*kill_set_id) };
        let bytes = self.changing(request, changes, || match append {
            true => self.service.append(file, data),
            false => self.service.write(file, *offset, data),
        })?;
        if *from_cache && bytes < data.len() {
            // the kernel does not look how much of its pages was written
            return Err(Errno(libc::ENOSPC));
        }
        Ok(bytes as u32)
    }

    /// Has the kernel send what was stored to mappings of this range of a file, and waits until it
    /// has: another thread says so, for this one may be needed to serve what comes. False: not all
    /// of it came in time.
    fn settle_stores(&self, ino: Ino, range: Range<u64>) -> bool {
        let Some(notifier) = self.notifier.get().cloned() else { return false };
        let (tell, told) = std::sync::mpsc::channel();
        let (from, len) = (range.start as i64, (range.end - range.start) as i64);
        let ask = move || {
            let asked = notifier.inval_inode(ino.0, from, len);
            // ENOENT: the kernel has nothing of it
            let has_come =
                asked.map_or_else(|it| it.raw_os_error() == Some(libc::ENOENT), |()| true);
            // who waits may have given up
            let _ = tell.send(has_come);
        };
        let asks = std::thread::Builder::new().name("ns-fuse-settle".to_owned()).spawn(ask);
        asks.is_ok() && told.recv_timeout(SETTLE_MAX).unwrap_or(false)
    }

    fn copy(&self, request: &Request<'_>) -> Served<u32> {
        let Operation::CopyFileRange { handle, offset, to_node, to_handle, to_offset, len, .. } =
            &request.operation
        else {
            return Ok(0);
        };
        let from = ((*handle, node(request)), *offset);
        let to = ((*to_handle, Ino(*to_node)), *to_offset);
        self.changing_of(Ino(*to_node), request, Changes::Unsaid, || {
            let source = from.0.1;
            self.service.copy(from, to, *len, |range| self.settle_stores(source, range))
        })
    }
}
