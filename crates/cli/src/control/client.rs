//! The asking side.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nearside::files::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{ANSWER_BYTES_MAX, Answer, Ask, Progress, Question, Say, VERSION, socket};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::sample::Sample;
use crate::scrub::Scrubbed;
use crate::server_lock::Watch;
use crate::tier::{Evicted, Flushed};
use crate::trace::{Recorded, RecordedFile, Recording};
use crate::verdict::Verdict;

/// Longest time without a word from the server.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time that a server is waited for while it is replaced.
const REPLACED_MAX: Duration = Duration::from_secs(15);
/// Pause between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A connection to the server of a pool.
pub struct Client {
    pool: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the server of the pool in `dir`; one that is being replaced is waited for.
    pub fn connect(dir: &Path) -> Result<Client> {
        let until = Instant::now() + REPLACED_MAX;
        loop {
            match Client::attempt(dir) {
                // Its socket is there and nobody listens: it has died, or made room for the next.
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused
                        && Instant::now() < until
                        && is_served(dir) =>
                {
                    std::thread::sleep(RETRY_PAUSE);
                }
                done => return done.map_err(|error| refused(dir, error)),
            }
        }
    }

    /// Connects to the server that is there now, or not at all.
    pub fn connect_now(dir: &Path) -> Result<Client> {
        Client::attempt(dir).map_err(|error| refused(dir, error))
    }

    fn attempt(dir: &Path) -> io::Result<Client> {
        let connected = socket::connect(dir).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        });
        connected.map(|stream| Client { pool: dir.to_path_buf(), stream: BufReader::new(stream) })
    }

    /// What the pool says about itself.
    pub fn facts(&mut self) -> Result<Facts> {
        self.ask(Ask::Facts, &mut |_| {})
    }

    /// What calls and checkpoints cost so far.
    pub fn stats(&mut self) -> Result<Sample> {
        self.ask(Ask::Stats, &mut |_| {})
    }

    /// When an inode was made.
    pub fn created(&mut self, inode: u64) -> Result<Option<Timestamp>> {
        let nanos: Option<i64> = self.ask(Ask::Created { inode }, &mut |_| {})?;
        Ok(nanos.map(Timestamp))
    }

    /// Verifies all that is stored; tells `each` how far it is.
    pub fn check(&mut self, each: &mut dyn FnMut(Progress)) -> Result<Verdict> {
        self.ask(Ask::Check, each)
    }

    /// Verifies all that is stored by its checksums, and repairs what has a copy.
    pub fn scrub(&mut self, bytes_per_s: u64, each: &mut dyn FnMut(Progress)) -> Result<Scrubbed> {
        self.ask(Ask::Scrub { bytes_per_s }, each)
    }

    /// Writes back all that can lie on the devices of the capacity tier.
    pub fn flush(&mut self, each: &mut dyn FnMut(Progress)) -> Result<Flushed> {
        self.ask(Ask::TierFlush, each)
    }

    /// Lets go of what is cached of them.
    pub fn evict(&mut self) -> Result<Evicted> {
        self.ask(Ask::TierEvict, &mut |_| {})
    }

    /// Begins to record calls.
    pub fn begin_trace(&mut self) -> Result<Recording> {
        self.ask(Ask::TraceBegin, &mut |_| {})
    }

    /// What was recorded since the last time; nothing of a recording that has ended.
    pub fn trace(&mut self, recording: u64) -> Result<Option<Recorded>> {
        self.ask(Ask::Trace { recording }, &mut |_| {})
    }

    /// Where files lie; nothing of those that are gone.
    pub fn traced_files(&mut self, inodes: &[u64]) -> Result<Vec<Option<RecordedFile>>> {
        self.ask(Ask::TracedFiles { inodes: inodes.to_vec() }, &mut |_| {})
    }

    /// Ends a recording; what was not taken of it.
    pub fn end_trace(&mut self, recording: u64) -> Result<Option<Recorded>> {
        self.ask(Ask::TraceEnd { recording }, &mut |_| {})
    }

    fn ask<T: DeserializeOwned>(&mut self, ask: Ask, each: &mut dyn FnMut(Progress)) -> Result<T> {
        let failed = |error: io::Error| Error::Server(format!("{}: {error}", self.pool.display()));
        let mut line = serde_json::to_vec(&Question { nearside: VERSION, ask })
            .map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).map_err(failed)?;
        loop {
            let mut line = Vec::new();
            let most = (&mut self.stream).take(ANSWER_BYTES_MAX);
            let bytes = { most }.read_until(b'\n', &mut line);
            let failed =
                |error: io::Error| Error::Server(format!("{}: {error}", self.pool.display()));
            if bytes.map_err(failed)? == 0 || !line.ends_with(b"\n") {
                let text = "the server of this pool hung up; see nearside.log in it";
                return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
            match said(&line).map_err(failed)? {
                Say::Done(value) => return Ok(value),
                Say::Failed(why) => {
                    return Err(Error::Server(format!("{}: {why}", self.pool.display())));
                }
                Say::Progress(progress) => each(progress),
            }
        }
    }
}

/// Whether the pool is mounted: by a server, or by a keeper that is about to have one.
pub fn is_served(pool: &Path) -> bool {
    Watch::open(pool).is_some_and(|watch| watch.is_served())
}

fn said<T: DeserializeOwned>(line: &[u8]) -> io::Result<Say<T>> {
    #[derive(Deserialize)]
    struct Version {
        nearside: u32,
    }
    // The version first: what another one says may not be understood at all.
    let Version { nearside } = serde_json::from_slice(line)?;
    if nearside != VERSION {
        let text = format!("the server speaks version {nearside}, this command {VERSION}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let answer: Answer<T> = serde_json::from_slice(line)?;
    Ok(answer.say)
}

fn refused(pool: &Path, error: io::Error) -> Error {
    let pool = pool.display();
    Error::Server(match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{pool}: only the pool's owner and root may ask its server")
        }
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => format!(
            "{pool}: its server answers no questions ({error}); nearside.log in it says why"
        ),
        _ => format!("{pool}: cannot ask its server: {error}"),
    })
}
