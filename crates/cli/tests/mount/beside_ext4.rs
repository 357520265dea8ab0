//! A Python script on ext4 and on a mount: what it prints has to be the same, line by line.

use std::path::Path;
use std::process::Command;

use crate::support::{COMMAND_SECONDS_MAX, Scratch};

/// A script, and its arguments. It begins in the directory where its files are to be.
pub struct Compared<'s> {
    pub script: &'static str,
    pub arguments: &'s [&'s str],
}

impl Compared<'_> {
    /// What it prints in this directory.
    pub fn lines(&self, dir: &Path) -> Vec<String> {
        let mut command = Command::new("timeout");
        self.run(command.arg(COMMAND_SECONDS_MAX.to_string()).arg("python3"), dir)
    }

    fn run(&self, command: &mut Command, dir: &Path) -> Vec<String> {
        let script = command.args(["-c", self.script]).args(self.arguments);
        let output = script.current_dir(dir).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// What it prints on an ext4 that no other process sees; `None` where none can be mounted.
    pub fn lines_of_ext4(&self, scratch: &Scratch) -> Option<Vec<String>> {
        let dir = scratch.root().join("ext4");
        std::fs::create_dir(&dir).unwrap();
        let mount = "truncate -s 64M ../ext4.img && mkfs.ext4 -q ../ext4.img &&
            mount -o loop ../ext4.img . && cd \"$PWD\" && exec python3 \"$@\"";
        let unshared = ["unshare", "--mount", "sh", "-c", mount, "sh"];
        let is_there = Command::new("unshare")
            .args(["--mount", "sh", "-c", &mount.replace("exec python3", "exec true")])
            .current_dir(&dir)
            .output()
            .is_ok_and(|output| output.status.success());
        if !is_there {
            println!("skipped: no ext4 can be mounted here");
            return None;
        }
        let mut command = Command::new("timeout");
        Some(self.run(command.arg(COMMAND_SECONDS_MAX.to_string()).args(unshared), &dir))
    }
}

/// Fails with the lines in which they differ.
#[track_caller]
pub fn same(theirs: &[String], ours: &[String]) {
    assert_eq!(theirs.len(), ours.len(), "{ours:#?}");
    let both = theirs.iter().zip(ours);
    let different: Vec<_> = both.filter(|(theirs, ours)| theirs != ours).collect();
    assert!(different.is_empty(), "(ext4, here): {different:#?}");
}

/// The lines of ext4, but for calls that a door does not have: so many say there that they are
/// absent.
#[track_caller]
pub fn without_absent(theirs: &[String], ours: &[String], absent: usize) -> Vec<String> {
    assert_eq!(theirs.len(), ours.len(), "{ours:#?}");
    let is_absent = |line: &&String| line.ends_with(": absent");
    assert_eq!(ours.iter().filter(is_absent).count(), absent, "{ours:#?}");
    let both = theirs.iter().zip(ours);
    both.map(|(theirs, ours)| if is_absent(&ours) { ours } else { theirs }.clone()).collect()
}
