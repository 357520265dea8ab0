//! One attachment to a service.

use std::cell::Cell;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fs::Process;
use parking_lot::Mutex;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown,
    socket_with, sockopt,
};
use wire::{Calls, Channel, Greeting, Place, Reply, Request, SOCKET_NAME, Welcome};

use crate::{Error, Result};

/// Longest time that a service may take to answer: another one may be about to follow it, and
/// recover the pool.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// One attachment to the service of a pool.
#[derive(Debug)]
pub struct Session {
    calls: Arc<Calls>,
    /// Wakes the service.
    bell: OwnedFd,
    channel: Arc<Channel>,
    /// Hears what the service says of itself.
    listener: Mutex<Option<JoinHandle<()>>>,
    process: Process,
    pool: String,
}

thread_local! {
    /// Room for a message, kept for the thread's next call.
    static ROOM: Cell<(Vec<u8>, Vec<u8>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

impl Session {
    /// Attaches to the service of the pool in directory `path`, or the one that listens at the
    /// socket `path`.
    pub fn attach(path: &Path) -> Result<Session> {
        let (dir, name) = match path.is_dir() {
            true => (path.to_path_buf(), SOCKET_NAME.into()),
            false => split(path)?,
        };
        let channel = connected(&dir, &name)?;
        let greeting =
            Greeting { version: wire::VERSION, client: uuid::Uuid::new_v4().simple().to_string() };
        channel.send(&greeting, &[]).map_err(Error::io("sendmsg"))?;
        let said = channel.receive::<Welcome>().map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => {
                Error::Refused(format!("it has not answered for {} s", ANSWER_MAX.as_secs()))
            }
            _ => Error::io("recvmsg")(error),
        })?;
        // from here on it says something when it ends, and nothing before
        let waits = sockopt::set_socket_timeout(&channel, sockopt::Timeout::Recv, None);
        waits.map_err(|errno| Error::io("setsockopt")(errno.into()))?;
        let (welcome, descriptors) = said.ok_or(Error::Lost)?;
        let pool = match welcome {
            Welcome::Attached { pool, .. } => pool,
            Welcome::Version { version, program } => {
                return Err(Error::Version { theirs: version, program });
            }
            Welcome::Refused(reason) => return Err(Error::Refused(reason)),
        };
        let [memory, bell] = <[OwnedFd; 2]>::try_from(descriptors)
            .map_err(|_| Error::Nonsense("two descriptors come with the welcome"))?;
        let calls = Arc::new(Calls::new(memory.as_fd()).map_err(Error::shm)?);
        let channel = Arc::new(channel);
        let (theirs, hears) = (calls.clone(), channel.clone());
        let listen = move || {
            // the service says nothing more before it ends
            while let Ok(Some(_)) = hears.receive::<()>() {}
            theirs.lose();
        };
        let listener = std::thread::Builder::new().name("ns-attached".to_owned()).spawn(listen);
        let listener = Mutex::new(Some(listener.map_err(Error::io("a thread"))?));
        Ok(Session { calls, bell, channel, listener, process: Process::here(), pool })
    }

    /// The process that attached. A forked child has no part in it.
    pub fn process(&self) -> Process {
        self.process
    }

    /// The identity of the pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Asks the service: with `data`, where the answer's data goes to the beginning of `into`.
    /// Returns the answer and how much data came.
    pub fn ask(
        &self,
        request: &Request<'_>,
        data: &[u8],
        into: &mut [u8],
    ) -> Result<(Reply, usize)> {
        if !self.process.is_here() {
            return Err(Error::Forked { owner: self.process.id() });
        }
        let (mut message, mut answer) = ROOM.take();
        message.clear();
        let asked = wire::encode(request, message)
            .ok()
            .filter(|message| message.len() <= wire::MESSAGE_BYTES_MAX)
            .ok_or(Error::Nonsense("the call is too long"));
        let outcome = asked.and_then(|message| {
            let answered = self.calls.ask(&message, data, &|| self.ring(), &mut answer, into);
            let len = answered.map_err(|_| Error::Lost)?;
            let reply = wire::decode(&answer).map_err(|_| Error::Nonsense("an answer"))?;
            Ok((message, reply, len))
        });
        let (message, reply, len) = outcome?;
        ROOM.set((message, answer));
        Ok((reply, len))
    }

    fn ring(&self) {
        // a bell that rings already is loud enough
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let listener = self.listener.get_mut().take();
        if !self.process.is_here() {
            // the parent's: its thread is not here, and the socket stays open there
            return std::mem::forget(listener);
        }
        let _ = shutdown(self.channel.as_fd(), Shutdown::Both);
        if let Some(listener) = listener {
            drop(listener.join());
        }
    }
}

fn split(path: &Path) -> Result<(PathBuf, std::ffi::OsString)> {
    let none = || Error::NoService(path.to_path_buf());
    let name = path.file_name().ok_or_else(none)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    Ok((dir.unwrap_or(Path::new(".")).to_path_buf(), name.to_owned()))
}

fn connected(dir: &Path, name: &std::ffi::OsStr) -> Result<Channel> {
    let path = dir.join(name);
    let refused = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory => {
            Error::NoService(path.clone())
        }
        ErrorKind::PermissionDenied => Error::NotAllowed(path.clone()),
        _ => Error::io("connect")(error),
    };
    let place = Place::of(dir, name.len()).map_err(refused)?;
    let address = SocketAddrUnix::new(place.join(name)).map_err(|errno| refused(errno.into()))?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::io("socket")(errno.into()))?;
    let waits = sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_MAX));
    waits.map_err(|errno| Error::io("setsockopt")(errno.into()))?;
    connect(&socket, &address).map_err(|errno| refused(errno.into()))?;
    Ok(Channel::new(socket))
}
