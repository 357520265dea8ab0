//! A program with a thread of its own, which does one thing at a time, as it is told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nearside::{AttachOptions, File, LockKind, OpenFlags, Pool};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Time in which something comes that has to come.
const SOON: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };
/// Longer than any run: no program gives up.
const AWAY_MAX: Duration = Duration::from_secs(3600);

/// What a program is told to do.
#[derive(Clone, Debug)]
pub enum Act {
    /// Attaches.
    Attach,
    /// Opens a file, which has to be new or not, as the one of this number.
    Open(usize, String, bool),
    Close(usize),
    Write(usize, u64, Vec<u8>),
    Read(usize, usize),
    Append(usize, Vec<u8>),
    Remove(String),
    Rename(String, String),
    MakeDirectory(String),
    Lock(usize),
    TryLock(usize),
    Unlock(usize),
    /// Ends.
    Detach,
}

/// What it was told, and what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Number(u64),
    Bytes(Vec<u8>),
    Failed(String),
}

/// Where no program connects just now: a port is not free again for a minute.
static LISTENERS: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());

/// A program.
pub struct Program {
    /// None: it has ended.
    listener: Option<TcpListener>,
    acts: Sender<Act>,
    outcomes: Receiver<Outcome>,
    /// A byte comes with each outcome.
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// What it does by itself.
#[derive(Debug)]
pub enum Does {
    /// Connects.
    Connects(TcpStream),
    /// Sends something, or closes the connection that it has.
    Sends,
    /// It is done.
    Ends(Outcome),
}

impl Program {
    pub fn start() -> Program {
        let listener = LISTENERS.lock().pop();
        let listener = listener.unwrap_or_else(|| TcpListener::bind("127.0.0.1:0").unwrap());
        let address = format!("near+insecure://{}", listener.local_addr().unwrap());
        let (acts, orders) = channel();
        let (tell, outcomes) = channel();
        let (bell, mut rings) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let mut has = Has::default();
            for act in orders {
                let outcome = has.act(&address, act);
                if tell.send(outcome).is_err() || rings.write_all(&[0]).is_err() {
                    break;
                }
            }
        });
        Program { listener: Some(listener), acts, outcomes, bell, thread: Some(thread) }
    }

    pub fn tell(&self, act: Act) {
        self.acts.send(act).unwrap();
    }

    /// Waits for what it does next, over the connection that it has if there is one.
    pub fn does(&mut self, link: Option<&TcpStream>) -> Does {
        let listener = self.listener.as_ref().unwrap();
        let mut events = vec![
            PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        ];
        events.extend(link.map(|link| PollFd::new(link, PollFlags::IN)));
        assert!(poll(&mut events, Some(&SOON)).unwrap() > 0, "a program does nothing");
        let happened = |at: usize| events.get(at).is_some_and(|event| !event.revents().is_empty());
        if happened(2) {
            return Does::Sends;
        }
        if happened(0) {
            self.bell.read_exact(&mut [0]).unwrap();
            return Does::Ends(self.outcomes.recv().unwrap());
        }
        let (stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        Does::Connects(stream)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let (none, _) = channel();
        self.acts = none;
        if std::thread::panicking() {
            // it may wait for what will not come
            return;
        }
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        if let Some(listener) = self.listener.take() {
            // of those that connected last nothing was accepted, perhaps
            listener.set_nonblocking(true).unwrap();
            while listener.accept().is_ok() {}
            listener.set_nonblocking(false).unwrap();
            LISTENERS.lock().push(listener);
        }
    }
}

/// What a program has.
#[derive(Default)]
struct Has {
    // the files first: a pool goes with its last
    files: Vec<Option<File>>,
    pool: Option<Pool>,
}

impl Has {
    fn act(&mut self, address: &str, act: Act) -> Outcome {
        self.try_act(address, act).unwrap_or_else(|error| Outcome::Failed(error.to_string()))
    }

    fn try_act(&mut self, address: &str, act: Act) -> nearside::Result<Outcome> {
        if let Act::Attach = act {
            let options = AttachOptions { away_max: AWAY_MAX, ..AttachOptions::default() };
            self.pool = Some(Pool::attach_with(address, &options)?);
            return Ok(Outcome::Done);
        }
        let pool = self.pool.as_ref().unwrap();
        let file = |number: usize| self.files[number].as_ref().unwrap();
        match act {
            Act::Attach => {}
            Act::Open(number, path, is_new) => {
                let flags = OpenFlags::new().read(true).write(true);
                let flags = if is_new { flags.create_new(true) } else { flags.create(true) };
                let file = pool.open_file(path, &flags)?;
                self.files.resize_with(self.files.len().max(number + 1), || None);
                self.files[number] = Some(file);
            }
            Act::Close(number) => drop(self.files[number].take()),
            Act::Write(number, offset, bytes) => file(number).write_all_at(&bytes, offset)?,
            Act::Read(number, len) => {
                let mut bytes = vec![0; len];
                let count = file(number).read_at(&mut bytes, 0)?;
                bytes.truncate(count);
                return Ok(Outcome::Bytes(bytes));
            }
            Act::Append(number, bytes) => return Ok(Outcome::Number(file(number).append(&bytes)?)),
            Act::Remove(path) => pool.remove_file(path)?,
            Act::Rename(from, to) => pool.rename(from, to)?,
            Act::MakeDirectory(path) => pool.create_dir(path)?,
            Act::Lock(number) => file(number).lock(LockKind::Write, ..)?,
            Act::TryLock(number) => {
                let has_it = file(number).try_lock(LockKind::Write, ..)?;
                return Ok(Outcome::Number(u64::from(has_it)));
            }
            Act::Unlock(number) => file(number).unlock(..)?,
            Act::Detach => *self = Has::default(),
        }
        Ok(Outcome::Done)
    }
}
