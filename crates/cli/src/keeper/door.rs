//! `POOL/nearside.keeper`: where a keeper is asked to upgrade its server.
//!
//! A line of JSON there and one back. The socket is the owner's and root's: the file's mode says
//! so, and the kernel's word on who asks is looked at again. Nobody is waited for here: the keeper
//! has a server to look after.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{self, Error, Result};
use crate::{daemon, own_file};

const NAME: &str = "nearside.keeper";
/// Longest line, bytes: a path and what stands around it.
const LINE_BYTES_MAX: u64 = 16 << 10;
/// Longest time that one who asks may take for its line: nobody else is let in meanwhile.
const LINE_TIME_MAX: Duration = Duration::from_secs(1);

/// What a keeper is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Replace the server by this program.
    Upgrade {
        /// Its absolute path.
        program: PathBuf,
    },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The new server serves.
    Upgraded {
        /// Version of the program before.
        from: String,
        /// Version of the program now.
        to: String,
        /// Process of the new server.
        process: u32,
        /// Time from the old server's stop to the new one's start, microseconds.
        gap_us: u64,
    },
    /// Nothing was replaced, for this reason.
    Refused(String),
}

/// The keeper's side.
#[derive(Debug)]
pub struct Door {
    listener: UnixListener,
    path: PathBuf,
}

/// One who asks.
#[derive(Debug)]
pub struct Asked {
    stream: UnixStream,
    /// What it has said so far.
    line: Vec<u8>,
    /// When it has to have said all.
    until: Instant,
}

/// A path of the socket that fits its 108 bytes, however long the pool's is.
fn short_path(pool: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{NAME}", pool.as_raw_fd()))
}

impl Door {
    /// Opens it. The caller holds the pool's lock, so a file that is there is a dead keeper's.
    pub fn open(pool: &Path) -> Result<Door> {
        let path = pool.join(NAME);
        let named = |source| error::io(&path)(source);
        let dir = File::open(pool).map_err(&named)?;
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(named(source));
            }
            _ => {}
        }
        let listener = UnixListener::bind(short_path(&dir)).map_err(&named)?;
        listener.set_nonblocking(true).map_err(&named)?;
        own_file::settle_socket(&path, 0o600, None).map_err(&named)?;
        Ok(Door { listener, path })
    }

    /// Lets the next one in.
    pub fn accept(&self) -> std::io::Result<Asked> {
        let (stream, _) = self.listener.accept()?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid;
        if !peer.is_root() && peer != rustix::process::geteuid() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        stream.set_nonblocking(true)?;
        Ok(Asked { stream, line: Vec::new(), until: Instant::now() + LINE_TIME_MAX })
    }
}

impl Asked {
    /// When it has to have said all.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Reads on: what it asks, once all of that is there.
    pub fn hear(&mut self) -> std::io::Result<Option<Request>> {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.line.extend_from_slice(&piece[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if let Some(end) = self.line.iter().position(|&byte| byte == b'\n') {
                return Ok(Some(serde_json::from_slice(&self.line[..end])?));
            }
            if self.line.len() as u64 >= LINE_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }

    /// Answers; whoever went away meanwhile gets none.
    pub fn answer(mut self, reply: &Reply) {
        let _ = write_line(&mut self.stream, reply);
    }
}

impl AsFd for Asked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Asks the keeper of `pool`, and waits for its answer.
pub fn ask(pool: &Path, request: &Request) -> Result<Reply> {
    let path = pool.join(NAME);
    let dir = File::open(pool).map_err(error::io(pool))?;
    let nobody = |source: std::io::Error| {
        let pool = pool.display();
        Error::Server(format!("{pool}: no keeper answers ({source}); is the pool mounted?"))
    };
    let mut stream = UnixStream::connect(short_path(&dir)).map_err(nobody)?;
    write_line(&mut stream, request).and_then(|()| read_line(&stream)).map_err(
        |source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                let log = pool.join(daemon::LOG_NAME);
                Error::Server(format!("the keeper ended without an answer; see {}", log.display()))
            }
            _ => error::io(&path)(source),
        },
    )
}

fn write_line(stream: &mut UnixStream, message: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_line<M: DeserializeOwned>(stream: &UnixStream) -> std::io::Result<M> {
    let mut line = Vec::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn whoever_asks_is_answered_also_in_a_long_directory() {
        let root = tempfile::tempdir().unwrap();
        let pool = root.path().join("p".repeat(200));
        std::fs::create_dir(&pool).unwrap();
        let request = Request::Upgrade { program: "/bin/next".into() };
        assert!(ask(&pool, &request).unwrap_err().to_string().contains("no keeper answers"));
        let door = Door::open(&pool).unwrap();
        std::thread::scope(|threads| {
            let asking = threads.spawn(|| ask(&pool, &request).unwrap());
            await_readable(&door);
            let mut asked = door.accept().unwrap();
            let Request::Upgrade { program } = heard(&mut asked).unwrap();
            asked.answer(&Reply::Refused(program.display().to_string()));
            let reply = asking.join().unwrap();
            assert!(matches!(reply, Reply::Refused(text) if text == "/bin/next"));
        });
        // The file of one that was killed is no hindrance.
        std::mem::forget(door);
        drop(Door::open(&pool).unwrap());
        assert!(!pool.join(NAME).exists());
    }

    #[test]
    fn one_who_talks_nonsense_is_sent_away() {
        let root = tempfile::tempdir().unwrap();
        let door = Door::open(root.path()).unwrap();
        let connect = || UnixStream::connect(root.path().join(NAME)).unwrap();
        assert!(door.accept().is_err(), "nobody is there");
        connect().write_all(b"\xff\xfe{}\n").unwrap();
        assert!(heard(&mut door.accept().unwrap()).is_err());
        let mut long = connect();
        let writing = std::thread::spawn(move || long.write_all(&vec![b'['; 1 << 20]));
        assert!(heard(&mut door.accept().unwrap()).is_err());
        assert!(writing.join().unwrap().is_err());
    }

    #[test]
    fn one_who_says_little_or_nothing_holds_nobody_up() {
        let root = tempfile::tempdir().unwrap();
        let door = Door::open(root.path()).unwrap();
        let mut slow = UnixStream::connect(root.path().join(NAME)).unwrap();
        let mut asked = door.accept().unwrap();
        let until = asked.until();
        assert!(asked.hear().unwrap().is_none());
        let line = serde_json::to_vec(&Request::Upgrade { program: "/p".into() }).unwrap();
        for byte in line {
            slow.write_all(&[byte]).unwrap();
            assert!(asked.hear().unwrap().is_none());
        }
        // What it has said wins it no time.
        assert_eq!(asked.until(), until);
        slow.write_all(b"\n").unwrap();
        assert!(asked.hear().unwrap().is_some());
        drop(slow);
        assert!(asked.hear().is_err());
    }

    fn await_readable(what: &impl AsFd) {
        let mut list = [PollFd::new(what, PollFlags::IN)];
        assert_eq!(poll(&mut list, None), Ok(1));
    }

    /// What it asks, however many pieces that comes in.
    fn heard(asked: &mut Asked) -> std::io::Result<Request> {
        loop {
            await_readable(asked);
            if let Some(request) = asked.hear()? {
                return Ok(request);
            }
        }
    }
}
