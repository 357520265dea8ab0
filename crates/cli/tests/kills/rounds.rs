//! What befalls a mount and its clients in one round, by the round's seed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use crate::field::{Field, WORKERS};
use crate::model::Random;
use crate::support::wait_until;
use crate::times::Times;
use crate::watched::HANG;

/// The keeper restarts a server at once if it served for 250 ms, counted from the server's ready
/// message.
const SERVED_LONG_ENOUGH: Duration = Duration::from_millis(260);
/// Servers that may be killed before that, in this time: the next would be followed too late.
const EARLY_MAX: usize = 2;
const EARLY_WINDOW: Duration = Duration::from_secs(61);

/// Between its word that it asks for a lock and the call in which it waits.
const TO_BLOCK: Duration = Duration::from_millis(1);

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A client is killed.
    Client { same_id: bool },
    /// The server is killed; some time after it the one that takes over, too.
    Server { again: bool },
    /// A client is stopped for a while.
    StoppedClient,
    /// The server is stopped for a while, and killed then or goes on.
    StoppedServer { dies: bool },
    /// Keeper and server are killed, or the mount ends by itself; everything is verified.
    Everything { killed: bool },
    /// Nothing: how long it takes then.
    Nothing,
}

impl Kind {
    fn pick(dice: &mut Random) -> Kind {
        let coin = dice.below(2) == 0;
        match dice.below(100) {
            0..46 => Kind::Client { same_id: false },
            46..54 => Kind::Client { same_id: true },
            54..74 => Kind::Server { again: false },
            74..77 => Kind::Server { again: true },
            77..85 => Kind::StoppedClient,
            85..92 => Kind::StoppedServer { dies: coin },
            92..95 => Kind::Everything { killed: coin },
            _ => Kind::Nothing,
        }
    }
}

/// What was done and seen.
#[derive(Debug, Default)]
pub struct Sums {
    /// Servers, keepers and clients that were killed.
    pub servers: u64,
    pub keepers: u64,
    pub clients: u64,
    /// Clients and servers that were stopped.
    pub stops: u64,
    /// Clients who held a lock when they were killed, or stopped.
    pub held: u64,
    /// Clients that had the process id of the one before them.
    pub same_ids: u64,
    /// Times that everything was verified.
    pub checks: u64,
    /// Calls that were acknowledged.
    pub acknowledged: u64,
    /// Bytes that were on a capacity tier when that was looked at, the most.
    pub tier_bytes: u64,
    /// Until a client had done an act that began after nothing, a client's death, a client's stop,
    /// the end of the server's stop, its death; until one who waited had a dead one's lock.
    pub nothing: Times,
    pub after_client: Times,
    pub after_client_stop: Times,
    pub after_server_stop: Times,
    pub after_server: Times,
    pub lock_after_client: Times,
}

/// The rounds of one mount.
#[derive(Debug)]
pub struct Rounds {
    pub field: Field,
    pub sums: Sums,
    /// When the keeper had the ready message of the running server.
    served_since: Instant,
    /// Servers that were killed before they had served long enough.
    early: VecDeque<Instant>,
    /// For a report of what went wrong.
    doing: String,
}

fn pause(dice: &mut Random, below_us: u64) {
    std::thread::sleep(Duration::from_micros(dice.below(below_us)));
}

impl Rounds {
    pub fn new(field: Field) -> Rounds {
        let (sums, early) = (Sums::default(), VecDeque::new());
        Rounds { field, sums, served_since: Instant::now(), early, doing: String::new() }
    }

