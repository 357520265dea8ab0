//! Lets processes in, and sees them go.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nearside::Caller;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wire::{Channel, Greeting, Served, VERSION, Welcome};

use crate::door::Door;
use crate::guests::Guests;
use crate::identity::Whose;
use crate::line::Line;
use crate::session::{Session, Who};
use crate::shared::Shared;

/// What the listening socket is called among the sessions, which begin at 1.
pub const DOOR: u64 = 0;
/// What the end of the service is called.
pub const END: u64 = u64::MAX;

/// Each session takes some: they are to be as many as this process may have, not the few that it
/// begins with, which one user could use up.
pub fn take_descriptors() {
    let now = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, ..now }) {
        tracing::info!("few processes can attach: {error}");
    }
}

/// Lets processes in and sees them go, until the service ends.
pub fn run(shared: &Arc<Shared>, door: &Door) {
    let listening = EventData::new_u64(DOOR);
    if let Err(error) = epoll::add(shared.sockets(), door, listening, EventFlags::IN) {
        tracing::error!("no process can attach: {error}");
    }
    let mut guests = Guests::new(shared.sockets());
    let mut events = [epoll::Event { flags: EventFlags::empty(), data: listening }; 64];
    while !shared.has_ended() {
        let limit = [guests.patience(), shared.end_lost()].into_iter().flatten().min();
        let limit = limit.and_then(|time| Timespec::try_from(time).ok());
        let count = match epoll::wait(shared.sockets(), &mut events, limit.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(error) => return tracing::error!("the service hears no process end: {error}"),
        };
        for event in &events[..count] {
            match event.data.u64() {
                DOOR => guests.admit(shared, door, Some),
                END => {}
                number => match guests.take(number) {
                    Some(socket) => greet(shared, number, socket),
                    None => shared.socket_ended(number, event.flags),
                },
            }
        }
        guests.lose_patience();
    }
}

fn greet(shared: &Shared, number: u64, socket: OwnedFd) {
    if let Err(error) = attach(shared, number, socket) {
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
    let _alone = shared.admission.lock();
    let whose = Whose::User(caller.uid());
    let (client, welcome) = match welcome(shared, &greeting, whose, None) {
        Ok(welcome) => welcome,
        Err(refusal) => return channel.send(&refusal, &[]),
    };
    let memory = wire::create_calls().map_err(std::io::Error::other)?;
    let calls = Served::new(memory.as_fd()).map_err(std::io::Error::other)?;
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    // before it can ask, so that its first call rings
    calls.park();
    channel.send(&welcome, &[memory.as_fd(), bell.as_fd()])?;
    let line = Line::Memory { calls, channel, bell };
    let pool = shared.pool().for_caller(caller);
    let who = Who { client, pool, read_only: false, certified: None };
    shared.add(Arc::new(session(shared, number, who, line)))
}

/// A session, which is not served so far.
pub fn session(shared: &Shared, number: u64, who: Who, line: Line) -> Session {
    let leases = (shared.leases().cloned(), shared.bounds());
    let known = (shared.identities().clone(), shared.holders().clone());
    Session::new(number, who, known, line, leases)
}

/// Who a guest is that said this, and what is to be said to it; or why it is not let in. `last`: it
/// may come back from a connection that was lost, of which this is the session.
pub fn welcome(
    shared: &Shared,
    greeting: &Greeting,
    whose: Whose<'_>,
    last: Option<&Session>,
) -> std::result::Result<(u128, Welcome), Welcome> {
    if greeting.version != VERSION {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        return Err(Welcome::Version { version: VERSION, program });
    }
    if last.is_none() && shared.is_full_for(whose.user()) {
        let reason = "as many processes are attached, of all or of this user, as it takes";
        return Err(Welcome::Refused(reason.to_owned()));
    }
    let (client, knows) = match last {
        Some(last) => {
            let said = greeting.returns.as_ref();
            (last.client, shared.identities().knows_on(last.client, said))
        }
        None => who_it_is(shared, greeting, whose)?,
    };
    let process = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let identity = shared.identities().identity(client, whose);
    let pool = shared.pool().info().uuid;
    Ok((client, Welcome::Attached { pool, process, identity, knows, mount: None }))
}

/// Who a guest is, and whether it is known what it did before.
fn who_it_is(
    shared: &Shared,
    greeting: &Greeting,
    whose: Whose<'_>,
) -> std::result::Result<(u128, bool), Welcome> {
    let identities = shared.identities();
    let Some(said) = &greeting.returns else {
        let drawn = identities.draw().map_err(|error| Welcome::Refused(error.to_string()));
        return drawn.map(|client| (client, true));
    };
    let Some(client) = identities.recognize(said, whose) else {
        let reason = "it is not the one that it says to be, or its user or rights have changed";
        return Err(Welcome::Stranger(reason.to_owned()));
    };
    if shared.session_of(client).is_some() {
        return Err(Welcome::Refused("this process is attached already".to_owned()));
    }
    let is_remembered = identities.remembers(said) && !identities.given_up.is_forgotten(client);
    let knows = shared.grace().welcome(client, is_remembered);
    if !knows {
        // what it did is forgotten as soon as it goes on: somebody else may have repeated its words
        identities.given_up.note(client);
    }
    Ok((client, knows))
}
