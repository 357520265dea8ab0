//! The server: holds a pool open, its mount alive and its socket open for processes, until it is
//! unmounted, told to end, or told to stop for the next server.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nearside::Pool;
use nearside_fuse::{Connection, Forwarder, Mount, MountOptions, Unmounter};

use crate::attaching::{Doors, attach};
use crate::error::{self, Error, Result};
use crate::events::{Event, listen, watch, watch_idleness};
use crate::keeper::channel::{Channel, ToKeeper, ToServer};
use crate::served::Served;
use crate::server_lock::ServerLock;
use crate::server_start::{answer, clear, connection_of, open, options};
use crate::signals::Signals;
use crate::{forwarding, log};

/// Time that programs have to close their files once a signal asked the server to end.
const GRACE: Duration = Duration::from_secs(5);
/// Pause between two attempts to unmount in that time.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Time that the kernel has to take back its requests once the connection is cut.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// Threads that forward requests, where nothing else is said: each waits for its answer.
const FORWARDS_USUAL: usize = 16;

/// What the keeper gave it to start with.
struct Start {
    lock: Option<OwnedFd>,
    /// Where processes attach.
    doors: Doors,
    /// The connection of the server before this one.
    connection: Option<Vec<OwnedFd>>,
}

/// How serving ended.
enum End {
    Unmounted,
    /// The next server goes on.
    HandedOver,
}

/// Is the server that a keeper started.
pub fn run(args: &Served) -> Result<()> {
    log::start();
    if let Err(errno) = nix::sys::prctl::set_name(c"nearside") {
        tracing::warn!("prctl: {errno}");
    }
    let signals = Signals::block().map_err(|error| Error::Server(error.to_string()))?;
    let words = |error: std::io::Error| Error::Server(format!("its keeper: {error}"));
    let keeper = Channel::from_stdin().map_err(words)?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    keeper.send(&ToKeeper::Hello { version }, &[]).map_err(words)?;
    // A keeper that goes on without it lets it go by ending the channel.
    let Some((ToServer::Start { has_lock, has_door, has_port, takes_over }, mut descriptors)) =
        keeper.receive().map_err(words)?
    else {
        return Ok(());
    };
    let mut next =
        |is_there: bool| (is_there && !descriptors.is_empty()).then(|| descriptors.remove(0));
    let lock = next(has_lock);
    let doors = Doors { here: next(has_door), network: next(has_port) };
    let start = Start { lock, doors, connection: takes_over.then_some(descriptors) };
    let mut server = Server { args, keeper, lock: None, is_ready: false };
    let outcome = server.run(start, signals);
    match &outcome {
        Ok(()) => tracing::info!("pool closed"),
        Err(error) => tracing::error!("{error}"),
    }
    server.tell_end(&outcome);
    // Whoever asked for the mount has heard why; here it would be said twice.
    if outcome.is_err() { std::process::exit(1) } else { Ok(()) }
}

struct Server<'a> {
    args: &'a Served,
    keeper: Channel,
    /// The pool's lock, where the pool has one and the keeper is gone.
    lock: Option<ServerLock>,
    is_ready: bool,
}

