//! The files of a connection.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pmem::{Domain, MapOptions, Mapping};
use shm::Words;

use crate::state::{STATE_BYTES, State};
use crate::unfolded::{self, Lost};
use crate::{Connection, Error, LANE_BYTES, Result, WORDS};

/// The directory of a pool's that has them.
const DIRECTORY: &str = "lanes";
const LANE: &str = "lane";
const WORDS_FILE: &str = "words";
const LEASES: &str = "leases";
pub(crate) const WORDS_BYTES: u64 = 4096;

const _: () = assert!(WORDS * 8 <= WORDS_BYTES as usize);

/// The directory with the files of all connections to the pool in `pool_dir`.
pub(crate) fn directory(pool_dir: &Path) -> PathBuf {
    pool_dir.join(DIRECTORY)
}

/// The connections that were given files there.
pub(crate) fn connections(directory: &Path) -> io::Result<Vec<Connection>> {
    let mut given = Vec::new();
    for connection in that_left(directory, LEASES)? {
        if was_made(directory, connection)? {
            given.push(connection);
        }
    }
    Ok(given)
}

/// Whether all files of a connection were made: that of its leases, the last one, has bytes.
fn was_made(directory: &Path, connection: Connection) -> io::Result<bool> {
    match std::fs::metadata(path_of(directory, connection, LEASES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        leases => Ok(leases?.len() > 0),
    }
}

/// The connections that left a file of this kind there.
fn that_left(directory: &Path, what: &str) -> io::Result<Vec<Connection>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == what)
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
            && let Ok(connection) = Connection::from_str_radix(name, 16)
        {
            found.push(connection);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes what a service had made of a connection's files when it died. No process was given them.
pub(crate) fn remove_unmade(directory: &Path) -> io::Result<()> {
    for what in [LANE, WORDS_FILE, LEASES] {
        for connection in that_left(directory, what)? {
            if !was_made(directory, connection)? {
                remove(directory, connection);
            }
        }
    }
    Ok(())
}

fn path_of(directory: &Path, connection: Connection, what: &str) -> PathBuf {
    directory.join(format!("{connection:032x}.{what}"))
}

/// The files of a connection, as the service has them.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    connection: Connection,
    pub(crate) lane: File,
    pub(crate) words: Words,
    pub(crate) leases: Mapping,
}

/// What the process of a connection is given: two descriptors, and how durable its lane is.
#[derive(Debug)]
pub struct Given {
    /// The lane, to be stored to.
    pub lane: File,
    /// The words, to be loaded.
    pub words: File,
    /// The lane's domain.
    pub domain: Domain,
}

