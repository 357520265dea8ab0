//! Lets processes of other machines in, over TCP.
//!
//! They are who their certificates say, and may do what the access file says; or, where nothing is
//! encrypted, nobody is asked who it is, and all are one user, that of the service's choice.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use nearside::Pool;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use wire::{Decoder, Frame, Greeting, Link, MountAnswer, MountAsk, WORDS, Welcome};

use crate::fabrics;
use crate::gate::{Certified, Gate, why_not};
use crate::guests::Guests;
use crate::identity::Whose;
use crate::line::Line;
use crate::listener::{self, DOOR, END};
use crate::mount::{MountOf, Mounted};
use crate::rights::Rights;
use crate::session::Who;
use crate::shared::Shared;
use crate::stream::{Hears, Peer, Stream};

/// What rings is called when streams begin to wait for memory.
const ALARM: u64 = u64::MAX - 1;

/// What is said to who speaks TLS where nobody does: the alert `protocol_version`, by which the
/// other side knows why it is not understood.
const NO_TLS: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];

/// By what somebody is let in.
#[derive(Debug)]
pub enum Trust {
    /// By whoever reaches the door, with these rights.
    Network(Rights),
    /// By certificate.
    Certified(Box<Gate>),
}

impl Trust {
    /// Looks whether it is what it was.
    fn look(&mut self, shared: &Shared) {
        if let Trust::Certified(gate) = self {
            gate.look(shared);
        }
    }

    fn receive(&self, socket: OwnedFd) -> Option<Guest> {
        let link = match self {
            Trust::Network(_) => Link::plain(socket),
            Trust::Certified(gate) => gate.receive(socket)?,
        };
        Some(Guest::new(link))
    }

    /// Who has come, if it is to be somebody; or why not.
    fn admit(&self, pool: &Pool, link: &Link) -> Result<Admitted, String> {
        let (rights, certified) = match self {
            Trust::Network(rights) => (rights.clone(), None),
            Trust::Certified(gate) => {
                let one = gate.admit(link)?;
                (one.rights.clone(), Some(one))
            }
        };
        let view = rights.view(pool);
        let view = view.and_then(|pool| Ok((pool.metadata("/")?.attr().ino.0, pool)));
        let (root, pool) = view.map_err(|error| format!("its part of the pool: {error}"))?;
        Ok(Admitted { rights, certified, pool, root })
    }
}

/// Who is let in.
struct Admitted {
    rights: Rights,
    certified: Option<Certified>,
    /// The pool as it sees it, and the directory that is the root there.
    pool: Pool,
    root: u64,
}

impl Admitted {
    fn whose(&self) -> Whose<'_> {
        let Rights { user, read_only, .. } = self.rights;
        match &self.certified {
            None => Whose::User(user),
            Some(one) => Whose::Certified { name: &one.name, user, root: self.root, read_only },
        }
    }
}

/// One who has not said its first words so far.
pub struct Guest {
    link: Link,
    /// What it has said of them.
    said: Decoder,
}

impl Guest {
    /// One who has said nothing.
    pub fn new(link: Link) -> Guest {
        Guest { link, said: Decoder::default() }
    }
}

impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.transport().bell()
    }
}

/// Lets processes in, until the service ends.
pub fn run(shared: &Arc<Shared>, door: &TcpListener, trust: Trust) {
    if let Err(error) = serve(shared, door, trust) {
        tracing::error!("no process of another machine can attach: {error}");
    }
}

