//! What is stored in lanes, and leases that nobody gives back.
//!
//! Nothing that is stored here may come into the blocks of honest processes, though the process may
//! write them: it does so by no call, and under no lease that it has. What it stores in blocks
//! behind those, under a lease, happens.

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lanes::{BLOCK_BYTES, Connection, LANE_BYTES, Piece, forge};
use wire::{Reply, Request, Said};

use super::honest::{ALL, BLOCKS_OF_ONE, SHARED};
use super::service::STRANGE_BLOCKS;
use super::strange::{Attempt, Strange, opened};
use crate::hand::ByHand;
use crate::strangers::Random;

/// The blocks of honest processes.
const HONEST: u64 = ALL * BLOCKS_OF_ONE;

/// Attached by hand, with a lane, and what is shared open.
pub struct Laned {
    pub hand: ByHand,
    pub file: u64,
    pub lane: File,
    pub words: File,
    connection: Connection,
    /// Where the next record that is whole belongs.
    position: u64,
    number: u64,
}

/// A lease that was given, and maybe taken since.
#[derive(Clone, Debug)]
struct Lease {
    slot: u8,
    generation: u64,
    blocks: RangeInclusive<u64>,
}

impl Laned {
    /// None where there is no room.
    pub fn new(strange: &mut Strange) -> Option<Laned> {
        let hand = strange.attach()?;
        let file = opened(&hand, SHARED, true)?;
        let connection = Connection::from(strange.random.next()) << 64 | 1;
        let lane = Request::Lane { connection };
        let Reply::Done = hand.try_ask((0, 0), &lane, &[], &mut [])? else { return None };
        let (Said::Lane { .. }, files) = hand.given()? else { return None };
        let [lane, words] = <[_; 2]>::try_from(files).ok()?.map(File::from);
        Some(Laned { hand, file, lane, words, connection, position: 0, number: 0 })
    }

    fn ask(&self, request: &Request<'_>) -> Option<Reply> {
        self.hand.try_ask((0, 0), request, &[], &mut [])
    }

    fn lease(&self, slot: u8, blocks: RangeInclusive<u64>) -> Option<Lease> {
        let (first, last) = blocks.into_inner();
        match self.ask(&Request::Lease { slot, file: self.file, first, last })? {
            Reply::Leased(generation, first, last) => {
                Some(Lease { slot, generation, blocks: first..=last })
            }
            _ => None,
        }
    }

    /// A lease of blocks behind those of honest processes, and of none of theirs.
    fn lease_behind(&self, slot: u8) -> Option<Lease> {
        for _ in 0..20 {
            let Some(lease) = self.lease(slot, HONEST..=HONEST + 3) else {
                std::thread::sleep(Duration::from_millis(3));
                continue;
            };
            if *lease.blocks.start() >= HONEST {
                return Some(lease);
            }
            self.ask(&Request::GiveBack(slot))?;
        }
        None
    }

    /// A lease of honest processes' blocks that has ended: what names it never happens.
    fn lease_of_before(&self, slot: u8, random: &mut Random) -> Option<Lease> {
        let block = random.below(HONEST);
        let lease = self.lease(slot, block..=block)?;
        self.ask(&Request::GiveBack(slot))?;
        Some(Lease { blocks: block..=block, ..lease })
    }

    /// Stores bytes where the next record belongs.
    fn store(&self, bytes: &[u8]) {
        let _ = self.lane.write_all_at(bytes, self.position % LANE_BYTES);
    }

