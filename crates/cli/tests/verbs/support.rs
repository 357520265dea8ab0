//! A scratch pool, mounted or not, and `nearside` on it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[path = "../mount/readiness.rs"]
mod readiness;

/// Longest wait for an event that must come, on a busy machine too. It is longer than the product's
/// time-outs for clients and lost connections (30 and 60 s), and hides none of them: it bounds the
/// start and the end of servers, their answers, revocations, scrubs and resilvers. None of these
/// waits for a client.
pub const SOON: Duration = Duration::from_secs(120);
/// Longest wait until a mount is not in use any more. It is shorter than those time-outs: a client
/// that stays until one of them ends it keeps the mount in use, and the test fails.
const IN_USE_MAX: Duration = Duration::from_secs(25);

/// A pool of two slices in a directory that goes away at the end.
pub struct Scratch {
    root: tempfile::TempDir,
    /// Where the pool is mounted, if it is.
    mount: Option<tempfile::TempDir>,
    /// A service has it.
    is_served: AtomicBool,
}

/// Does the same on a pool that nobody has, on one that a service has and, where this machine lets
/// a test mount, on one that is mounted: a verb on files must not tell the difference.
pub fn each_way(test: impl Fn(&Scratch)) {
    let scratch = Scratch::new();
    scratch.ok(&["serve", "@pool"]);
    scratch.is_served.store(true, Ordering::Relaxed);
    test(&scratch);
    scratch.ok(&["stop", "@pool"]);
    scratch.is_served.store(false, Ordering::Relaxed);
    scratch.check();
    both(test);
}

/// Does the same on a pool that is not mounted and, where this machine lets a test mount, on one
/// that is.
pub fn both(test: impl Fn(&Scratch)) {
    test(&Scratch::new());
    if let Some(scratch) = Scratch::mounted() {
        test(&scratch);
        scratch.umount();
    }
}

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

impl Scratch {
    /// A formatted pool.
    pub fn new() -> Scratch {
        let scratch = Scratch {
            root: tempfile::tempdir().unwrap(),
            mount: None,
            is_served: AtomicBool::new(false),
        };
        scratch.format("pool");
        scratch
    }

    /// A formatted pool that is mounted; none where that is impossible.
    pub fn mounted() -> Option<Scratch> {
        Scratch::mounted_with(&[])
    }

    /// The same with more options of `mount`.
    pub fn mounted_with(options: &[&str]) -> Option<Scratch> {
        if !can_mount() {
            return None;
        }
        let mut scratch = Scratch::new();
        scratch.mount(options);
        Some(scratch)
    }

    /// A formatted pool with two copies of everything, on a machine that may mount or not.
    pub fn mirrored() -> Scratch {
        let scratch = Scratch {
            root: tempfile::tempdir().unwrap(),
            mount: None,
            is_served: AtomicBool::new(false),
        };
        scratch.format_with("pool", &["--data-copies=2"]);
        scratch
    }

    /// A formatted pool of two slices of 16 MiB on nodes of their own, and two devices below them,
    /// of 48 and 32 MiB.
    pub fn tiered() -> Scratch {
        let scratch = Scratch {
            root: tempfile::tempdir().unwrap(),
            mount: None,
            is_served: AtomicBool::new(false),
        };
        scratch.format_tiered("pool");
        scratch
    }

    /// A formatted pool of two slices above that device.
    pub fn above(device: &Path) -> Scratch {
        let scratch = Scratch {
            root: tempfile::tempdir().unwrap(),
            mount: None,
            is_served: AtomicBool::new(false),
        };
        scratch.format_with("pool", &[&format!("--capacity={}", device.display())]);
        scratch
    }

    /// Makes one more such pool; says what `format` said.
    pub fn format_tiered(&self, name: &str) -> String {
        let device = |index: u32, size: &str| {
            let path = self.root().join(format!("{name}.device{index}"));
            format!("--capacity={}:{size}", path.display())
        };
        let options = ["--slices=2", "--size=16M", "--durability=process", "--virtual-nodes=2"];
        let (first, second) = (device(0, "48M"), device(1, "32M"));
        let name = format!("@{name}");
        self.ok(&[&["format", &name], &options[..], &[&first, &second]].concat())
    }

    /// A formatted pool in the domain `sync`.
    pub fn synced() -> Scratch {
        let scratch = Scratch {
            root: tempfile::tempdir().unwrap(),
            mount: None,
            is_served: AtomicBool::new(false),
        };
        let pool = scratch.pool();
        ok(run([OsStr::new("format"), pool.as_os_str(), "--size=32M".as_ref()]));
        scratch
    }

    /// Mounts it, where that can be.
    pub fn mounts(&mut self) -> bool {
        let can = can_mount();
        if can {
            self.mount(&[]);
        }
        can
    }

    fn mount(&mut self, options: &[&str]) {
        let mount = tempfile::tempdir().unwrap();
        let (pool, dir) = (self.pool().into_os_string(), mount.path().as_os_str().to_owned());
        self.mount = Some(mount);
        let words = ["mount".into(), pool, dir].into_iter();
        ok(run(words.chain(options.iter().map(OsString::from))));
    }

    /// Where the pool is mounted.
    pub fn mnt(&self) -> &Path {
        self.mount.as_ref().unwrap().path()
    }

    /// Whether the pool is mounted.
    pub fn is_mounted(&self) -> bool {
        self.mount.is_some()
    }

