//! What comes over a network encrypted, from those who show certificates: calls of the library do
//! there what they do anywhere, by the same cases; who may not come is told why; and who comes sees
//! and changes no more than its line in the access file says.

#![allow(missing_docs, clippy::unwrap_used)]

use std::net::TcpListener;
use std::path::Path;

use nearside::{AttachOptions, Pool};
use server::{Secured, Service};

mod authority;
#[path = "../../../nearside/tests/paths/cases.rs"]
mod cases;
mod exports;
mod floods;
#[path = "../../../nearside/tests/paths/locks.rs"]
mod locks;
#[path = "../network/losses.rs"]
mod losses;
#[path = "../network/mapped.rs"]
mod mapped;
#[path = "../network/ordered.rs"]
mod ordered;
mod peer;
#[path = "../../../nearside/tests/paths/regions.rs"]
mod regions;
#[path = "../library/scratch.rs"]
mod scratch;
#[path = "../network/served.rs"]
mod served;
mod slow;
mod trust;
mod turns;
#[path = "../network/wire_cutter.rs"]
mod wire_cutter;

fn attach(dir: &Path, service: &mut Service) -> Pool {
    Pool::attach_with(listen(dir, service), &options(dir)).unwrap()
}

/// As what one attaches who may do everything.
fn options(dir: &Path) -> AttachOptions {
    AttachOptions { credentials: Some(dir.join("own")), ..AttachOptions::default() }
}

/// Has it listen; where. Credentials of all sides, and the access file, are below the pool's
/// directory.
fn listen(dir: &Path, service: &mut Service) -> String {
    let authority = authority::Authority::new();
    authority.service(&dir.join("server"));
    authority.program("own", &dir.join("own"));
    let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    std::fs::write(dir.join("server/access"), format!("own {}:{}\n", user.0, user.1)).unwrap();
    authority.keep(&dir.join("authority"));
    listen_as_it_is(dir, service)
}

/// The same, by the files that are there.
fn listen_as_it_is(dir: &Path, service: &mut Service) -> String {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = door.local_addr().unwrap();
    let secured = Secured { credentials: dir.join("server"), access: None };
    service.listen_secured(door, secured).unwrap();
    format!("near://{address}")
}

/// Fabrics that are offered.
fn fabrics() -> Vec<wire::Provider> {
    Vec::new()
}
