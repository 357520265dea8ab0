//! What comes over a network: calls of the library do there what they do where a process has the
//! pool open, by the same cases; and peers that are slow, silent or hostile hold nobody up.

#![allow(missing_docs, clippy::unwrap_used)]

use std::net::TcpListener;
use std::path::Path;

use nearside::Pool;
use server::Service;

#[path = "../../../nearside/tests/paths/cases.rs"]
mod cases;
#[path = "../../../nearside/tests/paths/locks.rs"]
mod locks;
mod losses;
mod peers;
#[path = "../library/scratch.rs"]
mod scratch;
mod served;
mod wire_cutter;

fn attach(_dir: &Path, service: &mut Service) -> Pool {
    Pool::attach(listen(service)).unwrap()
}

/// Has it listen; where.
fn listen(service: &mut Service) -> String {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = door.local_addr().unwrap();
    let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    service.listen(door, user).unwrap();
    format!("near://{address}")
}
