//! Peers that have the service keep much, or would: there is so much memory for all of them, and
//! the others go on.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::peers::{Peer, pattern};
use crate::served::{SOON, Served};
use nearside::{OpenFlags, Pool};
use rustix::net::sockopt;
use server::Options;
use wire::{DATA_BYTES_MAX, Flags, Frame, PIECE_BYTES, Reply, Request};

/// Memory for all streams: that of a few long calls.
const BYTES: usize = 3 << 20;
/// Peers of one kind: more than that is enough for.
const PEERS: usize = 24;

fn served() -> Served {
    let streams_patience = Duration::from_millis(300);
    Served::with(Options { streams_bytes: BYTES, streams_patience, ..Options::default() })
}

/// What a write of the most data looks like on the wire.
fn long_write(file: u64, count: u64) -> Vec<u8> {
    let data = pattern(count as usize, DATA_BYTES_MAX);
    let message = wire::encode(&(count, Request::Write { file, offset: 0 }), Vec::new()).unwrap();
    Frame { slot: 0, message: &message, data: &data }.bytes()
}

fn opened(peer: &mut Peer, path: &str) -> u64 {
    let flags = Flags { read: true, write: true, create: true, mode: 0o600, ..Flags::default() };
    peer.call(0, 1, &Request::Open(path.as_bytes(), flags), &[]);
    let (_, Reply::Opened(file, ..), _) = peer.answer() else { panic!("not opened") };
    file
}

/// Writes and reads much; no more than there is is held meanwhile but for `kept`.
fn work(served: &Served, pool: &Pool, kept: usize) {
    let flags = OpenFlags::new().read(true).write(true).create(true);
    let file = pool.open_file("/honest", &flags).unwrap();
    let mut seen = vec![0; DATA_BYTES_MAX];
    for step in 0..20 {
        let bytes = pattern(step, DATA_BYTES_MAX);
        file.write_all_at(&bytes, 0).unwrap();
        file.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == bytes, "step {step}");
        let used = served.service.stream_bytes();
        assert!(used <= BYTES + kept, "{used} bytes in step {step}");
    }
}

/// Waits until the service holds this many bytes, unless `most` shows that it already did.
fn wait_for_bytes(served: &Served, most: &AtomicUsize, bytes: usize) {
    let until = Instant::now() + SOON;
    while most.fetch_max(served.service.stream_bytes(), Ordering::Relaxed) < bytes {
        assert!(Instant::now() < until, "{most:?} bytes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn half_calls_keep_nobody_from_making_whole_ones() {
    let served = served();
    let pool = served.attach();
    let mut peers: Vec<Peer> = (0..PEERS).map(|_| served.attached()).collect();
    let most = AtomicUsize::new(0);
    for (at, peer) in peers.iter_mut().enumerate() {
        let file = opened(peer, &format!("/half-{at}"));
        let bytes = long_write(file, 2);
        // as much as goes on its way; of most of them nothing more is received
        peer.stream.set_nonblocking(true).unwrap();
        let _ = peer.stream.write(&bytes[..DATA_BYTES_MAX / 2]);
        peer.stream.set_nonblocking(false).unwrap();
        // The service may have ended the first peers before the last one connects.
        most.fetch_max(served.service.stream_bytes(), Ordering::Relaxed);
    }
    wait_for_bytes(&served, &most, BYTES - DATA_BYTES_MAX - 100_000);
    work(&served, &pool, 0);
    drop(peers);
    served.wait_for_sessions(1);
    drop(pool);
    served.wait_for_sessions(0);
    assert_eq!(served.service.stream_bytes(), 0);
    served.finish();
}

#[test]
fn answers_that_nobody_takes_keep_nobody_from_getting_theirs() {
    let served = served();
    let pool = served.attach();
    pool.write("/large", pattern(3, DATA_BYTES_MAX)).unwrap();
    let mut peers: Vec<Peer> = (0..2 * PEERS).map(|_| served.attached()).collect();
    let (ends, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                most.fetch_max(served.service.stream_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        for peer in &mut peers {
            sockopt::set_socket_recv_buffer_size(&peer.stream, 64 << 10).unwrap();
            let file = opened(peer, "/large");
            for slot in 0..20 {
                let read = Request::Read { file, offset: 0, len: DATA_BYTES_MAX as u32 };
                peer.call(slot, 2, &read, &[]);
            }
        }
        wait_for_bytes(&served, &most, DATA_BYTES_MAX + 1);
        ends.store(true, Ordering::Relaxed);
    });
    let most = most.into_inner();
    // each worker adds an answer at most when there is too much already
    let kept = Options::default().workers * (DATA_BYTES_MAX + 100);
    // it may not be looked at when it is most
    assert!(most > DATA_BYTES_MAX && most <= BYTES + kept, "{most} bytes");
    work(&served, &pool, kept);
    drop(peers);
    served.wait_for_sessions(1);
    drop(pool);
    served.wait_for_sessions(0);
    assert_eq!(served.service.stream_bytes(), 0);
    served.finish();
}

/// Threads, each with a connection, write as much as a call takes and read it, so many times.
fn write_much(served: &Served, threads: usize, steps: usize) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let pool = served.attach();
                let path = format!("/file-{thread}");
                for step in 0..steps {
                    let bytes = pattern(thread * 100 + step, DATA_BYTES_MAX);
                    pool.write(&path, &bytes).unwrap();
                    assert!(pool.read(&path).unwrap() == bytes, "thread {thread}, step {step}");
                }
            });
        }
    });
}

