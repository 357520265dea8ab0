//! Replacing the server by another program while its files are in use.
//!
//! Nothing here waits: the keeper polls for what the upgrade waits for next, so a program that
//! takes its time, or somebody who asks and says no more, leaves the mount as guarded as before.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
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
/// Pause before a server is killed once more that a signal has not ended yet.
const KILL_PAUSE: Duration = Duration::from_secs(1);

/// An upgrade under way.
#[derive(Debug)]
pub(super) struct Upgrade {
    asked: Asked,
    step: Step,
}

/// How far it is.
#[derive(Debug)]
enum Step {
    /// Somebody says what it wants.
    Asks,
    /// The next server begins to run.
    Begins { next: Server, program: PathBuf, until: Instant },
    /// The old server is to stop.
    Stops { next: Server, version: String, program: PathBuf, since: Instant, until: Instant },
    /// The next server is the server, and is to serve.
    TakesOver { from: String, since: Instant },
}

impl Upgrade {
    /// When the step has taken too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.step {
            Step::Asks => Some(self.asked.until()),
            Step::Begins { until, .. } | Step::Stops { until, .. } => Some(*until),
            Step::TakesOver { .. } => None,
        }
    }

    /// What becomes readable when the step goes on, besides the server's own.
    pub(super) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        match &self.step {
            Step::Asks => Some(self.asked.as_fd()),
            Step::Begins { next, .. } => Some(next.channel()),
            Step::Stops { .. } | Step::TakesOver { .. } => None,
        }
    }

    /// Whether the running server is the new one, which does not serve yet.
    pub(super) fn is_taking_over(&self) -> bool {
        matches!(self.step, Step::TakesOver { .. })
    }
}

impl Keeper<'_> {
    /// Lets one in who asks for something.
    pub(super) fn answer_door(&mut self) {
        let Some(door) = &self.door else { return };
        match door.accept() {
            Ok(asked) => self.upgrade = Some(Upgrade { asked, step: Step::Asks }),
            Err(error) => tracing::warn!(%error, "a request to the keeper"),
        }
    }

    /// Goes on where it can: what it waits for is readable, or its time is over.
    pub(super) fn advance_upgrade(&mut self, readable: bool) {
        let Some(upgrade) = self.upgrade.take() else { return };
        let late = upgrade.deadline().is_some_and(|at| at <= Instant::now());
        let Upgrade { asked, step } = upgrade;
        let step = match step {
            Step::Asks if readable => return self.hear_request(asked),
            Step::Asks if late => {
                return tracing::warn!("a request to the keeper did not come to its end");
            }
            Step::Begins { next, program, .. } if readable || late => {
                return self.hear_next(asked, next, program);
            }
            Step::Stops { next, version, program, since, .. } if late => {
                tracing::warn!("the server does not stop for the next one; killing it");
                self.server.signal(Signal::KILL);
                let until = Instant::now() + KILL_PAUSE;
                Step::Stops { next, version, program, since, until }
            }
            step => step,
        };
        self.upgrade = Some(Upgrade { asked, step });
    }

    /// Takes a piece of what somebody asks; with the last one the next server begins.
    fn hear_request(&mut self, mut asked: Asked) {
        let program = match asked.hear() {
            Ok(Some(Request::Upgrade { program })) => program,
            Ok(None) => return self.upgrade = Some(Upgrade { asked, step: Step::Asks }),
            Err(error) => return tracing::warn!(%error, "a request to the keeper"),
        };
        if self.kept.is_none() || self.ending.is_some() {
            return refuse(asked, "the mount is starting or ending; try again");
        }
        match Server::spawn(&program, self.args) {
            Ok(next) => {
                let until = Instant::now() + HELLO_MAX;
                let step = Step::Begins { next, program, until };
                self.upgrade = Some(Upgrade { asked, step });
            }
            Err(error) => refuse(asked, &format!("{}: {error}", program.display())),
        }
    }

    /// The next server says what it is, or should have by now; the old one is to stop.
    fn hear_next(&mut self, asked: Asked, next: Server, program: PathBuf) {
        let said = has_said(&next).then(|| next.hear());
        let Some(Ok(Some((ToKeeper::Hello { version }, _)))) = said else {
            end(next);
            let reason = "it does not run as a server of Nearside";
            return refuse(asked, &format!("{}: {reason}", program.display()));
        };
        if self.ending.is_some() {
            end(next);
            return refuse(asked, "the mount is ending");
        }
        tracing::info!(from = self.version, to = version, "the server is to stop for the next one");
        // One that has died already is followed by the next one all the same.
        let _ = self.server.tell(&ToServer::HandOver, &[]);
        let since = Instant::now();
        let step = Step::Stops { next, version, program, since, until: since + HAND_OVER_MAX };
        self.upgrade = Some(Upgrade { asked, step });
    }

    /// The next server, once the old one has gone.
    pub(super) fn take_next(&mut self) -> Option<Server> {
        let Upgrade { asked, step } = self.upgrade.take()?;
        let Step::Stops { next, version, program, since, .. } = step else {
            self.upgrade = Some(Upgrade { asked, step });
            return None;
        };
        let from = std::mem::replace(&mut self.version, version);
        self.program = program;
        self.upgrade = Some(Upgrade { asked, step: Step::TakesOver { from, since } });
        Some(next)
    }

    /// Says that the new server serves, if it is one.
    pub(super) fn finish_upgrade(&mut self) {
        match self.upgrade.take() {
            Some(Upgrade { asked, step: Step::TakesOver { from, since } }) => {
                let gap_us = since.elapsed().as_micros() as u64;
                let to = self.version.clone();
                tracing::info!(from, to, gap_us, "upgraded");
                asked.answer(&Reply::Upgraded { from, to, process: self.server.id(), gap_us });
            }
            other => self.upgrade = other,
        }
    }

    /// Says that nothing came of it.
    pub(super) fn refuse_upgrade(&mut self, reason: &str) {
        let Some(Upgrade { asked, step }) = self.upgrade.take() else { return };
        if let Step::Begins { next, .. } | Step::Stops { next, .. } = step {
            end(next);
        }
        refuse(asked, reason);
    }
}

fn refuse(asked: Asked, reason: &str) {
    tracing::warn!("no upgrade: {reason}");
    asked.answer(&Reply::Refused(reason.to_owned()));
}

/// Ends a server that has got nothing yet.
fn end(mut next: Server) {
    next.signal(Signal::KILL);
    let _ = next.wait();
}

/// Whether hearing it takes no wait.
fn has_said(next: &Server) -> bool {
    let mut list = [PollFd::from_borrowed_fd(next.channel(), PollFlags::IN)];
    matches!(poll(&mut list, Some(&Timespec::default())), Ok(1))
}
