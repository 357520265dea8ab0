//! The same programs where a service has the pool, to which they attach: on this machine, and over
//! a network.

use crate::support::{compiled, formatted, run, run_with, said, scratch};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A pool that is served.
struct Served {
    dir: PathBuf,
    /// Where programs attach.
    place: PathBuf,
    owned: Arc<engine::Pool>,
    service: server::Service,
}

impl Served {
    fn new(scratch: &Path) -> Served {
        let dir = formatted(scratch);
        let owned = Arc::new(engine::Pool::open(&dir).unwrap());
        let door = server::Door::open(&dir.join(engine::ATTACH_SOCKET), 0o600).unwrap();
        let options = server::Options { lanes: Some(dir.clone()), ..server::Options::default() };
        let service = server::Service::start(owned.clone(), door, &options).unwrap();
        Served { place: dir.clone(), dir, owned, service }
    }

    /// The same, to which programs attach over a network.
    fn on_a_network(scratch: &Path) -> Served {
        let mut served = Served::new(scratch);
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        served.place = format!("near+insecure://{}", door.local_addr().unwrap()).into();
        // of the program's own user
        let root = *served.owned.metadata("/").unwrap().attr();
        served.service.listen(door, server::Rights::new(root.uid, root.gid)).unwrap();
        served
    }

    /// Nothing is left of those who were attached, and what is stored is whole.
    fn finish(self) {
        let Served { dir, owned, service, .. } = self;
        let until = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while service.sessions() > 0 && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!((service.sessions(), service.copied_bytes()), (0, 0));
        drop(service);
        owned.close().unwrap();
        drop(owned);
        let report = engine::check(&dir).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

#[test]
fn every_call_does_what_its_header_says() {
    let scratch = scratch();
    every_call(scratch.path(), Served::new(scratch.path()));
}

#[test]
fn every_call_does_what_its_header_says_over_a_network() {
    let scratch = scratch();
    every_call(scratch.path(), Served::on_a_network(scratch.path()));
}

fn every_call(scratch: &Path, served: Served) {
    let program = compiled("api", scratch);
    said(&run_with(&program, &[&served.place, Path::new("attached")], None), "fine\n");
    served.finish();
}

#[test]
fn the_decks_example_runs_as_it_is_printed_beside_who_has_the_pool() {
    let scratch = scratch();
    the_decks_example(scratch.path(), Served::new(scratch.path()));
}

#[test]
fn the_decks_example_runs_as_it_is_printed_over_a_network() {
    let scratch = scratch();
    the_decks_example(scratch.path(), Served::on_a_network(scratch.path()));
}

fn the_decks_example(scratch: &Path, served: Served) {
    let program = compiled("deck", scratch);
    said(&run(&program, None, Some(&served.place)), "0 0\n1 2\n");
    let file = served.owned.open_file("/deck", &engine::OpenFlags::new().read(true)).unwrap();
    let region = served.owned.map(&file, 0, 4096).unwrap();
    assert_eq!((region.get::<u32>(0).unwrap(), region.get::<u32>(16).unwrap()), (1, 2));
    said(&run(&program, None, Some(&served.place)), "1 2\n1 2\n");
    drop((region, file));
    served.finish();
}

#[test]
fn what_is_used_wrongly_is_refused() {
    let scratch = scratch();
    wrong_use(scratch.path(), Served::new(scratch.path()));
}

#[test]
fn what_is_used_wrongly_is_refused_over_a_network() {
    let scratch = scratch();
    wrong_use(scratch.path(), Served::on_a_network(scratch.path()));
}

fn wrong_use(scratch: &Path, served: Served) {
    let program = compiled("nv_edges", scratch);
    said(&run(&program, None, Some(&served.place)), "fine\n");
    let pool = &served.owned;
    assert!(pool.exists("/file").unwrap() && !pool.exists("/refused").unwrap());
    served.finish();
}

#[test]
fn a_forked_child_is_refused_and_harms_nobody() {
    let scratch = scratch();
    a_forked_child(scratch.path(), Served::new(scratch.path()));
}

#[test]
fn a_forked_child_is_refused_and_harms_nobody_over_a_network() {
    let scratch = scratch();
    a_forked_child(scratch.path(), Served::on_a_network(scratch.path()));
}

fn a_forked_child(scratch: &Path, served: Served) {
    let program = compiled("forked", scratch);
    said(&run_with(&program, &[&served.place, &scratch.join("child")], None), "fine\n");
    served.finish();
}

/// Through both headers, which are two attachments of one process.
#[test]
fn threads_have_many_transactions_at_once() {
    let scratch = scratch();
    threads(scratch.path(), Served::new(scratch.path()));
}

#[test]
fn threads_have_many_transactions_at_once_over_a_network() {
    let scratch = scratch();
    threads(scratch.path(), Served::on_a_network(scratch.path()));
}

fn threads(scratch: &Path, served: Served) {
    let program = compiled("threads", scratch);
    let arguments = [&served.place, Path::new("attached")];
    said(&run_with(&program, &arguments, Some(&served.place)), "fine\n");
    served.finish();
}

#[test]
fn a_mode_is_permission_bits_and_what_nv_h_adds() {
    let scratch = scratch();
    modes(scratch.path(), Served::new(scratch.path()));
}

#[test]
fn a_mode_is_permission_bits_and_what_nv_h_adds_over_a_network() {
    let scratch = scratch();
    modes(scratch.path(), Served::on_a_network(scratch.path()));
}

fn modes(scratch: &Path, served: Served) {
    let program = compiled("nv_modes", scratch);
    said(&run(&program, None, Some(&served.place)), "fine\n");
    for (name, mode) in [("/private", 0o640), ("/shared", 0o604), ("/set-id", 0o4711)] {
        assert_eq!(served.owned.metadata(name).unwrap().mode(), mode, "{name}");
    }
    served.finish();
}