    /// One round.
    pub fn play(&mut self, round: u64) {
        let mut dice = Random::new(round ^ 0x6D6F_756E_7400);
        let kind = Kind::pick(&mut dice);
        self.doing = format!("round {round}: {kind:?}");
        match kind {
            Kind::Client { same_id } => self.kill_client(&mut dice, same_id),
            Kind::Server { again } => self.kill_server(&mut dice, again),
            Kind::StoppedClient => self.stop_client(&mut dice),
            Kind::StoppedServer { dies } => self.stop_server(&mut dice, dies),
            Kind::Everything { killed } => self.everything(&mut dice, killed),
            Kind::Nothing => {
                pause(&mut dice, 20_000);
                let times = self.field.go_on(Instant::now(), None);
                times.into_iter().for_each(|time| self.sums.nothing.add(time));
            }
        }
    }

    /// Lets the waiter ask for a lock, and gives it the time to.
    fn ask(&mut self, lock: u64) {
        let asks = self.field.waiter.heard().asks;
        self.field.waiter.tell(&lock.to_string());
        self.field.waiter.await_word("it asks", |heard| heard.asks > asks);
        std::thread::sleep(TO_BLOCK);
    }

    /// The waiter has the lock that it asked for by now.
    fn await_grant(&self) -> Instant {
        self.field.waiter.await_word("it is granted the lock", |heard| heard.holds.is_some());
        let heard = self.field.waiter.heard();
        heard.got.unwrap()
    }

    /// The waiter lets its lock go.
    fn let_go(&mut self) {
        let acts = self.field.waiter.heard().acks.len();
        self.field.waiter.tell("");
        self.field.waiter.await_word("it lets go", |heard| heard.acks.len() > acts);
        assert_eq!(self.field.waiter.heard().complaint, None);
    }

    /// Waits at times until the client holds a lock; which one that is.
    fn catch_with_lock(&mut self, dice: &mut Random, at: usize) -> Option<u64> {
        if dice.below(2) == 0 {
            self.field.clients[at]
                .hears_within(Duration::from_millis(30), |heard| heard.holds.is_some());
        }
        pause(dice, 500);
        self.field.clients[at].heard().holds
    }

    fn kill_client(&mut self, dice: &mut Random, same_id: bool) {
        let at = dice.below(self.field.clients.len() as u64) as usize;
        pause(dice, 10_000);
        let lock = self.catch_with_lock(dice, at);
        if let Some(lock) = lock {
            self.ask(lock);
        }
        let died = Instant::now();
        self.field.clients[at].kill();
        self.sums.clients += 1;
        let held = self.field.clients[at].heard().holds;
        let times = self.field.go_on(died, Some(at));
        times.into_iter().for_each(|time| self.sums.after_client.add(time));
        if lock.is_some() {
            let granted = self.await_grant();
            if held == lock {
                self.sums.held += 1;
                self.sums.lock_after_client.add(granted - died);
            }
        }
        self.field.settle(at, false);
        // Whatever the dead one held is the waiter's now: its heir is refused it.
        let refused = lock.filter(|_| (at as u64) < WORKERS);
        let is_same = self.field.restart(at, same_id, refused);
        self.sums.same_ids += u64::from(is_same);
        if lock.is_some() {
            let heir = self.field.clients[at].heard();
            assert!(refused.is_none() || heir.refused, "it did not ask for the lock");
            drop(heir);
            self.let_go();
        }
    }

    /// Waits until the server has served long enough to be followed at once.
    fn await_service(&self) {
        std::thread::sleep(
            (self.served_since + SERVED_LONG_ENOUGH).saturating_duration_since(Instant::now()),
        );
    }

    /// Kills the server that the pid file names; gives the moment.
    fn kill_now(&mut self) -> Instant {
        let server = self.field.scratch.server();
        let died = Instant::now();
        kill(server, Signal::SIGKILL).unwrap();
        self.sums.servers += 1;
        wait_until("another server is named", || {
            self.field.scratch.server_now().is_some_and(|now| now != server)
        });
        died
    }

    /// Everybody goes on after the server's death.
    fn survive(&mut self, died: Instant) {
        let times = self.field.go_on(died, None);
        times.into_iter().for_each(|time| self.sums.after_server.add(time));
        self.field.scratch.await_ready();
        self.served_since = Instant::now();
    }

