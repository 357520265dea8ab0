//! What processes of several users may do.

use std::os::unix::process::CommandExt;

use nearside::{OpenFlags, Pool, XattrMode};

use crate::child::{self, Running};
use crate::lanes::in_lanes;
use crate::served::{Served, eventually};

#[test]
fn a_process_may_do_what_its_user_and_groups_may() {
    const NAME: &str = "users::a_process_may_do_what_its_user_and_groups_may";
    if let Some(dir) = child::pool() {
        let pool = Pool::attach(dir).unwrap();
        let errno = |result: nearside::Result<()>| result.map_err(|error| error.errno());
        assert_eq!(pool.read("/roots").unwrap_err().errno(), libc::EACCES);
        assert_eq!(errno(pool.write("/new", "x")), Err(libc::EACCES));
        assert_eq!(errno(pool.set_permissions("/roots", 0o777)), Err(libc::EPERM));
        assert_eq!(errno(pool.checkpoint()), Err(libc::EPERM));
        pool.write("/home/mine", "mine").unwrap();
        assert_eq!(pool.metadata("/home/mine").unwrap().attr().uid, 1234);
        // of a group that is not its first one
        assert_eq!(pool.read("/groups").unwrap(), b"for the group");
        child::say("done");
        child::wait_for_the_end();
    }
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can be several users");
        return;
    }
    let served = Served::new();
    let pool = served.attach();
    pool.write("/roots", "secret").unwrap();
    pool.set_permissions("/roots", 0o600).unwrap();
    pool.write("/groups", "for the group").unwrap();
    pool.set_permissions("/groups", 0o640).unwrap();
    pool.set_owner("/groups", None, Some(4321)).unwrap();
    pool.create_dir("/home").unwrap();
    pool.set_owner("/home", Some(1234), Some(1234)).unwrap();
    // a program that others can run
    let program = served.dir.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=1234", "--regid=1234", "--groups=4321"]).arg(&program);
    let usual = child::command(NAME, &served.dir);
    child::pass_on(&usual, &mut command);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    command.current_dir("/").process_group(0);
    let mut other = Running::start(command);
    assert_eq!(other.hear(), "done");
    other.kill();
    assert_eq!(pool.read("/home/mine").unwrap(), b"mine");
    drop(pool);
    served.finish();
}

/// A child of user 1234 that runs this test.
fn start_other(name: &str, served: &Served) -> Running {
    // a program that others can run
    let program = served.dir.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = std::process::Command::new(&program);
    child::pass_on(&child::command(name, &served.dir), &mut command);
    command.uid(1234).gid(1234).current_dir("/").process_group(0);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    Running::start(command)
}

const CAPABILITY: &str = "security.capability";
/// How an attached process changes a file, and what the file is called.
const CHANGED: [&str; 5] = ["/written", "/appended", "/cut", "/copied", "/committed"];

/// Changes each of them, as its name says; the last one is written under a lease, if that can be.
fn change_all(dir: &std::path::Path) {
    let pool = Pool::attach(dir).unwrap();
    let open = |path| pool.open_file(path, &OpenFlags::new().read(true).write(true)).unwrap();
    let leased = open("/leased");
    // until the test has seen that it does so by itself
    eventually(|| {
        leased.write_all_at(&[1; 64], 0).unwrap();
        pool.exists("/seen").unwrap()
    });
    child::say("leased");
    eventually(|| pool.metadata("/leased").unwrap().mode() == 0o4777);
    assert_eq!(pool.xattr("/leased", CAPABILITY).unwrap().as_deref(), Some(&b"some"[..]));
    leased.write_all_at(&[2; 64], 64).unwrap();
    open("/written").write_all_at(b"x", 0).unwrap();
    open("/appended").append(b"x").unwrap();
    open("/cut").set_len(1).unwrap();
    open("/copied").copy_to(0, &open("/copied"), 4096, 100).unwrap();
    let file = open("/committed");
    let region = pool.map(&file, 0, 4096).unwrap();
    let mut tx = pool.begin().unwrap();
    tx.put(&region, 0, &7u64).unwrap();
    tx.commit().unwrap();
    child::say("done");
    child::wait_for_the_end();
}

/// Root's programs are not what another user wrote into them.
#[test]
fn what_a_process_of_another_user_changes_gives_no_privileges_any_more() {
    const NAME: &str = "users::what_a_process_of_another_user_changes_gives_no_privileges_any_more";
    if let Some(dir) = child::pool() {
        return change_all(&dir);
    }
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can be several users");
        return;
    }
    let served = Served::new();
    let pool = served.attach();
    let arm = |path| {
        pool.set_permissions(path, 0o777).unwrap();
        pool.set_xattr(path, CAPABILITY, b"some", XattrMode::Any).unwrap();
        pool.set_permissions(path, 0o4777).unwrap();
    };
    for path in CHANGED {
        pool.write(path, [7; 5000]).unwrap();
        arm(path);
    }
    pool.write("/leased", [7; 5000]).unwrap();
    pool.set_permissions("/leased", 0o777).unwrap();
    let mut other = start_other(NAME, &served);
    eventually(|| in_lanes(&served.dir) > 0);
    pool.write("/seen", "").unwrap();
    assert_eq!(other.hear(), "leased");
    arm("/leased");
    assert_eq!(other.hear(), "done");
    for path in CHANGED.into_iter().chain(["/leased"]) {
        let left = (pool.metadata(path).unwrap().mode(), pool.xattr(path, CAPABILITY).unwrap());
        assert_eq!(left, (0o777, None), "{path}");
    }
    other.kill();
    drop(pool);
    served.finish();
}

#[test]
fn who_may_not_connect_is_told() {
    const NAME: &str = "users::who_may_not_connect_is_told";
    if let Some(dir) = child::pool() {
        let error = Pool::attach(dir).unwrap_err();
        assert_eq!(error.errno(), libc::EACCES, "{error}");
        child::say("done");
        child::wait_for_the_end();
    }
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can be several users");
        return;
    }
    let served = Served::with("pool", 0o600, &server::Options::default());
    let program = served.dir.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let usual = child::command(NAME, &served.dir);
    let mut command = std::process::Command::new(&program);
    child::pass_on(&usual, &mut command);
    command.uid(1234).gid(1234).current_dir("/");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut other = Running::start(command);
    assert_eq!(other.hear(), "done");
    drop(other);
    served.finish();
}