fn serve(shared: &Arc<Shared>, door: &TcpListener, mut trust: Trust) -> std::io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, door, EventData::new_u64(DOOR), EventFlags::IN)?;
    epoll::add(&epoll, shared.end(), EventData::new_u64(END), EventFlags::IN)?;
    // heard once each time that it rings
    let rings = EventFlags::IN | EventFlags::ET;
    epoll::add(&epoll, shared.credit.alarm(), EventData::new_u64(ALARM), rings)?;
    let mut guests = Guests::new(epoll.as_fd());
    let none = epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(END) };
    let mut events = [none; 64];
    while !shared.has_ended() {
        let looks = match &trust {
            Trust::Network(_) => None,
            Trust::Certified(gate) => Some(gate.rest()),
        };
        let limits = [guests.patience(), shared.credit.end_overdue(), looks];
        let limit = limits.into_iter().flatten().min();
        let limit = limit.and_then(|time| Timespec::try_from(time).ok());
        let count = match epoll::wait(&epoll, &mut events, limit.as_ref()) {
            Err(Errno::INTR) => continue,
            count => count?,
        };
        if looks.is_some_and(|rest| rest.is_zero()) || count > 0 {
            trust.look(shared);
        }
        for event in &events[..count] {
            match event.data.u64() {
                DOOR => guests.admit(shared, door, |socket| trust.receive(socket)),
                END | ALARM => {}
                number => hear(shared, &mut guests, number, &trust),
            }
        }
        guests.lose_patience();
    }
    Ok(())
}

/// What of its first words a guest has said.
pub enum Heard {
    /// Not all of them.
    Part,
    /// All.
    Greeting(Greeting),
    /// It has gone, or they are none; in words.
    Nonsense(String),
}

/// Hears what a guest has said since.
pub fn listen(guest: &mut Guest) -> Heard {
    let nonsense = || Heard::Nonsense("it said nothing that makes sense".to_owned());
    match guest.link.receive(guest.said.room()) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let transport = guest.link.transport();
            if !transport.may_sleep() {
                transport.ring();
            }
            return Heard::Part;
        }
        Err(error) => return Heard::Nonsense(why_not(&error)),
        Ok(0) => return Heard::Nonsense("it went without a word".to_owned()),
        Ok(bytes) => guest.said.fill(bytes),
    }
    if guest.said.is_of_tls() {
        let _ = guest.link.send([&NO_TLS, &[], &[]]);
        return Heard::Nonsense("it speaks TLS, and this service serves --insecure".to_owned());
    }
    if guest.said.is_at_long() {
        // a greeting is short, and guests have no credit
        return nonsense();
    }
    match guest.said.frame() {
        Ok(None) => Heard::Part,
        Ok(Some(Frame { slot: WORDS, message, .. })) => {
            serde_json::from_slice(message).map_or_else(|_| nonsense(), Heard::Greeting)
        }
        _ => nonsense(),
    }
}

/// A guest says something, or has gone.
fn hear(shared: &Arc<Shared>, guests: &mut Guests<'_, Guest>, number: u64, trust: &Trust) {
    let heard = guests.get(number).map(listen);
    if matches!(heard, Some(Heard::Part)) {
        return;
    }
    let Some(guest) = guests.take(number) else { return };
    // what it gets now, memory of a fabric's say, is to lie where it is served
    let _held = shared.stations.near(&guest.link).hold();
    let peer = guest.link.peer();
    let refused = match heard {
        Some(Heard::Greeting(Greeting { version, fabric: Some(theirs), .. })) => {
            let began = Instant::now();
            let joins = guests.count(|guest| guest.link.beside().is_some());
            let admitted = trust.admit(shared.pool(), &guest.link).map(drop);
            let may_join = admitted.and_then(|()| fabrics::may_join(&guest.link, joins));
            let joined = fabrics::join(shared, guest.link, (version, &theirs), may_join);
            // to open a fabric may take long
            guests.forgive(began.elapsed());
            joined.map(|link| guests.add(shared, Guest::new(link))).err()
        }
        Some(Heard::Greeting(greeting)) => {
            let attached = wire::prepare(&guest.link)
                .and_then(|()| attach(shared, (number, guest), &greeting, trust));
            attached.err().map(|why| why.to_string())
        }
        Some(Heard::Nonsense(why)) => Some(why),
        _ => None,
    };
    if let Some(why) = refused {
        tracing::info!("who came from {peer} was not let in: {why}");
    }
}

