//! A scratch pool with a mount, and what a test does with it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[path = "readiness.rs"]
mod readiness;

/// Longest time that one command may take.
pub const COMMAND_SECONDS_MAX: u64 = 180;
/// Longest wait for an event that must come, on a busy machine too. It is shorter than the
/// product's time-outs, which no option sets: 30 s for a client without a service, 60 s for the
/// grace period and for lost connections. So a wait that only one of them ends fails.
pub const SOON: Duration = Duration::from_secs(25);
/// Longest wait for a server that starts, with its recovery: no such time-out ends this wait.
const READY_MAX: Duration = Duration::from_secs(120);
/// A server is killed this long after its keeper had its ready message. The keeper gives a mount up
/// whose servers die within 250 ms.
const SERVED_LONG_ENOUGH: Duration = Duration::from_millis(300);
/// Kills that a program has to live through.
const SERVERS_KILLED: u32 = 4;

/// A pool and a mount point in a directory that goes away at the end.
#[derive(Debug)]
pub struct Scratch {
    root: tempfile::TempDir,
    /// How it is mounted.
    options: &'static [&'static str],
}

/// What a pool is made of, and how it is mounted.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Of all slices together.
    pub size: &'static str,
    /// Size of each device of a capacity tier.
    pub devices: &'static [&'static str],
    /// Options of `mount`.
    pub options: &'static [&'static str],
}

/// Slices alone.
pub const SLICES: Shape = Shape { size: "96M", devices: &[], options: &[] };

/// Whether this machine lets the test mount; says why not.
pub fn can_mount() -> bool {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: mounting takes root");
        return false;
    }
    if std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        println!("skipped: /dev/fuse cannot be opened");
        return false;
    }
    true
}

/// Whether a program is installed; says so if not.
pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

impl Scratch {
    /// A formatted pool of two slices, not mounted yet; `None` where mounting is impossible.
    pub fn formatted() -> Option<Scratch> {
        Scratch::formatted_in(&std::env::temp_dir())
    }

    /// The same, in a directory of one's own choice.
    pub fn formatted_in(dir: &Path) -> Option<Scratch> {
        Scratch::formatted_as(dir, &SLICES)
    }

    /// The same, of a shape of one's own choice.
    pub fn formatted_as(dir: &Path, shape: &Shape) -> Option<Scratch> {
        if !can_mount() {
            return None;
        }
        let root = tempfile::tempdir_in(dir).unwrap();
        let scratch = Scratch { root, options: shape.options };
        // Other users pass through it.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(scratch.root.path(), mode).unwrap();
        std::fs::create_dir(scratch.mnt()).unwrap();
        let devices = shape.devices.iter().enumerate().map(|(number, size)| {
            let path = scratch.root().join(format!("device{number}"));
            format!("--capacity={}:{size}", path.display())
        });
        let options = ["--slices=2".to_owned(), format!("--size={}", shape.size)];
        let durability = "--durability=process".to_owned();
        let pool = scratch.pool().display().to_string();
        let all = ["format".to_owned(), pool, durability].into_iter().chain(options);
        scratch.run_ok(all.chain(devices));
        Some(scratch)
    }

