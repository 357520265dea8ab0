//! A service in a process of its own, which is killed again and again.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearside::files::TakeOver;
use nearside::{OpenOptions, Pool};
use nix::sys::signal::{Signal, kill};
use server::{ATTACHED_NAME, Door, Options, Rights, Service};

use crate::child::{self, Running};
use crate::served::{LONG_GRACE, eventually, formatted};

/// Where the times of a service's grace are told, milliseconds: that of locks, and that of all.
const GRACE: &str = "NEARSIDE_TEST_GRACE";
/// Where it is told the port where it listens, if it does.
const PORT: &str = "NEARSIDE_TEST_PORT";

/// A pool with a service that may die.
pub struct Mortal {
    pub dir: PathBuf,
    /// Where processes attach: the pool's directory, or a service on a network.
    pub place: PathBuf,
    port: Option<Port>,
    service: Option<Running>,
    name: &'static str,
    _root: tempfile::TempDir,
}

/// The times of a grace.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub locks: Duration,
    pub all: Duration,
}

impl Times {
    /// What all are waited for; those who had locks for a second, at most.
    pub fn of(all: Duration) -> Times {
        Times { locks: all.min(Duration::from_secs(1)), all }
    }

    /// The product's own time for locks, and a long one for all.
    pub fn usual_for_locks() -> Times {
        Times { locks: Options::default().grace_of_locks, all: LONG_GRACE }
    }
}

/// Serves, if this process is to; then it does not come back.
pub fn serve_if_told() {
    if child::role() != "service" {
        return;
    }
    let dir = child::pool().unwrap();
    let asked = TakeOver { keep_orphans: true, returning: true, ..TakeOver::default() };
    let pool = Arc::new(Pool::take_over(&dir, &OpenOptions::default(), &asked).unwrap());
    let attached = Some(dir.join(ATTACHED_NAME));
    let lanes = Some(dir.clone());
    let mut options = Options { attached, lanes, ..Options::default() };
    (options.grace, options.linger) = (LONG_GRACE, LONG_GRACE);
    // On a busy machine a client needs more than the usual second to reconnect with its locks. A
    // test in `holders` shows that the usual second suffices otherwise.
    options.grace_of_locks = LONG_GRACE;
    if let Ok(times) = std::env::var(GRACE) {
        let (locks, all) = times.split_once(' ').unwrap();
        let time = |text: &str| Duration::from_millis(text.parse().unwrap());
        (options.grace_of_locks, options.grace) = (time(locks), time(all));
    }
    let door = Door::open(&dir.join(nearside::ATTACH_SOCKET), 0o666).unwrap();
    let mut service = Service::start(pool.clone(), door, &options).unwrap();
    if let Some(port) = std::env::var(PORT).ok().and_then(|text| text.parse::<u16>().ok()) {
        let door = TcpListener::bind(("127.0.0.1", port)).unwrap();
        service.listen(door, own_rights()).unwrap();
    }
    child::say("serves");
    child::wait_to_be_told();
    drop(service);
    pool.close().unwrap();
    child::say("closed");
    std::process::exit(0);
}

impl Mortal {
    /// For the test of this name, which calls [`serve_if_told`] first.
    pub fn new(name: &'static str) -> Mortal {
        let (root, dir) = formatted("pool");
        let (place, port) = (dir.clone(), None);
        let mut mortal = Mortal { dir, place, port, service: None, name, _root: root };
        mortal.start(None);
        mortal
    }

    /// The same, where processes attach over a network.
    pub fn on_a_network(name: &'static str) -> Mortal {
        let (root, dir) = formatted("pool");
        let port = Port::free();
        let place = format!("near+insecure://127.0.0.1:{}", port.number).into();
        let mut mortal = Mortal { dir, place, port: Some(port), service: None, name, _root: root };
        mortal.start(None);
        mortal
    }

