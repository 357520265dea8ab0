//! A pool whose directory has no room left, not for one line of the log.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::support::{Scratch, command, ok, run};

/// A tmpfs of its own, unmounted at the end.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn new(dir: &'a Path) -> Disk<'a> {
        std::fs::create_dir(dir).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=70M", "tmpfs"])
            .arg(dir)
            .status();
        assert!(mounted.unwrap().success());
        Disk(dir)
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A log that cannot be written was told to stderr, which is that very log: the thread panicked.
#[test]
fn a_server_goes_on_without_its_log() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.umount();
    let dir = scratch.root().join("disk");
    let disk = Disk::new(&dir);
    let pool = disk.0.join("pool");
    let options = ["--slices=2", "--size=30M", "--durability=process"];
    let words = ["format".into(), pool.clone().into_os_string()];
    ok(run(words.into_iter().chain(options.iter().map(std::ffi::OsString::from))));
    let mut mount = command(["mount".as_ref(), pool.as_os_str(), scratch.mnt().as_os_str()]);
    // So that every request wants to say something.
    ok(mount.env("NEARSIDE_LOG", "trace").output().unwrap());
    let log = || std::fs::metadata(pool.join("nearside.log")).unwrap().len();
    let mut filler = std::fs::File::create(disk.0.join("filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    // The log fills what was left of its last page, and no more.
    for n in 0..300 {
        std::fs::write(scratch.mnt().join(format!("file{n}")), "content").unwrap();
    }
    let full = log();
    for n in 0..300 {
        let path = scratch.mnt().join(format!("file{n}"));
        assert_eq!(std::fs::read(&path).unwrap(), b"content");
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(log(), full, "there was room for the log: nothing was tried");
    ok(run(["info".as_ref(), pool.as_os_str()]));
    ok(run(["check".as_ref(), pool.as_os_str()]));
    scratch.umount();
    ok(run(["check".as_ref(), pool.as_os_str()]));
}
