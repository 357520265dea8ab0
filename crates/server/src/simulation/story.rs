//! What happens in one run, and what programs may see of it.

use rustix::event::epoll::EventFlags;
use wire::{Greeting, Welcome};

use super::link::{Seen, words};
use super::program::{Act, Does, Program};
use super::random::Random;
use super::world::{Counts, Led, World};

pub const PROGRAMS: usize = 3;
const STEPS: usize = 160;
/// Bytes of what is appended at a time: whose, and which.
pub const TOKEN_BYTES: usize = 8;
pub const LOG: usize = 0;
pub const COUNTER: usize = 1;

/// How far a program is with its service, as it sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It has never attached, or has ended.
    Away,
    /// It has said its first words.
    Greets,
    /// It opens again what it had open: so many are left.
    Restores(usize),
    Attached,
    /// No service takes it back.
    Gone,
}

/// A file that only one program uses.
#[derive(Clone, Default, Debug)]
pub struct Own {
    pub name: Option<String>,
    pub content: Vec<u8>,
    pub is_open: bool,
    /// What became of its last change is not known.
    pub is_uncertain: bool,
}

/// A program, and what is known of it.
pub struct One {
    program: Program,
    pub phase: Phase,
    pub link: Option<usize>,
    pub act: Option<Act>,
    /// What it has open.
    pub opens: usize,
    /// Of the files that all have open.
    pub shared: usize,
    /// The service knows it: it has said so to this service, or was first attached to it.
    pub has_returned: bool,
    /// A service has forgotten it: calls fail from then on, and at most one of them was made.
    pub is_forgotten: bool,
    pub files: Vec<Own>,
    pub directories: Vec<String>,
    pub names: usize,
    pub tokens: u32,
    /// It has the lock of the counter; and what it has read of that.
    pub has_lock: bool,
    pub has_read: Option<u64>,
    pub has_written: bool,
}

/// A run.
pub struct Story {
    pub random: Random,
    pub world: World,
    pub all: Vec<One>,
    pub counter: u64,
    /// Of a program that was forgotten while it wrote, the counter is this or one more.
    pub counter_is_uncertain: bool,
    /// What was appended, and where; and what was, perhaps.
    pub log: Vec<(u64, Vec<u8>)>,
    pub log_perhaps: Vec<Vec<u8>>,
    pub counts: Counts,
    /// What happens is said at once.
    pub is_loud: bool,
}

/// What a program appends.
pub fn token(who: usize, number: u32) -> Vec<u8> {
    [&(who as u32).to_le_bytes()[..], &number.to_le_bytes()].concat()
}

impl Story {
    pub fn new(seed: u64, is_loud: bool) -> Story {
        let one = |_| One {
            program: Program::start(),
            phase: Phase::Away,
            link: None,
            act: None,
            opens: 0,
            shared: 0,
            has_returned: false,
            is_forgotten: false,
            files: Vec::new(),
            directories: Vec::new(),
            names: 0,
            tokens: 0,
            has_lock: false,
            has_read: None,
            has_written: false,
        };
        Story {
            random: Random::new(seed),
            world: World::new(),
            all: (0..PROGRAMS).map(one).collect(),
            counter: 0,
            counter_is_uncertain: false,
            log: Vec::new(),
            log_perhaps: Vec::new(),
            counts: Counts::default(),
            is_loud,
        }
    }

    pub fn run(mut self) -> Counts {
        let counter = 0u64.to_le_bytes();
        self.world.pool().write("/log", b"").unwrap();
        self.world.pool().write("/counter", counter).unwrap();
        for _ in 0..STEPS {
            self.step();
        }
        self.settle();
        self.verify();
        let Story { world, all, counts, .. } = self;
        drop(all);
        world.finish();
        counts
    }

    /// Something happens.
    pub fn tell(&mut self, what: String) {
        if self.is_loud {
            println!("{what}");
        }
        self.counts.told.push(what);
    }

    fn step(&mut self) {
        let links: Vec<usize> = self.world.links.keys().copied().collect();
        if self.random.percent(10) {
            self.be_strange();
        }
        match self.random.below(100) {
            0..30 => {
                let who = self.random.below(PROGRAMS);
                if self.all[who].act.is_none() && self.all[who].phase != Phase::Gone {
                    self.begin(who);
                }
            }
            _ if links.is_empty() => {}
            30..60 => {
                let has_some = |link: &usize| !self.world.links[link].to_service.is_empty();
                let links: Vec<usize> = links.into_iter().filter(has_some).collect();
                if !links.is_empty() {
                    let link = self.random.one_of(&links);
                    let count = self.some(self.world.links[&link].to_service.len());
                    self.bring_to_service(link, count);
                }
            }
            60..88 => {
                let has_some = |link: &usize| !self.world.links[link].to_program.is_empty();
                let links: Vec<usize> = links.into_iter().filter(has_some).collect();
                if !links.is_empty() {
                    let link = self.random.one_of(&links);
                    let count = self.some(self.world.links[&link].to_program.len());
                    self.bring_to_program(link, count);
                }
            }
            88..92 => {
                let link = self.random.one_of(&links);
                self.cut(link);
            }
            92..94 => {
                let link = self.random.one_of(&links);
                if self.world.links[&link].near.is_none() {
                    self.hear_end(link);
                }
            }
            94 => {
                let link = self.random.one_of(&links);
                self.change(link);
            }
            95..97 => {
                let link = self.random.one_of(&links);
                self.repeat(link);
            }
            97 if self.random.percent(60) => self.kill(),
            98 => self.end_linger(),
            _ => self.end_grace(),
        }
    }