#[test]
fn calls_that_take_all_the_memory_there_is_stand_in_nobodys_way() {
    // nobody gives way: who stood in his own way, or in another's, would do so for ever
    let streams_patience = Duration::from_secs(3600);
    for streams_bytes in [1 << 20, 2 * DATA_BYTES_MAX, 4 * DATA_BYTES_MAX + 100] {
        let options = Options { streams_bytes, streams_patience, ..Options::default() };
        let served = Served::with(options);
        write_much(&served, 6, 6);
        served.wait_for_sessions(0);
        assert_eq!(served.service.stream_bytes(), 0);
        served.finish();
    }
}

#[test]
fn who_is_slow_while_nobody_waits_is_waited_for() {
    let served = served();
    let mut slow = served.attached();
    let file = opened(&mut slow, "/slow");
    for count in 2..5 {
        for (at, part) in long_write(file, count).chunks(100_000).enumerate() {
            slow.stream.write_all(part).unwrap();
            // longer in all than others would wait
            std::thread::sleep(Duration::from_millis(if at % 4 == 0 { 120 } else { 1 }));
        }
        let (_, reply, _) = slow.answer();
        assert_eq!(reply, Reply::Number(DATA_BYTES_MAX as u64));
        assert!(served.service.stream_bytes() <= DATA_BYTES_MAX + 100, "of one call");
    }
    drop(slow);
    served.wait_for_sessions(0);
    assert_eq!(served.service.stream_bytes(), 0);
    served.finish();
}

#[test]
fn half_of_a_long_write_leaves_nothing() {
    let served = served();
    let pool = served.attach();
    let before = pattern(1, 3 * DATA_BYTES_MAX / 2);
    pool.write("/large", &before).unwrap();
    pool.checkpoint().unwrap();
    let free = pool.statfs().blocks_free;
    for round in 0..20 {
        let mut peer = served.attached();
        let file = opened(&mut peer, "/large");
        let bytes = long_write(file, 2);
        let sent = bytes.len() / 20 * round;
        peer.stream.write_all(&bytes[..sent]).unwrap();
        if round % 2 == 0 {
            // what is damaged ends it where it is noticed
            peer.stream.write_all(&pattern(round, 2 * PIECE_BYTES)).unwrap();
            while peer.hear().is_some() {}
        }
        drop(peer);
        served.wait_for_sessions(1);
        assert!(pool.read("/large").unwrap() == before, "round {round}");
    }
    pool.checkpoint().unwrap();
    assert_eq!(pool.statfs().blocks_free, free);
    assert_eq!(served.service.stream_bytes(), 0);
    drop(pool);
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn more_who_write_much_than_there_is_memory_for_have_their_turn() {
    let served = served();
    write_much(&served, PEERS, 10);
    served.wait_for_sessions(0);
    assert_eq!(served.service.stream_bytes(), 0);
    served.finish();
}
