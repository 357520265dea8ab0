//! A hostile process: one attempt after the other.

use std::path::{Path, PathBuf};

use rustix::process::{Signal, set_parent_process_death_signal};
use wire::{Flags, Identity, Reply, Request};

use super::{memory, records, socket};
use crate::child;
use crate::hand::{ByHand, try_said_to};
use crate::strangers::Random;

/// The directory of those who are not of the service's user.
pub const STRANGE: &str = "/strange";
/// Those users.
pub const USERS: [u32; 2] = [1234, 1235];

/// What a hostile process does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes, and messages that are changed or cut, with descriptors, on the socket.
    Socket,
    /// Rings, reads what others should hear, and makes it a bell that waits.
    Bell,
    /// Says that it is another process, or has what another one has.
    Claims,
    /// Calls of all kinds, changed and cut.
    Asks,
    /// Stores in the memory of its calls while they are under way.
    Memory,
    /// Copies that come and go; it stores in those in which it can.
    Copies,
    /// Opens what it was given anew, to store in it.
    Reopens,
    /// Any bytes in its lane, which is also cut and made longer.
    Lane,
    /// Records in its lane that are not so, and that change while they are folded.
    Records,
    /// Leases that it keeps, until it goes.
    Withholds,
}

impl Kind {
    pub const ALL: [Kind; 10] = [
        Kind::Socket,
        Kind::Bell,
        Kind::Claims,
        Kind::Asks,
        Kind::Memory,
        Kind::Copies,
        Kind::Reopens,
        Kind::Lane,
        Kind::Records,
        Kind::Withholds,
    ];

    /// Whether only others than the service's user do so: that one may open and change all files,
    /// and is not to hit honest ones by chance.
    pub fn is_of_others(self) -> bool {
        matches!(self, Kind::Asks | Kind::Memory | Kind::Reopens)
    }
}

/// What came of an attempt: what is worth counting, or what harm was done.
pub type Attempt = Result<Vec<&'static str>, String>;

/// A hostile process.
pub struct Strange {
    pub path: PathBuf,
    pub random: Random,
    /// One that is attached all the time.
    pub victim: Identity,
    /// Whether it is of another user than the service.
    pub is_other: bool,
}

impl Strange {
    pub fn attach(&self) -> Option<ByHand> {
        ByHand::of(try_said_to(&self.path, None)?).ok()
    }

    fn attempt(&mut self, kind: Kind) -> Attempt {
        match kind {
            Kind::Socket => socket::says_anything(self),
            Kind::Bell => socket::rings(self),
            Kind::Claims => socket::claims(self),
            Kind::Asks => memory::asks(self),
            Kind::Memory => memory::stores(self),
            Kind::Copies => memory::copies(self),
            Kind::Reopens => memory::reopens(self),
            Kind::Lane => records::any_bytes(self),
            Kind::Records => records::records(self),
            Kind::Withholds => records::withholds(self),
        }
    }
}

/// Opens a file; its number.
pub fn opened(hand: &ByHand, path: &str, write: bool) -> Option<u64> {
    let flags = Flags { read: true, write, ..Flags::default() };
    match hand.try_ask((0, 1), &Request::Open(path.as_bytes(), flags), &[], &mut [])? {
        Reply::Opened(file, ..) => Some(file),
        _ => None,
    }
}

/// Is hostile until it is told to end, or killed. It says what it begins, what came of it, and what
/// harm was done.
pub fn run(dir: &Path, seed: u64, is_other: bool, victim: Identity) -> ! {
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    std::thread::spawn(|| child::wait_for_the_end());
    let path = dir.join(nearside::ATTACH_SOCKET);
    let mut strange = Strange { path, random: Random(seed), victim, is_other };
    let kinds = Kind::ALL.into_iter().filter(|kind| is_other || !kind.is_of_others());
    let kinds: Vec<Kind> = kinds.collect();
    loop {
        let kind = kinds[strange.random.below(kinds.len() as u64) as usize];
        child::say(&format!("{kind:?}"));
        match strange.attempt(kind) {
            Ok(notes) => notes.into_iter().for_each(child::say),
            Err(harm) => child::say(&format!("harm: {kind:?}: {harm}")),
        }
    }
}