    /// Unmounts. Waits a little for files that this test has closed: a child that another test
    /// starts at the same moment holds them until it executes its program.
    pub fn umount(&self) {
        let since = Instant::now();
        while since.elapsed() < IN_USE_MAX {
            let output = run([OsStr::new("umount"), self.mnt().as_os_str()]);
            if !String::from_utf8_lossy(&output.stderr).contains("in use") {
                ok(output);
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the mount stays in use");
    }

    /// It was unmounted, and is used without a mount from now on.
    pub fn is_unmounted(&mut self) {
        self.mount = None;
    }

    /// Has a service serve the pool, with more arguments.
    pub fn serve(&self, more: &[&str]) {
        self.ok(&[&["serve", "@pool"], more].concat());
        self.is_served.store(true, Ordering::Relaxed);
    }

    /// Where a server answers that has `--http`, with whatever port.
    pub fn http_address(&self) -> std::net::SocketAddr {
        self.http_address_of(&self.pool())
    }

    /// The same of another pool.
    pub fn http_address_of(&self, pool: &Path) -> std::net::SocketAddr {
        let log = std::fs::read_to_string(pool.join("nearside.log")).unwrap();
        let mut lines = log.lines().filter_map(|line| line.rsplit_once("http address="));
        lines.next_back().unwrap().1.trim().parse().unwrap()
    }

    /// The server's process.
    pub fn server(&self) -> nix::unistd::Pid {
        self.processes().pop().unwrap()
    }

    /// Waits until the keeper has the ready message of its server.
    pub fn await_ready(&self) {
        let since = Instant::now();
        while !self.processes().pop().is_some_and(readiness::is_ready) {
            assert!(since.elapsed() < SOON, "the server is not ready");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills keeper and server, as a crash would.
    pub fn kill_both(&self) {
        for process in self.processes() {
            let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL);
        }
    }

    /// The keeper and its server, as the pid file says.
    fn processes(&self) -> Vec<nix::unistd::Pid> {
        let text = std::fs::read_to_string(self.pool().join("nearside.pid")).unwrap_or_default();
        let ids = text.lines().map(|line| line.strip_prefix("server ").unwrap_or(line));
        ids.filter_map(|id| id.parse().ok()).map(nix::unistd::Pid::from_raw).collect()
    }

    /// Makes one more pool.
    pub fn format(&self, name: &str) {
        self.format_with(name, &[]);
    }

    fn format_with(&self, name: &str, more: &[&str]) {
        let pool = self.root.path().join(name);
        let options = ["--slices=2", "--size=32M", "--durability=process"].map(OsStr::new);
        let more: Vec<&OsStr> = more.iter().map(OsStr::new).collect();
        ok(run([&[OsStr::new("format"), pool.as_os_str()], &options[..], &more].concat()));
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn pool(&self) -> PathBuf {
        self.root().join("pool")
    }

    /// A path beside the pool.
    pub fn outside(&self, name: &str) -> OsString {
        self.root().join(name).into_os_string()
    }

    /// `POOL:` and `path`.
    pub fn inside(&self, path: impl AsRef<OsStr>) -> OsString {
        let mut text = self.pool().into_os_string();
        text.push(":");
        text.push(path);
        text
    }

    /// Runs `nearside` with `words`; one that begins with `:/` is a path in the pool, one that
    /// begins with `@` is a path beside it.
    pub fn run(&self, words: &[&str]) -> Output {
        run(words.iter().map(|word| match word.strip_prefix(':') {
            Some(path) if path.starts_with('/') => self.inside(path),
            _ => match word.strip_prefix('@') {
                Some(name) => self.outside(name),
                None => word.into(),
            },
        }))
    }

    /// Runs it; it must succeed. Gives its stdout.
    pub fn ok(&self, words: &[&str]) -> String {
        String::from_utf8(ok(self.run(words))).unwrap()
    }

    /// Runs it and reads what it printed as JSON.
    pub fn json(&self, words: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(words)).unwrap()
    }

    /// Runs it; it must exit with `code` and say each of `said` on stderr.
    pub fn fails(&self, words: &[&str], code: i32, said: &[&str]) {
        let output = self.run(words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
        for word in said {
            assert!(text.contains(word), "{words:?}: no \"{word}\" in: {text}");
        }
        assert!(!text.contains("panic"), "{text}");
    }

    /// Puts a file into the pool.
    pub fn put(&self, path: &str, content: &[u8]) {
        std::fs::write(self.outside("put"), content).unwrap();
        self.ok(&["cp", "@put", path]);
    }

    /// All that the pool holds, one path a line.
    pub fn all(&self) -> Vec<String> {
        let mut paths = Vec::new();
        collect(&self.json(&["tree", "--json", ":/"]), "", &mut paths);
        paths
    }

    /// Verifies everything that is stored.
    pub fn check(&self) {
        let pool = self.pool();
        ok(run([OsStr::new("check"), pool.as_os_str()]));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // only after a failure
        if self.is_served.load(Ordering::Relaxed) && std::thread::panicking() {
            self.kill_both();
        }
        let Some(mount) = &self.mount else { return };
        // Only after a failure, and what is mounted there is this test's own.
        if nearside_fuse::mounts::at(mount.path()).is_ok_and(|entry| entry.is_some()) {
            self.kill_both();
            let _ = Command::new("umount").arg("-l").arg(mount.path()).status();
        }
    }
}

fn collect(node: &serde_json::Value, at: &str, paths: &mut Vec<String>) {
    for entry in node["entries"].as_array().into_iter().flatten() {
        let path = format!("{at}/{}", entry["name"].as_str().unwrap());
        paths.push(path.clone());
        collect(entry, &path, paths);
    }
}

/// The command, not started yet.
pub fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
    command.args(args).stdin(Stdio::null());
    command
}

pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    command(args).output().unwrap()
}

/// The stdout of a command that must have succeeded and said nothing on stderr.
pub fn ok(output: Output) -> Vec<u8> {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    output.stdout
}

/// Bytes of every value in no short period.
pub fn binary(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..bytes).map(|_| next()).collect()
}
