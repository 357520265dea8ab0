//! What a keeper has to cope with while a server is replaced: time that others take, signals, and
//! what somebody else took meanwhile.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Scratch, is_mounted, is_running, wait_until};

/// Begins an upgrade to `program`, or to the program of this test.
fn upgrade(scratch: &Scratch, program: Option<&std::path::Path>) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
    command.arg("upgrade").arg(scratch.mnt());
    if let Some(program) = program {
        command.arg("--program").arg(program);
    }
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for it; gives its exit code and what it complained of.
fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Its port was taken while it was replaced: five servers failed, and the mount was given up.
#[test]
fn a_mount_outlives_its_metrics_and_gets_them_back() {
    let Some(scratch) = Scratch::formatted() else { return };
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (pool, mnt) = (scratch.pool().display().to_string(), scratch.mnt().display().to_string());
    scratch.run_ok(["mount", &pool, &mnt, "--http", &address.to_string()]);
    // Nobody follows the server until its port has been taken.
    let (keeper, server) = (scratch.keeper(), scratch.server());
    kill(keeper, Signal::SIGSTOP).unwrap();
    kill(server, Signal::SIGKILL).unwrap();
    let taken = std::cell::OnceCell::new();
    wait_until("the port is free", || match TcpListener::bind(address) {
        Ok(listener) => taken.set(listener).is_ok(),
        Err(_) => false,
    });
    kill(keeper, Signal::SIGCONT).unwrap();
    std::fs::write(scratch.mnt().join("f"), "served").unwrap();
    assert!(scratch.log().contains("going on, and trying again"), "{}", scratch.log());
    drop(taken);
    wait_until("the metrics are back", || {
        let Ok(mut stream) = TcpStream::connect(address) else { return false };
        let mut page = String::new();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        stream.read_to_string(&mut page).is_ok() && page.contains("nearside_info")
    });
    assert_eq!(scratch.log().matches("another one takes over").count(), 1, "{}", scratch.log());
    scratch.finish();
}

/// The old server has stopped for the next one, so nobody would hear the signal.
#[test]
fn a_signal_during_an_upgrade_ends_the_mount() {
    let Some(scratch) = Scratch::mounted() else { return };
    std::fs::write(scratch.mnt().join("f"), "kept").unwrap();
    let (keeper, server) = (scratch.keeper(), scratch.server());
    kill(server, Signal::SIGSTOP).unwrap();
    let asking = upgrade(&scratch, None);
    wait_until("it is told to stop", || scratch.log().contains("is to stop for the next one"));
    kill(keeper, Signal::SIGSTOP).unwrap();
    kill(server, Signal::SIGCONT).unwrap();
    wait_until("it has stopped", || !is_running(server));
    kill(keeper, Signal::SIGTERM).unwrap();
    kill(keeper, Signal::SIGCONT).unwrap();
    wait_until("the keeper has gone", || !is_running(keeper));
    assert!(!is_mounted(&scratch.mnt()));
    assert_eq!(scratch.end(), "closed", "{}", scratch.log());
    let (code, said) = ended(asking);
    assert_eq!(code, Some(0), "{said}");
    scratch.mount();
    assert_eq!(std::fs::read(scratch.mnt().join("f")).unwrap(), b"kept");
    scratch.finish();
}

/// The keeper waited for the program, so a server that died meanwhile was missed for 10 s.
#[test]
fn a_program_that_takes_its_time_leaves_the_mount_guarded() {
    let Some(scratch) = Scratch::mounted() else { return };
    let (program, said) = (scratch.root().join("slow"), scratch.root().join("process"));
    let script = format!("#!/bin/sh\necho $$ > {0}.new\nmv {0}.new {0}\nexec sleep 600\n", {
        said.display()
    });
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let asking = upgrade(&scratch, Some(&program));
    wait_until("the program runs", || said.exists());
    let process = std::fs::read_to_string(&said).unwrap();
    let process = Pid::from_raw(process.trim().parse().unwrap());
    kill(scratch.server(), Signal::SIGKILL).unwrap();
    std::fs::write(scratch.mnt().join("f"), "served").unwrap();
    scratch.umount();
    let (code, said) = ended(asking);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("not upgraded: the mount has ended"), "{said}");
    assert!(!is_running(process));
    let log = scratch.log();
    let (died, refused) = (log.find("another one takes over"), log.find("no upgrade"));
    assert!(died.is_some() && died < refused, "{log}");
    scratch.mount();
    scratch.finish();
}

/// How often a process has waited for something.
fn waits(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.map_or(u64::MAX, |count| count.trim().parse().unwrap())
}

#[test]
fn whoever_asks_while_the_server_is_replaced_is_answered_by_the_next() {
    let Some(scratch) = Scratch::mounted() else { return };
    let (keeper, server) = (scratch.keeper(), scratch.server());
    kill(keeper, Signal::SIGSTOP).unwrap();
    kill(server, Signal::SIGKILL).unwrap();
    wait_until("nobody serves", || !is_running(server));
    let mut stats = Command::new(env!("CARGO_BIN_EXE_nearside"));
    stats.arg("stats").arg(scratch.mnt()).arg("--json");
    let stats = stats.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It has tried in vain, and again.
    wait_until("it waits", || waits(stats.id()) > 10);
    kill(keeper, Signal::SIGCONT).unwrap();
    let output = stats.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let sample: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    wait_until("the next one is named", || scratch.server() != server);
    assert_eq!(sample["process"], scratch.server().as_raw());
    scratch.finish();
}

/// Files that a process has open, by name.
fn opened_by(process: Pid) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.map(|target| target.display().to_string()).collect()
}

#[test]
fn a_mount_keeps_nothing_open_that_its_starter_had() {
    let Some(scratch) = Scratch::formatted() else { return };
    let secret = scratch.root().join("secret");
    std::fs::write(&secret, "").unwrap();
    let log = scratch.pool().join("nearside.log");
    std::fs::write(&log, vec![b'\n'; 2 << 20]).unwrap();
    let script = "exec 7<>\"$4\" 9<\"$4\" 250<\"$4\"; exec \"$1\" mount \"$2\" \"$3\"";
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash", env!("CARGO_BIN_EXE_nearside")]);
    let status = command.arg(scratch.pool()).arg(scratch.mnt()).arg(&secret).status().unwrap();
    assert!(status.success());
    // neither the first server nor the next one
    for _ in 0..2 {
        scratch.await_ready();
        let (keeper, server) = (scratch.keeper(), scratch.server());
        for process in [keeper, server] {
            let opened = opened_by(process);
            assert!(!opened.iter().any(|file| file.ends_with("/secret")), "{opened:?}");
            assert!(opened.iter().any(|file| file.ends_with("/nearside.log")), "{opened:?}");
        }
        scratch.let_serve(|| scratch.server_now());
        kill(server, Signal::SIGKILL).unwrap();
        wait_until("the next server", || scratch.server_now().is_some_and(|now| now != server));
    }
    assert!(std::fs::metadata(&log).unwrap().len() < 1 << 20, "a log begins anew once it is long");
    assert_eq!(std::fs::metadata(scratch.pool().join("nearside.log.1")).unwrap().len(), 2 << 20);
    scratch.finish();
}
