//! The keeper: a small process that holds what must outlive a server.
//!
//! It holds the pool's lock, the server's process, and the descriptors of the connection to the
//! kernel. While it lives, a server that dies is followed by another, which recovers the pool as
//! after any crash and goes on with the same connection: programs see calls that take longer. It
//! reads nothing of the pool and serves no call, so there is little in it that could fail.
//!
//! `nearside upgrade` replaces the server the same way, with one difference: the next program runs
//! and waits before the old one is told to stop, so one that cannot run replaces nothing; and where
//! the next one cannot serve, the keeper goes back to its own program.
//!
//! If the keeper dies, the server goes on and ends the mount as usual, but nobody follows it.

pub mod channel;
mod door;
mod process;
mod restarts;
mod upgrade;

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, Signal, getpid, pidfd_getfd, pidfd_open};

use crate::error::{Error, Result};
use crate::log;
use crate::served::Served;
use crate::server_lock::ServerLock;
use crate::server_start::connection_of;
use crate::signals::Signals;

use channel::{ToKeeper, ToServer};
use door::Door;
use process::Server;
use restarts::Restarts;
use upgrade::Upgrade;

pub use door::{Reply, Request, ask};
pub use process::{OURSELVES, arguments};

/// How a service ended, when it did not fail to start.
type Ending = std::result::Result<(), String>;

/// The keeper of one pool's servers.
#[derive(Debug)]
struct Keeper<'a> {
    args: &'a Served,
    lock: Option<ServerLock>,
    signals: SignalFd,
    door: Option<Door>,
    /// Where processes attach, if they may: it outlives the servers, so that those who come while
    /// one follows another wait.
    attach: Option<::server::Door>,
    /// Where those of other machines do.
    network: Option<TcpListener>,
    server: Server,
    version: String,
    /// What the server wants kept for the next one; `None` until it has mounted, or listens.
    kept: Option<Vec<OwnedFd>>,
    restarts: Restarts,
    upgrade: Option<Upgrade>,
    /// The program that the running server was started from.
    program: PathBuf,
    /// The running server takes signals: one that has only just begun would die of them.
    greeted: bool,
    /// It has said its last.
    silent: bool,
    ready: bool,
    /// The signal that asked for the end: a server that dies now is not followed, and one that
    /// takes over is to end, too.
    ending: Option<Signal>,
    /// What the server said of its end.
    ended: Option<Ending>,
    failed: Option<String>,
}

/// Keeps what `args` say (paths canonical) served until it ends; calls `ready` when it answers.
pub fn run(args: &Served, ready: impl FnOnce() -> Result<()>) -> Result<()> {
    log::start();
    let signals = Signals::block().map_err(failed("sigprocmask"))?;
    let signals = signal_descriptor(signals.set()).map_err(failed("signalfd"))?;
    let lock = ServerLock::take(&args.pool, args.serving.read_only)?;
    let door = Door::open(&args.pool)
        .inspect_err(|error| tracing::warn!("{error}; the server cannot be upgraded"))
        .ok();
    let (attach, network) = match attach_doors(args) {
        Ok(doors) => doors,
        Err(error) => {
            if let Some(lock) = lock {
                lock.withdraw();
            }
            return Err(error);
        }
    };
    let program = PathBuf::from(OURSELVES);
    let server = Server::spawn(&program, args).map_err(failed("the server"))?;
    let mut keeper = Keeper {
        args,
        lock,
        signals,
        door,
        attach,
        network,
        server,
        version: String::new(),
        kept: None,
        restarts: Restarts::default(),
        upgrade: None,
        program,
        greeted: false,
        silent: false,
        ready: false,
        ending: None,
        ended: None,
        failed: None,
    };
    let outcome = keeper.keep(ready);
    keeper.refuse_upgrade("the mount has ended");
    match keeper.lock.take() {
        Some(lock) if keeper.ready => lock.finish(&outcome),
        Some(lock) => lock.withdraw(),
        None => {}
    }
    outcome
}

