//! A mount with its clients, and what each of them has been promised.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::account::{Account, verify_shared};
use crate::acts::LOCKS;
use crate::client::{WAITER, lock_path, own_path};
use crate::mapper::{self, Words};
use crate::support::{Scratch, Shape};
use crate::watched::{HANG, Watched, command};

/// Clients with a directory of their own.
pub const WORKERS: u64 = 4;
/// Blocks that the trees of an emptied pool may have more than those of a new one.
const TREE_BLOCKS_MAX: u64 = 64;

/// A mount in use.
#[derive(Debug)]
pub struct Field {
    test: &'static str,
    pub scratch: Scratch,
    python: Option<PathBuf>,
    pub clients: Vec<Watched>,
    pub waiter: Watched,
    accounts: Vec<Account>,
    /// Inodes and free blocks before any client did anything.
    inodes: u64,
    blocks_free: u64,
    /// Acts that were acknowledged by processes that have ended.
    pub acknowledged: u64,
    has_tier: bool,
    /// Bytes that were on a capacity tier at some check, the most.
    pub tier_bytes: u64,
    /// Seeds for the next processes.
    seeds: u64,
}

/// The interpreter itself: what the name stands for may be a script that looks for it.
fn python() -> Option<PathBuf> {
    let print = ["-I", "-S", "-c", "import sys; print(sys.executable, end='')"];
    let said = Command::new("python3").args(print).output();
    let path = said.ok().filter(|said| said.status.success()).map(|said| said.stdout);
    if path.is_none() {
        println!("skipped: python3 is not installed, so nobody maps files");
    }
    Some(PathBuf::from(String::from_utf8(path?).unwrap()))
}

fn inodes_used(mnt: &Path) -> u64 {
    let stat = nix::sys::statvfs::statvfs(mnt).unwrap();
    stat.files() - stat.files_free()
}

/// Bytes in use on the capacity tier of a pool that is not mounted.
fn tier_bytes(scratch: &Scratch) -> u64 {
    let pool = scratch.pool();
    let args = ["tier".as_ref(), "status".as_ref(), pool.as_os_str(), "--json".as_ref()];
    let told: serde_json::Value = serde_json::from_str(&scratch.run_ok(args)).unwrap();
    told["device_used_bytes"].as_u64().unwrap()
}

impl Field {
    /// A new mount with clients at work; nothing where mounting is impossible.
    pub fn new(test: &'static str, shape: &Shape, seed: u64) -> Option<Field> {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let scratch = Scratch::formatted_as(&dir, shape)?;
        scratch.mount();
        let (mnt, python) = (scratch.mnt(), python());
        let mut accounts: Vec<Account> = (0..WORKERS).map(Account::worker).collect();
        (0..WORKERS).for_each(|worker| std::fs::create_dir(own_path(&mnt, worker)).unwrap());
        if python.is_some() {
            accounts.push(Account::Mapper(Words::new(&mnt)));
        }
        std::fs::create_dir(mnt.join("nameless")).unwrap();
        let files = (0..LOCKS).map(|lock| lock_path(&mnt, lock)).chain([mnt.join("shared")]);
        files.for_each(|path| drop(File::create_new(path).unwrap()));
        scratch.umount();
        scratch.mount();
        let mut waiter = command(test, WAITER, 0, None, &mnt);
        let mut field = Field {
            test,
            waiter: Watched::start(WAITER, 0, &mut waiter),
            scratch,
            python,
            clients: Vec::new(),
            accounts,
            inodes: inodes_used(&mnt),
            blocks_free: nix::sys::statvfs::statvfs(&mnt).unwrap().blocks_free(),
            acknowledged: 0,
            has_tier: !shape.devices.is_empty(),
            tier_bytes: 0,
            seeds: (seed << 16) + 1,
        };
        field.start_all();
        Some(field)
    }

    pub fn mnt(&self) -> PathBuf {
        self.scratch.mnt()
    }

    /// Number, seed and command of a process that follows another one of the same client.
    fn next(&mut self, number: u64, refused: Option<u64>) -> (u64, Command) {
        self.seeds += 1;
        let (seed, mnt) = (self.seeds, self.mnt());
        let command = match &self.python {
            Some(python) if number == WORKERS => mapper::command(python, &mnt, seed),
            _ => command(self.test, number, seed, refused, &mnt),
        };
        (seed, command)
    }

