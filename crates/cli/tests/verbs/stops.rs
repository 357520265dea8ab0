//! Signals that end a command: between two steps, and nothing half done is left.

use std::ffi::OsString;
use std::io::Write;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Scratch, both, command};

/// Copies from a pipe into the pool as `name` and has it met by a signal in the middle.
fn stopped_copy(scratch: &Scratch, name: &str, signal: Signal) -> (Option<i32>, String) {
    let words = [OsString::from("cp"), "/dev/stdin".into(), scratch.inside(name)];
    let mut child = command(words).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let piece = vec![1; 1 << 20];
    // More than a pipe holds: it reads by now, so it hears signals.
    pipe.write_all(&piece).unwrap();
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    // Not endless: the pool is.
    while pipe.write_all(&piece).is_ok() {}
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_copy_that_is_stopped_leaves_nothing() {
    both(|scratch| {
        for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)]
        {
            let (ended, said) = stopped_copy(scratch, "/new", signal);
            assert_eq!(ended, Some(code), "{said}");
            assert!(said.contains(&format!("stopped by {signal}")), "{said}");
        }
        let listed = scratch.json(&["ls", "--json", "-a", &pool_root(scratch)]);
        assert_eq!(listed.as_array().map(Vec::len), Some(0), "{listed}");
    });
}

fn pool_root(scratch: &Scratch) -> String {
    scratch.inside("/").into_string().unwrap()
}