    /// All of these, mostly, or a part.
    fn some(&mut self, count: usize) -> usize {
        if self.random.percent(75) { count } else { self.random.below(count + 1) }
    }

    /// The service hears that there is nobody at the other end any more.
    pub fn hear_end(&mut self, id: usize) {
        self.tell(format!("the service hears that {id} has ended"));
        let how = match self.world.links[&id].ends_in_order {
            true => EventFlags::RDHUP,
            false => EventFlags::RDHUP | EventFlags::HUP,
        };
        self.world.hear_end(id, how);
        self.forget_links();
    }

    pub fn forget_links(&mut self) {
        self.world.links.retain(|_, link| !link.is_over());
    }

    /// Has an idle program do something.
    fn begin(&mut self, who: usize) {
        let act = self.choose(who);
        self.begin_with(who, act);
    }

    pub fn begin_with(&mut self, who: usize, act: Act) {
        self.tell(format!("{who}: {act:?}"));
        self.counts.calls += 1;
        let one = &mut self.all[who];
        if matches!(act, Act::Unlock(_) | Act::Detach) {
            // from here on another may have it
            one.has_lock = false;
        }
        one.act = Some(act.clone());
        one.program.tell(act);
        if matches!(one.phase, Phase::Attached | Phase::Away | Phase::Gone) {
            self.react(who);
        }
    }

    /// Waits for what the program does next: it is known that it does something.
    pub fn react(&mut self, who: usize) {
        loop {
            let one = &mut self.all[who];
            let link = one.link.and_then(|link| self.world.links.get_mut(&link));
            match one.program.does(link.as_ref().and_then(|link| link.near.as_ref())) {
                Does::Connects(stream) => {
                    self.leave_link(who);
                    let link = self.world.connect(who, Some(stream));
                    (self.all[who].link, self.all[who].phase) = (Some(link), Phase::Greets);
                    self.tell(format!("{who} connects: {link}"));
                }
                Does::Sends => match link.unwrap().hear_program() {
                    Ok(Some(seen)) => return self.has_sent(who, &seen),
                    Ok(None) => {}
                    Err(()) => self.leave_link(who),
                },
                Does::Ends(outcome) => return self.is_done(who, outcome),
            }
        }
    }

    fn has_sent(&mut self, who: usize, seen: &Seen) {
        if self.all[who].phase == Phase::Greets {
            let greeting: Greeting = words(seen).unwrap();
            let link = self.all[who].link.unwrap();
            let returns = greeting.returns.is_some();
            self.world.links.get_mut(&link).unwrap().returns = returns;
            self.counts.returns += u64::from(returns);
        }
    }

    /// The program sees its connection no more.
    pub fn leave_link(&mut self, who: usize) {
        if let Some(link) = self.all[who].link.take().and_then(|id| self.world.links.get_mut(&id)) {
            link.near = None;
        }
        self.forget_links();
    }

    pub fn bring_to_service(&mut self, id: usize, count: usize) {
        let who = self.world.links[&id].program;
        self.tell(format!("{count} bytes of {id} to the service"));
        if self.world.bring_to_service(id, count) == Led::ToSession
            && let Some(one) = self.all.get_mut(who)
        {
            one.has_returned = true;
        }
        self.forget_links();
    }

    pub fn bring_to_program(&mut self, id: usize, count: usize) {
        let link = self.world.links.get_mut(&id).unwrap();
        let who = link.program;
        if link.near.is_none() {
            // nobody is there
            link.to_program.clear();
            return;
        }
        let seen = link.bring_to_program(count);
        self.tell(format!("of {count} bytes of {id} to {who}: {}", seen.is_ok()));
        match seen {
            // it closes the connection, and comes back
            Err(()) => self.react(who),
            Ok(seen) => seen.iter().for_each(|seen| self.has_heard(who, seen)),
        }
    }

    fn has_heard(&mut self, who: usize, seen: &Seen) {
        let one = &mut self.all[who];
        let returns = one.link.is_some_and(|link| self.world.links[&link].returns);
        let goes_on = one.act.is_some();
        let next = match one.phase {
            Phase::Greets => match words::<Welcome>(seen) {
                // and says that this was all
                Some(Welcome::Attached { .. }) if returns => Phase::Restores(one.opens + 1),
                Some(Welcome::Attached { .. }) => Phase::Attached,
                // it tries again
                Some(Welcome::Refused(_)) => return self.react(who),
                other => panic!("a program is told {other:?}"),
            },
            Phase::Restores(left) if left > 1 => Phase::Restores(left - 1),
            Phase::Restores(_) | Phase::Attached => Phase::Attached,
            Phase::Away | Phase::Gone => panic!("nobody is there to hear that"),
        };
        one.phase = next;
        if goes_on || next != Phase::Attached {
            self.react(who);
        }
    }
}