impl Server<'_> {
    /// Serves until the end.
    fn run(&mut self, start: Start, signals: Signals) -> Result<()> {
        let takes_over = start.connection.is_some();
        let taken = match self.args.dir {
            Some(_) => start.connection.map(connection_of).transpose()?,
            None => None,
        };
        if let Some(origin) = &self.args.origin {
            return self.forward(origin, taken, start.lock, signals);
        }
        let pool = Arc::new(open(self.args, taken.as_ref())?);
        // Before the mount: a port that is taken leaves none behind. But a mount that is there is
        // worth more than answers.
        let served = match answer(&pool, self.args, start.lock.is_some(), takes_over) {
            Err(error) if !takes_over => Err(error),
            answering => {
                if let Err(error) = &answering {
                    tracing::warn!("{error}");
                }
                self.serve(&pool, taken, (start.lock, start.doors), signals)
            }
        };
        if let Ok(End::HandedOver) = served {
            tracing::info!("stopped for the next server");
            // As a kill would leave it: closing takes time, and programs wait.
            std::process::exit(0);
        }
        let closed = pool.close().map_err(error::pool(&self.args.pool));
        served.and(closed)
    }

    fn serve(
        &mut self,
        pool: &Arc<Pool>,
        taken: Option<Connection>,
        (lock, doors): (Option<OwnedFd>, Doors),
        signals: Signals,
    ) -> Result<End> {
        // of a mount that goes on, the kernel says what it lets go of
        let took_over = taken.is_some();
        let service = attach(pool, doors, self.args, took_over)?;
        let mount = match &self.args.dir {
            Some(dir) => {
                let fs = pool.fs().clone();
                let serve = |connection, options: &_| nearside_fuse::serve(fs, connection, options);
                Some(self.mount(dir, taken, &options(self.args), serve)?)
            }
            None => None,
        };
        service.iter().for_each(::server::Service::other_door_is_back);
        if mount.is_none() {
            self.tell(&ToKeeper::Keep, &[]);
        }
        let leaver = mount.as_ref().map(Mount::leaver);
        let end = self.watch_over(mount, service.as_ref(), lock, signals)?;
        if let End::HandedOver = end {
            if let Some(service) = service {
                service.leave();
            }
            // What the log holds by now is the next server's to replay.
            if let Err(error) = pool.fs().checkpoint() {
                tracing::warn!("checkpoint: {error}");
            }
            leaver.inspect(|leaver| leaver.leave());
        }
        Ok(end)
    }

    /// Forwards what is asked of a mount to the service at this address.
    fn forward(
        &mut self,
        address: &Path,
        taken: Option<Connection>,
        lock: Option<OwnedFd>,
        signals: Signals,
    ) -> Result<()> {
        let Some(dir) = &self.args.dir else { return Ok(()) };
        let origin = forwarding::origin(address).map_err(nearside_fuse::Error::from)?;
        let usual = self.args.serving.threads.map_or(FORWARDS_USUAL, usize::from);
        let options = MountOptions {
            threads: Some(usual.min(nearside_fuse::FORWARDS_MAX)),
            source: address.into(),
            // who runs the other machine says what is in its files
            trusted: false,
            ..options(self.args)
        };
        let mount = self.mount(dir, taken, &options, |connection, options| {
            let forwarder = Forwarder::new(origin, nearside_fuse::AWAY_MAX);
            nearside_fuse::serve_by(|_| forwarder, connection, options)
        })?;
        let leaver = mount.leaver();
        if let End::HandedOver = self.watch_over(Some(mount), None, lock, signals)? {
            leaver.leave();
            tracing::info!("stopped for the next server");
            std::process::exit(0);
        }
        Ok(())
    }

    /// Says that all is there, and waits for the end.
    fn watch_over(
        &mut self,
        mount: Option<Mount>,
        service: Option<&::server::Service>,
        lock: Option<OwnedFd>,
        signals: Signals,
    ) -> Result<End> {
        let (events, inbox) = channel();
        let unmounter = mount.as_ref().map(Mount::unmounter);
        let failed =
            |error: std::io::Error| Error::Server(format!("cannot start a thread: {error}"));
        let for_signals = events.clone();
        signals
            .forward(move |signal| {
                // The receiver is gone only when the server is.
                let _ = for_signals.send(Event::Signal(signal.as_str()));
            })
            .map_err(failed)?;
        listen(&self.keeper, events.clone()).map_err(failed)?;
        let until_idle = self.args.attaching.as_ref().and_then(|it| it.until_idle);
        if let (Some(service), Some(seconds)) = (service, until_idle) {
            let time = Duration::from_secs(seconds.into());
            watch_idleness(service.idleness(), time, events.clone()).map_err(failed)?;
        }
        // its sender has to live on where there is no mount
        let events = match mount {
            Some(mount) => watch(mount, events).map_err(failed).map(|()| None)?,
            None => Some(events),
        };
        self.tell(&ToKeeper::Ready, &[]);
        self.is_ready = true;
        let end = self.until_end(&inbox, unmounter.as_ref(), lock);
        drop(events);
        end
    }

    /// Mounts on `dir`, or takes the mount over; `serve` serves it.
    fn mount(
        &self,
        dir: &Path,
        taken: Option<Connection>,
        options: &MountOptions,
        serve: impl FnOnce(Connection, &MountOptions) -> nearside_fuse::Result<Mount>,
    ) -> Result<Mount> {
        let is_new = taken.is_none();
        let connection = match taken {
            Some(connection) => connection,
            None => nearside_fuse::connect(dir, options)?,
        };
        let (device, state) = connection.descriptors();
        self.tell(&ToKeeper::Keep, &[device, state]);
        let dir = connection.dir().to_owned();
        let mount = serve(connection, options).inspect_err(|_| {
            if is_new {
                clear(&dir)
            }
        })?;
        match is_new {
            true => tracing::info!(dir = %dir.display(), "mounted"),
            false => tracing::info!(dir = %dir.display(), "took the mount over"),
        }
        Ok(mount)
    }

    /// Waits for the end: an unmount by anybody, or a signal and what follows from it.
    fn until_end(
        &mut self,
        inbox: &Receiver<Event>,
        unmounter: Option<&Unmounter>,
        mut lock: Option<OwnedFd>,
    ) -> Result<End> {
        let mut deadline: Option<Instant> = None;
        let mut cut = false;
        loop {
            let event = match deadline {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    inbox.recv_timeout(left.min(RETRY_PAUSE))
                }
            };
            match event {
                Ok(Event::Ended(outcome)) => return Ok(outcome.map(|()| End::Unmounted)?),
                Ok(Event::Signal(name)) => {
                    let Some(unmounter) = unmounter else {
                        tracing::info!("{name}: ending");
                        return Ok(End::Unmounted);
                    };
                    tracing::info!("{name}: unmounting");
                    // A second signal means: now.
                    let grace = if deadline.is_some() { Duration::ZERO } else { GRACE };
                    deadline = Some(Instant::now() + grace);
                    if let Err(error) = unmounter.unmount() {
                        tracing::warn!("{error}; waiting {} s", grace.as_secs());
                    }
                }
                Ok(Event::Idle) if unmounter.is_none() && deadline.is_none() => {
                    tracing::info!("nobody is attached any more: ending");
                    return Ok(End::Unmounted);
                }
                // A mount is used as long as it is there.
                Ok(Event::Idle) => {}
                // An end that is under way goes first.
                Ok(Event::HandOver) if deadline.is_some() => {}
                Ok(Event::HandOver) => return Ok(End::HandedOver),
                Ok(Event::KeeperGone) => self.go_on_alone(lock.take()),
                Err(RecvTimeoutError::Timeout)
                    if deadline.is_some_and(|at| Instant::now() < at) =>
                {
                    // The last file may have been closed.
                    let _ = unmounter.map(Unmounter::unmount);
                }
                Err(RecvTimeoutError::Timeout) if !cut => {
                    let Some(unmounter) = unmounter else { return Ok(End::Unmounted) };
                    tracing::warn!("files are still open; cutting the connection");
                    if let Err(error) = unmounter.detach() {
                        tracing::warn!("{error}");
                    }
                    if let Err(error) = unmounter.abort() {
                        tracing::info!(%error, "cannot cut it; the end of the process does");
                        return Ok(End::Unmounted);
                    }
                    cut = true;
                    deadline = Some(Instant::now() + CUT_GRACE);
                }
                Err(_) => return Ok(End::Unmounted),
            }
        }
    }

    /// The keeper died: what it wrote down is this process's to write now.
    fn go_on_alone(&mut self, lock: Option<OwnedFd>) {
        tracing::warn!("the keeper died; if this server dies, too, nobody takes over");
        let Some(lock) = lock else { return };
        match ServerLock::inherit(&self.args.pool, lock) {
            Ok(mut lock) => {
                lock.name(None, std::process::id());
                self.lock = Some(lock);
            }
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Says how it ended to the keeper, or writes it down where there is none.
    fn tell_end(&mut self, outcome: &Result<()>) {
        let reason = outcome.as_ref().err().map(Error::to_string);
        let message = match (self.is_ready, reason) {
            (false, Some(reason)) => ToKeeper::Failed(reason),
            (_, reason) => ToKeeper::Ended(reason),
        };
        self.tell(&message, &[]);
        if let Some(lock) = self.lock.take() {
            lock.finish(outcome);
        }
    }

    /// Tells the keeper; one that is gone is met elsewhere.
    fn tell(&self, message: &ToKeeper, descriptors: &[BorrowedFd<'_>]) {
        if let Err(error) = self.keeper.send(message, descriptors) {
            tracing::debug!(%error, "the keeper does not hear");
        }
    }
}
