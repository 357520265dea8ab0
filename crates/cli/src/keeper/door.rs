//! `POOL/nearside.keeper`: where a keeper is asked to upgrade its server.
//!
//! A line of JSON there and one back. The socket is the owner's and root's: the file's mode says
//! so, and the kernel's word on who asks is looked at again.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{self, Error, Result};
use crate::own_file;

const NAME: &str = "nearside.keeper";
/// Longest line, bytes: a path and what stands around it.
const LINE_BYTES_MAX: u64 = 16 << 10;
/// Longest time that one who asks may take for its line: the keeper does nothing else meanwhile.
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
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(named(source));
            }
            _ => {}
        }
        let listener = UnixListener::bind(short_path(&dir)).map_err(&named)?;
        own_file::settle_socket(&path, 0o600, None).map_err(&named)?;
        Ok(Door { listener, path })
    }

    /// Lets the next one in, and reads what it asks.
    pub fn accept(&self) -> std::io::Result<(Asked, Request)> {
        let (stream, _) = self.listener.accept()?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid;
        if !peer.is_root() && peer != rustix::process::geteuid() {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        stream.set_read_timeout(Some(LINE_TIME_MAX))?;
        stream.set_write_timeout(Some(LINE_TIME_MAX))?;
        let request = read_line(&stream)?;
        Ok((Asked { stream }, request))
    }
}

impl Asked {
    /// Answers; whoever went away meanwhile gets none.
    pub fn answer(mut self, reply: &Reply) {
        let _ = write_line(&mut self.stream, reply);
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
    write_line(&mut stream, request)
        .and_then(|()| read_line(&stream))
        .map_err(|source| error::io(&path)(source))
}

fn write_line(stream: &mut UnixStream, message: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_line<M: DeserializeOwned>(stream: &UnixStream) -> std::io::Result<M> {
    let mut line = Vec::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let (asked, Request::Upgrade { program }) = door.accept().unwrap();
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
    fn one_who_talks_nonsense_or_nothing_is_sent_away() {
        let root = tempfile::tempdir().unwrap();
        let door = Door::open(root.path()).unwrap();
        let connect = || UnixStream::connect(root.path().join(NAME)).unwrap();
        connect().write_all(b"\xff\xfe{}\n").unwrap();
        assert!(door.accept().is_err());
        let mut long = connect();
        let writing = std::thread::spawn(move || long.write_all(&vec![b'['; 1 << 20]));
        assert!(door.accept().is_err());
        assert!(writing.join().unwrap().is_err());
        let silent = connect();
        assert!(door.accept().is_err());
        drop(silent);
    }
}