    fn start_all(&mut self) {
        for number in 0..self.accounts.len() as u64 {
            let (seed, mut command) = self.next(number, None);
            self.clients.push(Watched::start(number, seed, &mut command));
        }
        self.clients.iter().for_each(|client| client.await_word("a start", |h| !h.acks.is_empty()));
    }

    /// Starts a process of a client whose last one has been settled; with that one's id if it is
    /// to be so and can be, which is what it says then.
    pub fn restart(&mut self, at: usize, same_id: bool, refused: Option<u64>) -> bool {
        let (number, id) = (self.clients[at].number, self.clients[at].id());
        let (seed, mut command) = self.next(number, refused);
        let same = same_id.then(|| Watched::start_as(id, number, seed, &mut command)).flatten();
        let is_same = same.is_some();
        self.clients[at] = same.unwrap_or_else(|| Watched::start(number, seed, &mut command));
        self.clients[at].await_word("a start", |heard| !heard.acks.is_empty());
        is_same
    }

    /// Compares what is there of a client whose process has ended with what it acknowledged.
    pub fn settle(&mut self, at: usize, gone: bool) {
        let client = &self.clients[at];
        let heard = client.heard();
        self.acknowledged += heard.acks.len() as u64;
        self.accounts[at].settle(&self.scratch.mnt(), client.seed, &heard, gone);
    }

    /// The clients but one.
    pub fn others(&self, but: Option<usize>) -> impl Iterator<Item = &Watched> {
        let all = self.clients.iter().enumerate();
        all.filter(move |(at, _)| Some(*at) != but).map(|(_, client)| client)
    }

    /// Times after which each client but one has done an act that began later than `since`.
    pub fn go_on(&self, since: Instant, but: Option<usize>) -> Vec<Duration> {
        let times = self.others(but).map(|client| client.goes_on_after(since)).collect();
        for client in self.others(but).chain([&self.waiter]) {
            assert_eq!(client.heard().complaint, None, "client {}", client.number);
        }
        times
    }

    /// Kills every client, compares, and waits until what they held is free.
    pub fn end_clients(&mut self) {
        for client in self.clients.iter_mut().chain([&mut self.waiter]) {
            client.kill();
        }
        (0..self.clients.len()).for_each(|at| self.settle(at, false));
        self.await_release();
    }

    /// What nobody has open and has no name goes.
    fn await_release(&self) {
        let expected = self.inodes + self.accounts.iter().map(Account::inodes).sum::<u64>();
        let deadline = Instant::now() + HANG;
        while inodes_used(&self.mnt()) != expected {
            let used = inodes_used(&self.mnt());
            assert!(Instant::now() < deadline, "{used} inodes in use, not {expected}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Nobody works: the mount goes if it is there, everything that is stored is verified, and it
    /// comes again. Clients that ended with their mount are compared then.
    pub fn check(&mut self, with_mount: bool) {
        self.scratch.umount();
        self.scratch.run_ok(["check".as_ref(), self.scratch.pool().as_os_str()]);
        if self.has_tier {
            self.tier_bytes = self.tier_bytes.max(tier_bytes(&self.scratch));
        }
        self.scratch.mount();
        if with_mount {
            (0..self.clients.len()).for_each(|at| self.settle(at, true));
        }
        self.await_release();
        let shared = self.mnt().join("shared");
        verify_shared(&std::fs::read(&shared).unwrap(), &mut self.accounts);
        File::options().write(true).open(shared).unwrap().set_len(0).unwrap();
    }

    /// Everybody works again.
    pub fn resume(&mut self) {
        let mut waiter = command(self.test, WAITER, 0, None, &self.mnt());
        self.waiter = Watched::start(WAITER, 0, &mut waiter);
        self.clients.clear();
        self.start_all();
    }

    /// Ends it all: nothing that was acknowledged is lost, nothing has leaked.
    pub fn finish(&mut self) {
        self.end_clients();
        self.check(false);
        for number in 0..WORKERS {
            let dir = own_path(&self.mnt(), number);
            std::fs::remove_dir_all(&dir).unwrap();
            std::fs::create_dir(&dir).unwrap();
        }
        self.scratch.umount();
        self.scratch.mount();
        let mnt = self.mnt();
        assert_eq!(inodes_used(&mnt), self.inodes, "inodes in use");
        let free = nix::sys::statvfs::statvfs(&mnt).unwrap().blocks_free();
        let lost = self.blocks_free.saturating_sub(free);
        assert!(lost <= TREE_BLOCKS_MAX, "{free} blocks are free, {} were", self.blocks_free);
        self.scratch.verify_end();
    }
}
