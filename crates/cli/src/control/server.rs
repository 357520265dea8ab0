//! The answering side: one thread beside the mount, for the control socket and for `--http`.
//!
//! It waits for all connections at once, and holds a bounded number of them: a new one takes the
//! place of the one that was silent for longest. So whoever asks is heard, however many others
//! are connected and say nothing.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::answer::Subject;
use super::connection::{Connection, Stream};
use super::port::Port;
use super::{QUESTION_BYTES_MAX, Say, http, line, question, socket};

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// Time without a byte after which a connection is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Pause after nobody could be let in (too many open files, say).
const REFUSAL_PAUSE: Duration = Duration::from_millis(200);

/// Answers questions until it is dropped.
#[derive(Debug)]
pub struct Server {
    pool: PathBuf,
    /// Its end tells the thread to end.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    listens: bool,
}

/// What the thread has.
struct Loop {
    subject: Subject,
    control: Option<UnixListener>,
    http: Port,
    /// Whom the control socket lets in, besides root.
    owner: u32,
    connections: Vec<Connection>,
    end: UnixStream,
    /// No new connections before that.
    paused_until: Option<Instant>,
}

impl Server {
    /// Answers questions about `subject`, the pool in `pool`; on `address`, if that is given, too.
    /// Without a control socket it goes on, with a warning in the log; without the port only if
    /// it `may_wait` for that.
    pub fn start(
        pool: &Path,
        subject: Subject,
        address: Option<SocketAddr>,
        may_listen: bool,
        may_wait: bool,
    ) -> io::Result<Server> {
        let http = Port::open(address, may_wait)?;
        let control = match may_listen.then(|| socket::listen(pool)).transpose() {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!("{}/nearside.sock: {error}; going without", pool.display());
                None
            }
        };
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(pool)?);
        let (alive, end) = UnixStream::pair()?;
        let listens = control.is_some();
        let connections = Vec::new();
        let mut all = Loop { subject, control, http, owner, connections, end, paused_until: None };
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            if let Err(error) = all.run() {
                tracing::error!("control socket: {error}");
            }
        })?;
        let (pool, alive) = (pool.to_path_buf(), Some(alive));
        Ok(Server { pool, alive, thread: Some(thread), listens })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.listens
            && let Err(error) = socket::remove_from(&self.pool)
        {
            tracing::warn!("{}/nearside.sock: {error}", self.pool.display());
        }
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Loop {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            let now = Instant::now();
            let [end, control, http, connections @ ..] = ready.as_slice() else {
                return Ok(());
            };
            if !end.is_empty() {
                return Ok(());
            }
            let mut index = 0;
            let mut events = connections.iter();
            self.connections.retain_mut(|connection| {
                index += 1;
                let silent = now.duration_since(connection.moved) > SILENCE_MAX;
                match events.next() {
                    Some(event) if !event.is_empty() => {
                        serve(connection, &self.subject, now).unwrap_or(false)
                    }
                    _ => !silent,
                }
            });
            if !control.is_empty() {
                self.let_in_control(now);
            }
            if !http.is_empty() {
                self.let_in_http(now);
            }
            self.http.retry(now);
        }
    }

    /// Waits for something to happen: what did, first the end, then the two listeners, then each
    /// connection.
    fn wait(&self) -> io::Result<Vec<PollFlags>> {
        let now = Instant::now();
        let paused = self.paused_until.filter(|&until| until > now);
        let listening = if paused.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let end = self.end.as_fd();
        let control = self.control.as_ref().map(AsFd::as_fd);
        let http = self.http.listener().map(AsFd::as_fd);
        let mut polled = vec![PollFd::from_borrowed_fd(end, PollFlags::IN)];
        for listener in [control, http] {
            // Where there is none, the end stands in for it and is asked for nothing.
            let flags = if listener.is_some() { listening } else { PollFlags::empty() };
            polled.push(PollFd::from_borrowed_fd(listener.unwrap_or(end), flags));
        }
        for connection in &self.connections {
            polled.push(PollFd::new(connection, connection.wanted()));
        }
        let silent = self.connections.iter().map(|it| it.moved + SILENCE_MAX).min();
        let until = silent.into_iter().chain(paused).chain(self.http.due()).min();
        // A little later, so that what is due then is.
        let timeout = until.map(|at| at.saturating_duration_since(now) + Duration::from_millis(1));
        let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => Ok(polled.iter().map(PollFd::revents).collect()),
            Err(rustix::io::Errno::INTR) => Ok(vec![PollFlags::empty(); polled.len()]),
            Err(errno) => Err(errno.into()),
        }
    }

    fn let_in_control(&mut self, now: Instant) {
        let Some(listener) = &self.control else { return };
        match listener.accept() {
            Ok((stream, _)) => {
                let uid = rustix::net::sockopt::socket_peercred(&stream).map(|it| it.uid);
                match uid.map(rustix::fs::Uid::as_raw) {
                    Ok(uid) if uid == 0 || uid == self.owner => {
                        self.hold(Stream::Control(stream), now);
                    }
                    Ok(uid) => tracing::warn!(uid, "a stranger asked; not heard"),
                    Err(error) => tracing::warn!(%error, "cannot tell who asks; not heard"),
                }
            }
            Err(error) => self.not_let_in(&error, now),
        }
    }

    fn let_in_http(&mut self, now: Instant) {
        let Some(listener) = self.http.listener() else { return };
        match listener.accept() {
            Ok((stream, _)) => self.hold(Stream::Http(stream), now),
            Err(error) => self.not_let_in(&error, now),
        }
    }

    fn not_let_in(&mut self, error: &io::Error, now: Instant) {
        if !matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
        ) {
            tracing::warn!(%error, "cannot let anybody in");
            self.drop_most_silent();
            self.paused_until = Some(now + REFUSAL_PAUSE);
        }
    }

    fn hold(&mut self, stream: Stream, now: Instant) {
        if self.connections.len() >= CONNECTIONS_MAX {
            self.drop_most_silent();
        }
        match Connection::new(stream, now) {
            Ok(connection) => self.connections.push(connection),
            Err(error) => tracing::debug!(%error, "a connection was gone at once"),
        }
    }

    fn drop_most_silent(&mut self) {
        let silent = self.connections.iter().enumerate().min_by_key(|(_, it)| it.moved);
        if let Some((index, _)) = silent {
            self.connections.remove(index);
        }
    }
}

