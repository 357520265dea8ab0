//! A client's process, and what it has said.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::client::{CLIENT, MARK};
use crate::support::wait_until;

/// A wait longer than this is a hang, on a busy machine too.
pub const HANG: Duration = Duration::from_secs(60);
/// Attempts to get one number for the next process, which others on the machine take, too.
const SAME_NUMBER_ATTEMPTS: u32 = 10;

/// What a client has told of.
#[derive(Debug, Default)]
pub struct Heard {
    /// The errno of each act, 0 if it was done, and when that was heard.
    pub acks: Vec<(i32, Instant)>,
    /// The lock that it holds, and is not about to let go.
    pub holds: Option<u64>,
    /// When it last got one.
    pub got: Option<Instant>,
    /// How often it was about to wait for a lock.
    pub asks: u64,
    /// It was refused a lock that it must not have.
    pub refused: bool,
    /// It has said its last.
    pub ended: bool,
    /// What it found wrong.
    pub complaint: Option<String>,
}

impl Heard {
    fn take(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("holds", lock)) => {
                (self.holds, self.got) = (lock.parse().ok(), Some(Instant::now()));
            }
            Some(("bad:", text)) => self.complaint = Some(text.to_owned()),
            Some((number, errno)) if number.parse() == Ok(self.acks.len()) => {
                self.acks.push((errno.parse().unwrap_or(-1), Instant::now()));
                self.holds = None;
            }
            Some(_) => self.complaint = Some(format!("out of order: {line}")),
            None if line == "asks" => self.asks += 1,
            None if line == "releases" => self.holds = None,
            None => self.refused |= line == "refused",
        }
    }
}

#[derive(Debug, Default)]
struct Said {
    heard: Mutex<Heard>,
    changed: Condvar,
}

/// A client and its process.
#[derive(Debug)]
pub struct Watched {
    pub number: u64,
    pub seed: u64,
    child: Child,
    stdin: Option<ChildStdin>,
    said: Arc<Said>,
    reader: Option<JoinHandle<()>>,
}

/// The command for a client, which is this program.
pub fn command(test: &str, number: u64, seed: u64, refused: Option<u64>, mnt: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let refused = refused.map_or("-".to_owned(), |lock| lock.to_string());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(CLIENT, format!("{number} {seed} {refused} {}", mnt.display()));
    command
}

impl Watched {
    /// Starts a client.
    pub fn start(number: u64, seed: u64, command: &mut Command) -> Watched {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Watched::of(number, seed, child)
    }

    /// Starts one whose process has this id, if that can be had.
    pub fn start_as(id: Pid, number: u64, seed: u64, command: &mut Command) -> Option<Watched> {
        const LAST: &str = "/proc/sys/kernel/ns_last_pid";
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let last = std::fs::read_to_string(LAST).ok()?;
        for _ in 0..SAME_NUMBER_ATTEMPTS {
            std::fs::write(LAST, (id.as_raw() - 1).to_string()).ok()?;
            let mut child = command.spawn().unwrap();
            // Other processes go on from where they were.
            let _ = std::fs::write(LAST, last.trim());
            if child.id() == id.as_raw() as u32 {
                return Some(Watched::of(number, seed, child));
            }
            child.kill().and_then(|()| child.wait()).unwrap();
        }
        None
    }

    fn of(number: u64, seed: u64, mut child: Child) -> Watched {
        let (said, stdin) = (Arc::new(Said::default()), child.stdin.take());
        let (out, listens) = (BufReader::new(child.stdout.take().unwrap()), said.clone());
        let reader = std::thread::spawn(move || {
            // What is in the pipe when the client dies counts, too.
            for line in out.lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix(MARK) {
                    listens.heard.lock().unwrap().take(line);
                    listens.changed.notify_all();
                }
            }
            listens.heard.lock().unwrap().ended = true;
            listens.changed.notify_all();
        });
        Watched { number, seed, child, stdin, said, reader: Some(reader) }
    }

    pub fn id(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn heard(&self) -> MutexGuard<'_, Heard> {
        self.said.heard.lock().unwrap()
    }

    /// Waits until `done` holds of what it has said; says whether it came to that in time.
    pub fn hears_within(&self, time: Duration, done: impl Fn(&Heard) -> bool) -> bool {
        let waited = self.said.changed.wait_timeout_while(self.heard(), time, |heard| !done(heard));
        let (heard, _) = waited.unwrap();
        done(&heard)
    }

    /// The same, which must come.
    pub fn await_word(&self, what: &str, done: impl Fn(&Heard) -> bool) {
        let came = self.hears_within(HANG, done);
        assert!(
            came,
            "client {} ({}) hangs: {what}; {}",
            self.number,
            self.id(),
            self.last_words()
        );
    }

    /// When it had done the first act that began after `since`: the second that was told of.
    pub fn goes_on_after(&self, since: Instant) -> Duration {
        let later = |heard: &Heard| {
            let from = heard.acks.partition_point(|(_, at)| *at <= since);
            heard.acks.get(from + 1).map(|(_, at)| *at)
        };
        self.await_word("it goes on", |heard| later(heard).is_some() || heard.ended);
        let at = later(&self.heard());
        let at =
            at.unwrap_or_else(|| panic!("client {} ended: {}", self.number, self.last_words()));
        at - since
    }

    /// Sends it a line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.id(), signal).unwrap();
    }

    /// Stops it, as SIGSTOP does, and waits until it stands still.
    pub fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        wait_until("it stands still", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        });
    }

    /// Kills it and waits until nothing of it is left but what it said.
    pub fn kill(&mut self) -> ExitStatus {
        self.child.kill().unwrap();
        self.end()
    }

    /// Waits until it has ended.
    pub fn end(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status
    }

    /// For a report of what went wrong.
    pub fn last_words(&self) -> String {
        let heard = self.said.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let since = heard.acks.last().map(|(errno, at)| (*errno, at.elapsed()));
        let (count, holds) = (heard.acks.len(), heard.holds);
        let complaint = &heard.complaint;
        format!(
            "seed {}, {count} acts, the last {since:?}, holds {holds:?}, {complaint:?}",
            self.seed
        )
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Only after a failure is there anything to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
