//! A process that the driver started, which ends with it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::worker::MARK;
use crate::{Result, said};

/// Longest time for anything that a process is told.
const LONGEST: Duration = Duration::from_secs(120);

/// A process that is told and heard, until it is dropped.
#[derive(Debug)]
pub struct Watched {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Watched {
    /// Starts it, and waits until it is ready.
    pub fn start(name: &str, command: &mut Command) -> Result<Watched> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{name}: {error}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (said, lines) = channel();
        std::thread::spawn(move || {
            let lines = output.map(|output| BufReader::new(output).lines());
            for line in lines.into_iter().flatten().map_while(std::result::Result::ok) {
                if let Some(words) = line.strip_prefix(MARK) {
                    // who does not listen any more does not mind
                    let _ = said.send(words.to_owned());
                }
            }
        });
        let watched = Watched { name: name.to_owned(), child, input, lines };
        watched.hear("ready")?;
        Ok(watched)
    }

    /// Waits until it says so.
    pub fn hear(&self, expected: &str) -> Result<()> {
        match self.lines.recv_timeout(LONGEST) {
            Ok(words) if words == expected => Ok(()),
            Ok(words) => Err(format!("{} says {words:?}, not {expected:?}", self.name)),
            Err(error) => Err(format!("{} does not say {expected:?}: {error}", self.name)),
        }
    }

    /// Tells it something.
    pub fn tell(&mut self, what: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(what).map_err(said("a line"))?;
        let Some(input) = &mut self.input else { return Ok(()) };
        writeln!(input, "{line}").map_err(|error| format!("{} has gone: {error}", self.name))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id() as i32).ok_or("no process")?;
        kill_process(pid, signal).map_err(said("kill"))
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        // it may have ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Lets it end in order, and say this before, if anything.
    pub fn end(&mut self, last_words: Option<&str>) -> Result<()> {
        self.input = None;
        last_words.map_or(Ok(()), |words| self.hear(words))?;
        let status = self.child.wait().map_err(said("wait"))?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("{}: {status}", self.name)),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.kill();
    }
}
