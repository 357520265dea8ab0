//! Calls for a lock that wait for others, whom no thread waits with.

use std::sync::Arc;

use fs::LockKind;
use wire::{Failure, Reply, Taken};

use crate::serve::failure;
use crate::session::Session;

/// Waits for a lock without a thread.
pub fn begin(
    session: &Arc<Session>,
    taken: Taken,
    file: u64,
    kind: LockKind,
    (start, end): (u64, u64),
) {
    let (told, refused) = (session.clone(), session.clone());
    let done = move |result: fs::Result<()>| {
        let reply = match result {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Failed(Failure::of(&error, None)),
        };
        told.answer(taken, &reply, &[]);
    };
    let asked = session
        .opened
        .file(file)
        .and_then(|file| file.lock_then(kind, start..=end, Box::new(done)));
    match asked {
        Ok(ticket) => session.add_wait(taken, ticket),
        Err(error) => refused.answer(taken, &Reply::Failed(failure(error)), &[]),
    }
}
