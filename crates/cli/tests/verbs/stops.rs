//! Signals that end a command: between two steps, and nothing half done is left.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Scratch, binary, both, command};

/// More tries than this find no moment in which a copy is under way.
const TRIES_MAX: u32 = 200;
const BYTES: usize = 24 << 20;

/// How long a copy to `/new` takes that no signal meets, on this machine and now.
fn time_of_copy(scratch: &Scratch) -> Duration {
    let since = Instant::now();
    let copy = [OsString::from("cp"), scratch.outside("large"), scratch.inside("/new")];
    crate::support::ok(crate::support::run(copy));
    let took = since.elapsed();
    crate::support::ok(crate::support::run([OsString::from("rm"), scratch.inside("/new")]));
    took
}

/// Copies a file into the pool as `/new`, met by a signal after so long; what became of it, and
/// what it said.
fn met_copy(scratch: &Scratch, signal: Signal, after: Duration) -> (ExitStatus, String) {
    let words = [OsString::from("cp"), scratch.outside("large"), scratch.inside("/new")];
    let child = command(words).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(after);
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status, String::from_utf8(output.stderr).unwrap())
}

/// The names in the pool, hidden ones too.
fn names(scratch: &Scratch) -> Vec<String> {
    let listed = scratch.json(&["ls", "--json", "-a", scratch.inside("/").to_str().unwrap()]);
    let name = |entry: &serde_json::Value| entry["name"].as_str().unwrap().to_owned();
    listed.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn a_copy_that_is_stopped_leaves_nothing() {
    let content = binary(BYTES);
    both(|scratch| {
        std::fs::write(scratch.outside("large"), &content).unwrap();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            let mut whole = Duration::ZERO;
            let stopped = (0..TRIES_MAX).find(|n| {
                // The signals are spread over the duration of a whole copy, as measured last.
                if n % 40 == 0 {
                    whole = time_of_copy(scratch);
                }
                let after = whole * (n % 40) / 40;
                let (status, said) = met_copy(scratch, signal, after);
                if status.success() {
                    let new = scratch.inside("/new");
                    let whole = crate::support::run([OsString::from("cat"), new.clone()]);
                    assert!(whole.stdout == content);
                    crate::support::ok(crate::support::run([OsString::from("rm"), new]));
                    return false;
                }
                assert_eq!(status.signal(), Some(signal as i32), "{status} {said}");
                // Else it came before the command had begun.
                let stopped = said.contains(&format!("stopped by {signal}"));
                assert!(stopped || said.is_empty(), "{said}");
                assert!(names(scratch).is_empty(), "{:?}", names(scratch));
                stopped
            });
            assert!(stopped.is_some(), "no copy was under way when {signal} came");
        }
    });
}

/// A pipe that nobody writes to keeps no copy alive.
#[test]
fn a_copy_that_waits_is_ended() {
    let scratch = Scratch::new();
    let words = [OsString::from("cp"), "/dev/stdin".into(), scratch.inside("/new")];
    let mut child = command(words).stdin(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
}