impl Files {
    /// Makes the files of a new connection, for a pool in `pool_dir` whose domain is `domain`.
    ///
    /// # Errors
    /// [`Error::LessDurable`]: what lies in that directory may be lost where the pool is not.
    pub fn make(pool_dir: &Path, domain: Domain, connection: Connection) -> Result<(Files, Given)> {
        if domain == Domain::Sync {
            return Err(Error::LessDurable);
        }
        let directory = directory(pool_dir);
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("mkdir")(error));
            }
            _ => {}
        }
        // a process chose the number: another connection's files are not to go with these
        let is_there = |what| path_of(&directory, connection, what).exists();
        if [LANE, WORDS_FILE, LEASES].into_iter().any(is_there) {
            return Err(Error::io("open")(io::ErrorKind::AlreadyExists.into()));
        }
        let made = Files::make_in(&directory, domain, connection);
        if made.is_err() {
            remove(&directory, connection);
        }
        made
    }

    fn make_in(directory: &Path, domain: Domain, connection: Connection) -> Result<(Files, Given)> {
        // what the end of the machine may take with it has nothing to outlive it
        let sync = |file: &File| match domain {
            Domain::Process => Ok(()),
            _ => file.sync_all().map_err(Error::io("fsync")),
        };
        let sync_names =
            || File::open(directory).map_err(Error::io("open")).and_then(|it| sync(&it));
        let new = |what, bytes| {
            let path = path_of(directory, connection, what);
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create_new(true).mode(0o600);
            let file = options.open(&path).map_err(Error::io("open"))?;
            let flags = rustix::fs::FallocateFlags::empty();
            let allocated = rustix::fs::fallocate(&file, flags, 0, bytes);
            allocated.map_err(|errno| Error::io("fallocate")(errno.into()))?;
            sync(&file)?;
            Ok::<(PathBuf, File), Error>((path, file))
        };
        let (lane_path, lane) = new(LANE, LANE_BYTES)?;
        let (words_path, words) = new(WORDS_FILE, WORDS_BYTES)?;
        // where the last one has bytes, the others are there
        sync_names()?;
        let (leases_path, _) = new(LEASES, STATE_BYTES)?;
        let options = MapOptions { process: domain == Domain::Process, ..MapOptions::default() };
        let leases = Mapping::open(&leases_path, &options)?;
        if leases.domain() < domain || leases.domain() == Domain::Sync {
            return Err(Error::LessDurable);
        }
        // they are there before anything relies on them
        sync_names()?;
        let given = Given {
            lane,
            words: File::open(words_path).map_err(Error::io("open"))?,
            domain: leases.domain(),
        };
        let files = Files {
            directory: directory.to_owned(),
            connection,
            lane: File::open(lane_path).map_err(Error::io("open"))?,
            words: Words::to_store(words.as_fd(), WORDS)?,
            leases,
        };
        Ok((files, given))
    }

    /// Opens those of a connection whose service has ended, with what is noted there; `None`: all
    /// of it was folded.
    pub(crate) fn find(
        directory: &Path,
        pool: &str,
        connection: Connection,
        options: &MapOptions,
    ) -> Result<(State, Option<Files>)> {
        let path = |what| path_of(directory, connection, what);
        let leases = Mapping::open(&path(LEASES), options)?;
        let state = State::load(&leases, pool, connection)?;
        let lane = match File::open(path(LANE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((state, None)),
            lane => lane.map_err(Error::io("open"))?,
        };
        let words = OpenOptions::new().read(true).write(true).open(path(WORDS_FILE));
        let words = Words::to_store(words.map_err(Error::io("open"))?.as_fd(), WORDS)?;
        let directory = directory.to_owned();
        Ok((state, Some(Files { directory, connection, lane, words, leases })))
    }

    /// Of a connection whose lane and notes lie in other memory, and which leaves no files.
    pub(crate) fn apart(
        lane: File,
        words: Words,
        leases: Mapping,
        connection: Connection,
    ) -> Files {
        let directory = PathBuf::from("/dev/null");
        Files { directory, connection, lane, words, leases }
    }

    /// What is noted of a connection's leases, for who only asks.
    pub(crate) fn noted(directory: &Path, pool: &str, connection: Connection) -> Result<State> {
        let options = MapOptions { read_only: true, ..MapOptions::default() };
        let leases = Mapping::open(&path_of(directory, connection, LEASES), &options)?;
        State::load(&leases, pool, connection)
    }

    /// All of the lane is folded: it goes, and what is noted of its leases stays, for who asks what
    /// became of a write.
    pub(crate) fn end(&self) {
        for what in [LANE, WORDS_FILE] {
            // what stays is folded once more, which changes nothing
            let _ = std::fs::remove_file(path_of(&self.directory, self.connection, what));
        }
    }

    /// Keeps what cannot be folded; where it is then.
    pub(crate) fn keep<'d>(&self, pieces: impl Iterator<Item = Lost<'d>>) -> Result<PathBuf> {
        unfolded::keep(&self.directory, pieces).map_err(Error::io("keeping it elsewhere"))
    }

    /// Nobody will ask what became of a write, or the service knows.
    pub(crate) fn remove(&self) {
        remove(&self.directory, self.connection);
    }
}

/// When what is noted of a connection was noted last.
pub(crate) fn noted_at(
    directory: &Path,
    connection: Connection,
) -> io::Result<std::time::SystemTime> {
    std::fs::metadata(path_of(directory, connection, LEASES))?.modified()
}

/// Removes all files of a connection that are there.
pub(crate) fn remove(directory: &Path, connection: Connection) {
    for what in [LANE, WORDS_FILE, LEASES] {
        let _ = std::fs::remove_file(path_of(directory, connection, what));
    }
    // if it was the last one's
    let _ = std::fs::remove_dir(directory);
}
