//! Who may use a device that several machines reach: he who holds its lease, an object `lease`.
//!
//! No clock is compared with another machine's. The holder puts the object anew again and again,
//! each time in place of exactly the one that he put before. Who wants it watches it: if it changes
//! it is in use; if it stays the same for as long as it says, it is stale, and he puts his own in
//! its place, on the condition that it still is what he watched.
//!
//! The holder counts on it for a shorter time only, from the moment on when he sent what was then
//! acknowledged, by a clock that goes on while the machine sleeps. After that his device fails,
//! until a renewal comes through (then nobody had it in between) or for good. So he has stopped
//! before another one begins; and what he sent before and arrives later is conditional, too.

use super::requests::{Requests, io_error, is_stale, only_instead_of};
use super::wait;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

/// Times in a lease's length that it is renewed.
const RENEWALS: u32 = 6;
/// Times in its length that who waits for it looks.
const LOOKS: u32 = 30;
/// The longest one that anybody waits for: a longer one is no lease of ours.
const LENGTH_MAX: Duration = Duration::from_secs(600);

/// Milliseconds since the machine started, those that it slept included.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Until when a lease is good.
#[derive(Default, Debug)]
pub struct Validity(AtomicU64);

impl Validity {
    /// It is good still.
    pub fn check(&self) -> io::Result<()> {
        // ordering: the number says everything
        match now() < self.0.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the lease of this device ran out and could not be renewed",
            )),
        }
    }

    /// It was renewed by what was sent then.
    fn extend(&self, sent: u64, length: Duration) {
        // a third of it is for clocks that do not run equally fast
        let good = length.as_millis() as u64 * 2 / 3;
        self.0.store(sent + good, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A lease that is held; it is given back when this goes.
#[derive(Debug)]
pub struct Lease {
    validity: Arc<Validity>,
    stop: Option<oneshot::Sender<()>>,
    /// Ends when the lease has been given back; locked only because a device is shared.
    ended: Mutex<Receiver<()>>,
}

impl Lease {
    /// Takes the lease; `None` if somebody else holds it. May wait as long as a stale one says.
    pub fn take(
        runtime: &Runtime,
        requests: &Requests,
        validity: &Arc<Validity>,
        length: Duration,
    ) -> io::Result<Option<Lease>> {
        let place = (requests.store.clone(), requests.named("lease"));
        Lease::take_at(runtime, place, validity, length)
    }

    fn take_at(
        runtime: &Runtime,
        (store, path): (Arc<dyn ObjectStore>, Path),
        validity: &Arc<Validity>,
        length: Duration,
    ) -> io::Result<Option<Lease>> {
        let mut holder = Holder {
            store,
            path,
            id: Uuid::new_v4(),
            round: 0,
            tag: None,
            length,
            validity: validity.clone(),
        };
        let Some(holder) =
            wait(runtime, async move { Ok(holder.take().await?.then_some(holder)) })?
        else {
            return Ok(None);
        };
        let ((stop, stopped), (sender, ended)) = (oneshot::channel(), sync_channel(1));
        runtime.spawn(async move {
            holder.hold(stopped).await;
            drop(sender);
        });
        Ok(Some(Lease { validity: validity.clone(), stop: Some(stop), ended: Mutex::new(ended) }))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.stop.take());
        // an error, for nothing is ever sent
        let _ = self.ended.get_mut().recv();
        self.validity.end();
    }
}

/// What became of an attempt to put the lease.
enum Put {
    /// It is there.
    Done,
    /// Nobody knows.
    Unknown,
    /// Somebody else's is.
    Lost,
}

#[derive(Debug)]
struct Holder {
    store: Arc<dyn ObjectStore>,
    path: Path,
    id: Uuid,
    /// Makes each one that is put differ from all before.
    round: u64,
    /// Of the one that is there.
    tag: Option<String>,
    length: Duration,
    validity: Arc<Validity>,
}

/// A lease as it is stored.
#[derive(PartialEq, Eq, Debug)]
struct Said {
    holder: Uuid,
    is_free: bool,
    length: Duration,
}

impl Said {
    fn parse(text: &str) -> Option<Said> {
        let mut lines = text.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        value("nearside-lease").filter(|version| *version == "1")?;
        let holder = Uuid::parse_str(value("holder")?).ok()?;
        let is_free = value("state")? == "free";
        let length = Duration::from_millis(value("milliseconds")?.parse().ok()?);
        let length = Some(length).filter(|length| *length <= LENGTH_MAX)?;
        Some(Said { holder, is_free, length })
    }
}

impl Holder {
    fn text(&mut self, state: &str) -> String {
        self.round += 1;
        format!(
            "nearside-lease 1\nholder {}\nstate {state}\nmilliseconds {}\nround {}\n",
            self.id,
            self.length.as_millis(),
            self.round
        )
    }

    /// What is there, and its tag.
    async fn read(&self) -> io::Result<Option<(Said, String)>> {
        let found = match self.store.get(&self.path).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(io_error)?,
        };
        let tag = found.meta.e_tag.clone();
        let text = found.bytes().await.map_err(io_error)?;
        let said = Said::parse(&String::from_utf8_lossy(&text));
        let both = said.zip(tag).ok_or_else(|| {
            let what = format!("{} makes no sense, or has no ETag", self.path);
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        Ok(Some(both))
    }

    /// Takes it; false if somebody else holds it.
    async fn take(&mut self) -> io::Result<bool> {
        let mut watched: Option<(String, u64)> = None;
        loop {
            let (held, tag) = match self.read().await? {
                None => (None, None),
                Some((said, tag)) => ((!said.is_free).then_some(said.length), Some(tag)),
            };
            if let (Some(length), Some(tag)) = (held, &tag) {
                let (first, since) = watched.get_or_insert_with(|| (tag.clone(), now()));
                if first != tag {
                    return Ok(false);
                }
                if now() - *since < length.as_millis() as u64 {
                    sleep(length / LOOKS).await;
                    continue;
                }
            }
            self.tag = tag;
            let sent = now();
            return match self.put("held").await {
                Ok(()) => {
                    self.validity.extend(sent, self.length);
                    self.settle().await
                }
                Err(error) if is_stale(&error) => Ok(false),
                Err(error) => Err(io_error(error)),
            };
        }
    }

    /// Renews what took so long to be had that it is no good any more, from a store that is slow at
    /// first.
    async fn settle(&mut self) -> io::Result<bool> {
        for _ in 0..RENEWALS {
            if self.validity.check().is_ok() {
                return Ok(true);
            }
            if let Put::Lost = self.renew("held").await {
                return Ok(false);
            }
        }
        self.validity.check().map(|()| true)
    }

    /// Puts it in place of the one that is known to be there.
    async fn put(&mut self, state: &str) -> Result<(), Error> {
        let text = self.text(state);
        let mode = only_instead_of(self.tag.clone());
        let put = self.store.put_opts(&self.path, PutPayload::from(text), mode.into()).await?;
        self.tag = put.e_tag;
        Ok(())
    }

    /// Puts it anew.
    async fn renew(&mut self, state: &str) -> Put {
        let sent = now();
        let within = self.length / 3;
        match timeout(within, self.put(state)).await {
            Ok(Ok(())) => {
                self.validity.extend(sent, self.length);
                return Put::Done;
            }
            Ok(Err(error)) if is_stale(&error) => {}
            Ok(Err(_)) | Err(_) => return Put::Unknown,
        }
        // it may be one of its own, of which no answer came
        match timeout(within, self.read()).await {
            Ok(Ok(Some((said, tag)))) if said.holder == self.id => {
                self.tag = Some(tag);
                Put::Unknown
            }
            Ok(Ok(_)) => Put::Lost,
            Ok(Err(_)) | Err(_) => Put::Unknown,
        }
    }

    /// Renews it until it is to be given back, or lost.
    async fn hold(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut pause = self.length / RENEWALS;
        while timeout(pause, &mut stopped).await.is_err() {
            pause = match self.renew("held").await {
                Put::Done => self.length / RENEWALS,
                Put::Unknown => self.length / LOOKS,
                Put::Lost => return self.validity.end(),
            };
        }
        for _ in 0..2 {
            if !matches!(self.renew("free").await, Put::Unknown) {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
