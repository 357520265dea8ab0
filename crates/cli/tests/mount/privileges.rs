//! Set-id bits and capabilities of files whose content changes: what is left of them is what ext4
//! leaves, for each change by each caller, at each mount.

use std::path::Path;
use std::process::Command;

use crate::remote::Remote;
use crate::support::{COMMAND_SECONDS_MAX, Scratch, has};

/// Prints a line for each change, caller and file (its own words say more).
const SCRIPT: &str = include_str!("privileges.py");

/// What it prints in this directory.
fn table(dir: &Path) -> Vec<String> {
    run(Command::new("timeout").arg(COMMAND_SECONDS_MAX.to_string()).arg("python3"), dir)
}

fn run(command: &mut Command, dir: &Path) -> Vec<String> {
    let output = command.args(["-c", SCRIPT]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The same of ext4, mounted where nobody else sees it; `None` where that cannot be had.
fn of_ext4(scratch: &Scratch) -> Option<Vec<String>> {
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
    Some(run(command.arg(COMMAND_SECONDS_MAX.to_string()).args(unshared), &dir))
}

/// Fails with the lines in which they differ.
#[track_caller]
fn same(theirs: &[String], ours: &[String]) {
    assert_eq!(theirs.len(), ours.len(), "{ours:#?}");
    let both = theirs.iter().zip(ours);
    let different: Vec<_> = both.filter(|(theirs, ours)| theirs != ours).collect();
    assert!(different.is_empty(), "(ext4, here): {different:#?}");
}

#[test]
fn privileges_go_with_the_bytes_that_they_were_given_for() {
    if !has("python3") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    let Some(theirs) = of_ext4(&scratch) else { return scratch.finish() };
    // three callers may not change the group
    assert_eq!(theirs.len(), 16 * 5 * 4 + 3 * 4, "{theirs:#?}");
    same(&theirs, &table(&scratch.mnt()));
    // where there are other doors
    let remote = Remote::with_own_mount(&["--squash=none"]).unwrap();
    same(&theirs, &table(&remote.own()));
    // over a network it is not known which other groups a caller is in: the bit goes
    let mnt = remote.scratch.mnt();
    remote.mount_on(&mnt, &remote.address);
    let known = |line: &String| match line.split_once(" member group-id: 2666") {
        Some((change, _)) if change != "nothing" && change != "store" && change != "chown" => {
            format!("{change} member group-id: 666 -")
        }
        _ => line.clone(),
    };
    same(&theirs.iter().map(known).collect::<Vec<_>>(), &table(&mnt));
    remote.stop();
    scratch.finish();
}

/// Root of another machine, who is somebody else here, has that one's rights, also over what his
/// own kernel would leave.
#[test]
fn who_is_squashed_takes_roots_privileges_away() {
    let users = ["--squash=all", "--listen-as=1000:1000"];
    let Some(remote) = Remote::with_own_mount(&users) else { return };
    let own = remote.own();
    let make = |name: &str| {
        std::fs::write(own.join(name), [7; 8192]).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4777);
        std::fs::set_permissions(own.join(name), mode).unwrap();
    };
    let changes = [
        ("written", "printf x | dd of=written conv=notrunc status=none"),
        ("appended", "printf x >> appended"),
        ("cut", "truncate -s 10 cut"),
        ("emptied", ": > emptied"),
        ("reserved", "fallocate -l 20000 reserved"),
        ("punched", "fallocate -p -l 4096 punched"),
        (
            "stored",
            "python3 -c \"import mmap, os; f = os.open('stored', os.O_RDWR); \
            m = mmap.mmap(f, 4096); m[:1] = b'x'; m.flush()\"",
        ),
    ];
    changes.iter().for_each(|(name, _)| make(name));
    let mnt = remote.scratch.mnt();
    remote.mount_on(&mnt, &remote.address);
    for (name, change) in changes {
        remote.scratch.sh(change);
        let mode =
            std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(own.join(name)).unwrap());
        assert_eq!(mode & 0o7777, 0o777, "{name}");
    }
    remote.stop();
}
