//! A round: a pool with a service, honest processes, and hostile ones that come and go.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearside::{FormatOptions, Pool, SliceSpec};
use nix::sys::signal::{Signal, kill};
use rustix::process::set_parent_process_death_signal;
use wire::{Identity, Reply, Request};

use super::honest::{self, Account, COUNT_AT, COUNTS, Honest, OTHERS, SHARED, USER};
use super::service::{serve, work};
use super::standing::Standing;
use super::strange::{self, Kind, USERS};
use crate::child::{self, Running};
use crate::hand::ByHand;
use crate::served::SOON;
use crate::strangers::Random;

/// The test that is run again as each of the processes.
const NAME: &str = "hostile::honest_work_goes_on_beside_hostile_processes";
/// How long hostile processes are at it, in milliseconds, unless `NEARSIDE_HOSTILE_MS` says
/// otherwise: with 0, honest ones begin again and again.
const HOSTILE_MS: u64 = 3000;
/// What honest ones have before, so that the service stands as it does when it serves them.
const ALONE: Duration = Duration::from_millis(700);
/// How long a canary's service may take to stand as it stood.
const CANARY_STANDS: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(40);

/// What is spoilt on purpose, and has to be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A byte of an honest process's file.
    File,
    /// One of its part of what is shared.
    Part,
    /// A word that they count in.
    Count,
    /// Somebody who stays attached.
    Stays,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Tally {
    /// How often hostile processes did what, and what came of it.
    strange: BTreeMap<String, u64>,
    rounds: u64,
    calls: u64,
    longest_ms: u64,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        for (what, count) in other.strange {
            *self.strange.entry(what).or_default() += count;
        }
        self.rounds += other.rounds;
        self.calls += other.calls;
        self.longest_ms = self.longest_ms.max(other.longest_ms);
    }

    /// A kind of attempt, or an outcome, that has not occurred and should have.
    pub fn missing(&self) -> Option<String> {
        // a few seconds may be too short for some
        if self.rounds < 6 {
            return None;
        }
        let is_root = nix::unistd::geteuid().is_root();
        let kinds = Kind::ALL.into_iter().filter(|kind| is_root || !kind.is_of_others());
        let mut all: Vec<String> = kinds.map(|kind| format!("{kind:?}")).collect();
        all.extend(["folded", "kept leases", "stored in its copy"].map(str::to_owned));
        all.extend(is_root.then(|| "was refused".to_owned()));
        all.into_iter().find(|what| !self.strange.contains_key(what))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { strange, rounds, calls, longest_ms } = self;
        write!(out, "{rounds} rounds, {calls} honest steps ({longest_ms} ms at most); hostile:")?;
        strange.iter().try_for_each(|(what, count)| write!(out, " {what} {count}"))
    }
}

/// Is one of the processes, if this one is to be; then it does not come back.
pub fn play_if_told() {
    let Some(dir) = child::pool() else { return };
    let role = child::role();
    let words: Vec<&str> = role.split(' ').collect();
    let number = |word: &str| word.parse::<u64>().unwrap();
    match *words {
        ["service", seed] => serve(&dir, number(seed)),
        ["honest", who, seed] => be_honest(&dir, number(who), number(seed)),
        ["hostile", seed, is_other, client, service, proof] => {
            let (client, proof) = (client.to_owned(), proof.to_owned());
            let victim = Identity { client, service: number(service), proof };
            strange::run(&dir, number(seed), is_other == "other", victim)
        }
        _ => panic!("no such role: {role}"),
    }
}

fn be_honest(dir: &Path, number: u64, seed: u64) -> ! {
    set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let pool = Arc::new(Pool::attach(dir).unwrap());
    let honest = Honest::new(pool, number, seed).unwrap();
    child::say("ready");
    let is_over = Arc::new(AtomicBool::new(false));
    let told = is_over.clone();
    std::thread::spawn(move || {
        child::wait_to_be_told();
        told.store(true, Ordering::Relaxed);
    });
    child::say(&work(honest, &is_over));
    // what is wrong is heard when the test asks
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
    }
    std::process::exit(0)
}

/// Where a round is: the pool's directory, and a program that every user can run.
struct Stage {
    root: tempfile::TempDir,
    dir: PathBuf,
}

