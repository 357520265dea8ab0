//! Lets processes in, and sees them go.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearside::Caller;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};
use wire::{Channel, Greeting, Served, VERSION, Welcome};

use crate::door::Door;
use crate::service::Shared;
use crate::session::Session;

/// What the listening socket is called among the sessions, which begin at 1.
const DOOR: u64 = 0;
/// What the end of the service is called.
pub const END: u64 = u64::MAX;
/// Time that a process has for its first words.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Processes that have said nothing so far, at most.
const GUESTS_MAX: usize = 256;
/// Pause after nobody could be let in.
const REFUSAL_PAUSE: Duration = Duration::from_millis(100);

/// Lets processes in and sees them go, until the service ends.
pub fn run(shared: &Arc<Shared>, door: &Door) {
    let listening = EventData::new_u64(DOOR);
    if let Err(error) = epoll::add(shared.sockets(), door, listening, EventFlags::IN) {
        tracing::error!("no process can attach: {error}");
    }
    let mut guests = Guests::default();
    let mut events = [epoll::Event { flags: EventFlags::empty(), data: listening }; 64];
    while !shared.has_ended() {
        let limit = guests.patience();
        let count = match epoll::wait(shared.sockets(), &mut events, limit.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(error) => return tracing::error!("the service hears no process end: {error}"),
        };
        for event in &events[..count] {
            match event.data.u64() {
                DOOR => guests.admit(shared, door),
                END => {}
                number => match guests.0.remove(&number) {
                    Some(guest) => greet(shared, number, guest),
                    None => shared.end_session(number),
                },
            }
        }
        guests.lose_patience(shared);
    }
}

/// A socket that has said nothing so far.
struct Guest {
    socket: OwnedFd,
    since: Instant,
}

/// Those who are connected and have said nothing so far, in the order in which they came.
#[derive(Default)]
struct Guests(BTreeMap<u64, Guest>);

impl Guests {
    /// Lets in who waits at the door.
    fn admit(&mut self, shared: &Shared, door: &Door) {
        loop {
            match accept_with(door, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.add(shared, socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // out of descriptors, say: whoever waits is let in when there are some
                    tracing::warn!("no process can attach for now: {error}");
                    return std::thread::sleep(REFUSAL_PAUSE);
                }
            }
        }
    }

    fn add(&mut self, shared: &Shared, socket: OwnedFd) {
        if self.0.len() >= GUESTS_MAX {
            // in favour of who may say something
            self.0.pop_first();
        }
        let number = shared.new_number();
        let data = EventData::new_u64(number);
        match epoll::add(shared.sockets(), &socket, data, EventFlags::IN | EventFlags::RDHUP) {
            Ok(()) => {
                self.0.insert(number, Guest { socket, since: Instant::now() });
            }
            Err(error) => tracing::warn!("a process was not attached: {error}"),
        }
    }

    /// How long the one who has waited for longest still has.
    fn patience(&self) -> Option<Timespec> {
        let (_, first) = self.0.first_key_value()?;
        Timespec::try_from(SILENCE_MAX.saturating_sub(first.since.elapsed())).ok()
    }

    /// Sends those away who have said nothing for too long.
    fn lose_patience(&mut self, shared: &Shared) {
        let is_late = |guest: &Guest| guest.since.elapsed() >= SILENCE_MAX;
        while let Some(first) = self.0.first_entry().filter(|first| is_late(first.get())) {
            let _ = epoll::delete(shared.sockets(), first.remove().socket);
        }
    }
}

fn greet(shared: &Shared, number: u64, guest: Guest) {
    // its socket is its session's from here on
    let _ = epoll::delete(shared.sockets(), &guest.socket);
    if let Err(error) = attach(shared, number, guest.socket) {
        tracing::info!("a process was not attached: {error}");
    }
}

/// Makes a session of a guest who has said something.
fn attach(shared: &Shared, number: u64, socket: OwnedFd) -> std::io::Result<()> {
    let peer = sockopt::socket_peercred(&socket)?;
    let groups = shm::peer_groups(socket.as_fd()).map_err(std::io::Error::other)?;
    let caller = Caller::new(peer.uid.as_raw(), peer.gid.as_raw(), groups);
    let channel = Channel::new(socket);
    let Some((greeting, _)) = channel.receive::<Greeting>()? else { return Ok(()) };
    if greeting.version != VERSION {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        return channel.send(&Welcome::Version { version: VERSION, program }, &[]);
    }
    if shared.is_full_for(peer.uid.as_raw()) {
        let reason =
            "as many processes are attached, of all or of this user, as it takes".to_owned();
        return channel.send(&Welcome::Refused(reason), &[]);
    }
    let user = peer.uid.as_raw();
    let (client, knows) = match who_it_is(shared, &greeting, user) {
        Ok(known) => known,
        Err(refusal) => return channel.send(&refusal, &[]),
    };
    let memory = wire::create_calls().map_err(std::io::Error::other)?;
    let calls = Served::new(memory.as_fd()).map_err(std::io::Error::other)?;
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let pool = shared.pool().for_caller(caller);
    let process = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let identity = shared.identities().identity(client, user);
    let welcome = Welcome::Attached { pool: pool.info().uuid, process, identity, knows };
    let who = (client, shared.identities().clone());
    // before it can ask, so that its first call rings
    calls.park();
    let leases = (shared.leases().cloned(), shared.bounds());
    let session = Arc::new(Session::new(number, who, pool, calls, (channel, bell), leases));
    session.send(&welcome, &[memory.as_fd(), session.bell()])?;
    shared.add(session)
}

/// Who a guest is, and whether it is known what it did before.
fn who_it_is(
    shared: &Shared,
    greeting: &Greeting,
    user: u32,
) -> std::result::Result<(u128, bool), Welcome> {
    let identities = shared.identities();
    let Some(said) = &greeting.returns else {
        let drawn = identities.draw().map_err(|error| Welcome::Refused(error.to_string()));
        return drawn.map(|client| (client, true));
    };
    let Some(client) = identities.recognize(said, user) else {
        let reason = "it is not the one that it says to be, or its user has changed";
        return Err(Welcome::Stranger(reason.to_owned()));
    };
    if shared.has_client(client) {
        return Err(Welcome::Refused("this process is attached already".to_owned()));
    }
    let knows = shared.grace().welcome(client, identities.remembers(said));
    if !knows {
        shared.pool().fs().forget_client(client);
    }
    Ok((client, knows))
}
