//! Set-id bits and capabilities of files whose content changes: what is left of them is what ext4
//! leaves, for each change by each caller, at each mount.

use crate::beside_ext4::{Compared, same};
use crate::remote::Remote;
use crate::support::{Scratch, has};

/// Prints a line for each change, caller and file (its own words say more).
const CHANGES: Compared<'_> = Compared { script: include_str!("privileges.py"), arguments: &[] };

#[test]
fn privileges_go_with_the_bytes_that_they_were_given_for() {
    if !has("python3") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    let Some(theirs) = CHANGES.lines_of_ext4(&scratch) else { return scratch.finish() };
    // three callers may not change the group
    assert_eq!(theirs.len(), 16 * 5 * 4 + 3 * 4, "{theirs:#?}");
    same(&theirs, &CHANGES.lines(&scratch.mnt()));
    // where there are other doors
    let remote = Remote::with_own_mount(&["--squash=none"]).unwrap();
    same(&theirs, &CHANGES.lines(&remote.own()));
    // over a network it is not known which other groups a caller is in: the bit goes
    let mnt = remote.scratch.mnt();
    remote.mount_on(&mnt, &remote.address);
    let known = |line: &String| match line.split_once(" member group-id: 2666") {
        Some((change, _)) if change != "nothing" && change != "store" && change != "chown" => {
            format!("{change} member group-id: 666 -")
        }
        _ => line.clone(),
    };
    same(&theirs.iter().map(known).collect::<Vec<_>>(), &CHANGES.lines(&mnt));
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