impl Stage {
    fn new() -> Stage {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("pool");
        let format = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: 256 << 20,
            process: true,
            ..FormatOptions::default()
        };
        Pool::format(&dir, &format).unwrap();
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        for dir in [root.path(), &dir] {
            std::fs::set_permissions(dir, mode(0o711)).unwrap();
        }
        let (usual, program) = (std::env::current_exe().unwrap(), root.path().join("program"));
        if std::fs::hard_link(&usual, &program).is_err() {
            std::fs::copy(&usual, &program).unwrap();
        }
        Stage { root, dir }
    }

    /// A process of this role and user.
    fn start(&self, role: &str, user: Option<u32>) -> Running {
        let usual = child::command_as(role, NAME, &self.dir);
        let mut command = Command::new(self.root.path().join("program"));
        child::pass_on(&usual, &mut command);
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(user) = user.filter(|_| nix::unistd::geteuid().is_root()) {
            command.uid(user).gid(user);
        }
        Running::start(command)
    }
}

/// Hostile processes: those that run, and what was heard of those that do not any more.
struct Hostile<'s> {
    stage: &'s Stage,
    random: Random,
    victim: &'s Identity,
    running: Vec<Running>,
    came: usize,
    tally: Tally,
}

impl Hostile<'_> {
    /// Another one: two in three are of other users than the service.
    fn start(&mut self) {
        let user = USERS.get(self.came % 3).copied();
        self.came += 1;
        let is_other = user.is_some() && nix::unistd::geteuid().is_root();
        let Identity { client, service, proof } = self.victim;
        let whose = if is_other { "other" } else { "own" };
        let role = format!("hostile {} {whose} {client} {service} {proof}", self.random.next());
        let process = self.stage.start(&role, user);
        self.running.push(process);
    }

    /// Stops some of them for a moment, and kills some, for which others come.
    fn trouble(&mut self) {
        for at in 0..self.running.len() {
            let id = self.running[at].id();
            match self.random.below(40) {
                0 => {
                    self.end(at);
                    self.start();
                }
                1..10 => kill(id, Signal::SIGSTOP).unwrap(),
                _ => kill(id, Signal::SIGCONT).unwrap(),
            }
        }
    }

    /// Kills one, and hears what it had said.
    fn end(&mut self, at: usize) {
        let mut process = self.running.swap_remove(at);
        let has_ended = std::fs::read_link(format!("/proc/{}/exe", process.id())).is_err();
        process.kill();
        for line in process.rest() {
            assert!(!line.starts_with("harm: "), "{line}");
            *self.tally.strange.entry(line).or_default() += 1;
        }
        assert!(!has_ended, "a hostile process ended by itself");
    }
}

/// Runs a round of a seed. It panics where something is wrong.
pub fn round((seed, number): (u64, u64), canary: Option<Canary>) -> Tally {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9) ^ number << 32);
    let stage = Stage::new();
    let mut service = stage.start(&format!("service {}", random.next()), None);
    assert_eq!(service.hear(), "serves");
    let mut honest: Vec<Running> = (1..honest::ALL)
        .map(|who| {
            let role = format!("honest {who} {}", random.next());
            let mut process = stage.start(&role, (who == OTHERS).then_some(USER));
            assert_eq!(process.hear(), "ready");
            process
        })
        .collect();
    let victim = ByHand::attach(&stage.dir.join(nearside::ATTACH_SOCKET), None);
    let before = at_work(&mut service, &stage.dir).unwrap_or_else(|now| {
        let said: Vec<String> = honest.iter_mut().map(|process| process.ask("end")).collect();
        panic!("not all have lanes: {now}; they say: {said:?}");
    });
    let (running, tally) = (Vec::new(), Tally { rounds: 1, ..Tally::default() });
    let mut hostile =
        Hostile { stage: &stage, random, victim: &victim.identity, running, came: 0, tally };
    let told = std::env::var("NEARSIDE_HOSTILE_MS").ok().and_then(|it| it.parse().ok());
    let most = Duration::from_millis(told.unwrap_or(HOSTILE_MS));
    (0..3).for_each(|_| hostile.start());
    let until = Instant::now() + if canary.is_some() { most / 10 } else { most };
    while Instant::now() < until {
        std::thread::sleep(TICK);
        hostile.trouble();
    }
    while !hostile.running.is_empty() {
        hostile.end(0);
    }
    let mut tally = hostile.tally;
    let stays = canary.and_then(|canary| spoil(&stage.dir, canary));
    let soon = if canary.is_some() { CANARY_STANDS } else { SOON };
    let stands = stands_again(&mut service, &stage.dir, (&before, soon));
    drop(stays);
    let asked = victim.try_ask((0, 0), &Request::Info, &[], &mut []);
    assert_eq!(asked, Some(Reply::Done), "who was claimed to be another is served");
    let mut accounts: Vec<Account> = honest.iter_mut().map(|it| account(&it.ask("end"))).collect();
    drop((victim, honest));
    accounts.push(account(&service.ask("end")));
    // an honest process that found something wrong has gone, which this would be about
    stands.unwrap_or_else(|now| panic!("it does not stand as it stood: {now}; before: {before}"));
    assert_eq!(service.ask("close"), "closed");
    drop(service);
    verify(&stage.dir, &accounts);
    tally.calls = accounts.iter().map(|account| account.calls).sum();
    tally.longest_ms = accounts.iter().map(|account| account.longest_ms).max().unwrap();
    tally
}

