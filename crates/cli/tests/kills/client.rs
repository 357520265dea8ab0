//! What runs in a client's process: this program again, told by its environment.
//!
//! Each line of it that begins with [`MARK`] is for the one who watches; the test harness writes
//! others.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use rustix::process::Signal;

use crate::acts::{Act, Nameless, make, record};
use crate::model::Random;

/// Tells a process that it is a client: its number, its seed, a lock that it must not get (or -),
/// and the mount.
pub const CLIENT: &str = "NEARSIDE_KILLS_CLIENT";
/// Number of the client who only waits for locks.
pub const WAITER: u64 = 99;
/// Begins a line that is meant.
pub const MARK: &str = "@ ";

/// How the files are called.
pub fn lock_path(mnt: &Path, lock: u64) -> PathBuf {
    mnt.join(format!("lock{lock}"))
}

/// A client's own directory.
pub fn own_path(mnt: &Path, client: u64) -> PathBuf {
    mnt.join(format!("client{client}"))
}

/// What a client calls a file for a moment.
pub fn moment_name(client: u64, number: u64) -> String {
    format!("{client}-{number}")
}

/// Errors of a mount that has ended.
pub fn is_gone(errno: i32) -> bool {
    errno == libc::ENOTCONN || errno == libc::ECONNABORTED
}

/// Does what its environment says, if it says so, and never returns then.
pub fn run_if_told() {
    let Ok(words) = std::env::var(CLIENT) else { return };
    // The harness has begun a line.
    println!();
    // Whatever becomes of the test, this ends with it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let mut words = words.splitn(4, ' ');
    let mut word = || words.next().unwrap();
    let (number, seed) = (word().parse().unwrap(), word().parse().unwrap());
    let (refused, mnt) = (word().parse().ok(), PathBuf::from(word()));
    if number == WAITER {
        wait_for_locks(&mnt);
    }
    Client::new(mnt, number, seed).unwrap().run(refused)
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{MARK}{line}").and_then(|()| out.flush()).is_err() {
        // The one who watches is gone.
        std::process::exit(1);
    }
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Takes or lets go a lock of the kind that goes with its number. One that is held by another is
/// waited for, or `WouldBlock`.
fn lock(file: &File, number: u64, kind: i32, waits: bool) -> Result<()> {
    use rustix::fs::FlockOperation::{LockExclusive, NonBlockingLockExclusive, Unlock};
    if number == 0 {
        let operation = match (kind, waits) {
            (libc::F_UNLCK, _) => Unlock,
            (_, true) => LockExclusive,
            (_, false) => NonBlockingLockExclusive,
        };
        return Ok(rustix::fs::flock(file, operation)?);
    }
    let range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 100,
        l_len: 50,
        l_pid: 0,
    };
    let done = match (number, waits) {
        (1, true) => fcntl(file, FcntlArg::F_SETLKW(&range)),
        (1, false) => fcntl(file, FcntlArg::F_SETLK(&range)),
        (_, true) => fcntl(file, FcntlArg::F_OFD_SETLKW(&range)),
        (_, false) => fcntl(file, FcntlArg::F_OFD_SETLK(&range)),
    };
    done.map(drop).map_err(|errno| match errno {
        nix::Error::EACCES | nix::Error::EAGAIN => ErrorKind::WouldBlock.into(),
        errno => errno.into(),
    })
}

/// Nobody else has the lock: what its holder writes to its file stays.
struct Stamp([u8; 16]);

impl Stamp {
    fn set(file: &File, client: u64, number: u64) -> Result<Stamp> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&client.to_le_bytes());
        bytes[8..].copy_from_slice(&number.to_le_bytes());
        file.write_all_at(&bytes, 0)?;
        Ok(Stamp(bytes))
    }

    fn verify(&self, file: &File) -> Result<()> {
        let mut found = [0; 16];
        file.read_exact_at(&mut found, 0)?;
        if found == self.0 {
            return Ok(());
        }
        Err(Error::other(format!("two hold one lock: {:?} and {found:?}", self.0)))
    }
}

