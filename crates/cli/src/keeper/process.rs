//! The keeper's side of a server process.

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::channel::{Channel, ToKeeper, ToServer};
use crate::served::Served;

/// The program that this process runs, also when another file has its path by now.
pub const OURSELVES: &str = "/proc/self/exe";

/// A server and what it says. Dropping it leaves the process alone.
#[derive(Debug)]
pub struct Server {
    child: Child,
    process: OwnedFd,
    channel: Channel,
}

impl Server {
    /// Starts `program` as a server, which then waits for its start.
    pub fn spawn(program: &Path, args: &Served) -> Result<Server> {
        let (channel, theirs) = Channel::pair()?;
        let mut command = Command::new(program);
        command.arg0("nearside").args(arguments(args)).arg("--as-server");
        command.stdin(theirs).stdout(Stdio::null());
        // A background process holds no directory of its caller's, and signals from a terminal are
        // for the keeper, who passes them on.
        let mut child = command.current_dir("/").process_group(0).spawn()?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(process) => Ok(Server { child, process, channel }),
            Err(errno) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(errno.into())
            }
        }
    }

    /// The process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Becomes readable when the process has ended.
    pub fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Becomes readable when it has said something.
    pub fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Tells it something.
    pub fn tell(&self, message: &ToServer, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        self.channel.send(message, descriptors)
    }

    /// The next that it said; waits for it. `None` once it says no more.
    pub fn hear(&self) -> Result<Option<(ToKeeper, Vec<OwnedFd>)>> {
        self.channel.receive()
    }

    /// Sends it a signal; one that has ended already gets none.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.process, signal);
    }

    /// Waits until the process has ended: all that it had open is closed then.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait()
    }
}

/// The command line that gives a process the same arguments, whatever its part.
pub fn arguments(served: &Served) -> Vec<std::ffi::OsString> {
    let args = &served.serving;
    let pool = served.origin.as_ref().unwrap_or(&served.pool);
    let mut list: Vec<std::ffi::OsString> = match (&served.dir, &served.attaching) {
        (Some(dir), None) => vec!["mount".into(), pool.into(), dir.into()],
        _ => vec!["serve".into(), pool.into()],
    };
    if let Some(attaching) = &served.attaching {
        if let Some(dir) = &served.dir {
            list.extend(["--mount".into(), dir.clone().into()]);
        }
        if let Some(socket) = &attaching.socket {
            list.extend(["--socket".into(), socket.clone().into()]);
        }
        list.push(format!("--socket-mode={:o}", attaching.socket_mode).into());
        if let Some(seconds) = attaching.until_idle {
            list.push(format!("--until-idle={seconds}").into());
        }
        list.extend(attaching.listening.arguments());
    }
    if args.read_only {
        list.push("--read-only".into());
    }
    if args.allow_other {
        list.push("--allow-other".into());
    }
    if let Some(threads) = args.threads {
        list.push(format!("--threads={threads}").into());
    }
    if let Some(memory) = args.memory {
        list.push(format!("--memory={memory}").into());
    }
    if let Some(workers) = args.workers {
        list.push(format!("--workers={workers}").into());
    }
    if let Some(lever) = args.move_data {
        list.push(format!("--move-data={lever}").into());
    }
    if let Some(lever) = args.move_threads {
        list.push(format!("--move-threads={lever}").into());
    }
    if let Some(percent) = args.write_back_at {
        list.push(format!("--write-back-at={percent}").into());
    }
    if let Some(cache) = args.tier_cache {
        list.push(format!("--tier-cache={cache}").into());
    }
    if let Some(address) = args.http {
        // by the name that it had first: the program may be an older one, that knows no other
        list.push(format!("--metrics={address}").into());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn a_server_gets_the_arguments_that_the_command_got() {
        let shared = "--read-only --allow-other --threads=3 --memory=1048576 --workers=0 \
                      --move-data=report --move-threads=on \
                      --write-back-at=45 --tier-cache=4096 --metrics=[::1]:9";
        let lines = [
            "mount /a/pool /b/dir",
            "mount near://host/a /b/dir",
            "serve /a/pool --socket-mode=666",
            "serve /a/pool --mount /b/dir --socket /run/s --socket-mode=60 --until-idle=5",
            "serve /a/pool --socket-mode=666 --listen=10.0.0.1:80 --listen-as=7:8 --squash=root \
             --insecure --trust-network",
            "serve /a/pool --socket-mode=666 --listen=10.0.0.1:80 --credentials=/c --access=/a",
        ];
        for line in lines.map(|line| format!("{line} {shared}")) {
            assert_eq!(handed_on(&line), line);
        }
    }

    fn handed_on(line: &str) -> String {
        let cli = Cli::parse_from(std::iter::once("nearside").chain(line.split(' ')));
        let served = match cli.command {
            Command::Mount(args) => Served::mounted(args),
            Command::Serve(args) => Served::attached(args),
            other => panic!("{other:?}"),
        };
        let again = arguments(&served).into_iter().map(|word| word.into_string().unwrap());
        again.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_program_from_before_http_knows_what_it_is_handed() {
        assert_eq!(handed_on("mount /a /b --http=[::1]:9"), "mount /a /b --metrics=[::1]:9");
    }
}
