//! `nearside serve --listen`: a pool that programs use over a network.

use std::net::TcpListener;

use nearside::{OpenFlags, Pool};
use nix::sys::signal::{Signal, kill};

use crate::support::Scratch;

const NOBODY: u32 = 65_534;

fn log(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.pool().join("nearside.log")).unwrap()
}

/// Serves the pool at a port that the kernel chooses; gives its address.
fn listen(scratch: &Scratch, more: &[&str]) -> String {
    scratch.serve(&[&["--listen", "127.0.0.1:0", "--insecure"], more].concat());
    let log = log(scratch);
    let said = log.split("listening at ").nth(1).unwrap();
    format!("near://{}", said.split_whitespace().next().unwrap())
}

#[test]
fn who_comes_over_the_network_has_nobodys_rights() {
    let scratch = Scratch::new();
    let address = listen(&scratch, &[]);
    let (own, remote) = (Pool::attach(scratch.pool()).unwrap(), Pool::attach(&address).unwrap());
    own.write("/secret", "x").unwrap();
    own.set_permissions("/secret", 0o600).unwrap();
    own.create_dir("/open").unwrap();
    own.set_permissions("/open", 0o777).unwrap();
    remote.write("/open/theirs", "of another machine").unwrap();
    assert_eq!(own.read("/open/theirs").unwrap(), b"of another machine");
    let owner = *own.metadata("/open/theirs").unwrap().attr();
    assert_eq!((owner.uid, owner.gid), (NOBODY, NOBODY));
    for error in [remote.read("/secret").unwrap_err(), remote.write("/new", "").unwrap_err()] {
        assert_eq!(error.errno(), libc::EACCES, "{error}");
    }
    drop((own, remote));
    scratch.ok(&["stop", "@pool"]);
    let error = Pool::attach(&address).unwrap_err().to_string();
    assert!(error.contains("no service"), "{error}");
    scratch.check();
}

#[test]
fn the_port_stays_while_services_are_killed_and_replaced() {
    let scratch = Scratch::new();
    let address = listen(&scratch, &["--listen-as", "0:0"]);
    let remote = Pool::attach(&address).unwrap();
    let flags = OpenFlags::new().read(true).append(true).create(true);
    let log = remote.open_file("/log", &flags).unwrap();
    for round in 0..6u8 {
        log.append(&[round]).unwrap();
        match round % 2 {
            0 => kill(scratch.server(), Signal::SIGKILL).unwrap(),
            _ => drop(scratch.json(&["upgrade", "@pool", "--json"])),
        }
        // whoever comes meanwhile waits for the next one
        let other = Pool::attach(&address).unwrap();
        assert_eq!(other.read("/log").unwrap(), (0..=round).collect::<Vec<_>>());
    }
    drop((log, remote));
    scratch.ok(&["stop", "@pool"]);
    scratch.check();
}

#[test]
fn what_cannot_be_listened_at_is_said_and_nothing_is_served() {
    let scratch = Scratch::new();
    let careless = ["serve", "@pool", "--listen", "0.0.0.0:0", "--insecure"];
    scratch.fails(&careless, 1, &["nothing is encrypted", "--trust-network"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    scratch.fails(
        &["serve", "@pool", "--listen", &port, "--insecure"],
        1,
        &["cannot listen", &port],
    );
    scratch.fails(&["serve", "@pool", "--listen", "127.0.0.1"], 2, &["--insecure"]);
    scratch.fails(
        &["serve", "@pool", "--listen", "no such host", "--insecure"],
        2,
        &["no such host"],
    );
    // where one trusts it
    scratch.serve(&["--listen=0.0.0.0:0", "--insecure", "--trust-network"]);
    let log = log(&scratch);
    assert!(log.contains("nothing is encrypted: whoever reaches 0.0.0.0:"), "{log}");
    scratch.ok(&["stop", "@pool"]);
    scratch.check();
}