struct Client {
    mnt: PathBuf,
    number: u64,
    seed: u64,
    shared: File,
    locks: Vec<File>,
    kept: Option<Nameless>,
}

impl Client {
    fn new(mnt: PathBuf, number: u64, seed: u64) -> Result<Client> {
        let shared = OpenOptions::new().append(true).open(mnt.join("shared"))?;
        let locks = (0..crate::acts::LOCKS).map(|lock| open(&lock_path(&mnt, lock)));
        let locks = locks.collect::<Result<_>>()?;
        Ok(Client { mnt, number, seed, shared, locks, kept: None })
    }

    /// Acts until it is killed.
    fn run(mut self, refused: Option<u64>) -> ! {
        if let Some(number) = refused {
            let outcome = lock(&self.locks[number as usize], number, libc::F_WRLCK, false);
            let is_refused = outcome.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            tell(if is_refused { "refused" } else { "bad: it got another's lock" });
        }
        let mut random = Random::new(self.seed);
        for number in 0.. {
            let outcome = self.act(&Act::pick(&mut random), number);
            let errno = match &outcome {
                Ok(()) => 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => libc::EAGAIN,
                Err(error) => error.raw_os_error().unwrap_or(-1),
            };
            if let Err(error) = outcome.as_ref()
                && errno == -1
            {
                tell(&format!("bad: {error}"));
            }
            tell(&format!("{number} {errno}"));
            if is_gone(errno) {
                std::process::exit(0);
            }
        }
        unreachable!("it never ends");
    }

    fn act(&mut self, act: &Act, number: u64) -> Result<()> {
        let byte = 1 + (number % 255) as u8;
        match act {
            Act::Own(op) => make(op, &own_path(&self.mnt, self.number)),
            Act::Append => self.shared.write_all(&record(self.number, self.seed, number)),
            Act::Lock { lock, calls } => self.hold(*lock, *calls, number),
            Act::Unnamed => self.keep(None, byte),
            Act::Unlinked => self.keep(Some(&moment_name(self.number, number)), byte),
        }
    }

    fn hold(&self, number: u64, calls: u64, stamp: u64) -> Result<()> {
        let file = &self.locks[number as usize];
        lock(file, number, libc::F_WRLCK, false)?;
        tell(&format!("holds {number}"));
        let stamp = Stamp::set(file, self.number, stamp)?;
        for _ in 0..calls {
            // Each reaches the server.
            rustix::fs::fstatvfs(file)?;
            stamp.verify(file)?;
        }
        // A stop may come when the server has let it go and this process does not know yet.
        tell("releases");
        lock(file, number, libc::F_UNLCK, false)
    }

    fn keep(&mut self, name: Option<&str>, byte: u8) -> Result<()> {
        let new = Nameless::new(&self.mnt.join("nameless"), name, byte)?;
        match self.kept.replace(new) {
            Some(last) => last.verify(),
            None => Ok(()),
        }
    }
}

/// Takes each lock that a line on stdin names, and lets it go at the next line.
fn wait_for_locks(mnt: &Path) -> ! {
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    for number in 0.. {
        let Some(which) = lines.next() else { break };
        let which: u64 = which.parse().unwrap();
        let file = open(&lock_path(mnt, which)).unwrap();
        tell("asks");
        lock(&file, which, libc::F_WRLCK, true).unwrap();
        let stamp = Stamp::set(&file, WAITER, number).unwrap();
        tell(&format!("holds {which}"));
        if lines.next().is_none() {
            break;
        }
        if let Err(error) = stamp.verify(&file) {
            tell(&format!("bad: {error}"));
        }
        lock(&file, which, libc::F_UNLCK, false).unwrap();
        tell(&format!("{number} 0"));
    }
    std::process::exit(0)
}
