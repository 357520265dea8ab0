//! Set-id bits and capabilities of files whose content changes: what is left of them is what ext4
//! leaves, for each change by each caller, at each mount, and where a process is attached.

use crate::attached_calls::{self, program_for_all};
use crate::beside_ext4::{Compared, same, without_absent};
use crate::remote::Remote;
use crate::support::{Scratch, has};

/// The test whose process makes changes, attached.
const ATTACHED: &str = "privileges::privileges_go_where_attached_processes_change_content";
/// Whose changes are compared.
const CALLERS: &str = "root+other+member+group+owner";
/// Changes of each caller to each of the four files.
const CHANGES: usize = 21;
/// Those of them that the library does not have; the script says why.
const ABSENT: usize = 4;

/// Prints a line for each change, caller and file (its own words say more).
fn compared<'s>(arguments: &'s [&'s str]) -> Compared<'s> {
    Compared { script: concat!(include_str!("doors.py"), include_str!("privileges.py")), arguments }
}

#[test]
fn privileges_go_with_the_bytes_that_they_were_given_for() {
    if !has("python3") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    let Some(theirs) = compared(&[CALLERS]).lines_of_ext4(&scratch) else {
        return scratch.finish();
    };
    assert_eq!(theirs.len(), CHANGES * 5 * 4, "{theirs:#?}");
    same(&theirs, &compared(&[CALLERS]).lines(&scratch.mnt()));
    // where there are other doors
    let remote = Remote::with_own_mount(&["--squash=none"]).unwrap();
    same(&theirs, &compared(&[CALLERS]).lines(&remote.own()));
    // over a network it is not known which other groups a caller is in: the bit goes
    let mnt = remote.scratch.mnt();
    remote.mount_on(&mnt, &remote.address);
    let known = |line: &String| match line.split_once(" member group-id: 2666") {
        Some((change, _)) if change != "nothing" && change != "store" && change != "chown" => {
            format!("{change} member group-id: 666 -")
        }
        _ => line.clone(),
    };
    same(&theirs.iter().map(known).collect::<Vec<_>>(), &compared(&[CALLERS]).lines(&mnt));
    remote.stop();
    scratch.finish();
}

/// Each caller is a process of its own, attached to the service of this machine. Transactions on
/// regions are compared with writes.
#[test]
fn privileges_go_where_attached_processes_change_content() {
    attached_calls::run_if_told();
    if !has("python3") {
        return;
    }
    let Some(remote) = Remote::with_own_mount(&[]) else { return };
    let ext4 = compared(&[CALLERS]).lines_of_ext4(&remote.scratch);
    let Some(theirs) = ext4 else { return remote.finish() };
    let (program, pool) = (program_for_all(&remote.scratch), remote.scratch.pool());
    let attached = [CALLERS, &program, ATTACHED, pool.to_str().unwrap()];
    let ours = compared(&attached).lines(&remote.own());
    same(&without_absent(&theirs, &ours, ABSENT * 5 * 4), &ours);
    remote.finish();
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
    // a program without a mount
    let program = program_for_all(&remote.scratch);
    let Some(theirs) = compared(&["other"]).lines_of_ext4(&remote.scratch) else {
        return remote.stop();
    };
    let attached = ["other", &program, ATTACHED, &remote.address, "squashed"];
    let ours = compared(&attached).lines(&remote.own());
    same(&without_absent(&theirs, &ours, ABSENT * 4), &ours);
    remote.stop();
}
