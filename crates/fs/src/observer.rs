//! What is remembered of accesses, so that threads go to their data (`mover.rs`) or data to its
//! readers (`migrator.rs`): the policy's rules (`placement`) say when, by what accesses take on
//! this machine. Where that is not known (`nearside calibrate`), or there is one node, nothing is
//! remembered.
//!
//! - Each thread knows what its accesses to one other node have lost, one after the other.
//! - Each leaf knows who has lost most for its blocks being where they are. One access in sixteen
//!   is noted there, and counts for all: by chance, so that no order of accesses is missed.
//! - How busy each slice's memory is, is reckoned by who comes by when the last look is 10 ms old:
//!   from the bytes that callers and workers copied.

use crate::core::Core;
use crate::inode::Inode;
use crate::known::Known;
use crate::layout::Layout;
use crate::leaf::{LEAF_BLOCKS, Leaf};
use crate::leaves::leaf_of;
use crate::migrator::Ask;
use crate::write::blocks_of;
use placement::{Costs, Heat, Kind, Lever, Levers, Trail};
use pool::{BLOCK_BYTES, BlockAddr, Pool};
use smallvec::SmallVec;
use std::cell::Cell;

/// Of so many accesses one is noted of its data.
pub const SAMPLE: u32 = 16;
/// Blocks of a call at which it is looked where they are.
const LOOKED_AT: usize = 16;

/// What a pool remembers; nothing where there is nothing to gain.
#[derive(Debug)]
pub struct Observer(Option<Box<Known>>);

/// What a thread remembers, of the pool that it used last.
#[derive(Clone, Copy)]
struct Traveller {
    /// By its number; 0: none.
    pool: u64,
    trail: Trail,
    /// Accesses until one is noted.
    left: u32,
    random: u32,
}

thread_local! {
    static TRAVELLER: Cell<Traveller> = const {
        Cell::new(Traveller { pool: 0, trail: Trail::NEW, left: 1, random: 0x9E37_79B9 })
    };
}

/// An access: the slice on which most of it lies, and how much that is.
#[derive(Clone, Copy)]
struct Most {
    slice: u8,
    /// Of the blocks that were looked at.
    part: f32,
}

impl Traveller {
    /// Whether this access is one of those that are noted: one in SAMPLE, by chance.
    #[inline]
    fn is_next(&mut self) -> bool {
        self.left -= 1;
        if self.left == 0 {
            // xorshift
            self.random ^= self.random << 13;
            self.random ^= self.random >> 17;
            self.random ^= self.random << 5;
            self.left = 1 + self.random % (2 * SAMPLE - 1);
            return true;
        }
        false
    }
}

impl Observer {
    /// What is remembered of this pool.
    pub fn of(pool: &Pool) -> Observer {
        let options = pool.options();
        let measured = || {
            let machine = pool.calibration()?.machine()?;
            let policy = options.policy.unwrap_or_else(|| machine.policy());
            Some(Costs::of(&machine, &policy))
        };
        let is_of_use = pool.nodes().are_apart()
            && options.levers.any()
            && pool.slices().len() > 1
            // stores go to the page cache, which is on no node in particular
            && pool.domain() != pmem::Domain::Sync;
        let costs = is_of_use.then(|| options.costs.clone().or_else(measured)).flatten();
        Observer(costs.map(|costs| Box::new(Known::new(pool, costs))))
    }

    /// Somebody says how far all of the pool may move.
    pub fn let_levers(&self, levers: Levers) {
        if let Some(known) = self.known() {
            known.let_levers(levers);
        }
    }

    /// What is known, if it matters.
    #[inline]
    pub fn known(&self) -> Option<&Known> {
        self.0.as_deref()
    }
}