    /// Starts a service, with this grace.
    pub fn start(&mut self, grace: Option<Times>) {
        let mut command = child::command_as("service", self.name, &self.dir);
        if let Some(Times { locks, all }) = grace {
            command.env(GRACE, format!("{} {}", locks.as_millis(), all.as_millis()));
        }
        if let Some(port) = &self.port {
            command.env(PORT, port.number.to_string());
        }
        let mut service = Running::start(command);
        assert_eq!(service.hear(), "serves");
        self.service = Some(service);
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.service.take().unwrap().kill();
    }

    /// Kills it, and starts the next one; how long it took until that answered.
    pub fn replace(&mut self, pool: &Pool) -> Duration {
        let since = Instant::now();
        self.kill();
        std::thread::scope(|threads| {
            let answered = threads.spawn(|| pool.metadata("/").map(|_| since.elapsed()));
            self.start(None);
            answered.join().unwrap().unwrap()
        })
    }

    /// The number of its process.
    fn service_id(&self) -> nix::unistd::Pid {
        self.service.as_ref().unwrap().id()
    }

    /// Stops it: none of its threads does anything any more when this returns.
    pub fn stop(&self) {
        let id = self.service_id();
        kill(id, Signal::SIGSTOP).unwrap();
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        };
        eventually(|| std::fs::read_dir(format!("/proc/{id}/task")).unwrap().all(is_stopped));
    }

    /// It goes on after that.
    pub fn go_on(&self) {
        kill(self.service_id(), Signal::SIGCONT).unwrap();
    }

    /// Whether processes attach over a network.
    pub fn is_on_a_network(&self) -> bool {
        self.port.is_some()
    }

    /// How many copies it keeps for processes.
    pub fn copies(&self) -> usize {
        let id = self.service_id();
        let descriptors = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap();
        let places = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        places.filter(|place| place.to_string_lossy().contains("nearside-copy")).count()
    }

    /// Whether the service has decided to forget the clients that did not reconnect. It finishes
    /// that before it ends.
    pub fn has_forgotten(&self) -> bool {
        let stored = std::fs::read(self.dir.join(ATTACHED_NAME)).unwrap();
        let stored: serde_json::Value = serde_json::from_slice(&stored).unwrap();
        stored["forgotten"] == stored["service"]
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join(nearside::ATTACH_SOCKET)
    }

    pub fn attach(&self) -> Pool {
        Pool::attach(&self.place).unwrap()
    }

    /// Another process of the same test.
    pub fn child(&self, role: &str) -> Running {
        Running::start(child::command_as(role, self.name, &self.place))
    }

    /// The same, attached on this machine.
    pub fn child_here(&self, role: &str) -> Running {
        Running::start(child::command_as(role, self.name, &self.dir))
    }

    /// Ends it in order.
    pub fn end(&mut self) {
        let mut service = self.service.take().unwrap();
        service.tell();
        assert_eq!(service.hear(), "closed");
    }

    /// The same, and verifies all that the pool stores.
    pub fn finish(mut self) {
        self.end();
        verify(&self.dir);
    }
}

/// Those of the user and group of this process.
fn own_rights() -> Rights {
    Rights::new(nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw())
}

/// A port for the service of one test, also while that service is not running.
struct Port {
    number: u16,
    /// A name that no other test can have at the same time.
    _reserved: UnixListener,
}

impl Port {
    /// A free port below those that the kernel gives to connecting sockets: a client that connects
    /// to one of those while the service is down may be given it, and be connected to itself.
    fn free() -> Port {
        let reserved = |number: u16| {
            let name = format!("nearside-test-port-{number}");
            let name = SocketAddr::from_abstract_name(name).unwrap();
            let reserved = UnixListener::bind_addr(&name).ok()?;
            TcpListener::bind(("127.0.0.1", number)).ok()?;
            Some(Port { number, _reserved: reserved })
        };
        // Tests that run beside each other begin at different ones.
        let first = 20_000 + (std::process::id() % 1000) as u16 * 10;
        (first..30_000).chain(20_000..first).find_map(reserved).unwrap()
    }
}

fn verify(dir: &Path) {
    let report = nearside::check(dir).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(report.requests, 0, "nothing is remembered of those who are gone");
}
