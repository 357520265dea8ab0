//! The control socket: who may ask, what is refused, and that nothing stops the server.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{SOON, Scratch, binary, ok, run};

const SOCKET: &str = "nearside.sock";
/// More than the server holds at once.
const IDLE: usize = 200;

fn connect(pool: &Path) -> UnixStream {
    // A path that is short, wherever the test's directory lies.
    let dir = std::fs::File::open(pool).unwrap();
    let path = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// What the server says to these bytes until it hangs up, or for a line.
fn says(pool: &Path, bytes: &[u8]) -> String {
    let mut stream = connect(pool);
    // It may hang up before it has heard all.
    let _ = stream.write_all(bytes);
    let mut said = Vec::new();
    let mut piece = [0; 4096];
    while !said.contains(&b'\n') {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(bytes) => said.extend_from_slice(&piece[..bytes]),
        }
    }
    String::from_utf8(said).unwrap()
}

fn descriptors(process: nix::unistd::Pid) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

#[test]
fn questions_are_answered_as_the_protocol_says() {
    let Some(scratch) = Scratch::mounted() else { return };
    let pool = scratch.pool();
    let meta = std::fs::symlink_metadata(pool.join(SOCKET)).unwrap();
    assert!(meta.file_type().is_socket() && meta.mode() & 0o777 == 0o600, "{meta:?}");
    let said = says(&pool, b"{\"nearside\":1,\"ask\":\"facts\"}\n");
    let facts: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(facts["nearside"], 1);
    assert_eq!(facts["done"]["slices"].as_array().unwrap().len(), 2);
    // Two questions at once, and one in two parts.
    let mut stream = connect(&pool);
    stream
        .write_all(b"{\"nearside\":1,\"ask\":\"created\",\"inode\":1}\n{\"nearside\":1,")
        .unwrap();
    stream.write_all(b"\"ask\":\"created\",\"inode\":999}\n").unwrap();
    let mut said = String::new();
    let mut piece = [0; 4096];
    while said.lines().count() < 2 || !said.ends_with('\n') {
        let bytes = stream.read(&mut piece).unwrap();
        said.push_str(std::str::from_utf8(&piece[..bytes]).unwrap());
    }
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("{\"nearside\":1,\"done\":1"), "{said}");
    assert_eq!(lines[1], "{\"nearside\":1,\"done\":null}");
    drop(stream);
    scratch.umount();
    assert!(!pool.join(SOCKET).exists(), "it goes with the server");
}

#[test]
fn hostile_bytes_are_refused_and_the_server_goes_on() {
    let Some(scratch) = Scratch::mounted() else { return };
    let pool = scratch.pool();
    let noise = binary(1 << 20);
    let long = vec![b' '; 1 << 20];
    let deep = [vec![b'['; 60_000], b"\n".to_vec()].concat();
    let half = b"{\"nearside\":1,\"ask\":\"fac".to_vec();
    for bytes in
        [noise.as_slice(), &long, &deep, b"\n", b"\0\n", b"{}\n", b"GET / HTTP/1.1\r\n\r\n"]
    {
        let said = says(&pool, bytes);
        assert!(said.is_empty() || said.contains("\"failed\""), "{said}");
    }
    let other = says(&pool, b"{\"nearside\":9,\"ask\":\"facts\"}\n");
    assert!(other.contains("version 9"), "{other}");
    for _ in 0..50 {
        connect(&pool).write_all(&half).unwrap();
        drop(connect(&pool));
    }
    scratch.ok(&["info", &pool.display().to_string()]);
    std::fs::write(scratch.mnt().join("f"), "served").unwrap();
    scratch.umount();
}

