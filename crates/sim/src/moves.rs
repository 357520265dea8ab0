//! Threads that go to their data, and data that comes to them.

use placement::{Copying, Kind, Room};

use super::{Owner, Run};
use crate::events::Event;
use crate::files::Part;
use crate::movers::At;

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
        it.trail.moved(&rule, from, self.now);
        self.go(thread);
        self.threads[thread as usize].node = node;
        self.thread_moves += 1;
        let there = self.now + self.setting.machine.move_thread_ns;
        self.events.at(there, Event::Begin(thread));
        true
    }

    /// What a call to data elsewhere has lost is remembered of that data, which comes where it has
    /// lost enough.
    pub(super) fn weigh_data(&mut self, thread: u32) {
        let Some(rule) = self.files.rule().copied() else { return };
        let it = &self.threads[thread as usize];
        let (call, by, now) = (it.call, it.node, self.now);
        let units = std::mem::take(&mut self.units);
        if call.kind == Kind::Write {
            units.iter().for_each(|part| self.files.written(part.unit));
        }
        let elsewhere = |part: &&Part| part.node != by && call.kind == Kind::Read;
        for part in units.iter().filter(elsewhere) {
            let is = self.takes(call.kind, part.bytes, [part.node, by]);
            let would_be = self.takes(call.kind, part.bytes, [by, by]);
            let heat = self.files.heat(part.unit);
            heat.lost(&rule, by, (is - would_be).max(0.0) as f32, now);
            if heat.node() != by {
                continue;
            }
            let (from, bytes) = self.files.unit(part.unit);
            let read = self.takes(Kind::Read, bytes, [from, by]);
            let write = self.takes(Kind::Write, bytes, [by, by]);
            let [there, here] = [from, by].map(|node| self.nodes[node as usize].memory.busy());
            let copying = Copying {
                ns: (read + write) as f32,
                others_ns: (there * read + here * write) as f32,
                access_ns: [is as f32, would_be as f32],
                busy: there as f32,
            };
            if rule.moves(self.files.heat(part.unit), &copying, now).is_ok()
                && self.nodes[by as usize].mover.ask(part.unit, part.bytes)
            {
                self.begin_move(by);
            }
        }
        self.units = units;
    }

    /// Who moves data to a node goes on with what waits, if it still pays.
    fn begin_move(&mut self, to: u32) {
        let Some(rule) = self.files.rule().copied() else { return };
        while let Some((unit, bytes)) = self.nodes[to as usize].mover.next() {
            let (from, left) = self.files.unit(unit);
            let at = At { unit, from, writes: self.files.writes(unit), left, is_read: false };
            let [is, would_be] = [from, to].map(|node| self.takes(Kind::Read, bytes, [node, to]));
            if from != to && would_be <= f64::from(rule.part) * is {
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
