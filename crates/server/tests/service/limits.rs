//! What is too long, too many, or of another version.

use std::os::fd::OwnedFd;

use nearside::Pool;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::Options;
use wire::{Channel, Greeting, Welcome};

use crate::child::{self, Running};
use crate::hand::{ByHand, connected};
use crate::served::Served;

#[test]
fn a_pool_has_a_socket_however_long_its_path() {
    let served = Served::with(&"long".repeat(50), 0o666, &Options::default());
    let pool = served.attach();
    pool.write("/f", "x").unwrap();
    drop(pool);
    let by_socket = Pool::attach(served.socket()).unwrap();
    assert_eq!(by_socket.read("/f").unwrap(), b"x");
    drop(by_socket);
    served.finish();
}

#[test]
fn no_more_processes_attach_than_may() {
    let served = Served::with("pool", 0o666, &Options { sessions_max: 2, ..Options::default() });
    let (one, other) = (served.attach(), served.attach());
    let error = Pool::attach(&served.dir).unwrap_err();
    assert_eq!(error.errno(), libc::EAGAIN, "{error}");
    drop(other);
    served.wait_for_sessions(1);
    let third = served.attach();
    third.write("/f", "x").unwrap();
    assert_eq!(one.read("/f").unwrap(), b"x");
    drop((one, third));
    served.finish();
}

/// A process gets few descriptors where nobody asks for more (1024), and each that attaches takes
/// some: a user with many would keep all others out.
#[test]
fn a_service_has_as_many_descriptors_as_it_may() {
    const NAME: &str = "limits::a_service_has_as_many_descriptors_as_it_may";
    if child::role() == "has few" {
        let few = Rlimit { current: Some(200), ..getrlimit(Resource::Nofile) };
        setrlimit(Resource::Nofile, few).unwrap();
        let served = Served::new();
        let hands: Vec<_> = (0..60).map(|_| ByHand::attach(&served.socket(), None)).collect();
        served.attach().write("/f", "x").unwrap();
        drop(hands);
        served.finish();
        child::say("attached");
        child::wait_for_the_end();
    }
    let root = tempfile::tempdir().unwrap();
    let mut other = Running::start(child::command_as("has few", NAME, root.path()));
    assert_eq!(other.hear(), "attached");
}

#[test]
fn more_long_calls_than_there_are_threads_for_are_all_made() {
    let served = Served::new();
    let pool = served.attach();
    let file = pool.create_file("/f").unwrap();
    file.write_all_at(&[7; 2 << 20], 0).unwrap();
    std::thread::scope(|threads| {
        for number in 0..48 {
            let (pool, file) = (&pool, &file);
            threads.spawn(move || match number % 3 {
                0 => pool.checkpoint().unwrap(),
                1 => pool.sync().unwrap(),
                _ => {
                    let copy = pool.create_file(format!("/copy{number}")).unwrap();
                    assert_eq!(file.copy_to(0, &copy, 0, u64::MAX).unwrap(), 2 << 20);
                }
            });
        }
    });
    drop((file, pool));
    served.finish();
}

#[test]
fn where_nobody_serves_it_is_said_and_the_pool_can_be_opened() {
    let served = Served::new();
    let dir = served.dir.clone();
    let Served { service, owned, _root: root, .. } = served;
    drop(service);
    let error = Pool::attach(&dir).unwrap_err();
    assert_eq!(error.errno(), libc::ECONNREFUSED);
    assert!(error.to_string().contains("nearside serve"), "{error}");
    // held by another one, and no service
    let held = Pool::attach_or_open(&dir, &nearside::OpenOptions::default()).unwrap_err();
    assert_eq!(held.errno(), libc::EBUSY, "{held}");
    drop(owned);
    let opened = Pool::attach_or_open(&dir, &nearside::OpenOptions::default()).unwrap();
    assert!(!opened.is_attached());
    drop((opened, root));
}

#[test]
fn another_version_is_refused_with_both() {
    let served = Served::new();
    let channel = connected(&served.socket());
    let greeting =
        Greeting { version: wire::VERSION + 1, returns: None, mount: None, fabric: None };
    channel.send(&greeting, &[]).unwrap();
    let (welcome, descriptors) = channel.receive::<Welcome>().unwrap().unwrap();
    assert!(matches!(welcome, Welcome::Version { version, .. } if version == wire::VERSION));
    assert!(descriptors.is_empty());
    served.finish();

    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(nearside::ATTACH_SOCKET);
    let door = listening(&path);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let channel = Channel::new(accept(&door).unwrap());
            let (greeting, _) = channel.receive::<Greeting>().unwrap().unwrap();
            let program = "9.8.7".to_owned();
            let version = greeting.version + 7;
            channel.send(&Welcome::Version { version, program }, &[]).unwrap();
        });
        let error = Pool::attach(root.path()).unwrap_err();
        let words = error.to_string();
        let has = |what: &str| words.contains(what);
        assert!(has("9.8.7") && has(&(wire::VERSION + 7).to_string()), "{words}");
        assert_eq!(error.errno(), libc::EPROTO);
    });
}

fn listening(path: &std::path::Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&socket, 4).unwrap();
    socket
}
