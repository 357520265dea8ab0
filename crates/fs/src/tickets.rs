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
//!
//! Attached processes say themselves what they send again, and only when they are back. So of them
//! recovery keeps the last request of each slot of each client that it meets, until somebody says
//! who is not to come back: no more than the log and the tree have.

use crate::bytes::Bytes;
use crate::core::{Core, damaged_value};
use crate::error::Result;
use crate::keys;
use crate::request::{self, Answer, RequestId};
use ::locks::Mutex;
use crossbeam_utils::CachePadded;
use pool::SliceBatch;
use pool::tree::Change;
use smallvec::SmallVec;
use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
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

/// A request whose change is durable.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    id: RequestId,
    answer: Option<u64>,
    place: Place,
}

type Shard = CachePadded<Mutex<Tray>>;

/// Tickets by their ids, ascending. There are as many as requests in flight, so mostly one or none,
/// and it lies beside its lock.
#[derive(Debug, Default)]
struct Tray(SmallVec<[Ticket; 1]>);

impl Tray {
    fn find(&self, id: &RequestId) -> std::result::Result<usize, usize> {
        self.0.binary_search_by_key(id, |ticket| ticket.id)
    }

    /// Adds it, unless it is there.
    fn add(&mut self, ticket: Ticket) {
        if let Err(at) = self.find(&ticket.id) {
            self.0.insert(at, ticket);
        }
    }

    fn remove(&mut self, id: &RequestId) -> Option<Place> {
        let at = self.find(id).ok()?;
        Some(self.0.remove(at).place)
    }
}

/// The counts of the last requests, by clients and slots.
type LastOfSlots = HashMap<(u128, u8), u64>;

/// The tickets of one pool.
#[derive(Debug)]
pub struct Tickets {
    /// Those that recovery is to look for.
    asked: HashSet<RequestId>,
    /// The last of each slot that recovery met; none where those are not looked for.
    last: Option<Mutex<LastOfSlots>>,
    shards: Box<[Shard]>,
    /// Numbers in the tree that nobody asks for any more.
    stale: Mutex<Vec<u64>>,
    /// The next number in the tree. Moved by cuts only.
    number_next: AtomicU64,
}

/// The value of a ticket.
fn encode_ticket(ticket: &Ticket) -> Vec<u8> {
    let mut value = encode(ticket.id);
    value.extend(ticket.answer.iter().flat_map(|answer| answer.to_le_bytes()));
    value
}

/// The request that a ticket's value names, and its answer.
pub fn decode_ticket(value: &[u8]) -> Option<(RequestId, Option<u64>)> {
    match value.split_at_checked(REQUEST_BYTES)? {
        (id, []) => Some((decode(id)?, None)),
        (id, answer) => Some((decode(id)?, Some(u64::from_le_bytes(answer.try_into().ok()?)))),
    }
}

/// Bytes of a request's id in a value.
const REQUEST_BYTES: usize = 24;

/// A request's id in a value.
pub fn encode(id: RequestId) -> Vec<u8> {
    [&id.client.to_le_bytes()[..], &id.sequence.to_le_bytes()].concat()
}

