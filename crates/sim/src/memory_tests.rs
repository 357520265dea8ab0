//! A memory, by arithmetic.

use super::*;
use placement::{Class, Curve};

/// 100 MiB/s for one, 200 for two, 80 for four; half of that from elsewhere.
fn memory() -> Memory<u32> {
    let points = vec![(1, 100.0), (2, 200.0), (4, 80.0)];
    let local = Curve::new(vec![Class { bytes: 4096, points }]).unwrap();
    let access = MachineAccess { local, remote_factor: 0.5, latency_ns: [0.0, 0.0] };
    Memory::new(&Machine {
        name: String::new(),
        source: String::new(),
        nodes: 1,
        cpus: 1,
        granule_bytes: 64,
        hand_off_ns: 0.0,
        move_thread_ns: 0.0,
        link: f64::INFINITY,
        directory: 0.0,
        read: access.clone(),
        write: access,
    })
}

const M: u64 = 1 << 20;
const MILLI: f64 = 1e6;

fn local(bytes: u64) -> Load {
    Load { kind: Kind::Read, bytes, class: 4096, is_remote: false }
}

fn leaves(memory: &mut Memory<u32>, owner: u32, at: f64) {
    let next = memory.next().unwrap();
    assert!((next - at).abs() < 1.0, "{next} is not {at}");
    assert_eq!(memory.leave(), Some(owner));
}

#[test]
fn one_alone_gets_what_one_gets() {
    let mut memory = memory();
    assert_eq!((memory.next(), memory.leave()), (None, None));
    memory.enter(5.0, local(M), 7);
    leaves(&mut memory, 7, 5.0 + 10.0 * MILLI);
    memory.enter(20.0 * MILLI, Load { is_remote: true, ..local(M) }, 8);
    leaves(&mut memory, 8, 40.0 * MILLI);
    assert_eq!(memory.next(), None);
}

#[test]
fn those_who_are_there_share_and_leave_more_to_who_stays() {
    let mut memory = memory();
    (1..=4).for_each(|n| memory.enter(0.0, local(u64::from(n) * M), n));
    assert_eq!(memory.threads, [4, 0]);
    // four get 20 each; three share what lies between 80 and 200; two get 100 each
    let second = 50.0 + 1000.0 * 3.0 / 140.0;
    leaves(&mut memory, 1, 50.0 * MILLI);
    leaves(&mut memory, 2, second * MILLI);
    leaves(&mut memory, 3, (second + 10.0) * MILLI);
    leaves(&mut memory, 4, (second + 20.0) * MILLI);
}

#[test]
fn who_comes_later_slows_who_is_there() {
    let mut memory = memory();
    (1..=3).for_each(|n| memory.enter(0.0, local(M), n));
    // each has 140/3 a second, a quarter is done; then four share 80
    let quarter = 0.25 / (140.0 / 3.0) * 1e9;
    memory.enter(quarter, local(10 * M), 4);
    leaves(&mut memory, 1, quarter + 0.75 / 20.0 * 1e9);
    // those who came together go together, in the order in which they came
    leaves(&mut memory, 2, quarter + 0.75 / 20.0 * 1e9);
    leaves(&mut memory, 3, quarter + 0.75 / 20.0 * 1e9);
    assert_eq!(memory.threads, [1, 0]);
}

#[test]
fn what_is_read_from_elsewhere_is_written_about() {
    let mut memory = Memory { directory: 1.0, ..memory() };
    memory.enter(0.0, local(M), 1);
    leaves(&mut memory, 1, 10.0 * MILLI);
    // half of the time to read it at half of what it could be, and as much to write
    memory.enter(20.0 * MILLI, Load { is_remote: true, ..local(M) }, 2);
    leaves(&mut memory, 2, 40.0 * MILLI);
    // two keep it busy, the one from elsewhere half as much again
    memory.enter(60.0 * MILLI, Load { is_remote: true, ..local(M) }, 3);
    memory.enter(60.0 * MILLI, local(M), 4);
    leaves(&mut memory, 4, 75.0 * MILLI);
}

#[test]
fn readers_and_writers_take_turns_where_there_is_too_little_time() {
    let write = |bytes| Load { kind: Kind::Write, ..local(bytes) };
    let mut memory = memory();
    // each keeps half of it busy: neither waits for the other
    memory.enter(0.0, local(M), 1);
    memory.enter(0.0, write(M), 2);
    leaves(&mut memory, 1, 10.0 * MILLI);
    leaves(&mut memory, 2, 10.0 * MILLI);
    // two readers keep it busy all the time, and the writer half: three parts of two
    [1, 2].into_iter().for_each(|n| memory.enter(20.0 * MILLI, local(M), n));
    memory.enter(20.0 * MILLI, write(M), 3);
    leaves(&mut memory, 1, 35.0 * MILLI);
    leaves(&mut memory, 2, 35.0 * MILLI);
    leaves(&mut memory, 3, 35.0 * MILLI);
}
