//! Tickets: requests whose change is durable and whose answer the door has not confirmed.
//!
//! What it keeps true: from the moment that a request's record is durable until the door says that
//! the answer is out, an open that is asked for the id finds it: in a record of the log, or, when a
//! checkpoint folded that, as a value of the tree, written by the same checkpoint. The cut closes
//! the gate, and a ticket is made before its change leaves the gate: so a cut finds a ticket for
//! each record below it.
//!
//! A ticket that is answered before the next cut leaves nothing behind. One that a tree has is
//! deleted by the checkpoint after. So the tree has no more tickets than there were requests in
//! flight at a cut, and each folded key is a number of its own that is not used again.

use crate::bytes::Bytes;
use crate::core::{Core, damaged_value};
use crate::error::Result;
use crate::keys;
use crate::request::{self, RequestId};
use ::locks::Mutex;
use crossbeam_utils::CachePadded;
use pool::SliceBatch;
use pool::tree::Change;
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of the table with a lock each, so that requests on different CPUs seldom meet.
const SHARDS: usize = 64;
/// Tickets of a shard that the next fold takes along: more are counted as changed values.
const UNCOUNTED_MAX: usize = 8;
/// Numbers are below this: nobody counts so far.
pub const NUMBER_MAX: u64 = 1 << 62;

/// Where a ticket is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In a record of the log.
    Log,
    /// In the tree, or in the batch that is folded into it, under this number.
    Tree(u64),
}

type Shard = CachePadded<Mutex<Tray>>;

/// Tickets by their ids, ascending. There are as many as requests in flight, so mostly one or none,
/// and it lies beside its lock.
#[derive(Debug, Default)]
struct Tray(SmallVec<[(RequestId, Place); 1]>);

impl Tray {
    fn find(&self, id: &RequestId) -> std::result::Result<usize, usize> {
        self.0.binary_search_by_key(id, |(id, _)| *id)
    }

    /// Adds it, unless it is there.
    fn add(&mut self, id: RequestId, place: Place) {
        if let Err(at) = self.find(&id) {
            self.0.insert(at, (id, place));
        }
    }

    fn remove(&mut self, id: &RequestId) -> Option<Place> {
        let at = self.find(id).ok()?;
        Some(self.0.remove(at).1)
    }
}

/// The tickets of one pool.
#[derive(Debug)]
pub struct Tickets {
    /// Those that recovery is to look for.
    asked: HashSet<RequestId>,
    shards: Box<[Shard]>,
    /// Numbers in the tree that nobody asks for any more.
    stale: Mutex<Vec<u64>>,
    /// The next number in the tree. Moved by cuts only.
    number_next: AtomicU64,
}

/// The value of a ticket.
pub fn encode(id: RequestId) -> Vec<u8> {
    [&id.client.to_le_bytes()[..], &id.sequence.to_le_bytes()].concat()
}

/// The request that a ticket's value names.
pub fn decode(value: &[u8]) -> Option<RequestId> {
    let mut bytes = Bytes(value);
    let client = bytes.u128()?;
    let id = RequestId { client, sequence: bytes.u64()? };
    bytes.is_empty().then_some(id)
}

/// The value of an orphan's key that the thread's request makes without a name.
pub fn encode_unnamed() -> Vec<u8> {
    let id = request::current().map(encode).unwrap_or_default();
    [keys::UNNAMED, &id].concat()
}

/// What an orphan's value says: whether it may be given a name, and the request that made it.
/// `None` when it makes no sense.
pub fn decode_orphan(value: &[u8]) -> Option<(bool, Option<RequestId>)> {
    match value.strip_prefix(keys::UNNAMED) {
        None => (value == keys::UNLINKED).then_some((false, None)),
        Some([]) => Some((true, None)),
        Some(id) => decode(id).map(|id| (true, Some(id))),
    }
}

impl Tickets {
    /// No tickets yet; recovery is to look for those asked.
    pub fn new(asked: &[RequestId]) -> Tickets {
        Tickets {
            asked: asked.iter().copied().collect(),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            stale: Mutex::default(),
            number_next: AtomicU64::new(1),
        }
    }

