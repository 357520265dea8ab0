//! The threads that serve a connection.
//!
//! Each reads one request at a time into its slot of the state memory and has the server answer it.
//! Before the first of them starts, what an earlier server owed is answered.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::settings::{self, Agreed};
use crate::state::{Slot, State};
use crate::wire::{Capabilities, Channel, Notifier, Operation, Reply, Request, RequestHead};
use crate::{Connected, Error, Result, Server, Wishes};

/// The threads of a mount.
#[derive(Debug)]
pub(crate) struct Session {
    threads: Vec<JoinHandle<io::Result<()>>>,
    leaver: Leaver,
}

/// Stops a server at a point where no request is half served, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Leaver {
    /// Nothing when there are no threads any more.
    server: Option<Weak<dyn Leave>>,
    is_leaving: Arc<AtomicBool>,
    /// One for each thread, which holds it while it serves a request.
    serving: Vec<Arc<Mutex<()>>>,
}

/// What is to be told that it leaves.
trait Leave: std::fmt::Debug + Send + Sync {
    fn leaves(&self);
}

impl<S: Server> Leave for Shared<S> {
    fn leaves(&self) {
        self.server.leaves();
    }
}

impl<S> std::fmt::Debug for Shared<S> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Leaver {
    /// Waits until no request is being served, and has none served from now on; the mount stays.
    pub fn leave(&self) {
        // Relaxed: the locks order it.
        self.is_leaving.store(true, Ordering::Relaxed);
        for serving in &self.serving {
            drop(serving.lock());
        }
        if let Some(server) = self.server.as_ref().and_then(Weak::upgrade) {
            server.leaves();
        }
    }
}

/// What a server's threads have in common.
struct Shared<S> {
    server: S,
    channel: Arc<Channel>,
    agreed: Capabilities,
    is_leaving: Arc<AtomicBool>,
}

/// Settles with the kernel what the mount can do, unless an earlier server has.
pub(crate) fn shake_hands(
    channel: &Arc<Channel>,
    state: &mut State,
    wishes: Wishes,
    masked: Capabilities,
) -> Result<Capabilities> {
    let head = state.head()?;
    if head.is_agreed != 0 {
        if head.wishes != wishes.bits() {
            return Err(Error::Takeover("its earlier server promised the kernel something else"));
        }
        return Ok(Capabilities(head.capabilities));
    }
    let slot = state.slots.first_mut().ok_or(Error::Session(Errno::INVAL.into()))?;
    if slot.owed().is_none() {
        read(channel, slot).map_err(|errno| Error::Session(errno.into()))?;
    }
    let Ok(Request { head, operation: Operation::Init(ask, offered), .. }) =
        Request::parse(slot.request(), Capabilities::default())
    else {
        return Err(Error::Session(io::Error::other("the kernel did not begin with INIT")));
    };
    let Some(agreed) = settings::agree(&ask, offered, masked, wishes) else {
        Reply::new(channel, head.unique).error(libc::EPROTO);
        let text = format!("the kernel speaks FUSE {}.{}", ask.major, ask.minor);
        return Err(Error::Session(io::Error::other(text)));
    };
    // Written down before it is said: a server that comes after a kill in between says the same.
    record(state, &agreed, wishes)?;
    Ok(agreed.capabilities)
}

fn record(state: &mut State, agreed: &Agreed, wishes: Wishes) -> Result<()> {
    state.change(|head| {
        head.answer = agreed.answer;
        head.capabilities = agreed.capabilities.0;
        head.wishes = wishes.bits();
    })?;
    state.change(|head| head.is_agreed = 1)
}