/// The sockets where processes attach: of this machine at one that systemd made, or at one of its
/// own; and of others.
fn attach_doors(args: &Served) -> Result<(Option<::server::Door>, Option<TcpListener>)> {
    let (Some(path), Some(attaching)) = (args.socket(), &args.attaching) else {
        return Ok((None, None));
    };
    let network = attaching.listening.open()?;
    let door = match inherited_socket()? {
        Some(socket) => ::server::Door::from_socket(socket),
        None => ::server::Door::open(&path, attaching.socket_mode),
    };
    Ok((Some(door.map_err(|error| Error::Server(error.to_string()))?), network))
}

/// The socket that systemd listens at for this process (sd_listen_fds(3)), if it does.
fn inherited_socket() -> Result<Option<OwnedFd>> {
    /// Where inherited descriptors begin.
    const FIRST: i32 = 3;
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) || number("LISTEN_FDS") != Some(1) {
        return Ok(None);
    }
    let own = pidfd_open(getpid(), PidfdFlags::empty()).map_err(failed("pidfd_open"))?;
    let socket = pidfd_getfd(own, FIRST, PidfdGetfdFlags::empty());
    Ok(Some(socket.map_err(failed("the socket of systemd"))?))
}

/// Says how far it is to systemd, if that started it.
fn tell_systemd(state: &sd_notify::NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::warn!("systemd was not told: {error}");
    }
}

