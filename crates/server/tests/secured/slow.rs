//! Those who ask for much, and take nothing for a while.

use std::time::Instant;

use wire::{DATA_BYTES_MAX, Flags, Reply, Request};

use crate::peer::Peer;
use crate::served::{Served, resident};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(37) >> 3) as u8).collect()
}

fn open(peer: &mut Peer) -> u64 {
    peer.open("/large", Flags { read: true, ..Flags::default() }).0
}

fn read(file: u64) -> Request<'static> {
    Request::Read { file, offset: 0, len: DATA_BYTES_MAX as u32 }
}

#[test]
fn who_takes_no_answers_holds_nobody_up_and_gets_them_later() {
    const SLOTS: u16 = 20;
    let served = Served::new();
    let (pool, content) = (served.attach(), pattern(DATA_BYTES_MAX));
    pool.write("/large", &content).unwrap();
    let (mut slow, _) = Peer::attach(&served.address, &served.dir().join("own"));
    let file = open(&mut slow);
    for slot in 1..=SLOTS {
        slow.send(slot, &wire::encode(&(1u64, read(file)), Vec::new()).unwrap(), &[]);
    }
    let since = Instant::now();
    for step in 0..200 {
        pool.write("/small", [step]).unwrap();
        assert_eq!(pool.read("/small").unwrap(), [step]);
    }
    println!("400 calls beside one who takes nothing took {:?}", since.elapsed());
    let mut slots: Vec<u16> = (0..SLOTS)
        .map(|_| {
            let (slot, message, data) = slow.hear().unwrap();
            let reply: Reply = wire::decode(&message).unwrap();
            assert!(reply == Reply::Done && data == content, "slot {slot}");
            slot
        })
        .collect();
    slots.sort_unstable();
    assert_eq!(slots, (1..=SLOTS).collect::<Vec<_>>());
    // and it goes on
    assert_eq!(slow.ask(&read(file), &[]).1, content);
    drop((slow, pool));
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn idle_connections_take_little_memory() {
    const CONNECTIONS: u64 = 200;
    /// KiB: of both sides, which are in this process, with what a session takes anyway.
    const EACH_MAX: u64 = 128;
    let served = Served::new();
    let pool = served.attach();
    pool.write("/large", pattern(DATA_BYTES_MAX)).unwrap();
    let before = resident();
    let mut all = Vec::new();
    for _ in 0..CONNECTIONS {
        let (mut peer, _) = Peer::attach(&served.address, &served.dir().join("own"));
        let file = open(&mut peer);
        assert_eq!(peer.ask(&read(file), &[]).1.len(), DATA_BYTES_MAX);
        peer.rest();
        all.push(peer);
    }
    let each = resident().saturating_sub(before) / CONNECTIONS;
    println!("{each} KiB for each of {CONNECTIONS} connections");
    assert!(each < EACH_MAX, "{each} KiB");
    drop((all, pool));
    served.wait_for_sessions(0);
    served.finish();
}
