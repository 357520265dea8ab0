//! Who owns the pool.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::plan::HostKind;
use crate::watched::Watched;
use crate::{Result, said};

/// The pool's directory, and where it is mounted.
#[derive(Clone, Debug)]
pub struct Places {
    /// See above.
    pub pool: PathBuf,
    /// See above; none where this machine lets nobody mount.
    pub mnt: Option<PathBuf>,
    /// Where it is mounted over a network, if a service has it.
    pub away: Option<PathBuf>,
    /// The command `nearside`.
    pub nearside: PathBuf,
}

/// The owner, until it is dropped.
#[derive(Debug)]
pub enum Host {
    /// A process of the driver's own.
    Owner(Watched, Places),
    /// `nearside serve`.
    Serve(Places),
}

impl Host {
    /// Starts it; its own callers, if it has any, are the first.
    pub fn start(kind: HostKind, places: &Places) -> Result<Host> {
        match kind {
            HostKind::Owner => {
                let mut command = this_program()?;
                command.arg("own").arg(&places.pool);
                command.arg(places.mnt.as_deref().unwrap_or(Path::new("-")));
                Ok(Host::Owner(Watched::start("the owner", &mut command)?, places.clone()))
            }
            HostKind::Serve => {
                let host = Host::Serve(places.clone());
                let mut words = vec!["serve".as_ref(), places.pool.as_os_str()];
                if let Some(mnt) = &places.mnt {
                    words.extend(["--mount".as_ref(), mnt.as_os_str()]);
                }
                let listen = ["--listen=127.0.0.1:0", "--insecure", "--squash=none"];
                words.extend(places.away.iter().flat_map(|_| listen).map(std::ffi::OsStr::new));
                command(&places.nearside, &words)?;
                if let Some(away) = &places.away {
                    let address = listens_at(&places.pool)?;
                    let words = ["mount".as_ref(), address.as_ref(), away.as_os_str()];
                    command(&places.nearside, &words)?;
                }
                Ok(host)
            }
        }
    }

    /// The process that calls, if the host does.
    pub fn caller(&mut self) -> Option<&mut Watched> {
        match self {
            Host::Owner(owner, _) => Some(owner),
            Host::Serve(_) => None,
        }
    }

    /// Kills the server of a pool that has a keeper.
    pub fn kill_server(&self) -> Result<()> {
        match self {
            Host::Owner(..) => Ok(()),
            Host::Serve(places) => {
                let server = processes(&places.pool).pop().ok_or("no server is running")?;
                kill_process(server, Signal::KILL).map_err(said("kill"))
            }
        }
    }

    /// Kills all of it.
    pub fn kill(&mut self) {
        match self {
            Host::Owner(owner, _) => owner.kill(),
            Host::Serve(places) => {
                // the keeper first, which else starts another server
                for process in processes(&places.pool) {
                    let _ = kill_process(process, Signal::KILL);
                }
            }
        }
        // a server that had its kernel drop a dirty page ends when the mount does
        self.unmount();
        if let Host::Serve(places) = self {
            processes(&places.pool).into_iter().for_each(wait_for_the_end);
            let _ = std::fs::remove_file(places.pool.join("nearside.pid"));
        }
    }

    fn unmount(&self) {
        let (Host::Owner(_, places) | Host::Serve(places)) = self;
        if let Some(away) = &places.away {
            forwarders(away).into_iter().for_each(|process| {
                let _ = kill_process(process, Signal::KILL);
            });
        }
        for mnt in places.mnt.iter().chain(&places.away) {
            // where it is not mounted any more, it says so
            let mut command = Command::new("umount");
            let _ = command.arg("-fl").arg(mnt).stderr(Stdio::null()).status();
        }
    }

    /// Ends it in order.
    pub fn end(mut self) -> Result<()> {
        match &mut self {
            Host::Serve(places) => {
                if let Some(away) = &places.away {
                    command(&places.nearside, &["umount".as_ref(), away.as_os_str()])?;
                }
                command(&places.nearside, &["stop".as_ref(), places.pool.as_ref()])
            }
            Host::Owner(owner, _) => owner.end(Some("closed")),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Keeper and server, the server last.
fn processes(pool: &Path) -> Vec<Pid> {
    let text = std::fs::read_to_string(pool.join("nearside.pid")).unwrap_or_default();
    let ids = text.lines().map(|line| line.strip_prefix("server ").unwrap_or(line));
    ids.filter_map(|id| id.parse().ok().and_then(Pid::from_raw)).collect()
}

/// The address at which the service of a pool listens, as its log says.
fn listens_at(pool: &Path) -> Result<String> {
    let log = std::fs::read_to_string(pool.join("nearside.log")).map_err(said("the log"))?;
    let said = log.rsplit_once("listening at ").map(|it| it.1);
    let address = said.and_then(|said| said.split_whitespace().next());
    let address = address.ok_or("the service does not say where it listens")?;
    Ok(format!("near+insecure://{address}"))
}

/// The processes that forward what is asked of a mount over a network.
fn forwarders(mount: &Path) -> Vec<Pid> {
    let is_it = |process: &i32| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.any(|word| word == mount.as_os_str().as_encoded_bytes())
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
    let this = std::process::id() as i32;
    all.filter(|it| *it != this && is_it(it)).filter_map(Pid::from_raw).collect()
}

fn wait_for_the_end(process: Pid) {
    for _ in 0..60_000 {
        if rustix::process::test_kill_process(process).is_err() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// This program, to be another process.
pub fn this_program() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().map_err(said("this program"))?))
}

fn command(nearside: &Path, words: &[&std::ffi::OsStr]) -> Result<()> {
    let output = Command::new(nearside).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", nearside.display()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