/// The slice on which most of these blocks lie, of some that are looked at.
fn most_of(count: usize, addr: &dyn Fn(usize) -> BlockAddr) -> Option<Most> {
    let mut slices: SmallVec<[(u8, u32); 8]> = SmallVec::new();
    let mut looked = 0u32;
    for at in (0..count).step_by(count.div_ceil(LOOKED_AT)) {
        let addr = addr(at);
        looked += 1;
        if addr.is_none() || addr.device().is_some() {
            continue;
        }
        match slices.iter_mut().find(|(slice, _)| *slice == addr.slice()) {
            Some((_, blocks)) => *blocks += 1,
            None => slices.push((addr.slice(), 1)),
        }
    }
    let (slice, blocks) = slices.into_iter().max_by_key(|(_, blocks)| *blocks)?;
    Some(Most { slice, part: blocks as f32 / looked as f32 })
}

impl Core {
    /// A caller has read so many blocks of a file, from this one on, and so many bytes.
    #[inline]
    pub fn observe_read(
        &self,
        inode: &Inode,
        first: u64,
        size: (usize, usize),
        addr: &dyn Fn(usize) -> BlockAddr,
    ) {
        if let Some(known) = self.observer.known() {
            self.observe_known(known, inode, first, size, addr);
        }
    }

    #[inline(never)]
    fn observe_known(
        &self,
        known: &Known,
        inode: &Inode,
        first: u64,
        (count, bytes): (usize, usize),
        addr: &dyn Fn(usize) -> BlockAddr,
    ) {
        let Some(most) = most_of(count, addr) else { return };
        let cpu = topology::recent_cpu();
        let is_noted = self.travel(known, inode, (Kind::Read, bytes), most, cpu);
        if is_noted && known.levers_of(inode).data != Lever::Off {
            let each = bytes as f32 / count as f32;
            self.note(known, inode, (first, count, each), cpu, addr);
        }
    }

    /// A caller has written these bytes of a file: who keeps copies of them is told, and a copy on
    /// another slice would have been for nothing.
    #[inline]
    pub fn was_written(&self, inode: &Inode, offset: u64, data: &[u8]) {
        inode.tell_written(offset, data);
        self.observe_write(inode, offset, data.len());
    }

    /// The same where those who keep copies were told.
    #[inline]
    pub fn observe_write(&self, inode: &Inode, offset: u64, bytes: usize) {
        if let Some(known) = self.observer.known() {
            self.observe_written(known, inode, offset, bytes);
        }
    }

    #[inline(never)]
    fn observe_written(&self, known: &Known, inode: &Inode, offset: u64, bytes: usize) {
        let (first, last) = blocks_of(offset, bytes.max(1));
        for index in leaf_of(first).0..=leaf_of(last).0 {
            let lent = inode.map.lent(index);
            let Some(leaf) = lent.as_ref().and_then(|lent| lent.as_ref()) else { continue };
            let mut heat = leaf.lost();
            if heat.lost_ns() != 0.0 {
                heat.written(&known.data);
                leaf.set_lost(heat);
            }
        }
        let addr = |at: usize| {
            let (index, slot) = leaf_of(first + at as u64);
            let lent = inode.map.lent(index);
            let leaf = lent.as_ref().and_then(|lent| lent.as_ref());
            leaf.map_or(BlockAddr::NONE, |leaf| leaf.view(slot).addr)
        };
        if let Some(most) = most_of((last - first + 1) as usize, &addr) {
            let cpu = topology::recent_cpu();
            self.travel(known, inode, (Kind::Write, bytes), most, cpu);
        }
    }

    /// The calling thread has accessed this, and may go there now; whether it is one of those
    /// accesses that are noted.
    #[inline]
    fn travel(
        &self,
        known: &Known,
        inode: &Inode,
        (kind, bytes): (Kind, usize),
        most: Most,
        cpu: u32,
    ) -> bool {
        let mut here = TRAVELLER.get();
        if here.pool != known.id {
            here = Traveller { pool: known.id, trail: Trail::NEW, ..here };
        }
        if self.pool.nodes().is_local(cpu as usize, most.slice) || most.part < 0.5 {
            here.trail.local();
        } else {
            let bytes = (bytes as f32 * most.part) as u64;
            here.trail.remote(u32::from(most.slice), known.costs.lost(kind, bytes));
            if known.process.threads != Lever::Off && here.trail.is_due(&known.threads) {
                self.consider_going(known, inode, cpu, &mut here.trail);
            }
        }
        let is_noted = here.is_next();
        TRAVELLER.set(here);
        if is_noted {
            known.look_now(self);
        }
        is_noted
    }

