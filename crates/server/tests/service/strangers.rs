//! Processes that say what they like, on the socket and in the memory that they share with the
//! service, while another one works.
//!
//! `NEARSIDE_STRANGERS_SECONDS` says for how long (3), `NEARSIDE_STRANGERS_SEED` the seed (1).

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearside::Pool;
use rustix::net::{SendFlags, send};
use wire::{Channel, Flags, Held, Node, Piece, Proof, Request};

use crate::hand::{ByHand, connected};
use crate::served::{SOON, Served, eventually};

/// A small generator of numbers (splitmix), the same for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.next() as u8).collect()
    }
}

pub fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().unwrap())
}

/// Honest work beside all that: what is written is there.
fn work(pool: &Pool, is_over: &AtomicBool, done: &AtomicU64) {
    let file = pool.create_file("/honest").unwrap();
    let mut rounds = 0;
    while !is_over.load(Ordering::Relaxed) {
        let block = [rounds as u8; 4096];
        file.write_all_at(&block, rounds % 64 * 4096).unwrap();
        let mut seen = [0; 4096];
        file.read_exact_at(&mut seen, rounds % 64 * 4096).unwrap();
        assert_eq!(seen, block);
        pool.write("/name", "x").unwrap();
        pool.rename("/name", "/other").unwrap();
        pool.remove_file("/other").unwrap();
        rounds += 1;
        done.store(rounds, Ordering::Relaxed);
    }
}

/// Runs `strange` again and again beside honest work: for the set time, and on until the honest
/// process has finished a round.
fn beside_work(served: &Served, strange: impl Fn(&mut Random)) {
    let time = Duration::from_secs(setting("NEARSIDE_STRANGERS_SECONDS", 3));
    let since = Instant::now();
    let mut random = Random(setting("NEARSIDE_STRANGERS_SEED", 1));
    let pool = served.attach();
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        let works = threads.spawn(|| work(&pool, &is_over, &rounds));
        let mut count = 0u64;
        let nothing_is_done = || rounds.load(Ordering::Relaxed) == 0;
        while !works.is_finished() && (since.elapsed() < time || nothing_is_done()) {
            assert!(since.elapsed() < time + SOON, "the honest process finishes no round");
            strange(&mut random);
            count += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        works.join().unwrap();
        println!("{count} times strange beside {rounds:?} rounds of work");
        assert!(count > 0);
    });
}

#[test]
fn whatever_is_said_on_the_socket_others_work_on() {
    let served = Served::new();
    let path = served.socket();
    beside_work(&served, |random| {
        let channel = connected(&path);
        match random.below(4) {
            0 => {
                let _ = send(channel.as_fd(), &random.bytes(40_000), SendFlags::NOSIGNAL);
            }
            1 => {
                let words = format!("{{\"version\":{},\"client\":\"{}\"", random.next(), "é\"");
                let _ = send(channel.as_fd(), words.as_bytes(), SendFlags::NOSIGNAL);
            }
            // says nothing, and goes, or says more than it should
            2 => {}
            _ => {
                let hand = ByHand::attach(&path, None);
                let _ = send(hand.channel.as_fd(), &random.bytes(100), SendFlags::NOSIGNAL);
            }
        }
    });
    served.wait_for_sessions(0);
    served.finish();
}

/// Where the first slots' parts lie: as `wire` lays them out.
pub const WORDS_AT: usize = 64;
pub const SLOTS_AT: usize = 4096;
pub const SLOT_BYTES: usize = (16 << 10) + wire::DATA_BYTES_MAX;

#[test]
fn whatever_a_process_stores_in_the_memory_of_its_calls_others_work_on() {
    let served = Served::new();
    let path = served.socket();
    beside_work(&served, |random| {
        let hand = ByHand::attach(&path, None);
        for _ in 0..random.below(200) {
            let at = match random.below(3) {
                0 => random.below(64 * 64),
                1 => SLOTS_AT as u64 + random.below(8) * SLOT_BYTES as u64 + random.below(64),
                _ => random.below(hand.memory.len() as u64 - 64),
            };
            let small = [random.below(5) as u8, 0, 0, 0];
            let bytes = if random.below(2) == 0 { small.to_vec() } else { random.bytes(64) };
            hand.memory.store(at as usize, &bytes);
            hand.ring();
        }
    });
    served.wait_for_sessions(0);
    served.finish();
}

/// Changes a byte of some, and cuts some.
pub fn mutate(random: &mut Random, message: &mut Vec<u8>) {
    if random.below(3) == 0 {
        let at = random.below(message.len() as u64) as usize;
        message[at] = random.next() as u8;
    }
    if random.below(10) == 0 {
        message.truncate(random.below(message.len() as u64) as usize);
    }
}

/// Puts a message into a slot as if it were a call, and rings.
pub fn say_in(hand: &ByHand, slot: usize, message: &[u8], data_len: u32) {
    let at = WORDS_AT + slot * 64;
    hand.memory.store(SLOTS_AT + slot * SLOT_BYTES, message);
    hand.memory.store(at + 8, &(message.len() as u32).to_le_bytes());
    hand.memory.store(at + 12, &data_len.to_le_bytes());
    shm::publish(hand.memory.word(at), 1);
    hand.ring();
}

