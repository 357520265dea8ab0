//! Mounts of those who come with a certificate.

use std::process::{Command, Output, Stdio};

use super::{HERE, Remote};
use crate::support::{Scratch, wait_until};

/// Makes an authority and who may come; `lines`: what they may do.
fn certify(scratch: &Scratch, lines: &str) {
    let dir = scratch.root().join("certificates");
    let dir = dir.to_str().unwrap();
    scratch.run_ok(["cert", dir, "--client", "ann", "--client", "part"]);
    std::fs::write(scratch.root().join("certificates/server/access"), lines).unwrap();
}

fn mount_as(remote: &Remote, name: &str) -> Output {
    let mnt = remote.scratch.mnt();
    std::fs::create_dir_all(&mnt).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
    let credentials = remote.scratch.root().join("certificates/clients").join(name);
    command.env("NEARSIDE_CREDENTIALS", credentials).arg("mount").arg(&remote.address).arg(&mnt);
    command.stdin(Stdio::null()).output().unwrap()
}

/// A pool that is served to who comes with a certificate; `lines`: what they may do.
fn served(scratch: Scratch, lines: &str) -> Remote {
    certify(&scratch, lines);
    let credentials = scratch.root().join("certificates/server");
    let credentials = format!("--credentials={}", credentials.display());
    let address = Remote::serve_by(&scratch, HERE, &[&credentials]);
    Remote { address: address.replace("127.0.0.1", "localhost"), scratch }
}

/// Programs see a part of the pool as all that there is, also after another service has followed.
#[test]
fn a_part_of_a_pool_is_mounted_and_nothing_else() {
    let Some(scratch) = Scratch::formatted() else { return };
    let remote = served(scratch, "ann 0:0 squash=none\npart 0:0 path=/shared squash=none\n");
    assert!(!mount_as(&remote, "part").status.success(), "there is no such directory");
    assert!(mount_as(&remote, "ann").status.success());
    remote.scratch.sh("mkdir -p shared/dir; echo outside > secret; echo inside > shared/file");
    remote.unmount(&remote.scratch.mnt());
    let mounted = mount_as(&remote, "part");
    assert!(mounted.status.success(), "{mounted:?}\n{}", remote.scratch.log());
    let script = r#"
        test "$(ls)" = "$(printf 'dir\nfile')"; test "$(cat file)" = inside
        test ! -e secret; test ! -e ../secret; test "$(ls -a dir | wc -l)" = 2
        echo more >> file; mv file dir/moved; ln dir/moved link; ln -s dir/moved soft
        test "$(cat soft)" = "$(cat link)"; test "$(stat -c %h link)" = 2
        mkdir -p a/b; cp dir/moved a/b/copy; rm -r a; test ! -e a
        i=0; while [ $i -lt 200 ]; do : > dir/$i; i=$((i + 1)); done
        test "$(ls dir | wc -l)" = 201; ls -l dir > /dev/null; find . > /dev/null
        exec 3<> link; flock 3; exec 4> dir/open
    "#;
    let after = r#"
        cat <&3 > /dev/null; echo again >&3; echo there >&4; test "$(cat dir/open)" = there
        ! flock -n link true; exec 3>&-; flock -n link true; rm dir/open link soft
        mv dir/moved file; rm dir/*; test "$(tail -n 1 file)" = again
    "#;
    // the services are killed while files are open and locked, and look-ups are known
    let killed = "echo > killed; while [ -e killed ]; do sleep 0.05; done";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mark = remote.scratch.mnt().join("killed");
            wait_until("it is to be killed", || mark.exists());
            remote.kill_service();
            remote.kill_forwarder(&remote.scratch.mnt());
            std::fs::remove_file(mark).unwrap();
        });
        remote.scratch.sh(&format!("{script}\n{killed}\n{after}"));
    });
    remote.unmount(&remote.scratch.mnt());
    assert!(mount_as(&remote, "ann").status.success());
    remote.scratch.sh("test \"$(cat secret)\" = outside; test \"$(wc -l < shared/file)\" = 3");
    remote.finish();
}

#[test]
fn a_certificate_says_whose_mount_it_is_until_it_is_revoked() {
    let Some(scratch) = Scratch::formatted() else { return };
    let remote = served(scratch, "ann 0:0 squash=none\n");
    let refused = mount_as(&remote, "nobody");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("ca.pem"), "{refused:?}");
    let mounted = mount_as(&remote, "ann");
    assert!(mounted.status.success(), "{mounted:?}\n{}", remote.scratch.log());
    remote.scratch.sh("echo mine > f; chown 7:8 f; test \"$(stat -c %u:%g f)\" = 7:8");
    remote.kill_service();
    remote.kill_forwarder(&remote.scratch.mnt());
    remote.scratch.sh("test \"$(cat f)\" = mine; echo more >> f; test \"$(wc -l < f)\" = 2");
    // from here on it may do nothing, and what it has open goes
    let dir = remote.scratch.root().join("certificates");
    remote.scratch.run_ok(["cert", dir.to_str().unwrap(), "--revoke", "ann"]);
    wait_until("it is sent away", || remote.scratch.log().contains("it is sent away"));
    nix::mount::umount2(&remote.scratch.mnt(), nix::mount::MntFlags::MNT_DETACH).unwrap();
    remote.finish();
}
