//! What calls of the library do in a process that is attached: the same as where it has the pool
//! open, by the same cases.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../../../nearside/tests/paths/cases.rs"]
mod cases;
#[path = "../../../nearside/tests/paths/locks.rs"]
mod locks;
#[path = "../../../nearside/tests/paths/regions.rs"]
mod regions;
mod scratch;

fn attach(dir: &std::path::Path, _service: &mut server::Service) -> nearside::Pool {
    nearside::Pool::attach(dir).unwrap()
}

/// Fabrics that are offered.
fn fabrics() -> Vec<wire::Provider> {
    Vec::new()
}
