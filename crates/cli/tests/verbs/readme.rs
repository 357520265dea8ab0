//! The commands of README's section "Use", executed as they stand there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::can_mount;

const README: &str = include_str!("../../../../README.md");
/// The line of the block from which on it needs persistent memory.
const END: &str = "# with persistent memory";
/// Longest time that all commands together may take, seconds.
const SECONDS_MAX: &str = "180";
/// README's pool, and one that is made more quickly.
const SIZES: (&str, &str) = ("--size 1G", "--size 64M");

/// A home directory in which the commands make their pool and their mount.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().unwrap())
    }

    fn pool(&self) -> PathBuf {
        self.0.path().join("pool")
    }

    fn mnt(&self) -> PathBuf {
        self.0.path().join("near")
    }

    /// What the pool's pid file says: the servers' processes, or how the last of them ended.
    fn pid_file(&self) -> String {
        std::fs::read_to_string(self.pool().join("nearside.pid")).unwrap_or_default()
    }

    fn is_mounted(&self) -> bool {
        nearside_fuse::mounts::at(&self.mnt()).is_ok_and(|entry| entry.is_some())
    }

    /// Runs `script` with this home, in the repository.
    fn run(&self, script: &str) -> Output {
        let binary = Path::new(env!("CARGO_BIN_EXE_nearside"));
        let mut path = OsString::from(binary.parent().unwrap());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let mut command = Command::new("timeout");
        command.args([SECONDS_MAX, "sh", "-euc", script]).current_dir(repository);
        command.env("HOME", self.0.path()).env("PATH", path).stdin(Stdio::null());
        command.output().unwrap()
    }
}

impl Drop for Home {
    /// Ends the servers of this home's pool and its mount, which are left only after a failure.
    fn drop(&mut self) {
        for line in self.pid_file().lines() {
            let id = line.strip_prefix("server ").unwrap_or(line).parse::<i32>();
            let is_ours = |id: &i32| {
                let arguments = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&arguments).contains(&*self.0.path().to_string_lossy())
            };
            if let Some(id) = id.ok().filter(is_ours) {
                let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
            }
        }
        if self.is_mounted() {
            let _ = Command::new("umount").arg("-l").arg(self.mnt()).status();
        }
    }
}

/// The lines of the section's block of shell code that need no persistent memory and no build.
fn commands(readme: &str) -> Vec<&str> {
    let (_, section) = readme.split_once("\n## Use\n").unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    let lines = block.lines().take_while(|line| *line != "```" && !line.starts_with(END));
    lines.filter(|line| !line.starts_with("cargo build")).collect()
}

/// A script that ends with an error at the first line that fails. `set -e` alone does not see a
/// failure in front of `&&`.
fn script(lines: &[&str]) -> String {
    let checked = |line: &&str| {
        assert!(!line.contains('\''), "the test cannot quote {line}");
        format!("{{ {line}\n}} || {{ echo 'this line of README failed: {line}' >&2; exit 1; }}\n")
    };
    lines.iter().map(checked).collect()
}

#[test]
fn the_commands_of_readme_work_in_their_order() {
    let lines = commands(README);
    assert!(lines.len() >= 10, "too few commands: {lines:?}");
    for verb in ["format", "mount", "upgrade", "stats", "umount", "check", "serve", "ls", "stop"] {
        let call = format!("nearside {verb} ");
        assert!(lines.iter().any(|line| line.contains(&call)), "README no longer shows {call}");
    }
    let script = script(&lines).replace(SIZES.0, SIZES.1);
    assert!(script.contains(SIZES.1), "README no longer says {}", SIZES.0);
    if !can_mount() {
        return;
    }
    let home = Home::new();
    let output = home.run(&script);
    let said = String::from_utf8_lossy(&output.stderr);
    let log = std::fs::read_to_string(home.pool().join("nearside.log")).unwrap_or_default();
    assert!(output.status.success(), "{}: {said}\n{log}", output.status);
    let listed = String::from_utf8_lossy(&output.stdout);
    assert!(listed.contains("SEMANTICS.md"), "the copied documents are not listed: {listed}");
    assert!(!home.is_mounted(), "the mount is left");
    assert!(home.pid_file().starts_with("closed"), "a server is left: {}", home.pid_file());
}

/// The test notices a line that fails, also in front of `&&` and in the middle.
#[test]
fn a_line_of_readme_that_fails_fails_the_test() {
    let home = Home::new();
    assert!(home.run(&script(&["true # comment", "true && true"])).status.success());
    for wrong in ["false # comment", "false && true", "nearside inform ~/pool"] {
        let output = home.run(&script(&["true", wrong, "true"]));
        assert!(!output.status.success(), "{wrong}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(wrong), "{output:?}");
    }
}