    /// A pool of two slices, mounted.
    pub fn mounted() -> Option<Scratch> {
        let scratch = Scratch::formatted()?;
        scratch.mount();
        Some(scratch)
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn pool(&self) -> PathBuf {
        self.root().join("pool")
    }

    pub fn mnt(&self) -> PathBuf {
        self.root().join("mnt")
    }

    /// Runs `nearside` and gives what it said.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        let mut command = Command::new("timeout");
        command.arg(COMMAND_SECONDS_MAX.to_string()).arg(env!("CARGO_BIN_EXE_nearside"));
        command.args(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs `nearside`, which must succeed; gives its stdout.
    pub fn run_ok<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn mount(&self) {
        let (pool, mnt) = (self.pool(), self.mnt());
        let words = ["mount".as_ref(), pool.as_os_str(), mnt.as_os_str()];
        self.run_ok(words.into_iter().chain(self.options.iter().map(AsRef::as_ref)));
    }

    /// Unmounts. Waits a little for files that this test has closed: a child that another test
    /// starts at the same moment holds them until it executes its program.
    pub fn umount(&self) {
        let since = Instant::now();
        while since.elapsed() < SOON {
            let output = self.run(["umount".as_ref(), self.mnt().as_os_str()]);
            if !String::from_utf8_lossy(&output.stderr).contains("in use") {
                assert!(output.status.success(), "{output:?}\n{}", self.log());
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the mount stays in use");
    }

    /// Unmounts, verifies everything that is stored, and that nothing is left behind.
    pub fn finish(self) {
        self.verify_end();
    }

    /// The same for one who keeps it.
    pub fn verify_end(&self) {
        self.umount();
        assert!(!is_mounted(&self.mnt()));
        assert_eq!(self.end(), "closed");
        self.run_ok(["check".as_ref(), self.pool().as_os_str()]);
        let log = self.log();
        assert!(!log.contains("ERROR") && !log.contains("panic"), "{log}");
    }

    /// The process that the pid file names first: the keeper, while there is one.
    pub fn keeper(&self) -> Pid {
        self.processes()[0]
    }

    /// The server's process.
    pub fn server(&self) -> Pid {
        self.server_now().unwrap()
    }

    /// The same; nothing while another one is being written down, or when there is none.
    pub fn server_now(&self) -> Option<Pid> {
        self.processes().pop()
    }

    /// Waits until the keeper has the ready message of its server.
    pub fn await_ready(&self) {
        wait_until_ready(|| self.server_now());
    }

    /// Waits until a server has served long enough for its keeper to restart it at once.
    pub fn let_serve(&self, server: impl Fn() -> Option<Pid>) {
        wait_until_ready(server);
        std::thread::sleep(SERVED_LONG_ENOUGH);
    }

    /// Processes of the mount, as the pid file says: the keeper and its server, or a server alone.
    fn processes(&self) -> Vec<Pid> {
        let text = std::fs::read_to_string(self.pool().join("nearside.pid")).unwrap_or_default();
        let ids = text.lines().map(|line| line.strip_prefix("server ").unwrap_or(line));
        ids.filter_map(|id| id.parse().ok()).map(Pid::from_raw).collect()
    }

    /// What the last server said of its end.
    pub fn end(&self) -> String {
        let text = std::fs::read_to_string(self.pool().join("nearside.pid")).unwrap();
        text.trim_end().to_owned()
    }

    /// Kills keeper and server, as a crash would. They may still be dying when this returns:
    /// whatever comes next has to cope with that.
    pub fn kill_both(&self) {
        for process in self.processes() {
            kill(process, Signal::SIGKILL).unwrap();
        }
    }

    /// The server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.pool().join("nearside.log")).unwrap_or_default()
    }

    /// Runs a shell script in the mount; fails with what it said.
    pub fn sh(&self, script: &str) -> String {
        let output = self.sh_as(None, script);
        assert!(output.status.success(), "{script}\n{output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a shell script again and again, each time in a new directory of the mount, while the
    /// server is killed whenever it has served for a moment: until that was often enough.
    pub fn sh_while_servers_die(&self, script: &str) {
        let (is_over, killed) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(200));
                    self.await_ready();
                    std::thread::sleep(SERVED_LONG_ENOUGH);
                    if let [_, server] = self.processes()[..] {
                        kill(server, Signal::SIGKILL).unwrap();
                        killed.fetch_add(1, Ordering::Relaxed);
                        wait_until("the next server", || self.server_now() != Some(server));
                    }
                }
            });
            let over = Over(&is_over);
            for round in 0.. {
                self.sh(&format!("mkdir round{round}; cd round{round}\n{script}"));
                if killed.load(Ordering::Relaxed) >= SERVERS_KILLED {
                    break;
                }
            }
            drop(over);
        });
    }

    /// Runs a shell script in the mount, perhaps as another user (and group of the same number).
    pub fn sh_as(&self, user: Option<u32>, script: &str) -> Output {
        let mut command = Command::new("timeout");
        // all crates in a history of git, with a server that is killed twice a second, beside other
        // tests: more than three minutes
        command.arg((3 * COMMAND_SECONDS_MAX).to_string());
        if let Some(user) = user {
            command.args(["setpriv", "--clear-groups"]);
            command.arg(format!("--reuid={user}")).arg(format!("--regid={user}"));
        }
        command.args(["sh", "-euc", script]);
        command.current_dir(self.mnt()).env("OUTSIDE", self.root()).stdin(Stdio::null());
        // Git and others look for settings there.
        command.env("HOME", self.root()).env("LC_ALL", "C").output().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !is_mounted(&self.mnt()) {
            return;
        }
        // Only after a failure. The pid file is this pool's, so the processes are ours.
        for process in self.processes() {
            let _ = kill(process, Signal::SIGKILL);
        }
        let _ = Command::new("umount").arg("-l").arg(self.mnt()).status();
    }
}

/// Says so when it is dropped, however that comes.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub fn is_mounted(dir: &Path) -> bool {
    let dir = dir.parent().unwrap().canonicalize().unwrap().join(dir.file_name().unwrap());
    nearside_fuse::mounts::at(&dir).unwrap().is_some()
}

/// Whether a process runs. The first of its threads may be gone before the others.
pub fn is_running(process: Pid) -> bool {
    let state = |stat: String| stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    let stats =
        threads.flatten().filter_map(|at| std::fs::read_to_string(at.path().join("stat")).ok());
    stats.filter_map(state).any(|state| state != 'Z' && state != 'X')
}

pub fn wait_until(what: &str, done: impl Fn() -> bool) {
    wait_at_most(SOON, what, done);
}

/// Waits until the keeper has the ready message of this server.
fn wait_until_ready(server: impl Fn() -> Option<Pid>) {
    let is_ready = || server().is_some_and(readiness::is_ready);
    wait_at_most(READY_MAX, "the keeper has heard that its server is ready", is_ready);
}

fn wait_at_most(most: Duration, what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + most;
    while !done() {
        assert!(Instant::now() < deadline, "waited {most:?} until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