    /// Stores a record that is read, whatever is thought of it.
    fn store_whole(&mut self, number: u64, pieces: &[Piece<'_>]) {
        let of = (&*self.hand.pool, self.connection);
        let Some(mut bytes) = forge::record(of, self.position, number, pieces) else { return };
        if self.position % LANE_BYTES + bytes.len() as u64 > LANE_BYTES {
            self.position = self.position.next_multiple_of(LANE_BYTES);
            forge::fit(of, self.position, &mut bytes);
        }
        self.store(&bytes);
        self.position += bytes.len() as u64;
    }

    /// Has the lane folded; the next record belongs where that ended.
    fn fold(&mut self) {
        self.ask(&Request::Fold);
        let mut folded = [0; 8];
        if self.words.read_exact_at(&mut folded, 0).is_ok() {
            self.position = self.position.max(u64::from_le_bytes(folded));
        }
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

fn piece<'d>(lease: &Lease, offset: u64, data: &'d [u8]) -> Piece<'d> {
    Piece { slot: lease.slot, generation: lease.generation, offset, data }
}

/// Any bytes in its lane, which is also cut and made longer.
pub fn any_bytes(strange: &mut Strange) -> Attempt {
    let Some(laned) = Laned::new(strange) else { return Ok(vec![]) };
    let _lease = laned.lease_behind(0);
    let random = &mut strange.random;
    for _ in 0..30 {
        match random.below(8) {
            0 => drop(laned.lane.set_len(random.below(2 * LANE_BYTES))),
            1 => drop(laned.lane.set_len(0)),
            2 => drop(laned.lane.set_len(LANE_BYTES)),
            3 => laned.store(&vec![random.next() as u8; LANE_BYTES as usize]),
            _ => {
                let mut bytes = random.bytes(70_000);
                if let Some(len) = bytes.first_chunk_mut::<4>() {
                    *len = ((1 + random.below(600) as u32) * 64).to_le_bytes();
                }
                let _ = laned.lane.write_all_at(&bytes, random.below(16) * 64);
            }
        }
        laned.ask(&[Request::Fold, Request::GiveBack(0)][random.below(2) as usize]);
    }
    let _ = laned.lane.set_len(LANE_BYTES);
    Ok(vec![])
}

/// Records in its lane that are not so, and that change while they are folded.
pub fn records(strange: &mut Strange) -> Attempt {
    let Some(mut laned) = Laned::new(strange) else { return Ok(vec![]) };
    let random = &mut strange.random;
    let mut notes = vec![];
    for _ in 0..4 {
        let before = laned.lease_of_before(1, random);
        let Some(lease) = laned.lease_behind(0) else { break };
        if happens(&mut laned, &lease, random) {
            notes.push("folded");
        }
        for _ in 0..20 {
            forged(&mut laned, &lease, before.as_ref(), random);
        }
        while_it_is_folded(&mut laned, &lease, random);
        laned.ask(&Request::GiveBack(0));
    }
    Ok(notes)
}

/// A record as it should be: that what follows is looked at. Whether it happened; its lease may
/// have been taken before.
fn happens(laned: &mut Laned, lease: &Lease, random: &mut Random) -> bool {
    let data = random.bytes(3000);
    let number = laned.next_number();
    laned.store_whole(number, &[piece(lease, HONEST * BLOCK_BYTES, &data)]);
    let Lease { slot, generation, .. } = *lease;
    let connection = laned.connection;
    let asked = laned.ask(&Request::Happened { connection, slot, generation, number });
    asked == Some(Reply::Number(1))
}

/// One record that is not so in one way or another.
fn forged(laned: &mut Laned, lease: &Lease, before: Option<&Lease>, random: &mut Random) {
    let data = random.bytes(9000);
    let theirs = random.below(HONEST) * BLOCK_BYTES + random.below(4096);
    let behind = (HONEST + random.below(STRANGE_BLOCKS / 2)) * BLOCK_BYTES;
    let last = laned.number;
    let number = laned.next_number();
    match random.below(9) {
        // another generation, another slot
        0 => {
            let generation = [lease.generation + 1, lease.generation - 1, random.next()];
            let generation = generation[random.below(3) as usize];
            let pieces = [Piece { generation, ..piece(lease, theirs, &data) }];
            laned.store_whole(number, &pieces);
        }
        1 => {
            let slot = 2 + random.below(30) as u8;
            laned.store_whole(number, &[Piece { slot, ..piece(lease, theirs, &data) }]);
        }
        // a place that is not leased, and one that goes there
        2 => laned.store_whole(number, &[piece(lease, theirs, &data)]),
        3 => {
            let short = HONEST * BLOCK_BYTES - 1 - random.below(100);
            laned.store_whole(number, &[piece(lease, short, &data)]);
        }
        4 => {
            let huge = u64::MAX - random.below(10_000);
            laned.store_whole(number, &[piece(lease, huge, &data)]);
        }
        // a lease that has ended, alone and with one that has not
        5 => {
            let Some(before) = before else { return };
            let pieces = [piece(lease, behind, &data), piece(before, theirs, &data)];
            laned.store_whole(number, &pieces[random.below(2) as usize..]);
        }
        // a request of before
        6 => laned.store_whole(random.below(last + 1), &[piece(lease, theirs, &data)]),
        // of another pool, connection, lap or place: none of it is read
        7 => {
            let (pool, connection) = (laned.hand.pool.clone(), laned.connection);
            let of = [("another", connection), (&pool, connection + 1), (&pool, connection)];
            let which = random.below(3) as usize;
            let position =
                laned.position + [0, 0, [64, LANE_BYTES][random.below(2) as usize]][which];
            let pieces = [piece(lease, behind, &data)];
            let bytes = forge::record(of[which], position, number, &pieces);
            bytes.inspect(|bytes| laned.store(bytes));
        }
        _ => changed(laned, &piece(lease, behind, &data), number, random),
    }
}

/// A record of which bytes are changed, half of the time with checksums that fit.
fn changed(laned: &mut Laned, piece: &Piece<'_>, number: u64, random: &mut Random) {
    let of = (&*laned.hand.pool, laned.connection);
    let Some(mut bytes) = forge::record(of, laned.position, number, &[*piece]) else { return };
    for _ in 0..1 + random.below(4) {
        let at = random.below(64.min(bytes.len() as u64)) as usize;
        bytes[at] = random.next() as u8;
    }
    if random.below(2) == 0 {
        forge::fit(of, laned.position, &mut bytes);
    }
    laned.store(&bytes);
    laned.fold();
}

/// Changes a record again and again while the service folds.
fn while_it_is_folded(laned: &mut Laned, lease: &Lease, random: &mut Random) {
    let data = random.bytes(20_000);
    let (at, number) = (laned.position, laned.next_number());
    let theirs = random.below(HONEST) * BLOCK_BYTES;
    let of = (&*laned.hand.pool, laned.connection);
    let record = |offset| forge::record(of, at, number, &[piece(lease, offset, &data)]);
    let (Some(one), Some(other)) = (record(HONEST * BLOCK_BYTES), record(theirs)) else { return };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let laned = &*laned;
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                laned.store(&one);
                laned.store(&other);
                laned.store(&one[..one.len() / 2]);
            }
        });
        for _ in 0..20 {
            laned.ask(&Request::Fold);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    laned.fold();
}

/// Leases of all that it can get, which it keeps until it goes; it writes nothing.
pub fn withholds(strange: &mut Strange) -> Attempt {
    let Some(laned) = Laned::new(strange) else { return Ok(vec![]) };
    let random = &mut strange.random;
    let mut given = 0;
    for slot in 0..32 {
        let first = random.below(HONEST);
        given += usize::from(laned.lease(slot, first..=first + random.below(8)).is_some());
    }
    std::thread::sleep(Duration::from_millis(random.below(150)));
    Ok(if given > 0 { vec!["kept leases"] } else { vec![] })
}
