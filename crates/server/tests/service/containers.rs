//! Processes in containers: namespaces of their own, of all kinds, and of the pool nothing but the
//! socket.

use std::path::Path;
use std::process::Command;

use nearside::{LockKind, OpenFlags, Pool};

use crate::child::{self, Running};
use crate::lanes::in_lanes;
use crate::served::{Served, eventually};

const NAME: &str = "containers::a_process_in_a_container_has_the_socket_alone_and_works_as_others";
/// Where the socket is bound in.
const SOCKET: &str = "/run/pool";

/// Makes a root of what programs need, and the socket; runs the program there. Its words: an empty
/// directory, the socket, the program.
const ENTER: &str = r#"
root=$1 socket=$2 program=$3
shift 3
mount -t tmpfs none "$root"
cd "$root"
mkdir -p proc run tmp
for dir in usr lib lib64; do
    if [ -L /$dir ]; then
        cp -P /$dir $dir
    elif [ -d /$dir ]; then
        mkdir $dir
        mount --rbind /$dir $dir
    fi
done
mount -t proc none proc || true
touch program run/pool
mount --bind "$program" program
mount --bind "$socket" run/pool
exec chroot . /program "$@"
"#;

fn flags() -> OpenFlags {
    OpenFlags::new().read(true).write(true).create(true).mode(0o644)
}

/// What the process in the container does, in a directory that it may write to.
fn work(dir: &str, may_all: bool) {
    let pool = Pool::attach(SOCKET).unwrap();
    assert!(!Path::new("/etc").exists(), "the root is the container's");
    let of_root = pool.read("/roots");
    assert_eq!(of_root.is_ok(), may_all, "what counts is the user outside");
    let file = pool.open_file(format!("{dir}/file"), &flags()).unwrap();
    for round in 0..4000u64 {
        file.write_all_at(&round.to_le_bytes(), round % 64 * 8).unwrap();
    }
    file.lock(LockKind::Write, 0..8).unwrap();
    pool.write(format!("{dir}/large"), vec![7; 3 << 20]).unwrap();
    pool.rename(format!("{dir}/large"), format!("{dir}/moved")).unwrap();
    assert_eq!(pool.read(format!("{dir}/moved")).unwrap(), vec![7; 3 << 20]);
    child::say("works");
    child::wait_for_the_end();
}

/// The test's program again, in a container; as this user of the machine.
fn contained(user: u32, served: &Served, root: &Path) -> Command {
    let program = served.dir.join("program");
    let usual = child::command_as(&user.to_string(), NAME, &served.dir);
    let mut command = child::piped("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}")]);
    command.arg("--clear-groups").args(unshare());
    command.args(["sh", "-ec", ENTER, "sh"]).args([root, &served.socket(), &program]);
    child::pass_on(&usual, &mut command);
    command.current_dir("/");
    command
}

fn unshare() -> Vec<&'static str> {
    let mut words = vec!["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork"];
    words.extend(["--kill-child", "--net", "--ipc", "--uts"]);
    words
}

#[test]
fn a_process_in_a_container_has_the_socket_alone_and_works_as_others() {
    if child::pool().is_some() {
        let user: u32 = child::role().parse().unwrap();
        work(&format!("/home{user}"), user == 0);
    }
    let mut probe = Command::new("setpriv");
    probe.args(["--reuid=1234", "--regid=1234", "--clear-groups"]).args(unshare()).arg("true");
    if !probe.current_dir("/").status().is_ok_and(|status| status.success()) {
        println!("skipped: no containers can be made here");
        return;
    }
    let served = Served::new();
    let pool = served.attach();
    pool.write("/roots", "secret").unwrap();
    pool.set_permissions("/roots", 0o600).unwrap();
    let users = [0, 1234];
    for user in users {
        pool.create_dir(format!("/home{user}")).unwrap();
        pool.set_owner(format!("/home{user}"), Some(user), Some(user)).unwrap();
    }
    // a program that others can run
    std::fs::copy(std::env::current_exe().unwrap(), served.dir.join("program")).unwrap();
    let root = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(root.path(), open).unwrap();
    let mut both = users.map(|user| Running::start(contained(user, &served, root.path())));
    for process in &mut both {
        assert_eq!(process.hear(), "works");
    }
    assert!(in_lanes(&served.dir) > 0, "both write by themselves");
    for user in users {
        let moved = pool.metadata(format!("/home{user}/moved")).unwrap();
        assert_eq!((moved.len(), moved.attr().uid), (3 << 20, user));
        let mut last = [0; 8];
        let file = pool.open_file(format!("/home{user}/file"), &flags()).unwrap();
        file.read_at(&mut last, 31 * 8).unwrap();
        assert_eq!(u64::from_le_bytes(last), 3999, "the last round, at place 3999 % 64");
        assert!(!file.try_lock(LockKind::Write, 0..8).unwrap(), "the container has it");
    }
    for process in &mut both {
        process.kill();
    }
    served.wait_for_sessions(1);
    for user in users {
        let file = pool.open_file(format!("/home{user}/file"), &flags()).unwrap();
        eventually(|| file.try_lock(LockKind::Write, 0..8).unwrap());
    }
    drop(pool);
    served.finish();
}