fn decode(value: &[u8]) -> Option<RequestId> {
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
    ///
    /// `returning`: and for the last ones of attached processes.
    pub fn new(asked: &[RequestId], returning: bool) -> Tickets {
        Tickets {
            asked: asked.iter().copied().collect(),
            last: returning.then(Mutex::default),
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
    pub fn met(&self, id: RequestId, answer: Option<u64>) {
        if self.is_wanted(id) {
            self.shard(&id).lock().add(Ticket { id, answer, place: Place::Log });
        }
    }

    /// Whether recovery looks for it. One of a slot takes the place of those before it.
    fn is_wanted(&self, id: RequestId) -> bool {
        if self.asked.contains(&id) {
            return true;
        }
        let (Some(last), Some((slot, count))) = (&self.last, id.slot()) else { return false };
        let before = match last.lock().entry((id.client, slot)) {
            Entry::Vacant(entry) => {
                entry.insert(count);
                return true;
            }
            Entry::Occupied(entry) if *entry.get() > count => return false,
            Entry::Occupied(mut entry) => entry.insert(count),
        };
        if before < count {
            self.answered(RequestId::of_slot(id.client, slot, before));
        }
        true
    }

    /// Recovery is over.
    pub fn recovered(&self) {
        self.last.iter().for_each(|last| *last.lock() = HashMap::new());
    }

    /// Recovery met the id in the tree.
    fn met_in_tree(&self, (id, answer): (RequestId, Option<u64>), number: u64) {
        self.number_next.fetch_max(number + 1, Ordering::Relaxed);
        if self.is_wanted(id) {
            let mut shard = self.shard(&id).lock();
            let before = shard.remove(&id);
            shard.add(Ticket { id, answer, place: Place::Tree(number) });
            drop(shard);
            let Some(Place::Tree(twice)) = before else { return };
            self.stale.lock().push(twice);
        } else {
            self.stale.lock().push(number);
        }
    }

    /// A record with the id is durable. Returns by how much that changes what the next checkpoint
    /// has to fold.
    fn made(&self, id: RequestId, answer: Option<u64>) -> u64 {
        let mut shard = self.shard(&id).lock();
        shard.add(Ticket { id, answer, place: Place::Log });
        u64::from(shard.0.len() > UNCOUNTED_MAX)
    }

    /// Whether the request's change is durable, and its answer not confirmed.
    pub fn has(&self, id: RequestId) -> bool {
        self.shard(&id).lock().find(&id).is_ok()
    }

    /// What a request is answered with whose change is durable, and whose answer not confirmed.
    pub fn answer(&self, id: RequestId) -> Option<Option<u64>> {
        let shard = self.shard(&id).lock();
        shard.find(&id).ok().map(|at| shard.0[at].answer)
    }

    /// Those of this client, in slots.
    pub fn of_client(&self, client: u128) -> Vec<RequestId> {
        let shards = self.shards.iter();
        let found = shards.flat_map(|shard| -> SmallVec<[RequestId; 8]> {
            let shard = shard.lock();
            let ids = shard.0.iter().map(|ticket| ticket.id);
            ids.filter(|id| id.client == client && id.slot().is_some()).collect()
        });
        found.collect()
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
        self.forget_all(|id| id.client == client);
    }

    /// The same of several clients.
    pub fn forget_clients(&self, clients: &HashSet<u128>) {
        self.forget_all(|id| clients.contains(&id.client));
    }

    /// Who has some in slots.
    pub fn clients(&self) -> HashSet<u128> {
        let mut clients = HashSet::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let ids = shard.0.iter().map(|ticket| ticket.id);
            clients.extend(ids.filter(|id| id.slot().is_some()).map(|id| id.client));
        }
        clients
    }

    fn forget_all(&self, goes: impl Fn(&RequestId) -> bool) {
        for shard in &self.shards {
            let mut stale = Vec::new();
            shard.lock().0.retain(|ticket| {
                let goes = goes(&ticket.id);
                if let (true, Place::Tree(number)) = (goes, ticket.place) {
                    stale.push(number);
                }
                !goes
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
            for ticket in &mut shard.lock().0 {
                if ticket.place == Place::Log {
                    let number = self.number_next.fetch_add(1, Ordering::Relaxed);
                    ticket.place = Place::Tree(number);
                    let value = Change::Put(encode_ticket(ticket));
                    batch.changes.push((keys::ticket(number), value));
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
        let units = self.tickets.made(id, request::answer().map(Answer::bits));
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
            match decode_ticket(value).filter(|_| key.index < NUMBER_MAX) {
                Some(found) => self.tickets.met_in_tree(found, key.index),
                None => damaged = Some(key),
            }
            damaged.is_none()
        })?;
        damaged.map_or(Ok(()), |key| Err(damaged_value(&key)))
    }
}
