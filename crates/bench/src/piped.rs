//! A process that is told lines and answers lines, and ends at the end of what it is told.

use crate::error::{Result, io};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The other end of such a process; waits for its end when it is dropped.
#[derive(Debug)]
pub struct Piped {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    path: PathBuf,
}

impl Piped {
    /// Starts it; `path` is what errors are about.
    pub fn start(mut command: Command, path: PathBuf) -> Result<Piped> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(io(command.get_program().as_ref()))?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let answers = answers.ok_or(std::io::ErrorKind::BrokenPipe.into()).map_err(io(&path))?;
        Ok(Piped { child, orders, answers: BufReader::new(answers), path })
    }

    /// This program again, with the arguments that it has, and this in its environment.
    pub fn again(name: &str, value: &std::path::Path) -> Result<Piped> {
        let program = std::env::current_exe().map_err(io(value))?;
        Piped::again_by(Command::new(program), name, value)
    }

    /// The same by a command that starts this program and gives it what arguments come.
    pub fn again_by(mut command: Command, name: &str, value: &std::path::Path) -> Result<Piped> {
        command.args(std::env::args_os().skip(1)).env(name, value);
        Piped::start(command, value.to_owned())
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells it a line.
    pub fn tell(&mut self, order: &str) -> Result<()> {
        let order = format!("{order}\n");
        let written = self.orders.as_mut().map(|orders| orders.write_all(order.as_bytes()));
        written.unwrap_or(Ok(())).map_err(io(&self.path))
    }

    /// The next line that it says; nothing if it has ended.
    pub fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(io(&self.path))?;
        Ok(line)
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // it ends at the end of its orders
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}
