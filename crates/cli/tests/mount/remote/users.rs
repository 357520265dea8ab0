//! Whose rights those have who come over a network.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::{HERE, Remote};
use crate::support::has;

const NOBODY: u32 = 65_534;
const USER: u32 = 1234;

/// A service that squashes so, with a mount of its own in which there is something of root's, and
/// a mount over a network.
fn squashed(squash: &str) -> Option<Remote> {
    let remote = Remote::with_own_mount(&[&format!("--squash={squash}")])?;
    let own = remote.own();
    std::fs::write(own.join("secret"), "of root's").unwrap();
    std::fs::set_permissions(own.join("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(own.join("shown"), "to all").unwrap();
    std::fs::create_dir(own.join("open")).unwrap();
    std::fs::set_permissions(own.join("open"), PermissionsExt::from_mode(0o1777)).unwrap();
    remote.mount_on(&remote.scratch.mnt(), &remote.address);
    Some(remote)
}

fn owner(remote: &Remote, name: &str) -> (u32, u32) {
    let found = std::fs::symlink_metadata(remote.own().join(name)).unwrap();
    (found.uid(), found.gid())
}

/// What no user may do but root.
const REFUSED: &str = r#"
    ! cat secret 2>/dev/null; ! (echo x > shown) 2>/dev/null; ! touch new 2>/dev/null
    ! mkdir d 2>/dev/null; ! rm -f shown 2>/dev/null; ! mv shown other 2>/dev/null
    ! chmod 666 secret 2>/dev/null; ! chown 1234 shown 2>/dev/null; ! ln secret open/s 2>/dev/null
    ! truncate -s 0 shown 2>/dev/null; test "$(cat shown)" = "to all"
"#;

#[test]
fn all_users_are_the_one_of_the_service_unless_it_says_otherwise() {
    let Some(remote) = squashed("all") else { return };
    remote.scratch.sh(REFUSED);
    remote.scratch.sh(r#"
        umask 022; cd open; echo x > f; echo y >> f; mkdir d; ln -s f l; mkfifo p; ln f g
        test "$(cat g | wc -l)" = 2; chmod 640 f; truncate -s 1 f; mv d e; rm l p
    "#);
    for name in ["open/f", "open/e", "open/g"] {
        assert_eq!(owner(&remote, name), (NOBODY, NOBODY), "{name}");
    }
    assert_eq!(std::fs::read(remote.own().join("secret")).unwrap(), b"of root's");
    remote.finish();
}

#[test]
fn root_alone_can_be_squashed() {
    if !has("setpriv") {
        return;
    }
    let Some(remote) = squashed("root") else { return };
    remote.scratch.sh(REFUSED);
    remote.scratch.sh("touch open/roots");
    assert_eq!(owner(&remote, "open/roots"), (NOBODY, NOBODY));
    let script = "umask 022; echo mine > open/his; ! rm -f open/roots 2>/dev/null; rm -f open/none";
    let output = remote.scratch.sh_as(Some(USER), &format!("{REFUSED}\n{script}"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(owner(&remote, "open/his"), (USER, USER));
    remote.finish();
}

#[test]
fn nobody_is_squashed_where_the_machine_is_trusted() {
    let Some(remote) = squashed("none") else { return };
    remote.scratch.sh(r#"test "$(cat secret)" = "of root's"; echo x > new; chown 1234:77 new"#);
    assert_eq!(owner(&remote, "new"), (1234, 77));
    remote.finish();
}

#[test]
fn a_pool_that_is_served_for_reading_is_mounted_for_reading() {
    let Some(mut remote) = Remote::mounted() else { return };
    remote.scratch.sh("echo x > f");
    remote.stop();
    remote.address = Remote::serve(&remote.scratch, HERE, &["--squash=none", "--read-only"]);
    remote.mount_on(&remote.scratch.mnt(), &remote.address);
    remote.scratch.sh(r#"
        test "$(cat f)" = x; ! (echo y > f) 2>/dev/null; ! touch g 2>/dev/null
        ! rm -f f 2>/dev/null; ! mkdir d 2>/dev/null; ! chmod 777 f 2>/dev/null; ls | grep -q f
    "#);
    remote.finish();
}
