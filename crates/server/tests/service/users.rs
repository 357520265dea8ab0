//! What processes of several users may do.

use std::os::unix::process::CommandExt;

use nearside::Pool;

use crate::child::{self, Running};
use crate::served::Served;

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
