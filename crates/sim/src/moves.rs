//! Threads that go to their data, and data that comes to them.

use placement::{Copying, Kind, Room};

use super::{Owner, Run};
use crate::events::Event;
use crate::files::Part;
use crate::movers::At;

/// A memory is idle beside another one that is busy for so much more of the time.
const IDLE: f32 = 0.7;
/// From this part of the time on a memory has none left.
const FULL: f32 = 0.9;

impl Run<'_> {
    /// What copying so many bytes of one node takes who runs on another or the same, ns: as they
    /// stand now, and by a worker where one would be asked.
    fn takes(&mut self, kind: Kind, bytes: u64, [from, by]: [u32; 2]) -> f64 {
        let (here, there) = (self.load(kind, bytes, false), self.load(kind, bytes, true));
        let Run { nodes, policy, setting, .. } = self;
        let node = &mut nodes[from as usize];
        if from == by {
            return node.memory.would_take(here);
        }
        let direct = node.memory.would_take(there);
        let asks = node.workers.serve()
            && policy.minds(kind, bytes)
            && bytes >= policy.side(kind).delegate_from(false);
        match asks {
            true => direct.min(setting.machine.hand_off_ns + node.memory.would_take(here)),
            false => direct,
        }
    }

    /// Whether a thread goes to where most of its call's bytes are, first.
    pub(super) fn goes(&mut self, thread: u32) -> bool {
        let Some(rule) = self.setting.system.thread_rule(&self.setting.machine) else {
            return false;
        };
        let it = &self.threads[thread as usize];
        let (call, from) = (it.call, it.node);
        if call.kind == Kind::Write && !self.setting.system.writers_move || call.file.is_none() {
            return false;
        }
        let most = self.parts.iter().max_by_key(|part| part.bytes).copied();
        let Some(Part { node, bytes, .. }) = most else { return false };
        if node == from || 2 * bytes < call.bytes {
            self.threads[thread as usize].trail.local();
            return false;
        }
        let now = self.takes(call.kind, bytes, [node, from]);
        let lost = now - self.takes(call.kind, bytes, [node, node]);
        let to = &self.nodes[node as usize];
        let room = Room {
            busy: to.memory.busy() as f32,
            busy_here: self.nodes[from as usize].memory.busy() as f32,
            threads: to.cpus.threads(),
            cpus: self.setting.machine.cpus,
            is_allowed: !self.workloads[self.threads[thread as usize].set].is_pinned,
        };
        let it = &mut self.threads[thread as usize];
        it.trail.remote(node, lost.max(0.0) as f32);
        if rule.moves(&it.trail, &room, self.now).is_err() {
            return false;
        }
        let (home, lost) = (it.home, it.trail.lost_ns() + rule.costs_ns);
        it.trail.moved(&rule, self.now);
        self.charge(home, lost);
        self.go(thread);
        self.threads[thread as usize].node = node;
        self.thread_moves += 1;
        let there = self.now + self.setting.machine.move_thread_ns;
        self.events.at(there, Event::Begin(thread));
        true
    }

    /// What it costs a thread to go to its data is remembered of that data: were it where the
    /// thread is at home, nobody would go.
    fn charge(&mut self, home: u32, lost: f32) {
        if self.files.rule().is_none() {
            return;
        }
        let units = std::mem::take(&mut self.units);
        for part in units.iter().filter(|part| part.node != home) {
            let access =
                [part.node, home].map(|node| self.takes(Kind::Read, part.bytes, [node, home]));
            self.lost(part, home, lost / units.len() as f32, access);
        }
        self.units = units;
    }

    /// What a call has lost for where its data is is remembered of that data, which goes where it
    /// is better when it has lost enough.
    pub(super) fn weigh_data(&mut self, thread: u32) {
        let Some(rule) = self.files.rule().copied() else { return };
        let it = &self.threads[thread as usize];
        let (call, by, home) = (it.call, it.node, it.home);
        let units = std::mem::take(&mut self.units);
        if call.kind == Kind::Write {
            units.iter().for_each(|part| self.files.written(part.unit));
        }
        let reads = if call.kind == Kind::Read { &units[..] } else { &[] };
        for part in reads {
            let is_busy = |it: &Self| rule.balances && it.busy(part.node) > rule.full;
            if part.node == by && !is_busy(self) {
                // who uses it where it is would lose as much as others gain; not who came for it
                if rule.stay_counts && by == home {
                    let lost = self.stay_loses(part);
                    self.files.heat(part.unit).lost(&rule, by, lost, self.now);
                }
                continue;
            }
            let is = self.takes(call.kind, part.bytes, [part.node, by]);
            // a thread that went to other data would come back to this
            let mut to = (home, self.takes(call.kind, part.bytes, [home, home]));
            let idle = self.idlest();
            if is_busy(self) && self.busy(idle) < IDLE * self.busy(part.node) {
                let there = self.takes(call.kind, part.bytes, [idle, by]);
                to = if there < to.1 || part.node == home { (idle, there) } else { to };
            }
            if to.0 != part.node {
                self.lost(part, to.0, (is - to.1).max(0.0) as f32, [is, to.1]);
            }
        }
        self.units = units;
    }

    /// What an access to a part loses that comes from another node and not from its own.
    fn stay_loses(&mut self, part: &Part) -> f32 {
        let of = |is_remote| self.load(Kind::Read, part.bytes, is_remote);
        let (near, far) = (of(false), of(true));
        let memory = &mut self.nodes[part.node as usize].memory;
        (memory.would_take(far) - memory.would_take(near)).max(0.0) as f32
    }

    /// Where a thread puts what is new: on its node, or where there is more time for it.
    pub(super) fn place(&self, thread: u32) -> u32 {
        let near = self.threads[thread as usize].node;
        let idle = if self.setting.system.spills { self.idlest() } else { near };
        let is_full = self.busy(near) > FULL && self.busy(idle) < IDLE * self.busy(near);
        if is_full { idle } else { near }
    }

    fn busy(&self, node: u32) -> f32 {
        self.nodes[node as usize].memory.busy() as f32
    }

    /// The node whose memory is least busy.
    fn idlest(&self) -> u32 {
        let nodes = 0..self.nodes.len() as u32;
        nodes.min_by(|one, other| self.busy(*one).total_cmp(&self.busy(*other))).unwrap_or(0)
    }

    /// An access has lost so much for its data not being on another node; it takes so long where it
    /// is, and would there.
    fn lost(&mut self, part: &Part, to: u32, lost: f32, access: [f64; 2]) {
        let Some(rule) = self.files.rule().copied() else { return };
        let heat = self.files.heat(part.unit);
        heat.lost(&rule, to, lost, self.now);
        if heat.node() != to {
            return;
        }
        let (from, bytes) = self.files.unit(part.unit);
        let read = self.takes(Kind::Read, bytes, [from, to]) as f32;
        let write = self.takes(Kind::Write, bytes, [to, to]) as f32;
        let [there, here] = [from, to].map(|node| self.busy(node));
        let copying = Copying {
            ns: read + write,
            others_ns: there * read + here * write,
            access_ns: access.map(|ns| ns as f32),
            busy: there,
        };
        if rule.moves(self.files.heat(part.unit), &copying, self.now).is_ok()
            && self.nodes[to as usize].mover.ask(part.unit, part.bytes)
        {
            self.begin_move(to);
        }
    }

    /// Who moves data to a node goes on with what waits, if it still pays.
    fn begin_move(&mut self, to: u32) {
        let Some(rule) = self.files.rule().copied() else { return };
        while let Some((unit, bytes)) = self.nodes[to as usize].mover.next() {
            let (from, left) = self.files.unit(unit);
            let at = At { unit, from, writes: self.files.writes(unit), left, is_read: false };
            let [is, would_be] = [from, to].map(|node| self.takes(Kind::Read, bytes, [node, to]));
            let balances =
                rule.balances && self.busy(from) > rule.full && self.busy(to) < rule.full;
            if from != to && (balances || would_be <= f64::from(rule.part) * is) {
                self.nodes[to as usize].mover.begin(at);
                return self.move_piece(to, at);
            }
            self.forget(to, unit);
        }
    }

    fn forget(&mut self, to: u32, unit: usize) {
        self.nodes[to as usize].mover.forget(unit);
        if let Some(rule) = self.files.rule().copied() {
            self.files.heat(unit).moved(&rule, self.now);
        }
    }

    fn move_piece(&mut self, to: u32, at: At) {
        let (kind, node) = match at.is_read {
            true => (Kind::Write, to),
            false => (Kind::Read, at.from),
        };
        let load = self.load(kind, at.piece(), node != to);
        self.nodes[node as usize].memory.enter(self.now, load, Owner::Mover(to));
    }

    /// A piece is read, or written.
    pub(super) fn mover_done(&mut self, to: u32) {
        let mover = &mut self.nodes[to as usize].mover;
        let Some(before) = mover.at() else { return };
        let next = mover.step();
        let was_written = self.files.writes(before.unit) != before.writes;
        match next {
            Some(at) if !was_written => return self.move_piece(to, at),
            None if !was_written => {
                self.moved_bytes += self.files.unit(before.unit).1;
                self.files.moved(before.unit, to);
            }
            // who writes meanwhile wins
            _ => self.nodes[to as usize].mover.end(),
        }
        self.forget(to, before.unit);
        self.begin_move(to);
    }
}
