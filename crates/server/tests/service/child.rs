//! A test that is run again as another process, which is told so by its environment.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Tells the process which pool.
const POOL: &str = "NEARSIDE_TEST_CHILD";
/// Tells it what it is to be.
const ROLE: &str = "NEARSIDE_TEST_ROLE";
/// Begins a line that is meant.
const MARK: &str = "@ ";

/// The pool, if this is the other process.
pub fn pool() -> Option<PathBuf> {
    std::env::var_os(POOL).map(PathBuf::from)
}

/// What this other process is to be.
pub fn role() -> String {
    std::env::var(ROLE).unwrap_or_default()
}

/// Says a line to the test.
pub fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{words}").unwrap();
    out.flush().unwrap();
}

/// Waits until the test says so.
pub fn wait_to_be_told() {
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}

/// What the test says next; nothing when it has ended.
pub fn told() -> String {
    let mut line = String::new();
    let _ = std::io::stdin().lock().read_line(&mut line);
    line.trim().to_owned()
}

/// Sleeps until it is killed, or the test has ended.
pub fn wait_for_the_end() -> ! {
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    std::process::exit(0)
}

/// Another process that runs the test `name`.
pub fn command(name: &str, pool: &Path) -> Command {
    let mut command = piped(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(POOL, pool);
    command
}

/// A process that can be told and heard.
pub fn piped(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// The same, to be this.
pub fn command_as(role: &str, name: &str, pool: &Path) -> Command {
    let mut command = command(name, pool);
    command.env(ROLE, role);
    command
}

/// Has `by` run a program with all that the other command has, but its program.
pub fn pass_on(usual: &Command, by: &mut Command) {
    by.args(usual.get_args());
    by.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
}

/// A process that runs, until it is dropped.
pub struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Running {
    pub fn start(mut command: Command) -> Running {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }

    /// The next line that it says.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it has ended");
            if let Some(words) = line.strip_prefix(MARK) {
                return words.trim_end().to_owned();
            }
        }
    }

    /// Tells it to go on.
    pub fn tell(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap()).unwrap();
    }

    /// Tells it something, and hears what it says to that.
    pub fn ask(&mut self, words: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{words}").unwrap();
        self.hear()
    }

    /// Its number.
    pub fn id(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id() as i32)
    }

    /// What it had said before it ended, and was not heard so far.
    pub fn rest(&mut self) -> Vec<String> {
        let lines = (&mut self.lines).lines().map_while(Result::ok);
        lines.filter_map(|line| Some(line.strip_prefix(MARK)?.to_owned())).collect()
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // it may have ended
        let _ = self.child.kill().and_then(|()| self.child.wait().map(drop));
    }
}