/// A call as an honest process would make it, of files and names of its own.
pub fn request(random: &mut Random, path: &[u8]) -> Vec<u8> {
    let number = random.below(4);
    let offset = random.next() >> random.below(64);
    let len = random.next() as u32 >> random.below(32);
    let flags = Flags {
        read: true,
        write: random.below(2) == 0,
        create: random.below(2) == 0,
        mode: random.next() as u16 & 0o7777,
        ..Flags::default()
    };
    let piece = Piece { file: number, offset, len };
    let request = match random.below(44) {
        0 => Request::Open(path, flags),
        1 => Request::Close(number),
        2 => Request::Read { file: number, offset, len },
        3 => Request::Write { file: number, offset },
        4 => Request::Append(number),
        5 => Request::Copy { from: (number, offset), to: (number, 0), len: u64::from(len) },
        6 => Request::SetLength(number, offset),
        7 => Request::PunchHole(number, offset, u64::from(len)),
        8 => Request::Seek(number, offset, true),
        9 => Request::Attributes(path, true),
        10 => Request::Xattr(path, b"user.a"),
        11 => Request::Make(path, Node::Symlink(path)),
        12 => Request::Rename(path, path, fs::RenameMode::Replace),
        13 => Request::OpenDirectory(path),
        14 => Request::ReadDirectory(number, offset),
        15 => {
            Request::Commit { staged: 0, pieces: 0, writes: vec![piece; 3], expected: vec![piece] }
        }
        16 => Request::ReadTogether { pieces: vec![piece; 5], watched: vec![number; 3] },
        17 => Request::Restore {
            number: offset,
            ino: number,
            flags: Some(flags),
            proof: Proof(u128::from(offset).to_le_bytes()),
            locks: vec![Held { kind: fs::LockKind::Write, start: offset, end: 0 }; 3],
        },
        18 => Request::Map { copy: number, file: number, offset, bytes: random.next() >> 20 },
        19 => Request::Map { copy: number, file: number, offset: 0, bytes: u64::from(len) + 1 },
        20 => Request::Fill { copy: number, page: offset, pages: len },
        21 => {
            Request::Fill { copy: number, page: random.below(8), pages: random.below(100) as u32 }
        }
        22 => Request::Unmap(number),
        23 => Request::Stage { staged: number, writes: vec![piece; 3], expected: vec![piece] },
        24 => {
            let pieces = random.below(12) as u32;
            Request::Commit { staged: number, pieces, writes: vec![piece], expected: vec![] }
        }
        25 => {
            let kind = [fs::LockKind::Read, fs::LockKind::Write][random.below(2) as usize];
            Request::Lock { file: number, kind, start: 0, end: offset, wait: random.below(2) == 0 }
        }
        26 => Request::Sync,
        27 => Request::Allocate(number, offset % (1 << 20), u64::from(len) % (1 << 20)),
        28 => Request::SetMode(path, flags.mode),
        29 => Request::SetOwner(path, len.is_multiple_of(2), Some(len), None),
        30 => Request::SetTimes(path, len.is_multiple_of(2), Some(offset as i64), None),
        31 => Request::SetXattr(path, b"user.a", fs::XattrMode::Any),
        32 => Request::ListXattrs(path),
        33 => Request::Remove(path, random.below(2) == 0),
        34 => Request::Lane { connection: u128::from(number) },
        35 => Request::Lease { slot: len as u8, file: number, first: offset, last: u64::MAX },
        36 => Request::GiveBack(len as u8),
        37 => {
            let (slot, generation) = (len as u8, offset);
            Request::Happened { connection: u128::from(number), slot, generation, number }
        }
        38 => Request::Fold,
        39 => Request::Cache,
        40 | 41 => Request::ReadCached { file: number, offset, len },
        _ => Request::FileAttributes(number),
    };
    let count = random.next() >> random.below(64);
    wire::encode(&(count, request), Vec::new()).unwrap()
}

#[test]
fn whatever_a_process_asks_others_work_on() {
    let served = Served::new();
    served.attach().create_dir("/strange").unwrap();
    let path = served.socket();
    beside_work(&served, |random| {
        let hand = ByHand::attach(&path, None);
        for call in 0..50 {
            let name = format!("/strange/{}", random.below(8));
            let mut message = request(random, name.as_bytes());
            mutate(random, &mut message);
            say_in(&hand, call % 8, &message, random.below(10_000) as u32);
            if random.below(2) == 0 {
                std::thread::sleep(Duration::from_micros(random.below(300)));
            }
        }
    });
    served.wait_for_sessions(0);
    eventually(|| served.service.copied_bytes() == 0);
    served.finish();
}

#[test]
fn those_who_say_nothing_keep_nobody_out() {
    let served = Served::new();
    let silent: Vec<Channel> = (0..500).map(|_| connected(&served.socket())).collect();
    let pool = served.attach();
    pool.write("/f", "x").unwrap();
    drop((silent, pool));
    served.finish();
}
