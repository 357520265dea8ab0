//! An ordinary user's pool and mount, without root: by fusermount3.
//!
//! The test is root, and becomes such a user in a mount namespace of its own: with a device that
//! everybody may open, as machines have it, and a configuration of fusermount3 of its own.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::support::{can_mount, has};

/// The user; another one.
const USER: u32 = 1000;
const OTHER: u32 = 1001;

/// What everybody finds in front of the script that a user runs.
const BEFORE: &str = r#"
set -eu
rm -f "$DIR/fuse"; mknod "$DIR/fuse" c 10 229; chmod 666 "$DIR/fuse"
mount --bind "$DIR/fuse" /dev/fuse
printf '%s' "$CONF" > "$DIR/fuse.conf"
mount --bind "$DIR/fuse.conf" /etc/fuse.conf
as() { setpriv --reuid "$1" --regid "$1" --clear-groups sh -euc "$2"; }
cd "$DIR/home"
"#;

/// A user's directory, in one that everybody may pass.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Option<Home> {
        if !can_mount() || !["fusermount3", "setpriv", "unshare"].iter().all(|it| has(it)) {
            return None;
        }
        if !Path::new("/etc/fuse.conf").exists() {
            println!("skipped: fusermount3 has no /etc/fuse.conf here");
            return None;
        }
        let home = Home(tempfile::tempdir().unwrap());
        std::fs::set_permissions(home.0.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir(home.path()).unwrap();
        chown(home.path(), Some(USER), Some(USER)).unwrap();
        Some(home)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("home")
    }

    /// Runs a script, as root, that has `as USER COMMANDS` for others. Its mounts and processes end
    /// with it.
    fn run(&self, conf: &str, script: &str) -> Output {
        let text = format!("{BEFORE}{script}");
        let mut command = Command::new("timeout");
        let apart = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
        command.args(["180", "unshare"]).args(apart).args(["sh", "-c", &text]);
        command.env("DIR", self.0.path()).env("CONF", conf).env("U", USER.to_string());
        command.env("O", OTHER.to_string()).env("NS", env!("CARGO_BIN_EXE_nearside"));
        command.output().unwrap()
    }

    fn works(&self, conf: &str, script: &str) -> String {
        let output = self.run(conf, script);
        let log = std::fs::read_to_string(self.path().join("pool/nearside.log"));
        assert!(output.status.success(), "{output:?}\n{}", log.unwrap_or_default());
        String::from_utf8(output.stdout).unwrap()
    }
}

/// From nothing to the first file, in the time that somebody waits for it.
#[test]
fn the_first_file_takes_a_user_no_root_and_five_seconds() {
    // Waiting for a CPU is the machine's share, not the program's: the limit grows with the factor
    // by which a loop that needs nothing but a CPU is slowed down.
    let is_in_time = || {
        let before = slowdown();
        let took = time_to_first_file()?;
        let most = Duration::from_secs(5).mul_f64(before.max(slowdown()));
        println!("the first file took {took:?} of {most:?}, unmounting included");
        Some(took < most)
    };
    assert!((0..3).any(|_| is_in_time().unwrap_or(true)), "it takes too long");
}

/// Elapsed time over CPU time of a loop that needs nothing but a CPU.
fn slowdown() -> f64 {
    let cpu = || {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
    };
    let (begun, before) = (Instant::now(), cpu());
    let used = || cpu() - before;
    while used() < Duration::from_millis(100) {
        std::hint::spin_loop();
    }
    begun.elapsed().as_secs_f64() / used().as_secs_f64()
}

/// Time from `format` to the first file, unmounting included. None: mounting is impossible here.
fn time_to_first_file() -> Option<Duration> {
    let home = Home::new()?;
    let begun = Instant::now();
    let said = home.works(
        "",
        r#"as $U '
            mkdir mnt; $NS format pool --size 96M >&2; $NS mount pool mnt
            echo first > mnt/file; sync mnt/file; cat mnt/file
            stat -c "%u %g %a" mnt/file
            $NS umount mnt; cat pool/nearside.pid
        '"#,
    );
    let took = begun.elapsed();
    assert_eq!(said, "first\n1000 1000 644\nclosed\n");
    Some(took)
}

/// A user's mount is the user's alone: others, root among them, could wait for ever for a server
/// that they do not trust.
#[test]
fn a_users_mount_is_the_users_alone() {
    let Some(home) = Home::new() else { return };
    let said = home.works(
        "",
        r#"
            as $U 'mkdir mnt; $NS format pool --size 96M >&2; $NS mount pool mnt; echo x > mnt/f'
            ls mnt >&2 2>/dev/null && echo "root came in"
            $NS ls pool 2>&1 | grep -c 'user 1000 mounted it for nobody else'
            $NS df pool | grep -c total
            as $O 'ls mnt' 2>/dev/null && echo "another user came in"
            as $U '$NS mount --help >&2; ! $NS mount pool mnt' 2>/dev/null
            as $U '$NS umount mnt'; grep -c "$DIR/home" /proc/self/mounts || true
        "#,
    );
    assert_eq!(said, "1\n1\n0\n");
}

#[test]
fn a_users_mount_lets_others_in_when_the_machine_allows_it() {
    let Some(home) = Home::new() else { return };
    let mount = r#"
        as $U 'mkdir -p mnt; test -d pool || $NS format pool --size 96M >&2'
        as $U '$NS mount pool mnt --allow-other'
    "#;
    let refused = home.run("", mount);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("user_allow_other"), "{text}");
    assert!(text.contains("/etc/fuse.conf") && !text.contains("package fuse3"), "{text}");
    let others = r#"
        as $U 'echo open > mnt/open; echo mine > mnt/mine; chmod 600 mnt/mine; mkdir -m 777 mnt/all'
        as $O 'cat mnt/open; ! cat mnt/mine 2>/dev/null; echo other > mnt/all/f'
        stat -c '%u' mnt/all/f
        as $U '$NS umount mnt'
    "#;
    let said = home.works("user_allow_other\n", &format!("{mount}{others}"));
    assert_eq!(said, "open\n1001\n");
}

#[test]
fn a_user_is_told_what_a_machine_does_not_allow() {
    let Some(home) = Home::new() else { return };
    let closed = "chmod 600 \"$DIR/fuse\"
        as $U 'mkdir mnt; $NS format pool --size 96M >&2; $NS mount pool mnt'";
    let refused = home.run("", closed);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("let users open it"), "{text}");
}