fn account(line: &str) -> Account {
    let account = Account::heard(line).unwrap_or_else(|| panic!("an honest process: {line}"));
    let is_enough = honest::made_enough_calls(account.calls, account.counted);
    assert!(is_enough, "it made too few calls: {account:?}");
    account
}

/// How the service stands when honest processes have all that they get; where they do not get it,
/// how it stands then.
fn at_work(service: &mut Running, dir: &Path) -> Result<Standing, Standing> {
    let (begun, mut since, mut before) = (Instant::now(), Instant::now(), Standing::default());
    loop {
        std::thread::sleep(TICK);
        let now = Standing::of(service, dir);
        if now.lane_files != 3 * (honest::ALL as usize - 1) || !now.is_as(&before) {
            (since, before) = (Instant::now(), now.clone());
        } else if since.elapsed() >= ALONE {
            return Ok(now);
        }
        if begun.elapsed() >= SOON {
            return Err(now);
        }
    }
}

/// Waits until the service stands as it stood; how it stands where it does not.
fn stands_again(
    service: &mut Running,
    dir: &Path,
    (before, soon): (&Standing, Duration),
) -> Result<(), Standing> {
    let until = Instant::now() + soon;
    loop {
        let now = Standing::of(service, dir);
        if now.is_as(before) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(now);
        }
        std::thread::sleep(TICK);
    }
}

/// What the pool has, and what honest processes say that they wrote.
fn verify(dir: &Path, accounts: &[Account]) {
    let report = nearside::check(dir).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(report.requests, 0, "nothing is remembered of those who are gone");
    assert!(!dir.join("lanes").exists(), "the lanes go with their processes");
    let pool = Pool::open(dir).unwrap();
    let shared = pool.open_file(SHARED, &nearside::OpenFlags::new().read(true)).unwrap();
    let counted: u64 = accounts.iter().map(|account| account.counted).sum();
    for name in COUNTS {
        let content = pool.read(name).unwrap();
        assert_eq!(content[COUNT_AT..COUNT_AT + 8], counted.to_ne_bytes(), "{name}");
    }
    for account in accounts {
        let own = pool.read(honest::own(account.number)).unwrap();
        let place = honest::part(account.number);
        let mut part = vec![0; place.len()];
        shared.read_exact_at(&mut part, place.start as u64).unwrap();
        let sums = [pmem::crc32c(0, &own), pmem::crc32c(0, &part)];
        assert_eq!(sums, account.sums, "files of {account:?}");
    }
    drop(shared);
    pool.close().unwrap();
}

/// Does what none of the hostile ones should be able to; who stays.
fn spoil(dir: &Path, canary: Canary) -> Option<Pool> {
    let pool = Pool::attach(dir).unwrap();
    let put = |path: &str, at: u64, bytes: &[u8]| {
        let flags = nearside::OpenFlags::new().read(true).write(true);
        let file = pool.open_file(path, &flags).unwrap();
        file.write_all_at(bytes, at).unwrap();
    };
    match canary {
        Canary::File => put(&honest::own(1), 0, &[1; 400_000]),
        Canary::Part => put(SHARED, honest::part(2).start as u64, &[1; 65_536]),
        Canary::Count => put(COUNTS[1], COUNT_AT as u64, &1u64.to_ne_bytes()),
        Canary::Stays => return Some(pool),
    }
    None
}
