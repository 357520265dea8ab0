//! Lets processes of other machines in, over TCP.
//!
//! Nobody is asked who it is: all are one user, that of the service's choice. So this is for the
//! machine itself, until connections are encrypted and both sides show certificates.

use std::net::TcpListener;
use std::sync::Arc;

use nearside::Caller;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use wire::{Frame, Greeting, WORDS, Welcome};

use crate::guests::{Guest, Guests};
use crate::line::Line;
use crate::listener::{self, DOOR, END};
use crate::service::Shared;
use crate::stream::Stream;

/// Whose files those who come over a network may use: user and group.
pub type User = (u32, u32);

/// Lets processes in, until the service ends.
pub fn run(shared: &Arc<Shared>, door: &TcpListener, user: User) {
    if let Err(error) = serve(shared, door, user) {
        tracing::error!("no process of another machine can attach: {error}");
    }
}

fn serve(shared: &Arc<Shared>, door: &TcpListener, user: User) -> std::io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, door, EventData::new_u64(DOOR), EventFlags::IN)?;
    epoll::add(&epoll, shared.end(), EventData::new_u64(END), EventFlags::IN)?;
    let mut guests = Guests::new(std::os::fd::AsFd::as_fd(&epoll));
    let none = epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(END) };
    let mut events = [none; 64];
    while !shared.has_ended() {
        let limit = guests.patience().and_then(|time| Timespec::try_from(time).ok());
        let count = match epoll::wait(&epoll, &mut events, limit.as_ref()) {
            Err(Errno::INTR) => continue,
            count => count?,
        };
        for event in &events[..count] {
            match event.data.u64() {
                DOOR => guests.admit(shared, door),
                END => {}
                number => hear(shared, &mut guests, number, user),
            }
        }
        guests.lose_patience();
    }
    Ok(())
}

/// What of its first words a guest has said.
enum Heard {
    /// Not all of them.
    Part,
    /// All.
    Greeting(Greeting),
    /// It has gone, or they are none.
    Nonsense,
}

fn listen(guest: &mut Guest) -> Heard {
    match recv(&guest.socket, guest.said.room(), RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN | Errno::INTR) => return Heard::Part,
        Ok((bytes, _)) if bytes > 0 => guest.said.fill(bytes),
        _ => return Heard::Nonsense,
    }
    match guest.said.frame() {
        Ok(None) => Heard::Part,
        Ok(Some(Frame { slot: WORDS, message, .. })) => {
            serde_json::from_slice(message).map_or(Heard::Nonsense, Heard::Greeting)
        }
        _ => Heard::Nonsense,
    }
}

/// A guest says something, or has gone.
fn hear(shared: &Shared, guests: &mut Guests<'_>, number: u64, user: User) {
    let heard = guests.get(number).map(listen);
    if matches!(heard, Some(Heard::Part)) {
        return;
    }
    let Some(guest) = guests.take(number) else { return };
    match heard {
        Some(Heard::Greeting(greeting)) => {
            if let Err(error) = attach(shared, (number, guest), &greeting, user) {
                tracing::info!("a process of another machine was not attached: {error}");
            }
        }
        _ => tracing::info!("who connected over the network said nothing that makes sense"),
    }
}

fn attach(
    shared: &Shared,
    (number, guest): (u64, Guest),
    greeting: &Greeting,
    (uid, gid): User,
) -> std::io::Result<()> {
    let Guest { socket, said, .. } = guest;
    wire::prepare(&socket)?;
    let stream = Stream::new((socket, said), (number, shared.bells().clone()));
    let _alone = shared.admission.lock();
    let last = greeting.returns.as_ref().and_then(|said| {
        let session = shared.session_of(shared.identities().recognize(said, uid)?)?;
        // it may know before this service does that the connection is lost
        session.lose().then_some(session)
    });
    let (client, welcome) = match listener::welcome(shared, greeting, uid, last.as_deref()) {
        Ok(welcome) => welcome,
        Err(refusal) => return stream.say(&refusal),
    };
    if last.as_ref().is_some_and(|last| !last.retire()) {
        let reason = "calls that it made over another connection are still under way";
        return stream.say(&Welcome::Refused(reason.to_owned()));
    }
    stream.say::<Welcome>(&welcome)?;
    let (who, line) = ((client, Caller::new(uid, gid, Vec::new())), Line::Stream(Box::new(stream)));
    let session = listener::session(shared, number, who, line);
    if let Some(last) = &last {
        session.inherit(last);
        shared.replace(last);
        tracing::debug!(session = number, "goes on with what session {} had", last.number);
    }
    shared.add(session)
}
