//! Those who begin to say who they are, and do not go on, or say anything else.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::peer::Peer;
use crate::served::{SOON, Served};

/// What a program says first.
fn hello(served: &Served) -> Vec<u8> {
    let config = wire::Credentials::read(&served.dir().join("own")).unwrap().client().unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    let mut begun = rustls::ClientConnection::new(config, name).unwrap();
    let mut said = Vec::new();
    begun.write_tls(&mut said).unwrap();
    said
}

fn connect(served: &Served) -> TcpStream {
    let stream = TcpStream::connect(served.address.strip_prefix("near://").unwrap()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// Waits for the end of a connection.
fn end(mut stream: TcpStream) {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(seed * 2 + 7) >> 3) as u8).collect()
}

#[test]
fn who_says_half_of_who_he_is_or_nothing_more_is_sent_away() {
    let served = Served::new();
    let (pool, hello) = (served.attach(), hello(&served));
    let mut all = Vec::new();
    for len in [0, 1, 5, hello.len() / 2, hello.len() - 1, hello.len()] {
        let mut stream = connect(&served);
        stream.write_all(&hello[..len]).unwrap();
        all.push(stream);
    }
    // he has said who he is, and not what he wants
    let mut silent = Peer::connect(&served.address, &served.dir().join("own"));
    pool.write("/file", "others work").unwrap();
    all.into_iter().for_each(end);
    assert!(silent.hear().is_none());
    served.wait_for_sessions(1);
    drop(pool);
    served.finish();
}

#[test]
fn a_thousand_half_open_connections_hold_nobody_up() {
    let served = Served::new();
    let (pool, hello) = (served.attach(), hello(&served));
    let mut all = Vec::new();
    for number in 0..1000 {
        let mut stream = connect(&served);
        stream.write_all(&hello[..hello.len() - number % 2 * 100]).unwrap();
        all.push(stream);
        if number % 100 == 99 {
            let since = Instant::now();
            pool.write("/file", number.to_string()).unwrap();
            drop(served.attach());
            println!("beside {number} others: {:?}", since.elapsed());
        }
    }
    all.into_iter().for_each(end);
    assert_eq!(pool.read("/file").unwrap(), b"999");
    drop(pool);
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn what_is_no_tls_ends_the_connection_and_nothing_else() {
    let served = Served::new();
    let (pool, hello) = (served.attach(), hello(&served));
    for seed in 0..64 {
        let mut stream = connect(&served);
        let mut bytes = hello.clone();
        match seed % 4 {
            0 => bytes = pattern(seed, 3000),
            1 => bytes.extend(pattern(seed, 3000)),
            2 => {
                let at = pattern(seed, 8)[7] as usize * 7 % bytes.len();
                bytes[at] ^= 1 << (seed / 4 % 8);
            }
            _ => bytes.splice(0..5, [0x16, 3, 3, 0x3f, 0xff]).for_each(drop),
        }
        let _ = stream.write_all(&bytes);
        end(stream);
    }
    pool.write("/file", "others work").unwrap();
    drop(pool);
    served.wait_for_sessions(0);
    served.finish();
}

/// A byte of what somebody says who was let in is changed on the way.
#[test]
fn what_was_changed_on_the_way_ends_the_connection() {
    let served = Served::new();
    let network = Changing::before(&served.address);
    let pool = served.attach_at(&network.address);
    pool.write("/file", "whole").unwrap();
    for _ in 0..5 {
        network.change.store(true, std::sync::atomic::Ordering::SeqCst);
        // the program comes back, and asks again
        pool.write("/file", pattern(1, 3000)).unwrap();
        assert_eq!(pool.read("/file").unwrap(), pattern(1, 3000));
        assert!(!network.change.load(std::sync::atomic::Ordering::SeqCst));
    }
    drop(pool);
    std::thread::sleep(Duration::from_millis(10));
    served.finish();
}

/// A network that changes a byte when it is told to.
struct Changing {
    address: String,
    change: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Changing {
    fn before(address: &str) -> Changing {
        let to = address.strip_prefix("near://").unwrap().to_owned();
        let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("near://{}", door.local_addr().unwrap());
        let change = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
        let told = change.clone();
        // it ends with the test's process
        std::thread::spawn(move || {
            for process in door.incoming() {
                let (Ok(process), Ok(service)) = (process, TcpStream::connect(&to)) else { return };
                for (from, to) in [(&process, &service), (&service, &process)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let told = told.clone();
                    std::thread::spawn(move || pass(from, to, &told));
                }
            }
        });
        Changing { address, change }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, change: &std::sync::atomic::AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => {
                let _ = to.shutdown(std::net::Shutdown::Write);
                return;
            }
            // a reset is no end
            Err(_) => {
                let _ = rustix::net::connect_unspec(&to);
                return;
            }
            Ok(len) => {
                if change.swap(false, std::sync::atomic::Ordering::SeqCst) {
                    bytes[len - 1] ^= 0x10;
                }
                if to.write_all(&bytes[..len]).is_err() {
                    let _ = rustix::net::connect_unspec(&from);
                    return;
                }
            }
        }
    }
}
