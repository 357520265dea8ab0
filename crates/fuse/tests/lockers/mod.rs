//! Processes that lock files as they are told.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Reads commands, a line each, and answers each with a line.
const PROGRAM: &str = r#"
import fcntl, os, signal, struct, sys
def stop(*_):
    raise InterruptedError(4, "signal")
signal.signal(signal.SIGUSR1, stop)
kinds = {"ex": fcntl.F_WRLCK, "sh": fcntl.F_RDLCK, "un": fcntl.F_UNLCK}
flocks = {"ex": fcntl.LOCK_EX, "sh": fcntl.LOCK_SH, "un": fcntl.LOCK_UN}
OFD_SETLK, OFD_SETLKW = 37, 38
files = {}
def lock(kind, start, length, pid=0):
    return struct.pack("hhqqi4x", kinds[kind], 0, int(start), int(length), pid)
def do(verb, name, *words):
    if verb == "open":
        files[name] = os.open(words[0], os.O_RDWR | os.O_CREAT)
    elif verb == "close":
        os.close(files.pop(name))
    elif verb == "flock":
        fcntl.flock(files[name], flocks[words[0]] | (0 if words[1] == "wait" else fcntl.LOCK_NB))
    elif verb in ("posix", "ofd"):
        waits = words[3] == "wait"
        if verb == "ofd":
            command = OFD_SETLKW if waits else OFD_SETLK
        else:
            command = fcntl.F_SETLKW if waits else fcntl.F_SETLK
        fcntl.fcntl(files[name], command, lock(*words[:3]))
    elif verb == "holder":
        found = fcntl.fcntl(files[name], fcntl.F_GETLK, lock(*words))
        kind, _, start, length, pid = struct.unpack("hhqqi4x", found)
        kind = {value: key for key, value in kinds.items()}[kind]
        return "none" if kind == "un" else f"{kind} {start} {length} {pid}"
    else:
        raise ValueError(verb)
    return "ok"
for line in sys.stdin:
    try:
        print(do(*line.split()), flush=True)
    except OSError as error:
        print(f"errno {error.errno}", flush=True)
"#;

/// A process with files that it locks.
pub struct Locker {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Locker {
    /// Starts one that has `file` open under the name `f`.
    pub fn new(file: &Path) -> Locker {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let hears = child.stdin.take().unwrap();
        let mut locker = Locker { child, says, hears };
        locker.open("f", file);
        locker
    }

    /// Opens a file under a name.
    pub fn open(&mut self, name: &str, file: &Path) {
        self.done(&format!("open {name} {}", file.display()));
    }

    /// Has it begin something that may take long.
    pub fn begin(&mut self, command: &str) {
        writeln!(self.hears, "{command}").unwrap();
    }

    /// Its answer.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Has it do something, and gives its answer.
    pub fn ask(&mut self, command: &str) -> String {
        self.begin(command);
        self.answer()
    }

    /// Has it do something that must work.
    pub fn done(&mut self, command: &str) {
        assert_eq!(self.ask(command), "ok", "{command}");
    }

    /// Has it try something that must be refused so.
    pub fn refused(&mut self, command: &str, errno: i32) {
        assert_eq!(self.ask(command), format!("errno {errno}"), "{command}");
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Kills it, and returns when it has ended.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        // One that is gone already cannot be killed.
        let _ = self.child.kill();
        // Where a test fails nobody may be left to answer what it waits for.
        if !std::thread::panicking() {
            let _ = self.child.wait();
        }
    }
}
