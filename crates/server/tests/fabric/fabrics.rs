//! What is a fabric's own: peers that are killed, slow or hostile, many at once, and what is said
//! where there is none.

use std::time::Duration;

use nearside::{AttachOptions, LockKind, OpenFlags, Pool};
use wire::{DATA_BYTES_MAX, FabricPlace, Provider, Request, Welcome};

use crate::child::{self, Running};
use crate::peer::{self, Peer};
use crate::served::{Served, resident};

fn reading_and_writing() -> OpenFlags {
    OpenFlags::new().read(true).write(true).create(true)
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(seed + 7) >> 3) as u8).collect()
}

#[test]
fn many_clients_write_much_at_once() {
    const CLIENTS: usize = 8;
    let served = Served::new();
    let pools: Vec<Pool> = (0..CLIENTS).map(|_| served.attach()).collect();
    std::thread::scope(|threads| {
        for (client, pool) in pools.into_iter().enumerate() {
            threads.spawn(move || {
                let file = pool.open_file(format!("/{client}"), &reading_and_writing()).unwrap();
                for step in 0..6 {
                    let len = [1, 4096, 50_000, DATA_BYTES_MAX, 3 << 20][(client + step) % 5];
                    let bytes = pattern(100 * client + step, len);
                    file.write_all_at(&bytes, 10).unwrap();
                    let mut seen = vec![0; len];
                    file.read_exact_at(&mut seen, 10).unwrap();
                    assert!(seen == bytes, "client {client}, step {step}");
                }
            });
        }
    });
    served.wait_for_sessions(0);
    served.finish();
}