    fn may_die_early(&mut self) -> bool {
        self.early.retain(|at| at.elapsed() < EARLY_WINDOW);
        self.early.len() < EARLY_MAX
    }

    fn kill_server(&mut self, dice: &mut Random, again: bool) {
        self.await_service();
        pause(dice, 20_000);
        // The waiter holds a lock over it, or waits for one who does.
        let holds = dice.below(3) == 0;
        if holds {
            self.ask(dice.below(3));
        }
        let mut died = self.kill_now();
        if again && self.may_die_early() {
            pause(dice, 60_000);
            died = self.kill_now();
            self.early.push_back(died);
        }
        self.survive(died);
        if holds {
            self.await_grant();
            self.let_go();
        }
    }

    fn stop_client(&mut self, dice: &mut Random) {
        let at = dice.below(WORKERS) as usize;
        pause(dice, 10_000);
        self.catch_with_lock(dice, at);
        self.field.clients[at].stop();
        self.sums.stops += 1;
        let stopped = Instant::now();
        // What it said last may be on its way.
        std::thread::sleep(Duration::from_millis(3));
        let lock = self.field.clients[at].heard().holds;
        if let Some(lock) = lock {
            self.ask(lock);
        }
        let times = self.field.go_on(stopped, Some(at));
        times.into_iter().for_each(|time| self.sums.after_client_stop.add(time));
        pause(dice, 40_000);
        let is_granted = self.field.waiter.heard().holds.is_some();
        // Its last words may still be in the pipe; a stopped client writes no more.
        let holds = || !self.field.clients[at].hears_within(HANG, |heard| heard.holds != lock);
        if is_granted && holds() {
            panic!("client {at} has stopped with lock {lock:?}, and another has got it");
        }
        self.field.clients[at].signal(Signal::SIGCONT);
        self.field.clients[at].goes_on_after(Instant::now());
        if lock.is_some() {
            self.sums.held += 1;
            self.await_grant();
            self.let_go();
        }
    }

    fn stop_server(&mut self, dice: &mut Random, dies: bool) {
        self.await_service();
        pause(dice, 20_000);
        let server = self.field.scratch.server();
        kill(server, Signal::SIGSTOP).unwrap();
        self.sums.stops += 1;
        pause(dice, 60_000);
        if dies {
            let died = self.kill_now();
            return self.survive(died);
        }
        let since = Instant::now();
        kill(server, Signal::SIGCONT).unwrap();
        let times = self.field.go_on(since, None);
        times.into_iter().for_each(|time| self.sums.after_server_stop.add(time));
    }

    fn everything(&mut self, dice: &mut Random, killed: bool) {
        pause(dice, 20_000);
        if killed {
            self.field.scratch.kill_both();
            (self.sums.servers, self.sums.keepers) = (self.sums.servers + 1, self.sums.keepers + 1);
            self.field.clients.iter_mut().for_each(|client| {
                client.await_word("its end without a mount", |heard| heard.ended);
                client.end();
            });
            self.field.waiter.kill();
        } else {
            self.sums.clients += self.field.clients.len() as u64;
            self.field.end_clients();
        }
        self.field.check(killed);
        self.sums.checks += 1;
        self.field.resume();
        self.served_since = Instant::now();
        // A new keeper has counted nothing yet.
        self.early.clear();
    }

    /// Ends it all.
    pub fn finish(mut self) -> Sums {
        "the end".clone_into(&mut self.doing);
        self.field.finish();
        self.sums.acknowledged = self.field.acknowledged;
        self.sums.tier_bytes = self.field.tier_bytes;
        std::mem::take(&mut self.sums)
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        println!("in {}", self.doing);
        for client in self.field.clients.iter().chain([&self.field.waiter]) {
            println!("client {} ({}): {}", client.number, client.id(), client.last_words());
        }
        println!("the server's log:\n{}", self.field.scratch.log());
    }
}