fn signal_descriptor(set: &SigSet) -> nix::Result<SignalFd> {
    SignalFd::with_flags(set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> Error + '_ {
    move |error| Error::Server(format!("{what}: {error}"))
}

/// Which descriptors have something.
#[derive(Clone, Copy, Debug, Default)]
struct Readable {
    signal: bool,
    gone: bool,
    said: bool,
    asked: bool,
    upgrade: bool,
}

impl Keeper<'_> {
    fn keep(&mut self, ready: impl FnOnce() -> Result<()>) -> Result<()> {
        self.start(false)?;
        let mut ready = Some(ready);
        loop {
            let readable = self.wait()?;
            if readable.signal {
                self.pass_signals_on();
            }
            if readable.said {
                self.hear()?;
            }
            if self.ready
                && let Some(ready) = ready.take()
            {
                ready()?;
                tell_systemd(&sd_notify::NotifyState::Ready);
            }
            if readable.gone
                && let Some(outcome) = self.follow()?
            {
                return outcome;
            }
            if readable.asked {
                self.answer_door();
            }
            self.advance_upgrade(readable.upgrade);
        }
    }

    /// Waits until something happens.
    fn wait(&self) -> Result<Readable> {
        let channel = (!self.silent).then(|| self.server.channel());
        // One at a time.
        let door = self.door.as_ref().filter(|_| self.upgrade.is_none()).map(AsFd::as_fd);
        let upgrade = self.upgrade.as_ref().and_then(Upgrade::waits_for);
        let all = [Some(self.signals.as_fd()), Some(self.server.process()), channel, door, upgrade];
        let polled = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut list: Vec<PollFd<'_>> = all.into_iter().flatten().map(polled).collect();
        let until = self.upgrade.as_ref().and_then(Upgrade::deadline);
        let timeout = until.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut list, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(failed("poll")(errno)),
        }
        let mut has = list.iter().map(|fd| !fd.revents().is_empty());
        let [signal, gone, said, asked, upgrade] =
            all.map(|fd| fd.is_some() && has.next().unwrap_or(false));
        Ok(Readable { signal, gone, said, asked, upgrade })
    }

    /// Waits that long with no server running. A signal ends it: the next server takes over to end
    /// the mount.
    fn pause(&mut self, time: Duration) -> Result<()> {
        self.greeted = false;
        let mut signals = [PollFd::new(&self.signals, PollFlags::IN)];
        let time = Timespec::try_from(time).ok();
        if self.ending.is_none() {
            poll(&mut signals, time.as_ref()).map_err(failed("poll"))?;
            self.pass_signals_on();
        }
        Ok(())
    }

    /// Lets the server open the pool; `takes_over` gives it what the one before it left.
    fn start(&mut self, takes_over: bool) -> Result<()> {
        self.failed = None;
        (self.silent, self.greeted) = (false, false);
        if let Some(lock) = &mut self.lock {
            lock.name(Some(std::process::id()), self.server.id());
        }
        let mut descriptors: Vec<_> = self.lock.iter().map(AsFd::as_fd).collect();
        descriptors.extend(self.attach.iter().map(AsFd::as_fd));
        descriptors.extend(self.network.iter().map(AsFd::as_fd));
        if takes_over {
            descriptors.extend(self.kept.iter().flatten().map(AsFd::as_fd));
        }
        let (has_lock, has_door) = (self.lock.is_some(), self.attach.is_some());
        let has_port = self.network.is_some();
        let message = ToServer::Start { has_lock, has_door, has_port, takes_over };
        // One that has died already is met as such.
        let _ = self.server.tell(&message, &descriptors);
        Ok(())
    }

    fn pass_signals_on(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let number = i32::try_from(signal.ssi_signo).ok();
            let signal = number.and_then(Signal::from_named_raw).unwrap_or(Signal::TERM);
            self.ending = Some(signal);
            tell_systemd(&sd_notify::NotifyState::Stopping);
            if self.greeted {
                self.server.signal(signal);
            }
        }
    }

    /// The running server has said that it takes signals: it gets the one that came before.
    fn greet(&mut self) {
        self.greeted = true;
        if let Some(signal) = self.ending {
            self.server.signal(signal);
        }
    }

    /// Takes one thing that the server says; says whether it may say more.
    fn hear(&mut self) -> Result<bool> {
        let heard = self.server.hear().map_err(failed("the server's words"))?;
        let Some((message, descriptors)) = heard else {
            self.silent = true;
            return Ok(false);
        };
        match message {
            ToKeeper::Hello { version } => {
                self.version = version;
                self.greet();
            }
            ToKeeper::Keep => self.kept = Some(descriptors),
            ToKeeper::Ready => {
                self.ready = true;
                self.restarts.serves(Instant::now());
                tracing::info!(process = self.server.id(), "server ready");
                self.finish_upgrade();
            }
            ToKeeper::Failed(reason) => self.failed = Some(reason),
            ToKeeper::Ended(None) => self.ended = Some(Ok(())),
            ToKeeper::Ended(Some(reason)) => self.ended = Some(Err(reason)),
        }
        Ok(true)
    }

    /// The server's process has ended: the outcome of the whole, or the next server.
    fn follow(&mut self) -> Result<Option<Result<()>>> {
        // What it said last may still lie there.
        while self.hear()? {}
        let status = self.server.wait().map_err(failed("wait"))?;
        if let Some(ended) = self.ended.take() {
            return Ok(Some(ended.map_err(Error::Server)));
        }
        let why = self.failed.take().unwrap_or_else(|| format!("the server died ({status})"));
        if let Some(next) = self.take_next() {
            self.server = next;
            self.start(true)?;
            self.greet();
            return Ok(None);
        }
        if !self.ready || self.ending.is_some() || self.kept.is_none() {
            return Ok(Some(Err(Error::Server(why))));
        }
        self.restart(&why)
    }

    /// Nobody serves the mount any more: what waits for it in the kernel, and a process that waits
    /// for the kernel, would do so for ever.
    fn abort_connection(&mut self) {
        let Some(kept) = self.kept.take().filter(|kept| kept.len() == 2) else { return };
        if let Ok(connection) = connection_of(kept)
            && let Err(error) = connection.abort()
        {
            tracing::debug!(%error, "the connection is not aborted");
        }
    }

    /// Starts a server after one that died.
    fn restart(&mut self, why: &str) -> Result<Option<Result<()>>> {
        tracing::warn!("{why}; another one takes over");
        if self.upgrade.as_ref().is_some_and(Upgrade::is_taking_over) {
            self.refuse_upgrade(why);
            // The program that worked until then.
            self.program = PathBuf::from(OURSELVES);
        }
        let Some(pause) = self.restarts.died(Instant::now()) else {
            self.abort_connection();
            let text = format!("{why}; it keeps dying, so the mount is given up");
            return Ok(Some(Err(Error::Server(text))));
        };
        self.pause(pause)?;
        self.server = Server::spawn(&self.program, self.args)
            .or_else(|_| Server::spawn(Path::new(OURSELVES), self.args))
            .map_err(failed("the server"))?;
        self.start(true)?;
        Ok(None)
    }
}
