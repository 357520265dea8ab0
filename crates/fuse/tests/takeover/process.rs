//! A server in a process of its own, which can be killed.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, ChildStdout, Command, Stdio};

use nearside::Pool;
use nearside_fuse::wire::{Operation, Reply, Request};
use nearside_fuse::{
    Connected, Connection, MountOptions, Result, Server, Wishes, pool_server, serve_by,
};

use crate::support::{Scratch, options};

/// Names the pool to a process that is to serve; its stdin is the device.
const SERVE: &str = "NEARSIDE_TEST_SERVE";
/// Names the state memory to it.
const STATE: &str = "NEARSIDE_TEST_STATE";
/// A name that holds this, and content that begins with it, is never answered for by that process.
pub const STUCK: &str = "stuck";
/// What it says when a lock request is answered or waits.
pub const LOCKED: &str = "asked for a lock";
/// Set for a server that is not the only door.
const SHARED: &str = "NEARSIDE_TEST_SHARED";

/// The server of a pool that never answers for what is called stuck.
struct Stuck<S>(S);

impl<S: Server> Server for Stuck<S> {
    fn wishes(&self) -> Wishes {
        self.0.wishes()
    }

    fn connected(&self, connected: Connected) -> Result<()> {
        self.0.connected(connected)
    }

    fn answered(&self, unique: u64) {
        self.0.answered(unique);
    }

    fn leaves(&self) {
        self.0.leaves();
    }

    fn serve(&self, request: &Request<'_>, reply: Reply<'_>) {
        let is_stuck = match &request.operation {
            Operation::Mkdir { name, .. } => name.starts_with(STUCK.as_bytes()),
            Operation::Write { data, .. } => data.starts_with(STUCK.as_bytes()),
            _ => false,
        };
        if !is_stuck {
            self.0.serve(request, reply);
            if matches!(request.operation, Operation::Setlk { .. }) {
                println!("{LOCKED}");
            }
            return;
        }
        println!("{STUCK} {}", request.head.unique);
        loop {
            std::thread::park();
        }
    }
}

/// In the process that a test started: serves until it is killed.
pub fn serve_if_asked() {
    let Some(pool) = std::env::var_os(SERVE) else { return };
    let device = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let state = std::env::var_os(STATE).unwrap();
    let state = OpenOptions::new().read(true).write(true).open(state).unwrap();
    let connection = Connection::from_descriptors(device, state.into()).unwrap();
    let pool = Pool::open(pool).unwrap();
    let sole_door = std::env::var_os(SHARED).is_none();
    let options = MountOptions { sole_door, ..options(4) };
    let server = |turn| Stuck(pool_server(pool.fs().clone(), turn, &options));
    let mount = serve_by(server, connection, &options).unwrap();
    println!("serving");
    mount.wait().unwrap();
    std::process::exit(0);
}

/// A server in a process of its own; killed when this is dropped.
pub struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one that serves the connection; `test` is the test that calls this.
    pub fn start(test: &str, scratch: &Scratch, kept: &(OwnedFd, OwnedFd)) -> Process {
        Process::start_with(test, scratch, kept, true)
    }

    /// The same, of a server that may not be the only door.
    pub fn start_with(
        test: &str,
        scratch: &Scratch,
        kept: &(OwnedFd, OwnedFd),
        sole_door: bool,
    ) -> Process {
        let state = format!("/proc/{}/fd/{}", std::process::id(), kept.1.as_raw_fd());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        command.env(SERVE, scratch.root.path().join("pool")).env(STATE, state);
        if !sole_door {
            command.env(SHARED, "1");
        }
        command.stdin(kept.0.try_clone().unwrap()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut process = Process { child, said };
        process.hear("serving");
        process
    }

    /// Waits until it says a line with this word, and gives what stands behind that.
    pub fn hear(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.said.read_line(&mut line).unwrap() > 0 {
            // The test harness may have begun the line.
            if let Some(at) = line.find(word) {
                return line[at + word.len()..].trim().to_owned();
            }
            line.clear();
        }
        panic!("the server ended without saying {word}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
