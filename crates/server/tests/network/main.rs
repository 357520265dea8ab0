//! What comes over a network: calls of the library do there what they do where a process has the
//! pool open, by the same cases; and peers that are slow, silent or hostile hold nobody up.

#![allow(missing_docs, clippy::unwrap_used)]

use std::net::TcpListener;
use std::path::Path;

use nearside::{AttachOptions, Pool};
use server::{Rights, Service};

#[path = "../../../nearside/tests/paths/cases.rs"]
mod cases;
mod grace;
#[path = "../../../nearside/tests/paths/locks.rs"]
mod locks;
mod losses;
mod mapped;
mod memory;
mod near;
mod ordered;
mod peers;
#[path = "../../../nearside/tests/paths/regions.rs"]
mod regions;
#[path = "../library/scratch.rs"]
mod scratch;
mod served;
#[path = "../library/two_nodes.rs"]
mod two_nodes;
mod watchers;
mod wire_cutter;

fn attach(dir: &Path, service: &mut Service) -> Pool {
    Pool::attach(listen(dir, service)).unwrap()
}

/// As what one attaches.
fn options(_dir: &Path) -> AttachOptions {
    AttachOptions::default()
}

/// Has it listen; where.
fn listen(_dir: &Path, service: &mut Service) -> String {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = door.local_addr().unwrap();
    let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    service.listen(door, Rights::new(user.0, user.1)).unwrap();
    format!("near+insecure://{address}")
}

/// Fabrics that are offered.
fn fabrics() -> Vec<wire::Provider> {
    Vec::new()
}