    /// Notes an access of the leaves that it was about, `each` bytes of a block.
    fn note(
        &self,
        known: &Known,
        inode: &Inode,
        (first, count, each): (u64, usize, f32),
        cpu: u32,
        addr: &dyn Fn(usize) -> BlockAddr,
    ) {
        // where somebody said where it is to be, it stays
        if !matches!(inode.layout(), Layout::Auto | Layout::Near) {
            return;
        }
        let mut at = 0;
        while at < count {
            let (index, slot) = leaf_of(first + at as u64);
            let end = count.min(at + LEAF_BLOCKS as usize - slot);
            let most = most_of(end - at, &|block| addr(at + block));
            if let (Some(most), Some(leaf)) = (most, inode.map.cached(index)) {
                let bytes = (each * (end - at) as f32 * most.part) as u64;
                let ask = Ask {
                    ino: inode.ino,
                    index,
                    to: most.slice,
                    bytes,
                    gain_ns: 0.0,
                    balances: false,
                };
                self.note_in(known, &leaf, ask, cpu);
            }
            at = end;
        }
    }

    /// The same of one leaf, most of which lies on the slice to which it asks to go.
    fn note_in(&self, known: &Known, leaf: &Leaf, ask: Ask, cpu: u32) {
        let (now, is, bytes) = (known.now(), ask.to, ask.bytes);
        let nodes = self.pool.nodes();
        let mut heat = leaf.lost();
        let is_local = nodes.is_local(cpu as usize, is);
        let near = nodes.near(cpu as usize);
        // a thread that came for data would go back to where it was
        let home = match known.movers.home(near) {
            home if home == near && is_local => is,
            home => home,
        };
        let takes = known.takes(Kind::Read, bytes, is, is_local);
        let idle = known.is_full(is).then(|| known.idler_than(is)).flatten();
        let local_there = |to: u8| to == home || nodes.is_local(cpu as usize, to);
        let there = |to: u8| known.takes(Kind::Read, bytes, to, local_there(to));
        let to = match idle {
            Some(idle) if home == is || there(idle) < there(home) => idle,
            _ => home,
        };
        // who uses it where it is, and did not come for it, would lose as much as others gain
        let lost = match to == is {
            true if !(is_local && known.data.stay_counts) => return,
            true => known.loses(Kind::Read, bytes, is),
            false => (takes - there(to)).max(0.0),
        };
        heat.lost(&known.data, u32::from(to), lost * SAMPLE as f32, now);
        let whole = leaf.room() as u64 * BLOCK_BYTES;
        if heat.node() == u32::from(to) && to != is {
            let copying = known.copying(whole, [is, to], [takes, there(to)]);
            if let Ok(gain_ns) = known.data.moves(&heat, &copying, now) {
                // who serves it has the last word of what is remembered
                leaf.set_lost(heat);
                let balances = idle == Some(to);
                if known.migrator.ask(Ask { to, gain_ns, balances, ..ask }) {
                    return;
                }
                // others are before it
                heat = Heat::default();
            }
        }
        leaf.set_lost(heat);
    }

    /// Bytes that callers and workers have read and written of a slice.
    pub fn moved_bytes(&self, slice: usize) -> [u64; 2] {
        let copied = self.traffic.copied(slice);
        let [read, written] = self.delegation.moved(slice);
        [
            read + copied.local_read + copied.remote_read,
            written + copied.local_written + copied.remote_written,
        ]
    }
}