/// Makes a session of a guest who has said this.
pub fn attach(
    shared: &Arc<Shared>,
    (number, guest): (u64, Guest),
    greeting: &Greeting,
    trust: &Trust,
) -> std::io::Result<()> {
    let Guest { link, said } = guest;
    let admitted = trust.admit(shared.pool(), &link);
    // who is sent away is nobody
    let user = admitted.as_ref().map_or(u32::MAX, |one| one.rights.user);
    let bells = shared.stations.near(&link).bells().clone();
    let credit = shared.credit.clone();
    let stream = Stream::new((link, said), Peer { number, user, bells, credit });
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(reason) => return refuse(&stream, greeting, reason),
    };
    let whose = admitted.whose();
    let _alone = shared.admission.lock();
    let last = greeting.returns.as_ref().and_then(|said| {
        let session = shared.session_of(shared.identities().recognize(said, whose)?)?;
        // it may know before this service does that the connection is lost
        shared.lose(&session).then_some(session)
    });
    if last.as_ref().is_some_and(|last| last.mount.is_some() != greeting.mount.is_some()) {
        return stream.say(&Welcome::Refused("a mount asks nothing else".to_owned()));
    }
    let (client, mut welcome) = match listener::welcome(shared, greeting, whose, last.as_deref()) {
        Ok(welcome) => welcome,
        Err(refusal) => return stream.say(&refusal),
    };
    if last.as_ref().is_some_and(|last| !last.retire()) {
        let reason = "calls that it made over another connection are still under way";
        return stream.say(&Welcome::Refused(reason.to_owned()));
    }
    let mount = match (&greeting.mount, last.as_ref().and_then(|last| last.mount.clone())) {
        (None, _) => None,
        (Some(_), Some(mount)) => Some(mount),
        (Some(ask), None) => match mounted(shared, client, ask, &admitted) {
            Ok(mount) => Some(mount),
            Err(reason) => return stream.say(&Welcome::Refused(reason)),
        },
    };
    if let (Welcome::Attached { mount: answer, .. }, Some(mount)) = (&mut welcome, &mount) {
        *answer = Some(MountAnswer { is_new: mount.is_new() });
        let (theirs, mount) = (Arc::downgrade(shared), mount.clone());
        stream.hear_by(Hears(Box::new(move |message, data| {
            if let Some(shared) = theirs.upgrade() {
                mount.told(&shared, (message, data));
            }
        })));
    }
    stream.say::<Welcome>(&welcome)?;
    let Admitted { rights, certified, pool, .. } = admitted;
    let who = Who { client, pool, read_only: rights.read_only, certified };
    let mut session = listener::session(shared, number, who, Line::Stream(stream));
    session.mount.clone_from(&mount);
    let session = Arc::new(session);
    if let Some(mount) = &mount {
        mount.connected(&session);
    }
    if let Some(last) = &last {
        session.inherit(last);
        shared.replace(last);
        tracing::debug!(session = number, "goes on with what session {} had", last.number);
    }
    shared.add(session)
}

/// Says to who has shown a certificate why it is not let in.
fn refuse(stream: &Arc<Stream>, greeting: &Greeting, reason: String) -> std::io::Result<()> {
    let error = std::io::Error::other(reason.clone());
    stream.say(&match greeting.returns {
        // it need not try again
        Some(_) => Welcome::Stranger(reason),
        None => Welcome::Refused(reason),
    })?;
    Err(error)
}

/// What serves the mount that somebody asks for.
fn mounted(
    shared: &Shared,
    client: u128,
    ask: &MountAsk,
    admitted: &Admitted,
) -> Result<Arc<Mounted>, String> {
    let mounts = shared.mounts().ok_or("this service has no mounts for other machines")?;
    let Admitted { rights, pool, .. } = admitted;
    // a kernel asks by inode: one that may have a part of the pool names those of that part only
    let names = rights.subtree.is_some().then(|| shared.identities().names_for(client));
    Mounted::begin(mounts, MountOf { pool, client, ask, rights, names })
}
