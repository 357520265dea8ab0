//! `umount` of what is mounted elsewhere, too, or has something mounted in it; and with a terminal
//! that has gone.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Scratch, is_mounted};

/// A mount of this test's, taken away at the end.
struct Mounted(PathBuf);

impl Mounted {
    fn bound(from: &Path, to: &Path) -> Mounted {
        std::fs::create_dir(to).unwrap();
        assert!(Command::new("mount").arg("--bind").args([from, to]).status().unwrap().success());
        Mounted(to.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// It waited, and said nothing.
#[test]
fn umount_says_where_else_the_pool_is_mounted() {
    let Some(scratch) = Scratch::mounted() else { return };
    let other = Mounted::bound(&scratch.mnt(), &scratch.root().join("other"));
    // One that says nothing is not waited for without end.
    let mut umount = Command::new("timeout")
        .args(["180", env!("CARGO_BIN_EXE_nearside"), "umount"])
        .arg(scratch.mnt())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(umount.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let want = format!("still mounted on {}; unmount it there\n", path(&other.0));
    assert!(line.ends_with(&want), "{line}");
    assert!(umount.try_wait().unwrap().is_none(), "the pool is still in use");
    std::fs::write(other.0.join("f"), "served").unwrap();
    assert!(Command::new("umount").arg(&other.0).status().unwrap().success());
    assert!(umount.wait().unwrap().success());
    assert_eq!(scratch.end(), "closed");
    scratch.mount();
    scratch.finish();
}

#[test]
fn umount_names_what_is_mounted_inside() {
    let Some(scratch) = Scratch::mounted() else { return };
    let inner = Mounted::bound(scratch.root(), &scratch.mnt().join("inner"));
    let output = scratch.run(["umount".as_ref(), scratch.mnt().as_os_str()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let want = format!("mounted in it is {}; unmount that first", path(&inner.0));
    assert!(said.contains(&want) && !said.contains("fuser"), "{said}");
    drop(inner);
    scratch.finish();
}

/// A message that could not be written ended the command before its work was done.
#[test]
fn a_stderr_that_takes_nothing_stops_no_work() {
    let Some(scratch) = Scratch::mounted() else { return };
    let quietly = |words: &[&str]| {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
        command.args(words).stdin(Stdio::null()).stderr(full).status().unwrap().code()
    };
    let (pool, mnt) = (path(&scratch.pool()), path(&scratch.mnt()));
    scratch.kill_both();
    assert_eq!(quietly(&["mount", &pool, &mnt]), Some(0));
    std::fs::write(scratch.mnt().join("f"), "served").unwrap();
    scratch.kill_both();
    assert_eq!(quietly(&["umount", &mnt]), Some(0));
    assert!(!is_mounted(&scratch.mnt()));
    assert_eq!(quietly(&["umount", &mnt]), Some(1));
    scratch.mount();
    scratch.finish();
}

/// Whoever knows a pool by where it is mounted is understood, and the other way round.
#[test]
fn a_pool_is_known_by_its_mount_and_a_mount_by_its_pool() {
    let Some(scratch) = Scratch::mounted() else { return };
    let (pool, mnt) = (path(&scratch.pool()), path(&scratch.mnt()));
    std::fs::write(scratch.mnt().join("f"), "content").unwrap();
    for verb in ["info", "df", "check"] {
        let said = scratch.run_ok([verb, &mnt]);
        assert!(said.contains(&pool), "{verb}: {said}");
    }
    assert_eq!(scratch.run_ok(["ls", &mnt]), "f\n");
    assert_eq!(scratch.run_ok(["cat", &format!("{mnt}:/f")]), "content");
    assert!(scratch.run_ok(["upgrade", &pool]).contains("serves, after"));
    scratch.run_ok(["umount", &pool]);
    assert!(!is_mounted(&scratch.mnt()));
    // And that of a server that died.
    scratch.mount();
    scratch.kill_both();
    scratch.run_ok(["umount", &pool]);
    assert!(!is_mounted(&scratch.mnt()));
    let output = scratch.run(["umount", &pool]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no Nearside pool is mounted here"));
    scratch.mount();
    scratch.finish();
}