#[test]
fn idle_connections_are_bounded_and_keep_nobody_out() {
    let Some(scratch) = Scratch::mounted() else { return };
    let pool = scratch.pool();
    let pool_text = pool.display().to_string();
    scratch.ok(&["info", &pool_text]);
    let before = descriptors(scratch.server());
    let idle: Vec<UnixStream> = (0..IDLE)
        .map(|n| {
            let mut stream = connect(&pool);
            if n % 2 == 0 {
                // The server may have hung up on it already, for a later one.
                let _ = stream.write_all(b"{\"nearside\"");
            }
            stream
        })
        .collect();
    scratch.ok(&["info", &pool_text]);
    let held = descriptors(scratch.server()) - before;
    assert!((1..=64).contains(&held), "{held}");
    scratch.ok(&["df", &pool_text]);
    drop(idle);
    scratch.umount();
}

#[test]
fn only_the_owner_and_root_are_heard() {
    let Some(scratch) = Scratch::mounted() else { return };
    let pool = scratch.pool();
    for dir in [scratch.root(), &pool] {
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
    }
    // Others may not come to where it was built.
    std::fs::copy(env!("CARGO_BIN_EXE_nearside"), scratch.root().join("nearside")).unwrap();
    let as_other = || {
        let mut info = Command::new(scratch.root().join("nearside"));
        info.arg("info").arg(&pool).uid(65_534).gid(65_534).output().unwrap()
    };
    let output = as_other();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("only the pool's owner and root"), "{said}");
    // A socket that lets everybody in: the server looks who it is.
    std::fs::set_permissions(pool.join(SOCKET), PermissionsExt::from_mode(0o666)).unwrap();
    let output = as_other();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    scratch.umount();
    // The pool's owner, served by root.
    std::os::unix::fs::chown(&pool, Some(65_534), Some(65_534)).unwrap();
    let mnt = scratch.mnt().as_os_str();
    ok(run(["mount".as_ref(), pool.as_os_str(), mnt]));
    let output = as_other();
    assert!(output.status.success(), "{output:?}");
    scratch.umount();
}

#[test]
fn what_a_dead_server_left_is_replaced() {
    let Some(scratch) = Scratch::mounted() else { return };
    let pool = scratch.pool();
    scratch.kill_both();
    let mnt = scratch.mnt().as_os_str();
    ok_or_said(run(["mount".as_ref(), pool.as_os_str(), mnt]));
    assert!(pool.join(SOCKET).exists());
    scratch.ok(&["info", &pool.display().to_string()]);
    scratch.umount();
}

/// It says that it clears the dead mount.
fn ok_or_said(output: std::process::Output) {
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_pool_at_the_end_of_a_long_path_answers() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.umount();
    let long: PathBuf = scratch.root().join("long".repeat(50)).join("way");
    std::fs::create_dir_all(&long).unwrap();
    let pool = long.join("pool");
    std::fs::rename(scratch.pool(), &pool).unwrap();
    let mnt = scratch.mnt().as_os_str();
    ok(run(["mount".as_ref(), pool.as_os_str(), mnt]));
    let info = ok(run(["info".as_ref(), pool.as_os_str(), "--json".as_ref()]));
    let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(info["domain"], "process");
    scratch.umount();
    assert!(!pool.join(SOCKET).exists());
}

#[test]
fn a_file_of_the_sockets_name_costs_the_socket_only() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.umount();
    let pool = scratch.pool();
    std::fs::write(pool.join(SOCKET), "mine").unwrap();
    ok(run(["mount".as_ref(), pool.as_os_str(), scratch.mnt().as_os_str()]));
    std::fs::write(scratch.mnt().join("f"), "x").unwrap();
    scratch.fails(&["info", &pool.display().to_string()], 1, &["no socket", "move it away"]);
    assert!(std::fs::read_to_string(pool.join("nearside.log")).unwrap().contains("no socket"));
    // Verbs on files need no socket; only the time of creation is missing.
    let about = scratch.json(&["stat", "--json", ":/f"]);
    assert!(about["bytes"] == 1 && about.get("created").is_none(), "{about}");
    scratch.umount();
    assert_eq!(std::fs::read(pool.join(SOCKET)).unwrap(), b"mine");
}