/// Goes on with a connection; false when it is to end.
fn serve(connection: &mut Connection, subject: &Subject, now: Instant) -> io::Result<bool> {
    if connection.is_answering() {
        if !connection.flush(now)? {
            return Ok(false);
        }
        if connection.is_answering() {
            return Ok(true);
        }
    }
    let most = match connection.stream {
        Stream::Control(_) => QUESTION_BYTES_MAX,
        Stream::Http(_) => http::HEAD_BYTES_MAX,
    };
    let open = connection.fill(most, now)?;
    while !connection.is_answering() {
        let end = match connection.stream {
            Stream::Control(_) => b"\n",
            Stream::Http(_) => http::HEAD_END,
        };
        let Some(asked) = connection.take(end) else { break };
        if !reply(connection, subject, &asked)? {
            return Ok(false);
        }
        if !connection.flush(now)? {
            return Ok(false);
        }
    }
    if connection.pending() >= most && !connection.is_answering() {
        let refusal = match connection.stream {
            Stream::Control(_) => line(Say::<()>::Failed("a question this long is none".into())),
            Stream::Http(_) => http::too_long(),
        };
        connection.put(refusal, true);
        return connection.flush(now);
    }
    // Who has said all may still wait for an answer.
    Ok(open || connection.is_answering())
}

/// Answers one question; false when somebody else answers it.
fn reply(connection: &mut Connection, subject: &Subject, asked: &[u8]) -> io::Result<bool> {
    let stream = match &connection.stream {
        Stream::Http(stream) => {
            let at = stream.local_addr()?;
            connection.put(http::answer(asked, at, || subject.sample()), true);
            return Ok(true);
        }
        Stream::Control(stream) => stream,
    };
    match question(asked) {
        Ok(super::Ask::Check) => {
            subject.check(stream.try_clone()?);
            Ok(false)
        }
        Ok(super::Ask::Scrub { bytes_per_s }) => {
            subject.scrub(stream.try_clone()?, bytes_per_s);
            Ok(false)
        }
        Ok(super::Ask::TierFlush) => {
            subject.flush(stream.try_clone()?);
            Ok(false)
        }
        Ok(super::Ask::TierEvict) => {
            subject.evict(stream.try_clone()?);
            Ok(false)
        }
        Ok(ask) => {
            connection.put(subject.answer(&ask), false);
            Ok(true)
        }
        Err(why) => {
            connection.put(line(Say::<()>::Failed(why)), true);
            Ok(true)
        }
    }
}
