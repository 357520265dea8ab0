//! Mounts whose service is reached by a fabric: by libfabric over the kernel's sockets, which every
//! machine has.

use std::time::Duration;

use super::{HERE, Remote};
use crate::support::Scratch;

/// Services that a program has to outlive, and for how long each serves: it takes half a second to
/// look for fabrics before, and a keeper gives up one that dies as soon as it is there.
const KILLS: usize = 3;
const SERVED_FOR: Duration = Duration::from_secs(3);

/// What comes over a fabric where TCP would.
fn over(remote: &Remote, provider: &str) -> String {
    remote.address.replace("://", &format!("+fabric-{provider}://"))
}

#[test]
fn programs_see_no_more_than_a_delay_when_services_die() {
    let Some(remote) = Remote::served(&["--squash=none", "--fabric=tcp"]) else { return };
    let mnt = remote.scratch.mnt();
    remote.mount_on(&mnt, &over(&remote, "tcp"));
    let table = std::fs::read_to_string("/proc/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(&mnt.display().to_string())).unwrap();
    assert!(line.contains("fabric-tcp"), "{line}");
    std::thread::scope(|scope| {
        let kills = scope.spawn(|| {
            for _ in 0..KILLS {
                std::thread::sleep(SERVED_FOR);
                remote.kill_service();
            }
        });
        let mut round = 0;
        while !kills.is_finished() {
            round += 1;
            let script = r#"
                i=0; while [ $i -lt 30 ]; do
                    i=$((i + 1)); dd if=/dev/urandom of=$i bs=70000 count=3 conv=fsync 2> /dev/null
                    cp $i copy; cmp $i copy; mv copy copy$i; echo $i >> log
                done
                test "$(wc -l < log)" = 30; test "$(ls | wc -l)" = 61; rm copy*
            "#;
            remote.scratch.sh(&format!("mkdir round{round}; cd round{round}\n{script}"));
        }
    });
    remote.finish();
}

/// What lies at this address is not mounted, for a reason that has these words in it.
fn refused(remote: &Remote, address: &str, words: &[&str]) {
    let mnt = remote.scratch.mnt();
    std::fs::create_dir_all(&mnt).unwrap();
    let output = remote.scratch.run(["mount".as_ref(), address.as_ref(), mnt.as_os_str()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn only_what_is_offered_is_gone_on_by() {
    let Some(remote) = Remote::served(&["--squash=none", "--fabric=tcp"]) else { return };
    refused(&remote, &over(&remote, "shm"), &["of fabrics it offers tcp", "--fabric"]);
    refused(&remote, &over(&remote, "carrier-pigeon"), &["names no fabric", "-verbs"]);
    remote.finish();

    let Some(remote) = Remote::served(&[]) else { return };
    refused(&remote, &over(&remote, "tcp"), &["of fabrics it offers none"]);
    remote.finish();
}

#[test]
fn a_service_offers_no_fabric_that_its_machine_lacks() {
    let Some(scratch) = Scratch::formatted() else { return };
    let pool = scratch.pool().display().to_string();
    let output = scratch.run(["serve", &pool, HERE, "--insecure", "--fabric=cxi"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no fabric cxi can be used here"), "{said}");
    // which of many is wrong is said, too
    let output = scratch.run(["serve", &pool, HERE, "--insecure", "--fabric=tcp,pigeon"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("pigeon"), "{said}");
}
