//! `nearside serve`: a pool that processes share, from its start to its end.

use std::os::unix::fs::{FileExt, FileTypeExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use nearside::{OpenFlags, Pool};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::support::{SOON, Scratch};

const SOCKET: &str = nearside::ATTACH_SOCKET;

#[test]
fn processes_share_a_pool_until_its_service_is_stopped() {
    let scratch = Scratch::new();
    let pool = scratch.pool();
    scratch.serve(&[]);
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
    scratch.serve(&["--mount", mount.path().to_str().unwrap()]);
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

#[test]
fn a_mount_and_the_regions_of_attached_processes_show_the_same() {
    let scratch = Scratch::new();
    if Scratch::mounted().map(|mounted| mounted.umount()).is_none() {
        return;
    }
    let mount = tempfile::tempdir().unwrap();
    scratch.serve(&["--mount", mount.path().to_str().unwrap()]);
    let pools = [0, 1].map(|_| Pool::attach(scratch.pool()).unwrap());
    let regions = pools.each_ref().map(|pool| {
        let flags = OpenFlags::new().read(true).write(true).create(true);
        pool.map(&pool.open_file("/f", &flags).unwrap(), 0, 64 << 10).unwrap()
    });
    let mounted = std::fs::OpenOptions::new().read(true).write(true).open(mount.path().join("f"));
    let mounted = mounted.unwrap();
    for round in 1..100u64 {
        let at = round as usize * 700 % (60 << 10);
        let mut tx = pools[round as usize % 2].begin().unwrap();
        tx.put(&regions[round as usize % 2], at, &round).unwrap();
        tx.commit().unwrap();
        let mut word = [0; 8];
        mounted.read_exact_at(&mut word, at as u64).unwrap();
        assert_eq!(u64::from_ne_bytes(word), round);
        mounted.write_all_at(&(round + 1000).to_ne_bytes(), at as u64).unwrap();
        assert!(regions.iter().all(|region| region.get::<u64>(at).unwrap() == round + 1000));
        if round % 25 == 0 {
            mounted.set_len(round).unwrap();
            assert!(regions.iter().all(|region| region.get::<u64>(at).unwrap() == 0));
            mounted.set_len(64 << 10).unwrap();
        }
    }
    drop((regions, pools, mounted));
    scratch.ok(&["stop", "@pool"]);
    scratch.check();
}

#[test]
fn a_pool_with_open_files_in_its_mount_is_not_stopped() {
    let scratch = Scratch::new();
    if Scratch::mounted().map(|mounted| mounted.umount()).is_none() {
        return;
    }
    let mount = tempfile::tempdir().unwrap();
    let dir = mount.path().to_str().unwrap();
    let (serve, mounted) = (["serve", "@pool", "--mount", dir], ["mount", "@pool", dir]);
    for start in [&serve[..], &mounted] {
        scratch.ok(start);
        let file = std::fs::File::create(mount.path().join("open")).unwrap();
        let pool = Pool::attach(scratch.pool()).ok();
        scratch.fails(&["stop", "@pool"], 1, &["in use"]);
        // everything goes on, for all who use it
        file.write_all_at(b"goes on", 0).unwrap();
        let seen = pool.as_ref().map(|pool| pool.read("/open").unwrap());
        assert!(seen.is_none_or(|seen| seen == b"goes on"));
        drop((file, pool));
        scratch.ok(&["stop", "@pool"]);
        assert!(!is_mounted(mount.path()));
        scratch.fails(&["stop", "@pool"], 1, &["nobody serves"]);
        assert_eq!(scratch.ok(&["cat", ":/open"]), "goes on");
    }
    scratch.check();
}

fn is_mounted(dir: &Path) -> bool {
    nearside_fuse::mounts::at(dir).is_ok_and(|entry| entry.is_some())
}

#[test]
fn a_service_listens_where_it_is_told_to() {
    let scratch = Scratch::new();
    let socket = scratch.root().join("elsewhere.sock");
    scratch.serve(&["--socket", socket.to_str().unwrap(), "--socket-mode", "600"]);
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
    scratch.serve(&[]);
    let pool = Pool::attach(scratch.pool()).unwrap();
    pool.write("/f", "acknowledged").unwrap();
    nix::sys::signal::kill(scratch.server(), nix::sys::signal::Signal::SIGKILL).unwrap();
    // whoever comes meanwhile waits for the next one
    let again = Pool::attach(scratch.pool()).unwrap();
    assert_eq!(again.read("/f").unwrap(), b"acknowledged");
    assert_eq!(pool.read("/f").unwrap(), b"acknowledged");
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

#[test]
fn a_service_that_was_started_on_demand_ends_after_its_last_process() {
    let scratch = Scratch::new();
    let program = env!("CARGO_BIN_EXE_nearside");
    let missing = Pool::attach_or_serve_by(scratch.pool(), "/nowhere/nearside").unwrap_err();
    assert_eq!(missing.errno(), libc::ECONNREFUSED);
    assert!(missing.to_string().contains("/nowhere/nearside"), "{missing}");
    // of several who come at once each gets the same service
    let pools: Vec<Pool> = std::thread::scope(|threads| {
        let attach = || Pool::attach_or_serve_by(scratch.pool(), program).unwrap();
        let all: Vec<_> = (0..4).map(|_| threads.spawn(attach)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    pools[0].write("/f", "x").unwrap();
    assert!(pools.iter().all(|pool| pool.read("/f").unwrap() == b"x"));
    drop(pools);
    let (since, mut pause) = (Instant::now(), Duration::from_millis(5500));
    while Pool::attach(scratch.pool()).is_ok() {
        // Each look is an attachment, which restarts the idle limit of 5 s. On a busy machine the
        // service needs more time to end.
        assert!(since.elapsed() < SOON, "it goes on for ever");
        std::thread::sleep(pause);
        pause = pause * 3 / 2;
    }
    scratch.check();
}

#[test]
fn systemd_is_told_and_its_socket_is_taken() {
    let scratch = Scratch::new();
    let (path, notify) = (scratch.root().join("activated.sock"), scratch.root().join("notify"));
    let told = UnixDatagram::bind(&notify).unwrap();
    told.set_read_timeout(Some(SOON)).unwrap();
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    // inherited by the child, as no flag says otherwise
    let socket = socket_with(family, kind, SocketFlags::empty(), None).unwrap();
    bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&socket, 8).unwrap();
    let script = format!(
        "exec 3<&{}; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"",
        std::os::fd::AsRawFd::as_raw_fd(&socket)
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_nearside"), "serve"]);
    command.arg(scratch.pool()).arg("--foreground").env("NOTIFY_SOCKET", &notify);
    let mut service = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    // connected before it is ready: it waits
    Pool::attach(&path).unwrap().write("/f", "x").unwrap();
    let says = |words: &str| {
        let mut said = [0; 256];
        let len = told.recv(&mut said).unwrap();
        assert_eq!(std::str::from_utf8(&said[..len]).unwrap().trim_end(), words);
    };
    says("READY=1");
    assert!(!scratch.pool().join(SOCKET).exists());
    let process = nix::unistd::Pid::from_raw(service.id() as i32);
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGTERM).unwrap();
    says("STOPPING=1");
    assert!(service.wait().unwrap().success());
    assert!(path.exists(), "the name is systemd's to take away");
    scratch.check();
}

#[test]
fn a_service_is_replaced_while_processes_come() {
    let scratch = Scratch::new();
    scratch.serve(&[]);
    Pool::attach(scratch.pool()).unwrap().write("/f", "x").unwrap();
    let before = scratch.server();
    let upgraded = scratch.json(&["upgrade", "@pool", "--json"]);
    assert_ne!(upgraded["process"].as_i64().unwrap(), i64::from(before.as_raw()));
    assert_eq!(Pool::attach(scratch.pool()).unwrap().read("/f").unwrap(), b"x");
    scratch.ok(&["stop", "@pool"]);
    scratch.check();
}
