//! What comes by a fabric, beside a connection with TLS: calls of the library do there what they do
//! anywhere, by the same cases; who is killed is missed at once; and who is slow or hostile holds
//! nobody up.
//!
//! NEARSIDE_FABRIC says which kind, if it is not to be `tcp`; NEARSIDE_FABRIC_HOST the address of
//! this machine, if it is not to be 127.0.0.1.

#![cfg(feature = "fabric")]
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;

use nearside::{AttachOptions, Pool};
use rcgen::ExtendedKeyUsagePurpose;
use server::{Rights, Secured, Service};
use wire::Provider;

#[expect(dead_code, reason = "others need more of it")]
#[path = "../secured/authority.rs"]
mod authority;
#[path = "../../../nearside/tests/paths/cases.rs"]
mod cases;
#[expect(dead_code, reason = "others need more of it")]
#[path = "../service/child.rs"]
mod child;
mod fabrics;
#[path = "../../../nearside/tests/paths/locks.rs"]
mod locks;
#[path = "../network/losses.rs"]
mod losses;
#[path = "../network/mapped.rs"]
mod mapped;
mod peer;
#[path = "../../../nearside/tests/paths/regions.rs"]
mod regions;
#[path = "../library/scratch.rs"]
mod scratch;
#[path = "../network/served.rs"]
mod served;
#[path = "../network/wire_cutter.rs"]
mod wire_cutter;

/// What the tests go by.
fn provider() -> Provider {
    std::env::var("NEARSIDE_FABRIC").map_or(Provider::Tcp, |name| name.parse().unwrap())
}

/// The address of this machine.
fn here() -> IpAddr {
    let host = std::env::var("NEARSIDE_FABRIC_HOST").map(|host| host.parse().unwrap());
    host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Fabrics that are offered.
fn fabrics() -> Vec<Provider> {
    vec![provider()]
}

fn attach(dir: &Path, service: &mut Service) -> Pool {
    Pool::attach_with(listen(dir, service), &options(dir)).unwrap()
}

/// As what one attaches who may do everything.
fn options(dir: &Path) -> AttachOptions {
    AttachOptions { credentials: Some(dir.join("own")), ..AttachOptions::default() }
}

fn user() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Has it listen; where. Credentials of both sides are below the pool's directory.
fn listen(dir: &Path, service: &mut Service) -> String {
    let authority = authority::Authority::new();
    let usage = ExtendedKeyUsagePurpose::ServerAuth;
    let host = here().to_string();
    let names = [host.as_str()];
    let wanted = authority::Wanted { usage, ..authority::program(&names, 1) };
    authority.certify(&wanted, &dir.join("server"));
    authority.program("own", &dir.join("own"));
    let (user, group) = user();
    std::fs::write(dir.join("server/access"), format!("own {user}:{group}\n")).unwrap();
    let door = TcpListener::bind((here(), 0)).unwrap();
    let address = door.local_addr().unwrap();
    let secured = Secured { credentials: dir.join("server"), access: None };
    service.listen_secured(door, secured).unwrap();
    format!("near+fabric-{}://{address}", provider())
}

/// The same where nothing is encrypted.
fn listen_insecure(service: &mut Service) -> String {
    let door = TcpListener::bind((here(), 0)).unwrap();
    let address = door.local_addr().unwrap();
    let (user, group) = user();
    service.listen(door, Rights::new(user, group)).unwrap();
    format!("near+insecure+fabric-{}://{address}", provider())
}
