//! `nearside mount near://HOST`: a pool that a service has, mounted over a network.

mod certified;
#[cfg(feature = "fabric")]
mod fabrics;
mod links;
mod losses;
mod ordinary;
mod programs;
mod users;

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Scratch, is_mounted, wait_until};

/// Any port of this machine.
pub const HERE: &str = "--listen=127.0.0.1:0";

/// A pool with a service, mounted over a network of this machine.
pub struct Remote {
    pub scratch: Scratch,
    /// Where the service listens.
    pub address: String,
}

impl Remote {
    /// A service with these options, and nothing mounted so far.
    pub fn served(options: &[&str]) -> Option<Remote> {
        Remote::served_at(HERE, options)
    }

    /// The same at an address of one's own choice.
    pub fn served_at(listen: &str, options: &[&str]) -> Option<Remote> {
        let scratch = Scratch::formatted()?;
        let address = Remote::serve(&scratch, listen, options);
        Some(Remote { scratch, address })
    }

    /// Has the pool served; gives the address.
    pub fn serve(scratch: &Scratch, listen: &str, options: &[&str]) -> String {
        let address = Remote::serve_by(scratch, listen, &[&["--insecure"], options].concat());
        address.replace("near://", "near+insecure://")
    }

    /// Has the pool served by whom the options trust; gives the address.
    pub fn serve_by(scratch: &Scratch, listen: &str, options: &[&str]) -> String {
        let pool = scratch.pool().display().to_string();
        scratch.run_ok([&["serve", &pool, listen], options].concat());
        let log = scratch.log();
        let said = log.rsplit("listening at ").next().unwrap();
        format!("near://{}", said.split_whitespace().next().unwrap())
    }

    /// A service that mounts the pool, too.
    pub fn with_own_mount(options: &[&str]) -> Option<Remote> {
        let scratch = Scratch::formatted()?;
        let own = scratch.root().join("own");
        std::fs::create_dir(&own).unwrap();
        let own = format!("--mount={}", own.display());
        let address = Remote::serve(&scratch, HERE, &[&[own.as_str()], options].concat());
        Some(Remote { scratch, address })
    }

    /// Where the service has the pool mounted.
    pub fn own(&self) -> PathBuf {
        self.scratch.root().join("own")
    }

    /// A service that trusts this machine, mounted.
    pub fn mounted() -> Option<Remote> {
        let remote = Remote::served(&["--squash=none"])?;
        remote.mount_on(&remote.scratch.mnt(), &remote.address);
        Some(remote)
    }

    /// Mounts what lies at this address.
    pub fn mount_on(&self, dir: &Path, address: &str) {
        std::fs::create_dir_all(dir).unwrap();
        self.scratch.run_ok(["mount".as_ref(), address.as_ref(), dir.as_os_str()]);
    }

    /// One more mount of it.
    pub fn second(&self) -> PathBuf {
        let dir = self.scratch.root().join("second");
        self.mount_on(&dir, &self.address);
        dir
    }

    pub fn unmount(&self, dir: &Path) {
        self.scratch.run_ok(["umount".as_ref(), dir.as_os_str()]);
        assert!(!is_mounted(dir));
    }

    /// Kills the service. Another one follows it.
    pub fn kill_service(&self) {
        let server = self.scratch.server();
        kill(server, Signal::SIGKILL).unwrap();
        wait_until("the next service", || {
            self.scratch.server_now().is_some_and(|now| now != server)
        });
    }

    /// The process that forwards what is asked of the mount on `dir`.
    pub fn forwarder(&self, dir: &Path) -> Pid {
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let is_it = |process: &Pid| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.contains(&dir.as_os_str().as_encoded_bytes())
                && words.contains(&b"--as-server".as_slice())
        };
        let found = || {
            let all = std::fs::read_dir("/proc").unwrap().flatten();
            let mut all = all.filter_map(|it| it.file_name().to_str()?.parse().ok());
            all.find(|number| is_it(&Pid::from_raw(*number))).map(Pid::from_raw)
        };
        wait_until("there is a forwarder", || found().is_some());
        found().unwrap()
    }

    /// Kills the forwarder of the mount on `dir`. Another one follows it.
    pub fn kill_forwarder(&self, dir: &Path) {
        kill(self.forwarder(dir), Signal::SIGKILL).unwrap();
    }

    /// Unmounts, and ends the service.
    pub fn stop(&self) {
        let mnt = self.scratch.mnt();
        if is_mounted(&mnt) {
            self.unmount(&mnt);
        }
        let pool = self.scratch.pool();
        let own = self.own();
        match is_mounted(&own) {
            true => self.unmount(&own),
            false => drop(self.scratch.run_ok(["stop".as_ref(), pool.as_os_str()])),
        }
    }

    /// The same, and verifies everything that is stored.
    pub fn finish(self) {
        self.stop();
        let pool = self.scratch.pool();
        self.scratch.run_ok(["check".as_ref(), pool.as_os_str()]);
        let log = self.scratch.log();
        assert!(!log.contains("ERROR") && !log.contains("panic"), "{log}");
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // the command line of the processes has this directory, which is the test's alone
        let root = self.scratch.root().display().to_string();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(number) = number.filter(|_| line.contains(&root)) {
                let _ = kill(Pid::from_raw(number), Signal::SIGKILL);
            }
        }
        for dir in ["mnt", "second", "own"] {
            let _ = Command::new("umount").arg("-l").arg(self.scratch.root().join(dir)).status();
        }
    }
}
