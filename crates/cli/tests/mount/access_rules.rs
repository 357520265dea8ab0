//! Sticky directories, inherited groups, descriptors for appending, O_NOATIME, times, attributes
//! and access lists. Each call by each caller answers and leaves what it does on ext4, at each
//! mount, and where a process is attached.

use crate::attached_calls;
use crate::beside_ext4::{Compared, same, without_absent};
use crate::remote::Remote;
use crate::support::{Scratch, has};

const CALLERS: &str = "root+owner+keeper+member+group+other";
/// The test whose process makes calls, attached.
const ATTACHED: &str = "access_rules::owners_and_groups_decide_what_attached_processes_may_do";
/// Calls of each caller.
const CALLS: usize = 126;
/// Those of them that the library does not have; the script says why.
const ABSENT: usize = 29;

/// The calls of the callers, on files that lie where the script begins, by the directory `called`.
fn calls<'a>(called: &'a str, callers: &'a str, ids: &'a str) -> [&'a str; 4] {
    [".", called, callers, ids]
}

fn compared<'s>(arguments: &'s [&'s str]) -> Compared<'s> {
    let script = concat!(
        include_str!("doors.py"),
        include_str!("access_files.py"),
        include_str!("access_rules.py")
    );
    Compared { script, arguments }
}

#[test]
fn owners_and_groups_decide_as_on_ext4() {
    if !has("python3") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    let here = calls(".", CALLERS, "ids");
    let Some(theirs) = compared(&here).lines_of_ext4(&scratch) else { return scratch.finish() };
    assert_eq!(theirs.len(), CALLS * 6, "{theirs:#?}");
    same(&theirs, &compared(&here).lines(&scratch.mnt()));
    scratch.finish();
    // a mount beside the service, and one of another machine that is trusted: both kernels check
    // as the first does, and the service knows other groups only of the one
    let callers = ["root", "owner", "member"];
    let is_theirs = |line: &&String| callers.iter().any(|it| line.contains(&format!(" by {it}: ")));
    let theirs: Vec<_> = theirs.iter().filter(is_theirs).cloned().collect();
    let callers = callers.join("+");
    let remote = Remote::with_own_mount(&["--squash=none"]).unwrap();
    same(&theirs, &compared(&calls(".", &callers, "ids")).lines(&remote.own()));
    let mnt = remote.scratch.mnt();
    remote.mount_on(&mnt, &remote.address);
    let there = mnt.to_str().unwrap();
    same(&theirs, &compared(&calls(there, &callers, "ids")).lines(&remote.own()));
    remote.finish();
}

/// Each caller is a process of its own, attached to the service of this machine. What the library
/// does not have is absent; regions are compared with writes.
#[test]
fn owners_and_groups_decide_what_attached_processes_may_do() {
    attached_calls::run_if_told();
    if !has("python3") {
        return;
    }
    let Some(remote) = Remote::with_own_mount(&[]) else { return };
    let here = calls(".", CALLERS, "ids");
    let ext4 = compared(&here).lines_of_ext4(&remote.scratch);
    let Some(theirs) = ext4 else { return remote.finish() };
    let program = attached_calls::program_for_all(&remote.scratch);
    let pool = remote.scratch.pool();
    let attached = [".", pool.to_str().unwrap(), CALLERS, "ids", &program, ATTACHED];
    let ours = compared(&attached).lines(&remote.own());
    same(&without_absent(&theirs, &ours, ABSENT * 6), &ours);
    remote.finish();
}

/// Root of another machine makes the calls, and the service takes it for each caller.
#[test]
fn owners_and_groups_decide_after_users_are_squashed() {
    if !has("python3") {
        return;
    }
    let users = [("owner", "500:500"), ("keeper", "400:77"), ("group", "1000:77")];
    for (caller, numbers) in users.into_iter().chain([("other", "1000:1000")]) {
        let listens = format!("--listen-as={numbers}");
        let remote = Remote::with_own_mount(&["--squash=all", &listens]);
        let Some(remote) = remote else { return };
        let ext4 = compared(&calls(".", caller, "ids")).lines_of_ext4(&remote.scratch);
        let Some(theirs) = ext4 else { return remote.finish() };
        assert_eq!(theirs.len(), CALLS, "{theirs:#?}");
        let mnt = remote.scratch.mnt();
        remote.mount_on(&mnt, &remote.address);
        let there = mnt.to_str().unwrap();
        let ours = compared(&calls(there, caller, "squashed")).lines(&remote.own());
        let unasked: Vec<_> = theirs.iter().map(|line| unasked(caller, line)).collect();
        same(&unasked, &ours);
        // a program without a mount
        let program = attached_calls::program_for_all(&remote.scratch);
        let [_, _, callers, ids] = calls(".", caller, "squashed");
        let attached = [".", &remote.address, callers, ids, &program, ATTACHED];
        let ours = compared(&attached).lines(&remote.own());
        same(&without_absent(&theirs, &ours, ABSENT), &ours);
        remote.finish();
    }
}

/// No service is asked by fcntl(2): the other kernel lets its root set O_NOATIME. The service does
/// not go by it.
fn unasked(caller: &str, line: &str) -> String {
    match line.split_once(" by ") {
        Some(("unwatched later", _)) if line.ends_with(": EPERM") => {
            let read = "done; f 100666 500:77 1 new 1000000000 3 bytes";
            format!("unwatched later by {caller}: {read} security.a trusted.a user.a")
        }
        _ => line.to_owned(),
    }
}

/// Root alone is squashed: the kernel of the machine and the service both ask.
#[test]
fn owners_and_groups_decide_where_root_is_squashed() {
    if !has("python3") {
        return;
    }
    let Some(remote) = Remote::with_own_mount(&["--squash=root"]) else { return };
    let callers = "keeper+other";
    let ext4 = compared(&calls(".", callers, "ids")).lines_of_ext4(&remote.scratch);
    let Some(theirs) = ext4 else { return remote.finish() };
    assert_eq!(theirs.len(), CALLS * 2, "{theirs:#?}");
    let mnt = remote.scratch.mnt();
    remote.mount_on(&mnt, &remote.address);
    let there = mnt.to_str().unwrap();
    same(&theirs, &compared(&calls(there, callers, "ids")).lines(&remote.own()));
    remote.finish();
}
