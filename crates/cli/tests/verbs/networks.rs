//! `nearside serve --listen`: a pool that programs use over a network.

use std::net::TcpListener;

use nearside::{AttachOptions, OpenFlags, Pool};
use nix::sys::signal::{Signal, kill};

use crate::support::{SOON, Scratch};

const NOBODY: u32 = 65_534;

fn log(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.pool().join("nearside.log")).unwrap()
}

/// Serves the pool at a port that the kernel chooses; gives its address.
fn listen(scratch: &Scratch, more: &[&str]) -> String {
    scratch.serve(&[&["--listen", "127.0.0.1:0", "--insecure"], more].concat());
    let log = log(scratch);
    let said = log.split("listening at ").nth(1).unwrap();
    format!("near+insecure://{}", said.split_whitespace().next().unwrap())
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

/// Makes credentials beside the pool, with more arguments; what was said.
fn certify(scratch: &Scratch, more: &[&str]) -> String {
    scratch.ok(&[&["cert", "@certificates"], more].concat())
}

/// Serves the pool by certificate.
fn listen_secured(scratch: &Scratch) -> String {
    let credentials = scratch.root().join("certificates/server");
    let credentials = credentials.to_str().unwrap();
    scratch.serve(&["--listen", "127.0.0.1:0", "--credentials", credentials]);
    let log = log(scratch);
    let said = log.split("listening at ").nth(1).unwrap();
    format!("near://{}", said.split_whitespace().next().unwrap())
}

fn attach_as(scratch: &Scratch, name: &str, address: &str) -> nearside::Result<Pool> {
    let credentials = Some(scratch.root().join("certificates/clients").join(name));
    Pool::attach_with(address, &AttachOptions { credentials, ..AttachOptions::default() })
}

#[test]
fn one_command_makes_certificates_by_which_services_that_are_killed_and_replaced_know_programs() {
    let scratch = Scratch::new();
    let said = certify(&scratch, &["--client", "ann"]);
    for words in ["clients/ann: a program", "nearside serve POOL", "nearside mount near://"] {
        assert!(said.contains(words), "{said}");
    }
    let address = listen_secured(&scratch);
    let remote = attach_as(&scratch, "ann", &address).unwrap();
    let flags = OpenFlags::new().read(true).append(true).create(true);
    let file = remote.open_file("/log", &flags).unwrap();
    for round in 0..4u8 {
        file.append(&[round]).unwrap();
        match round % 2 {
            0 => kill(scratch.server(), Signal::SIGKILL).unwrap(),
            _ => drop(scratch.json(&["upgrade", "@pool", "--json"])),
        }
        let other = attach_as(&scratch, "ann", &address).unwrap();
        assert_eq!(other.read("/log").unwrap(), (0..=round).collect::<Vec<_>>());
    }
    let own = Pool::attach(scratch.pool()).unwrap();
    let owner = *own.metadata("/log").unwrap().attr();
    assert_eq!(owner.uid, nix::unistd::geteuid().as_raw());
    // nothing goes by without a certificate
    let plain = address.replace("near://", "near+insecure://");
    let error = Pool::attach(&plain).unwrap_err().to_string();
    assert!(error.contains("speaks TLS"), "{error}");
    drop((file, remote, own));
    scratch.ok(&["stop", "@pool"]);
    scratch.check();
}

#[test]
fn who_is_added_comes_in_and_who_is_revoked_goes_while_the_service_runs() {
    let scratch = Scratch::new();
    certify(&scratch, &["--client", "ann"]);
    let address = listen_secured(&scratch);
    let ann = attach_as(&scratch, "ann", &address).unwrap();
    ann.set_permissions("/", 0o777).unwrap();
    let said = certify(&scratch, &["--client", "ben"]);
    assert!(said.contains("ben: add a line to") && !said.contains("nearside serve"), "{said}");
    let error = attach_as(&scratch, "ben", &address).unwrap_err().to_string();
    assert!(error.contains("no line for ben"), "{error}");
    let access = scratch.root().join("certificates/server/access");
    let lines = std::fs::read_to_string(&access).unwrap() + "ben 4000:4000 read-only\n";
    std::fs::write(&access, lines).unwrap();
    let ben = attach_as(&scratch, "ben", &address).unwrap();
    ann.write("/file", "x").unwrap();
    assert_eq!(ben.read("/file").unwrap(), b"x");
    assert_eq!(ben.write("/file", "y").unwrap_err().errno(), libc::EROFS);
    let said = certify(&scratch, &["--revoke", "ben"]);
    assert!(said.contains("ben: revoked"), "{said}");
    let until = std::time::Instant::now() + SOON;
    let error = loop {
        match ben.metadata("/") {
            Err(error) => break error.to_string(),
            Ok(_) => assert!(std::time::Instant::now() < until, "he still is let in"),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert!(error.contains("is revoked"), "{error}");
    assert!(log(&scratch).contains("it is sent away: the program's certificate is revoked"));
    assert!(log(&scratch).contains("who came from 127.0.0.1:"));
    // a new one is not the old one
    certify(&scratch, &["--client", "ben"]);
    let again = attach_as(&scratch, "ben", &address).unwrap();
    assert_eq!(again.read("/file").unwrap(), b"x");
    ann.metadata("/").unwrap();
    drop((ann, ben, again));
    scratch.ok(&["stop", "@pool"]);
    scratch.check();
}

#[test]
fn credentials_that_are_of_no_use_are_said_and_nothing_is_served() {
    let scratch = Scratch::new();
    let serve = |words: &[&str]| {
        let dir = scratch.root().join("certificates/server");
        let dir = dir.to_str().unwrap();
        let listen = ["serve", "@pool", "--listen", "127.0.0.1:0", "--credentials", dir];
        scratch.fails(&listen, 1, words);
    };
    serve(&["certificates/server/ca.pem", "No such file"]);
    certify(&scratch, &["--client", "ann", "--server", "near.example"]);
    let at = |name: &str| scratch.root().join("certificates/server").join(name);
    let access = std::fs::read_to_string(at("access")).unwrap();
    std::fs::write(at("access"), access.clone() + "\nann 1\n").unwrap();
    serve(&["server/access, line 5: 1: say UID:GID"]);
    std::fs::write(at("access"), access).unwrap();
    let modes = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(at("key.pem"), modes(0o604)).unwrap();
    serve(&["server/key.pem", "others can read this private key"]);
    std::fs::set_permissions(at("key.pem"), modes(0o600)).unwrap();
    std::fs::copy(scratch.root().join("certificates/clients/ann/key.pem"), at("key.pem")).unwrap();
    serve(&["server/cert.pem"]);
    // and of `cert` itself
    scratch.fails(&["cert", "@certificates"], 1, &["there are certificates already"]);
    scratch.fails(&["cert", "@certificates", "--revoke", "eve"], 1, &["no certificate of eve"]);
    scratch.fails(&["cert", "@certificates", "--client", "*"], 2, &["letters, digits and hyphens"]);
    certify(&scratch, &["--server", "127.0.0.1"]);
    let address = listen_secured(&scratch);
    drop(attach_as(&scratch, "ann", &address).unwrap());
    let mode = |path: &str| {
        let found = std::fs::metadata(scratch.root().join("certificates").join(path)).unwrap();
        std::os::unix::fs::MetadataExt::mode(&found) & 0o777
    };
    for key in ["ca/key.pem", "server/key.pem", "clients/ann/key.pem"] {
        assert_eq!(mode(key), 0o600, "{key}");
    }
    assert_eq!(mode("ca"), 0o700);
    scratch.ok(&["stop", "@pool"]);
    scratch.check();
}
