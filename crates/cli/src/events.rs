//! What a server waits for, heard by threads of their own.

use std::sync::mpsc::Sender;
use std::time::Duration;

use nearside_fuse::Mount;

use crate::keeper::channel::{Channel, ToServer};

/// What a server waits for.
pub enum Event {
    /// The mount has ended.
    Ended(nearside_fuse::Result<()>),
    /// It is to end.
    Signal(&'static str),
    /// Nobody is attached any more.
    Idle,
    /// It is to stop for the next server.
    HandOver,
    /// Nobody follows it any more.
    KeeperGone,
}

/// Waits in a thread of its own until nobody has been attached for so long.
pub fn watch_idleness(
    idleness: ::server::Idleness,
    time: Duration,
    events: Sender<Event>,
) -> std::io::Result<()> {
    let wait = move || {
        idleness.wait(time);
        let _ = events.send(Event::Idle);
    };
    std::thread::Builder::new().name("idle".to_owned()).spawn(wait).map(drop)
}

/// Hears what the keeper says, in a thread of its own.
pub fn listen(keeper: &Channel, events: Sender<Event>) -> std::io::Result<()> {
    let keeper = keeper.try_clone()?;
    let hear = move || {
        loop {
            let event = match keeper.receive::<ToServer>() {
                Ok(Some((ToServer::HandOver, _))) => Event::HandOver,
                Ok(Some((ToServer::Start { .. }, _))) => continue,
                Ok(None) => Event::KeeperGone,
                Err(error) => {
                    tracing::warn!(%error, "the keeper's words");
                    Event::KeeperGone
                }
            };
            let is_last = matches!(event, Event::KeeperGone);
            if events.send(event).is_err() || is_last {
                return;
            }
        }
    };
    std::thread::Builder::new().name("keeper".to_owned()).spawn(hear).map(drop)
}

/// Waits for the mount's end in a thread of its own.
pub fn watch(mount: Mount, events: Sender<Event>) -> std::io::Result<()> {
    let wait = move || {
        let _ = events.send(Event::Ended(mount.wait()));
    };
    std::thread::Builder::new().name("mount".to_owned()).spawn(wait).map(drop)
}