    fn shard(&self, id: &RequestId) -> &Shard {
        // neighbours fall into different shards, whatever the step of a client's numbers
        let mixed = (id.client as u64 ^ id.sequence).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(mixed >> 32) as usize % SHARDS]
    }

    /// Recovery met the id in a record.
    pub fn met(&self, id: RequestId) {
        if self.asked.contains(&id) {
            self.shard(&id).lock().add(id, Place::Log);
        }
    }

    /// Recovery met the id in the tree.
    fn met_in_tree(&self, id: RequestId, number: u64) {
        self.number_next.fetch_max(number + 1, Ordering::Relaxed);
        if self.asked.contains(&id) {
            let mut shard = self.shard(&id).lock();
            let before = shard.remove(&id);
            shard.add(id, Place::Tree(number));
            drop(shard);
            let Some(Place::Tree(twice)) = before else { return };
            self.stale.lock().push(twice);
        } else {
            self.stale.lock().push(number);
        }
    }

    /// A record with the id is durable. Returns by how much that changes what the next checkpoint
    /// has to fold.
    fn made(&self, id: RequestId) -> u64 {
        let mut shard = self.shard(&id).lock();
        shard.add(id, Place::Log);
        u64::from(shard.0.len() > UNCOUNTED_MAX)
    }

    /// Whether the request's change is durable, and its answer not confirmed.
    pub fn has(&self, id: RequestId) -> bool {
        self.shard(&id).lock().find(&id).is_ok()
    }

    /// The answer is out: nobody asks for the id any more.
    pub fn answered(&self, id: RequestId) {
        let place = self.shard(&id).lock().remove(&id);
        if let Some(Place::Tree(number)) = place {
            self.stale.lock().push(number);
        }
    }

    /// The client is gone, and with it all its questions.
    pub fn forget(&self, client: u128) {
        for shard in &self.shards {
            let mut stale = Vec::new();
            shard.lock().0.retain(|(id, place)| {
                if let (true, Place::Tree(number)) = (id.client == client, *place) {
                    stale.push(number);
                }
                id.client != client
            });
            self.stale.lock().extend(stale);
        }
    }

    /// Whether the tree has tickets that the next checkpoint deletes.
    pub fn any_stale(&self) -> bool {
        !self.stale.lock().is_empty()
    }

    /// Adds what the tree has to learn to the batch of slice 0. The gate is closed, or nobody else
    /// makes changes.
    pub fn cut(&self, batch: &mut SliceBatch) {
        // first: what becomes stale from here on may be in this very batch, and goes with the next
        let stale = std::mem::take(&mut *self.stale.lock());
        batch.changes.extend(stale.into_iter().map(|n| (keys::ticket(n), Change::Delete)));
        for shard in &self.shards {
            for (id, place) in &mut shard.lock().0 {
                if *place == Place::Log {
                    let number = self.number_next.fetch_add(1, Ordering::Relaxed);
                    *place = Place::Tree(number);
                    batch.changes.push((keys::ticket(number), Change::Put(encode(*id))));
                }
            }
        }
    }
}

impl Core {
    /// The record of the thread's request is durable.
    #[cold]
    pub fn ticket(&self) {
        let Some(id) = request::current() else { return };
        let units = self.tickets.made(id);
        if units != 0 {
            // ordering: a hint
            self.dirty_units.fetch_add(units, Ordering::Relaxed);
        }
    }

    /// Takes the tickets from the tree of the last checkpoint: those that are asked for stay,
    /// the others go with the next checkpoint.
    pub fn load_tickets(&self) -> Result<()> {
        let (from, to) = keys::tickets();
        let mut damaged = None;
        self.pool.scan(keys::TICKETS_SLICE, from, to, &mut |key, value| {
            match decode(value).filter(|_| key.index < NUMBER_MAX) {
                Some(id) => self.tickets.met_in_tree(id, key.index),
                None => damaged = Some(key),
            }
            damaged.is_none()
        })?;
        damaged.map_or(Ok(()), |key| Err(damaged_value(&key)))
    }
}
