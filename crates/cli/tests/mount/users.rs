//! Several users: the kernel checks what the attributes say.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use nix::fcntl::{FallocateFlags, OFlag, copy_file_range, fallocate, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Uid, setfsuid};

use crate::support::{Scratch, has};

const NOBODY: u32 = 65_534;

#[test]
fn permissions_hold_for_other_users() {
    if !has("setpriv") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        umask 022; echo secret > s; chmod 600 s; echo open > o
        mkdir d t; chmod 1777 t; echo x > t/r
    "#);
    let script = r#"
        test "$(cat o)" = open
        ! cat s 2>/dev/null; ! (echo x > o) 2>/dev/null; ! touch d/x 2>/dev/null
        touch t/mine; test "$(stat -c %u:%g t/mine)" = 65534:65534
        ! rm -f t/r 2>/dev/null; rm t/mine; umask 077; mkdir t/own; test "$(stat -c %a t/own)" = 700
        ! chown 0 t/own 2>/dev/null; ! chmod 777 d 2>/dev/null
    "#;
    let output = scratch.sh_as(Some(NOBODY), script);
    assert!(output.status.success(), "{output:?}");
    scratch.finish();
}

#[test]
fn a_set_group_id_directory_gives_its_group() {
    if !has("setpriv") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh("mkdir g; chgrp 77 g; chmod 2777 g");
    let output = scratch.sh_as(Some(NOBODY), "touch g/f; mkdir g/d; stat -c '%g %A' g/f g/d");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "77 -rw-r--r--\n77 drwxr-sr-x\n");
    scratch.finish();
}

/// The kernel leaves this to the server, so that writes need not ask for capabilities each time.
#[test]
fn set_id_bits_go_when_others_write_and_when_the_owner_changes() {
    if !has("setpriv") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        for f in w t c r; do echo x > $f; chmod 6777 $f; done
        echo y >> r; test "$(stat -c %a r)" = 6777
        chown 5 c; test "$(stat -c %a c)" = 777
    "#);
    let output = scratch.sh_as(Some(NOBODY), "echo y >> w; : > t; stat -c %a w t");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "777\n777\n");
    scratch.finish();
}

/// What changes a file's content without writing to it: a name, and how.
type Change = (&'static str, fn(&File));

const CHANGES: [Change; 3] = [
    ("reserved", |file| fallocate(file, FallocateFlags::empty(), 0, 100_000).unwrap()),
    ("zeroed", |file| fallocate(file, FallocateFlags::FALLOC_FL_ZERO_RANGE, 0, 3).unwrap()),
    ("copied", |file| {
        let copied = copy_file_range(file, Some(&mut 0), file, Some(&mut 5), 5).unwrap();
        assert_eq!(copied, 5);
    }),
];

/// Permission bits of a file with all of them, after each change by `user`.
fn modes_after_changes(scratch: &Scratch, user: u32) -> Vec<u32> {
    // Not every user may pass through the directories above the mount.
    let root = File::open(scratch.mnt()).unwrap();
    let change = |(name, change): Change| {
        let name = format!("{name}-{user}");
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let mut file = File::from(openat(&root, name.as_str(), flags, Mode::S_IRUSR).unwrap());
        file.write_all(b"0123456789").unwrap();
        file.set_permissions(Permissions::from_mode(0o6777)).unwrap();
        change(&file);
        file.metadata().unwrap().mode() & 0o7777
    };
    // The user is the thread's alone, and ends with it.
    let changes = || {
        setfsuid(Uid::from_raw(user));
        CHANGES.map(change).to_vec()
    };
    std::thread::scope(|threads| threads.spawn(changes).join().unwrap())
}

#[test]
fn set_id_bits_go_when_others_reserve_zero_or_copy() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh("chmod 777 .");
    assert_eq!(modes_after_changes(&scratch, 0), [0o6777; 3]);
    assert_eq!(modes_after_changes(&scratch, NOBODY), [0o777; 3]);
    scratch.finish();
}

/// Who makes a pool owns its root directory, and so may put something in it.
#[test]
fn the_root_directory_is_its_makers() {
    if !has("setpriv") {
        return;
    }
    let Some(scratch) = Scratch::formatted() else { return };
    let theirs = scratch.root().join("theirs");
    std::fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    // Not every user may pass through the directories above the program.
    std::fs::copy(env!("CARGO_BIN_EXE_nearside"), theirs.join("nearside")).unwrap();
    let format = format!(
        "setpriv --clear-groups --reuid={NOBODY} --regid={NOBODY} \
         ./nearside format pool --size=8M --durability=process"
    );
    let mut command = std::process::Command::new("sh");
    let output = command.args(["-euc", &format]).current_dir(&theirs).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let root = format!("{}:/", theirs.join("pool").display());
    let said = scratch.run_ok(["stat", &root, "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["uid"], &said["gid"]), (&NOBODY.into(), &NOBODY.into()), "{said}");
}
