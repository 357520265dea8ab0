//! Others that keep what they are told over a network.

use crate::error::{Result, io};
use crate::looped::Kind;
use crate::scratch::Scratch;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time in which Redis is ready.
const READY_MAX: Duration = Duration::from_secs(10);

/// The name of a synced file on a file system.
pub fn name_of(kind: Kind, on: &str) -> &'static str {
    match (kind, on) {
        (Kind::Ext4, "memory") => "O_SYNC, ext4 in memory",
        (Kind::Xfs, "memory") => "O_SYNC, xfs in memory",
        (Kind::Ext4, _) => "O_SYNC, ext4 on the disk",
        (Kind::Xfs, _) => "O_SYNC, xfs on the disk",
    }
}

/// Why there is no such file system, in words that are known before.
pub fn known(why: &str) -> &'static str {
    match why {
        why if why.contains("No such file") => "its mkfs is not installed",
        _ => "it cannot be made or mounted here",
    }
}

/// Credentials of a service and of a program on this machine, which trust each other, made in a
/// directory by this command; `None`: it makes none.
pub fn credentials(scratch: &Path) -> Option<(PathBuf, PathBuf)> {
    let dir = scratch.join("near");
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.arg("cert").arg(&dir).args(["--server", "127.0.0.1", "--client", "bench"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let is_done = command.status().is_ok_and(|status| status.success());
    let made = (dir.join("server"), dir.join("clients/bench"));
    (is_done && [&made.0, &made.1].iter().all(|dir| dir.is_dir())).then_some(made)
}

/// A port of loopback that nobody has.
pub fn free_port() -> Result<u16> {
    let failed = io(Path::new("127.0.0.1"));
    let free = TcpListener::bind("127.0.0.1:0").map_err(&failed)?;
    Ok(free.local_addr().map_err(failed)?.port())
}

/// A program on this CPU, which goes with this thread, however that ends.
pub fn program(name: &str, cpu: Option<u32>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some(cpu) = cpu {
        command.args(["taskset", "-c", &cpu.to_string()]);
    }
    command.arg(name).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A process that ends with this.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Redis, which syncs its log before it answers; ends with this.
pub struct Redis {
    process: Ended,
    /// Where it listens.
    pub port: u16,
    _scratch: Scratch,
}

impl Redis {
    /// With its log in a directory in `parent`, on this CPU; or why there is none.
    pub fn start(
        parent: &Path,
        cpu: Option<u32>,
    ) -> Result<std::result::Result<Redis, &'static str>> {
        let scratch = Scratch::new(parent)?;
        let failed = io(Path::new("127.0.0.1"));
        let port = free_port()?;
        let mut command = program("redis-server", cpu);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
        command.arg("--dir").arg(scratch.path());
        let Ok(process) = command.spawn() else { return Ok(Err("there is no setpriv(1)")) };
        let mut redis = Redis { process: Ended(process), port, _scratch: scratch };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let has_ended = redis.process.0.try_wait().map_err(&failed)?.is_some();
            if has_ended || start.elapsed() > READY_MAX {
                return Ok(Err("not installed (redis-server)"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Ok(redis))
    }
}