/// Reads the next request into `slot`. ENODEV: the mount is gone.
fn read(channel: &Channel, slot: &mut Slot) -> std::result::Result<(), Errno> {
    loop {
        match channel.read(slot.room()) {
            Ok(_) => return Ok(()),
            // The caller was killed while its request was on its way.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
    }
}

impl Session {
    /// Serves what is owed, then starts a thread for each of the first `threads` slots.
    pub(crate) fn start<S: Server>(
        server: S,
        device: OwnedFd,
        mut state: State,
        (threads, masked): (usize, Capabilities),
    ) -> Result<Session> {
        let channel = Arc::new(Channel::new(device));
        let agreed = shake_hands(&channel, &mut state, server.wishes(), masked)?;
        let answer = state.head()?.answer;
        server.connected(Connected {
            notifier: Notifier::new(channel.clone()),
            owed: state.slots.iter().filter_map(Slot::owed).collect(),
            channel: channel.clone(),
            owes: state.owes()?,
            locks: state.locks.take(),
            opened: state.opened.take(),
            memo: Some(state.memo()?),
            mirror: None,
            threads,
            agreed,
        })?;
        let is_leaving = Arc::<AtomicBool>::default();
        let shared = Shared { server, channel, agreed, is_leaving: is_leaving.clone() };
        let shared = Arc::new(shared);
        let as_leave: Arc<dyn Leave> = shared.clone();
        let server = Some(Arc::downgrade(&as_leave));
        let mut leaver = Leaver { server, is_leaving, serving: Vec::new() };
        // What the kernel forgets comes last, as it did when it was first told: a request that has
        // been answered, and is served again, may use it once more.
        for forgets in [false, true] {
            std::thread::scope(|scope| {
                let owed = state.slots.iter_mut().filter(|slot| slot.owed().is_some());
                for slot in owed.filter(|slot| slot.forgets() == forgets) {
                    // At once: one may wait for another, as they did when they were first asked.
                    scope.spawn(|| shared.settle(slot, &answer));
                }
            });
        }
        let mut started = Vec::new();
        for (number, slot) in state.slots.into_iter().take(threads).enumerate() {
            let (shared, serving) = (shared.clone(), Arc::new(Mutex::new(())));
            leaver.serving.push(serving.clone());
            let builder = std::thread::Builder::new().name(format!("ns-fuse-{number}"));
            match builder.spawn(move || shared.serve_all(slot, &serving)) {
                Ok(thread) => started.push(thread),
                Err(error) => {
                    leaver.leave();
                    return Err(Error::Session(error));
                }
            }
        }
        Ok(Session { threads: started, leaver })
    }

    /// Waits until the mount is gone and every request is answered.
    pub(crate) fn join(self) -> Result<()> {
        let mut outcome = Ok(());
        for thread in self.threads {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread died")));
            outcome = outcome.and(ended.map_err(Error::Session));
        }
        outcome
    }

    /// Waits until no request is being served, and has none served from now on; the mount stays.
    pub(crate) fn leave(self) -> Left {
        self.leaver.leave();
        Left { threads: self.threads }
    }

    /// What stops it from another thread.
    pub(crate) fn leaver(&self) -> Leaver {
        self.leaver.clone()
    }
}

/// The threads of a server that has left. They hold the connection until they have ended: each
/// ends when it reads one more request, which it leaves to the next server, or with the process.
#[derive(Debug)]
pub struct Left {
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Left {
    /// Waits until each thread has met a request.
    pub fn wait(self) {
        for thread in self.threads {
            // What went wrong in it matters to nobody any more.
            let _ = thread.join();
        }
    }
}

impl<S: Server> Shared<S> {
    /// One thread's work: serves until the mount is gone, or the server leaves.
    fn serve_all(&self, mut slot: Slot, serving: &Mutex<()>) -> io::Result<()> {
        slot.populate();
        loop {
            slot.count_on();
            match read(&self.channel, &mut slot) {
                Ok(()) => {}
                Err(Errno::NODEV) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
            let _serving = serving.lock();
            if self.is_leaving.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.serve(&mut slot, false);
        }
    }

    /// Serves what an earlier server owed.
    fn settle(&self, slot: &mut Slot, agreed: &crate::wire::InitAnswer) {
        match Request::parse(slot.request(), self.agreed) {
            Ok(Request { head, operation: Operation::Init(..), .. }) => {
                Reply::new(&self.channel, head.unique).agreed(agreed);
            }
            _ => return self.serve(slot, true),
        }
        slot.clear();
    }

    /// Serves the request in `slot`, which a server may have been given before. This is where a
    /// panic ends: the caller gets EIO (its reply is dropped), the server goes on. What the engine
    /// had half done is not visible: a change becomes so in one step, at its end.
    fn serve(&self, slot: &mut Slot, again: bool) {
        let request = match Request::parse(slot.request(), self.agreed) {
            Ok(request) => Request { again, turn: slot.turn(), ..request },
            Err(error) => {
                self.refuse(slot, error);
                return slot.clear();
            }
        };
        let RequestHead { unique, code, .. } = request.head;
        let reply = Reply::new(&self.channel, unique);
        let served = catch_unwind(AssertUnwindSafe(|| self.server.serve(&request, reply)));
        if let Err(panic) = served {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            tracing::error!(code, "panic while serving a request (please report it): {text}");
        }
        slot.clear();
        self.server.answered(unique);
    }

    fn refuse(&self, slot: &Slot, error: crate::wire::Malformed) {
        match RequestHead::parse(slot.request()) {
            Ok(head) => {
                tracing::error!(code = head.code, %error, "a request makes no sense");
                Reply::new(&self.channel, head.unique).error(libc::EIO);
            }
            Err(error) => tracing::error!(%error, "a request makes no sense"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::{MountOptions, connect, serve_by};

    /// Knows nothing.
    struct Nothing;

    impl Server for Nothing {
        fn wishes(&self) -> Wishes {
            Wishes::default()
        }

        fn serve(&self, _: &Request<'_>, reply: Reply<'_>) {
            reply.error(libc::EXFULL);
        }
    }

    /// As a killed server would: reads INIT, and may have settled what to answer.
    fn die_over_init(connection: &crate::Connection, has_settled: bool) {
        let mut state = State::map(connection.state.as_fd(), 1).unwrap();
        let channel = Arc::new(Channel::new(connection.device.try_clone().unwrap()));
        read(&channel, &mut state.slots[0]).unwrap();
        if has_settled {
            shake_hands(&channel, &mut state, Wishes::default(), Capabilities::default()).unwrap();
        }
    }

    #[test]
    fn the_server_after_one_that_died_over_init_answers_it() {
        let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
        if !nix::unistd::geteuid().is_root() || device.is_err() {
            println!("skipped: mounting takes root and /dev/fuse");
            return;
        }
        for has_settled in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let options = MountOptions { threads: Some(2), ..MountOptions::default() };
            let connection = connect(dir.path(), &options).unwrap();
            die_over_init(&connection, has_settled);
            assert_eq!(connection.in_flight().unwrap().len(), 1);
            let make = |turn: crate::Turn| {
                assert_eq!(turn.number, 2);
                Nothing
            };
            let mount = serve_by(make, connection, &options).unwrap();
            let met = std::fs::symlink_metadata(dir.path().join("name")).unwrap_err();
            assert_eq!(met.raw_os_error(), Some(libc::EXFULL));
            mount.unmount().unwrap();
            mount.wait().unwrap();
        }
    }
}
