//! `nearside serve`: a pool that processes share, from its start to its end.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nearside::Pool;

use crate::support::{Scratch, ok, run};

const SOCKET: &str = nearside::ATTACH_SOCKET;

fn serve(scratch: &Scratch, more: &[&str]) {
    ok(run([&["serve", scratch.pool().to_str().unwrap()], more].concat()));
}

#[test]
fn processes_share_a_pool_until_its_service_is_stopped() {
    let scratch = Scratch::new();
    let pool = scratch.pool();
    serve(&scratch, &[]);
    let meta = std::fs::symlink_metadata(pool.join(SOCKET)).unwrap();
    assert!(meta.file_type().is_socket());
    let (one, other) = (Pool::attach(&pool).unwrap(), Pool::attach(&pool).unwrap());
    one.write("/shared", "by one").unwrap();
    assert_eq!(other.read("/shared").unwrap(), b"by one");
    assert!(one.is_attached() && one.info().slices.len() == 2);
    scratch.fails(&["serve", "@pool"], 1, &["serves this pool", "nearside stop"]);
    scratch.fails(&["mount", "@pool", "@pool"], 1, &[]);
    assert_eq!(scratch.json(&["info", "@pool", "--json"])["slices"].as_array().unwrap().len(), 2);
    scratch.ok(&["stop", "@pool"]);
    assert!(!pool.join(SOCKET).exists());
    let error = one.read("/shared").unwrap_err();
    assert_eq!(error.errno(), libc::ENOTCONN, "{error}");
    scratch.fails(&["stop", "@pool"], 1, &["nobody serves"]);
    assert_eq!(scratch.ok(&["cat", ":/shared"]), "by one");
    scratch.check();
}

#[test]
fn a_mount_and_attached_processes_see_each_others_changes_at_once() {
    let scratch = Scratch::new();
    if Scratch::mounted().map(|mounted| mounted.umount()).is_none() {
        return;
    }
    let mount = tempfile::tempdir().unwrap();
    serve(&scratch, &["--mount", mount.path().to_str().unwrap()]);
    let pool = Pool::attach(scratch.pool()).unwrap();
    let through = |name: &str| mount.path().join(name);
    for round in 0..50 {
        let text = format!("round {round}");
        pool.write("/attached", &text).unwrap();
        assert_eq!(std::fs::read_to_string(through("attached")).unwrap(), text);
        std::fs::write(through("mounted"), &text).unwrap();
        assert_eq!(pool.read("/mounted").unwrap(), text.as_bytes());
        pool.rename("/mounted", format!("/r{round}")).unwrap();
        assert!(!through("mounted").exists() && through(&format!("r{round}")).exists());
        std::fs::remove_file(through(&format!("r{round}"))).unwrap();
        assert!(!pool.exists(format!("/r{round}")).unwrap());
    }
    drop(pool);
    scratch.ok(&["stop", "@pool"]);
    assert!(!is_mounted(mount.path()));
    scratch.check();
}

fn is_mounted(dir: &Path) -> bool {
    nearside_fuse::mounts::at(dir).is_ok_and(|entry| entry.is_some())
}

#[test]
fn a_service_listens_where_it_is_told_to() {
    let scratch = Scratch::new();
    let socket = scratch.root().join("elsewhere.sock");
    serve(&scratch, &["--socket", socket.to_str().unwrap(), "--socket-mode", "600"]);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&socket).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    assert!(!scratch.pool().join(SOCKET).exists());
    Pool::attach(&socket).unwrap().write("/f", "x").unwrap();
    scratch.ok(&["stop", "@pool"]);
    assert!(!socket.exists());
}

#[test]
fn another_service_follows_one_that_was_killed() {
    let scratch = Scratch::new();
    serve(&scratch, &[]);
    let pool = Pool::attach(scratch.pool()).unwrap();
    pool.write("/f", "acknowledged").unwrap();
    nix::sys::signal::kill(scratch.server(), nix::sys::signal::Signal::SIGKILL).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let again = loop {
        match Pool::attach(scratch.pool()) {
            Ok(pool) => break pool,
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert_eq!(again.read("/f").unwrap(), b"acknowledged");
    assert_eq!(pool.read("/f").unwrap_err().errno(), libc::ENOTCONN);
    drop((pool, again));
    scratch.ok(&["stop", "@pool"]);
    scratch.check();
}

#[test]
fn what_has_the_sockets_name_and_is_none_stays() {
    let scratch = Scratch::new();
    std::fs::write(scratch.pool().join(SOCKET), "mine").unwrap();
    scratch.fails(&["serve", "@pool"], 1, &["no socket", SOCKET]);
    assert_eq!(std::fs::read(scratch.pool().join(SOCKET)).unwrap(), b"mine");
    scratch.check();
}