/// The first words of some are there before the service has looked for them once, as it opens
/// fabrics for the others.
#[test]
fn many_who_come_at_once_are_all_heard() {
    const CLIENTS: usize = 8;
    let served = Served::new();
    for round in 0..4 {
        std::thread::scope(|threads| {
            for client in 0..CLIENTS {
                let served = &served;
                threads.spawn(move || {
                    let pool = served.attach();
                    pool.write(format!("/{client}"), [round]).unwrap();
                });
            }
        });
    }
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn a_process_that_is_killed_leaves_at_once() {
    const NAME: &str = "fabrics::a_process_that_is_killed_leaves_at_once";
    if let Some(dir) = child::pool() {
        let address = std::fs::read_to_string(dir.join("address")).unwrap();
        let pool = Pool::attach_with(address, &crate::options(&dir)).unwrap();
        let file = pool.open_file("/locked", &reading_and_writing()).unwrap();
        file.lock(LockKind::Write, ..).unwrap();
        file.write_all_at(b"acknowledged", 0).unwrap();
        child::say("ready");
        child::wait_for_the_end();
    }
    let served = Served::new();
    let pool = served.attach();
    std::fs::write(served.dir().join("address"), &served.address).unwrap();
    let file = pool.open_file("/locked", &reading_and_writing()).unwrap();
    let mut other = Running::start(child::command(NAME, served.dir()));
    assert_eq!(other.hear(), "ready");
    served.wait_for_sessions(2);
    assert!(!file.try_lock(LockKind::Write, ..).unwrap());
    other.kill();
    file.lock(LockKind::Write, ..).unwrap();
    served.wait_for_sessions(1);
    assert_eq!(pool.read("/locked").unwrap(), b"acknowledged");
    drop((file, pool));
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn a_service_that_is_killed_is_missed() {
    const NAME: &str = "fabrics::a_service_that_is_killed_is_missed";
    if let Some(dir) = child::pool() {
        let served = Served::new();
        std::fs::write(dir.join("address"), &served.address).unwrap();
        std::fs::write(dir.join("served"), served.dir().to_str().unwrap()).unwrap();
        child::say("ready");
        child::wait_for_the_end();
    }
    let dir = tempfile::tempdir().unwrap();
    let mut service = Running::start(child::command(NAME, dir.path()));
    assert_eq!(service.hear(), "ready");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let there = std::path::PathBuf::from(read("served"));
    let away_max = Duration::from_secs(1);
    let options = AttachOptions { away_max, ..crate::options(&there) };
    let pool = Pool::attach_with(read("address"), &options).unwrap();
    pool.write("/file", "content").unwrap();
    service.kill();
    let error = pool.read("/file").unwrap_err();
    println!("said of a service that was killed: {error}");
    drop(pool);
    std::fs::remove_dir_all(there).unwrap();
}

#[test]
fn who_asks_for_much_and_takes_nothing_takes_little_memory() {
    const CALLS: u64 = 2000;
    let mut served = Served::new();
    let address = crate::listen_insecure(&mut served.service);
    let pool = served.attach();
    pool.write("/large", pattern(3, DATA_BYTES_MAX)).unwrap();
    let mut greedy = Peer::attach(&address);
    let file = greedy.open("/large");
    let before = resident();
    let mut asked = 0;
    for count in 0..CALLS {
        let read = Request::Read { file, offset: 0, len: DATA_BYTES_MAX as u32 };
        let message = wire::encode(&(count + 2, read), Vec::new()).unwrap();
        // what does not go now never will: nobody grants more
        if !greedy.try_send(0, &message, &mut 0) {
            break;
        }
        asked += 1;
        pool.write("/small", [1]).unwrap();
    }
    let grown = resident().saturating_sub(before);
    println!("{asked} calls were sent, {grown} KiB more");
    assert!(asked < CALLS, "the service took them all");
    assert!(grown < 32 << 10, "{grown} KiB more for {asked} calls of {DATA_BYTES_MAX}");
    drop((greedy, pool));
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn what_cannot_be_met_is_refused_and_nobody_else() {
    let mut served = Served::new();
    let address = crate::listen_insecure(&mut served.service);
    let pool = served.attach();
    let place = || {
        let (peer, joining) = peer::connect(&address);
        (peer, joining.place().unwrap())
    };
    let refused = |change: &dyn Fn(&mut FabricPlace)| {
        let (mut peer, mut place) = place();
        change(&mut place);
        match peer.ask_for(place) {
            Some(Welcome::Refused(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let said = refused(&|place| place.provider = "cxi".to_owned());
    assert!(said.contains("it offers") && said.contains("--fabric"), "{said}");
    for address in ["", "0", "zz", "00", &"00".repeat(16), &"ff".repeat(5000)] {
        let said = refused(&|place| place.address = address.to_owned());
        assert!(said.contains("makes no sense"), "{address}: {said}");
    }
    for nonce in ["", "00", &"00".repeat(1000)] {
        let said = refused(&|place| place.nonce = nonce.to_owned());
        assert!(said.contains("makes no sense"), "{nonce}: {said}");
    }
    // who is on a fabric is told there why it may not come, and asks for no other one
    let mut peer = Peer::join(&address);
    let said = peer.greet_as(wire::VERSION + 1, None);
    assert!(matches!(said, Some(Welcome::Version { .. })), "{said:?}");
    let mut peer = Peer::join(&address);
    let said = peer.ask_for(place().1);
    assert!(matches!(&said, Some(Welcome::Refused(why)) if why.contains("already")), "{said:?}");
    pool.write("/file", "others work").unwrap();
    drop(pool);
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn a_fabric_that_is_not_offered_is_none() {
    let served = Served::new();
    let other = if crate::provider() == Provider::Tcp { "shm" } else { "tcp" };
    let own = format!("fabric-{}", crate::provider());
    let address = served.address.replace(&own, &format!("fabric-{other}"));
    let error = Pool::attach_with(&address, &served.options()).unwrap_err().to_string();
    assert!(error.contains("it offers") && error.contains(crate::provider().name()), "{error}");
    let address = served.address.replace(&own, "fabric-efa");
    let error = Pool::attach_with(&address, &served.options()).unwrap_err().to_string();
    assert!(error.contains("no fabric efa can be used here"), "{error}");
    // without one it is served as ever
    let address = served.address.replace(&format!("+{own}"), "");
    let pool = Pool::attach_with(&address, &served.options()).unwrap();
    pool.write("/file", "content").unwrap();
    drop(pool);
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn without_tls_a_fabric_goes_all_the_same() {
    let mut served = Served::new();
    let address = crate::listen_insecure(&mut served.service);
    let pool = Pool::attach(&address).unwrap();
    let content = pattern(5, 300_000);
    pool.write("/file", &content).unwrap();
    assert!(pool.read("/file").unwrap() == content);
    drop(pool);
    served.wait_for_sessions(0);
    served.finish();
}
