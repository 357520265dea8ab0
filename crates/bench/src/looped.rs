//! A file system of the kernel's on a loop device, which goes with its mount.

use crate::error::{Result, io};
use crate::scratch::Scratch;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Which file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
        }
    }

    /// Makes it in a file.
    fn make(self) -> Command {
        match self {
            Kind::Ext4 => {
                let mut make = Command::new("mkfs.ext4");
                make.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
                make
            }
            Kind::Xfs => {
                let mut make = Command::new("mkfs.xfs");
                make.args(["-q", "-f"]);
                make
            }
        }
    }
}

/// A file system on a loop device.
#[derive(Debug)]
pub struct Looped {
    dir: PathBuf,
    is_mounted: bool,
    _scratch: Scratch,
}

impl Looped {
    /// On a file of so many bytes in a directory in `parent`; or why it cannot be had.
    pub fn new(
        parent: &Path,
        bytes: u64,
        kind: Kind,
    ) -> Result<std::result::Result<Looped, String>> {
        let scratch = Scratch::new(parent)?;
        let image = scratch.path().join("image");
        let file = std::fs::File::create_new(&image).map_err(io(&image))?;
        file.set_len(bytes).map_err(io(&image))?;
        let dir = scratch.path().join("mnt");
        std::fs::create_dir(&dir).map_err(io(&dir))?;
        let mut looped = Looped { dir, is_mounted: false, _scratch: scratch };
        let mut make = kind.make();
        make.arg(&image);
        let mut mount = Command::new("mount");
        mount.args(["-t", kind.name(), "-o", "loop"]).arg(&image).arg(&looped.dir);
        for command in [make, mount] {
            if let Some(why) = failed(command) {
                return Ok(Err(why));
            }
        }
        looped.is_mounted = true;
        Ok(Ok(looped))
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts it.
    pub fn close(mut self) -> Result<()> {
        self.is_mounted = false;
        nix::mount::umount(&self.dir).map_err(|errno| io(&self.dir)(errno.into()))
    }
}

impl Drop for Looped {
    fn drop(&mut self) {
        // after an error: whoever is in it keeps it until he ends
        if self.is_mounted {
            let _ = nix::mount::umount2(&self.dir, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

/// Why a program did not do what it was asked for, in a line.
fn failed(mut command: Command) -> Option<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = match command.stdin(Stdio::null()).output() {
        Ok(done) if done.status.success() => return None,
        Ok(done) => done,
        Err(error) => return Some(format!("{name}: {error}")),
    };
    let said = String::from_utf8_lossy(&done.stderr);
    Some(format!("{name}: {}", said.trim().lines().next().unwrap_or("failed")))
}
