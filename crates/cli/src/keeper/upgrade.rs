//! Replacing the server by another program while its files are in use.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::Keeper;
use super::channel::{ToKeeper, ToServer};
use super::door::{Asked, Reply, Request};
use super::process::Server;

/// Longest time that a server may take to stop for the next one; a stuck one is killed, after which
/// the next one finds everything that was acknowledged.
const HAND_OVER_MAX: Duration = Duration::from_secs(10);
/// Longest time that a new program may take to say that it runs.
const HELLO_MAX: Duration = Duration::from_secs(10);

/// An upgrade under way.
#[derive(Debug)]
pub(super) struct Upgrade {
    asked: Asked,
    program: PathBuf,
    from: String,
    since: Instant,
    /// The next server, until it is the server.
    next: Option<(Server, String)>,
}

impl Upgrade {
    /// When the old server is killed, if it has not stopped by itself.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next.as_ref().map(|_| self.since + HAND_OVER_MAX)
    }
}

impl Keeper<'_> {
    /// Lets one in who asks for something.
    pub(super) fn answer_door(&mut self) {
        let Some(door) = &self.door else { return };
        let (asked, Request::Upgrade { program }) = match door.accept() {
            Ok(asked) => asked,
            Err(error) => return tracing::warn!(%error, "a request to the keeper"),
        };
        if let Err((asked, reason)) = self.begin_upgrade(asked, program) {
            tracing::warn!("no upgrade: {reason}");
            asked.answer(&Reply::Refused(reason));
        }
    }

    fn begin_upgrade(
        &mut self,
        asked: Asked,
        program: PathBuf,
    ) -> std::result::Result<(), (Asked, String)> {
        if self.kept.is_empty() || self.ending {
            return Err((asked, "the mount is starting or ending; try again".to_owned()));
        }
        let next = match self.next_server(&program) {
            Ok(next) => next,
            Err(reason) => return Err((asked, format!("{}: {reason}", program.display()))),
        };
        // One that has died already is followed by the next one all the same.
        let _ = self.server.tell(&ToServer::HandOver, &[]);
        let (from, since) = (self.version.clone(), Instant::now());
        self.upgrade = Some(Upgrade { asked, program, from, since, next: Some(next) });
        Ok(())
    }

    /// Starts the next server and hears its version.
    fn next_server(&self, program: &Path) -> std::result::Result<(Server, String), String> {
        let mut server = Server::spawn(program, self.args).map_err(|error| error.to_string())?;
        let said = {
            let mut list = [PollFd::from_borrowed_fd(server.channel(), PollFlags::IN)];
            let time = Timespec { tv_sec: HELLO_MAX.as_secs() as i64, tv_nsec: 0 };
            matches!(poll(&mut list, Some(&time)), Ok(1))
        };
        match said.then(|| server.hear()) {
            Some(Ok(Some((ToKeeper::Hello { version }, _)))) => Ok((server, version)),
            _ => {
                server.signal(Signal::KILL);
                let _ = server.wait();
                Err("it does not run as a server of Nearside".to_owned())
            }
        }
    }

    /// The next server, once the old one has gone.
    pub(super) fn take_next(&mut self) -> Option<Server> {
        let upgrade = self.upgrade.as_mut()?;
        let (next, version) = upgrade.next.take()?;
        self.version = version;
        self.program = upgrade.program.clone();
        Some(next)
    }

    /// Kills an old server that does not stop.
    pub(super) fn kill_the_stuck(&self) {
        let deadline = self.upgrade.as_ref().and_then(Upgrade::deadline);
        if deadline.is_some_and(|at| at <= Instant::now()) {
            tracing::warn!("the server does not stop for the next one; killing it");
            self.server.signal(Signal::KILL);
        }
    }

    /// Says that the new server serves.
    pub(super) fn finish_upgrade(&mut self) {
        let Some(Upgrade { asked, from, since, next, .. }) = self.upgrade.take() else { return };
        debug_assert!(next.is_none());
        let gap_us = since.elapsed().as_micros() as u64;
        let to = self.version.clone();
        tracing::info!(from, to, gap_us, "upgraded");
        asked.answer(&Reply::Upgraded { from, to, process: self.server.id(), gap_us });
    }

    /// Says that nothing came of it. The next one ends by itself when its channel closes.
    pub(super) fn refuse_upgrade(&mut self, reason: &str) {
        if let Some(Upgrade { asked, next, .. }) = self.upgrade.take() {
            if let Some((mut next, _)) = next {
                next.signal(Signal::KILL);
                let _ = next.wait();
            }
            asked.answer(&Reply::Refused(reason.to_owned()));
        }
    }
}
