//! From service to service: the thread of an attachment that attaches to the next one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wire::{Reply, Request};

use crate::connection::{Connection, End};
use crate::session::{Attachment, PAUSE, Shared, State, spawned};
use crate::{Error, Result};

impl Shared {
    /// Goes from service to service, until there is none.
    pub fn run(&self, mut watcher: JoinHandle<End>) {
        loop {
            // where it did not end by itself, there is somebody to come back all the same
            let end = watcher.join().unwrap_or(End::Broken);
            let mut state = self.state.write();
            let State::Attached(last) = &*state else { return };
            // others may change what is mapped from here on
            self.copies.hide();
            self.cache.hide();
            let back = match end {
                _ if self.is_dropped.load(Ordering::SeqCst) => Err(Error::Lost),
                End::InOrder => Err(Error::Lost),
                End::Broken => self.come_back(&last.connection),
            };
            let (connection, next) = match back {
                Ok(back) => back,
                Err(error) => return *state = State::Gone(error),
            };
            let number = last.number + 1;
            let unknown = if connection.knows { last.unknown } else { number };
            *state = State::Attached(Attachment { connection, number, unknown });
            watcher = next;
        }
    }

    /// Attaches to the next service.
    fn come_back(&self, last: &Connection) -> Result<(Arc<Connection>, JoinHandle<End>)> {
        let start = Instant::now();
        let mut outcome = Error::Lost;
        loop {
            let left = self.options.away_max.saturating_sub(start.elapsed());
            if left.is_zero() || self.is_dropped.load(Ordering::SeqCst) {
                return Err(outcome);
            }
            match self.attach_again(last, left) {
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    tracing::debug!("not attached again so far: {error}");
                    // credentials may be about to be replaced, on either side
                    outcome = if is_of_trust(&error) { error } else { Error::Lost };
                }
                back => {
                    let away_us = start.elapsed().as_micros() as u64;
                    tracing::info!(away_us, "attached again");
                    return back;
                }
            }
            std::thread::sleep(PAUSE.min(left));
        }
    }

    fn attach_again(
        &self,
        last: &Connection,
        patience: Duration,
    ) -> Result<(Arc<Connection>, JoinHandle<End>)> {
        let socket = Arc::new(self.address.connect(self.options.credentials.as_deref(), patience)?);
        *self.socket.lock() = Some(socket.clone());
        if self.is_dropped.load(Ordering::SeqCst) {
            return Err(Error::Lost);
        }
        let connection = Connection::attach(&socket, Some(last.identity.clone()), patience)?;
        if connection.pool != last.pool {
            return Err(Error::NotTakenBack("another pool is served there".to_owned()));
        }
        let (connection, watcher) = watched(connection)?;
        // all calls wait, so nobody changes it meanwhile
        let restored = self.opened.lock().requests().try_for_each(|request| {
            if let Reply::Failed(failure) = connection.ask_alone(&request)? {
                // each call on it will be told
                tracing::warn!("not open any more: {failure:?}");
            }
            Ok(())
        });
        let restored = restored.and_then(|()| self.copies.restore(&connection));
        // from here on its locks are not waited for: it does not try once more
        if let Err(error) = restored.and_then(|()| connection.ask_alone(&Request::Restored)) {
            // of some there may be memory of this service's already
            self.copies.hide();
            connection.close();
            drop(watcher.join());
            return Err(error);
        }
        Ok((connection, watcher))
    }
}

/// Whether no service will say anything else.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Version { .. } | Error::NotTakenBack(_) | Error::Distrusted { .. })
}

fn is_of_trust(error: &Error) -> bool {
    matches!(
        error,
        Error::NoCredentials { .. } | Error::BadCredentials(_) | Error::Untrusted { .. }
    )
}

/// A connection, and a thread that waits for its end, and ends its calls then.
pub fn watched(connection: Connection) -> Result<(Arc<Connection>, JoinHandle<End>)> {
    let connection = Arc::new(connection);
    let theirs = connection.clone();
    let watcher = spawned("ns-watcher", move || {
        let end = theirs.await_end();
        theirs.lose();
        end
    })?;
    Ok((connection, watcher))
}
