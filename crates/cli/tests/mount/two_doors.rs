//! One file at two doors, of which one has it mapped or sends it by its pages: nothing that a call
//! changed is taken back, and what is shown was there. The rule: docs/SHARING.md, "Pages that a
//! kernel keeps".

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::remote::Remote;
use crate::support::{COMMAND_SECONDS_MAX, Scratch, has};

/// Prints a line for each check, and fails where one does (its own words say more).
const CHECKS: &str = include_str!("two_doors.py");
/// Makes random calls, and fails where they differ from ext4's.
const SEQUENCES: &str = include_str!("sequences.py");
/// What a mapping at one machine shows may be so old, where the change was made at another one.
const ROUND_TRIP: &str = "2";

fn python(script: &str, args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    let limit = (2 * COMMAND_SECONDS_MAX).to_string();
    command.args([&limit, "python3", "-c", script]).args(args).stdin(Stdio::null());
    command
}

#[track_caller]
fn ends_well(child: Child, what: &str) {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong: Vec<&str> = said.lines().filter(|line| !line.starts_with("right")).collect();
    assert!(output.status.success(), "{what}: {output:?}\n{}", wrong.join("\n"));
}

/// A service with a mount of its own, and two mounts of other machines; each pair of doors, and how
/// old mappings may be there.
struct Doors {
    remote: Remote,
    first: PathBuf,
    second: PathBuf,
}

impl Doors {
    fn open() -> Option<Doors> {
        if !has("python3") {
            return None;
        }
        let remote = Remote::with_own_mount(&["--squash=none"])?;
        let first = remote.scratch.mnt();
        remote.mount_on(&first, &remote.address);
        let second = remote.second();
        Some(Doors { remote, first, second })
    }

    fn pairs(&self) -> [(PathBuf, PathBuf, &'static str); 4] {
        let own = self.remote.own();
        [
            (own.clone(), self.first.clone(), "0"),
            (self.first.clone(), own.clone(), "0"),
            (own.clone(), own, "0"),
            // who serves one machine does not wait for another one
            (self.first.clone(), self.second.clone(), ROUND_TRIP),
        ]
    }

    fn close(self) {
        self.remote.unmount(&self.second);
        self.remote.finish();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_file_with_one_door_is_what_was_written() {
    if !has("python3") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    let mnt = scratch.mnt();
    ends_well(spawn(python(CHECKS, &[text(&mnt), text(&mnt)])), "one door");
    scratch.finish();
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn no_door_takes_back_what_another_one_changed() {
    let Some(doors) = Doors::open() else { return };
    for (x, y, wait) in doors.pairs() {
        let what = format!("{} and {}", x.display(), y.display());
        ends_well(spawn(python(CHECKS, &[text(&x), text(&y), wait])), &what);
    }
    doors.close();
}

/// An ext4 of its own that goes when the test does; `None` where there can be none.
struct Ext4(PathBuf);

impl Ext4 {
    fn make(scratch: &Scratch) -> Option<Ext4> {
        let dir = scratch.root().join("ext4");
        let make = format!(
            "mkdir {0} && truncate -s 64M {0}.img && mkfs.ext4 -q {0}.img && mount -o loop {0}.img {0}",
            dir.display()
        );
        match Command::new("sh").args(["-c", &make]).status().is_ok_and(|it| it.success()) {
            true => Some(Ext4(dir)),
            false => {
                println!("skipped: no ext4 can be mounted here");
                None
            }
        }
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        // its loop device goes with the mount
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|it| it.success()));
    }
}

/// How many sequences of each pair: 50 in all, or 500.
fn sequences() -> u32 {
    if std::env::var("NEARSIDE_TESTS").is_ok_and(|it| it == "long") { 125 } else { 12 }
}

/// Runs sequences at all pairs of doors, and `meanwhile` as long as they run.
fn compare(doors: &Doors, first: u32, count: u32, mut meanwhile: impl FnMut()) {
    let Some(ext4) = Ext4::make(&doors.remote.scratch) else { return };
    for (pair, (x, y, wait)) in (first..).step_by(1000).zip(doors.pairs()) {
        let (first, count) = (pair.to_string(), count.to_string());
        let args = [text(&ext4.0), text(&x), text(&y), &first, &count, wait];
        let mut child = spawn(python(SEQUENCES, &args));
        while child.try_wait().unwrap().is_none() {
            meanwhile();
        }
        ends_well(child, &format!("{} and {}", x.display(), y.display()));
    }
}

#[test]
fn random_calls_at_two_doors_are_what_they_are_on_ext4() {
    let Some(doors) = Doors::open() else { return };
    let pause = std::time::Duration::from_millis(50);
    compare(&doors, 0, sequences(), || std::thread::sleep(pause));
    doors.close();
}

#[test]
fn random_calls_at_two_doors_of_servers_that_are_killed() {
    let Some(doors) = Doors::open() else { return };
    let pause = std::time::Duration::from_millis(700);
    compare(&doors, 10_000, sequences().div_ceil(4), || {
        std::thread::sleep(pause);
        doors.remote.kill_service();
    });
    doors.close();
}

/// Stores to every third page of the file, or writes to any, for five seconds.
const STORES: &str = r#"
import mmap, os, sys, time
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, 4 << 20)
end, count = time.monotonic() + 5, 0
while time.monotonic() < end:
    count += 1
    for page in range(0, 1024, 3):
        m[page * 4096 + 8:page * 4096 + 16] = count.to_bytes(8, "little")
"#;
const WRITES: &str = r#"
import os, random, sys, time
f = os.open(sys.argv[1], os.O_RDWR)
end = time.monotonic() + 5
while time.monotonic() < end:
    os.pwrite(f, b"x" * 100, random.randrange(1024) * 4096 + 200)
"#;

/// A kernel writes a page that was stored to back before it drops it, which takes a server: the one
/// that told it to must be able to end before that.
#[test]
fn a_server_that_is_killed_while_its_kernel_drops_pages_is_followed() {
    let Some(doors) = Doors::open() else { return };
    let own = doors.remote.own();
    std::fs::write(own.join("dropped"), vec![0; 4 << 20]).unwrap();
    let kill_service = || doors.remote.kill_service();
    let kill_forwarder = || doors.remote.kill_forwarder(&doors.first);
    let ways: [(&Path, &Path, &dyn Fn()); 2] =
        [(&own, &doors.first, &kill_service), (&doors.first, &own, &kill_forwarder)];
    for (mapped, other, kill) in ways {
        let at = |dir: &Path| dir.join("dropped").to_str().unwrap().to_owned();
        let mut storing = python(STORES, &[&at(mapped)]).spawn().unwrap();
        let writing = [(); 2].map(|()| python(WRITES, &[&at(other)]).spawn().unwrap());
        while storing.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(300));
            kill();
            let mut read = Command::new("timeout");
            read.args([&COMMAND_SECONDS_MAX.to_string(), "cat", &at(mapped)]);
            let status = read.stdout(Stdio::null()).status().unwrap();
            assert!(status.success(), "{status}");
        }
        ends_well(storing, "the one that stores");
        writing.into_iter().for_each(|child| ends_well(child, "one that writes"));
    }
    doors.close();
}
