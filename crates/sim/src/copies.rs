//! Who copies what of a call, and how it goes.

use placement::{Access, BLOCK_BYTES, Way};

use super::Run;
use crate::events::Event;
use crate::files::Part;
use crate::workers::Piece;

impl Run<'_> {
    /// Who copies what of a call.
    pub(super) fn decide(&mut self, thread: u32) {
        self.split(thread);
        if self.goes(thread) {
            return;
        }
        self.weigh_data(thread);
        let parts = std::mem::take(&mut self.parts);
        for part in &parts {
            let (way, turns) = self.way(thread, part);
            let most = self.piece(thread, part);
            let it = &mut self.threads[thread as usize];
            it.turns.extend(turns.map(|turns| (part.node, turns, part.bytes)));
            match way {
                Way::Direct => it.own.push(*part),
                Way::Delegate => {
                    for done in (0..part.bytes).step_by(most as usize) {
                        let bytes = most.min(part.bytes - done);
                        it.theirs.push(Part { bytes, ..*part });
                    }
                }
            }
        }
        self.parts = parts;
        let it = &mut self.threads[thread as usize];
        it.own.reverse();
        it.left = it.theirs.len() as u32;
        let has_own = !it.own.is_empty();
        if it.left > 0 {
            // who has a share of its own is at it meanwhile
            let wait = if has_own { 0.0 } else { self.setting.machine.hand_off_ns };
            self.events.at(self.now + wait, Event::Asked(thread));
        }
        if has_own {
            self.begin_own(thread);
        }
    }

    /// Who copies a part, and the turns that its caller has got for it.
    fn way(&mut self, thread: u32, part: &Part) -> (Way, Option<u32>) {
        let it = &self.threads[thread as usize];
        let (kind, bytes) = (it.call.kind, it.call.bytes);
        if self.workloads[it.set].is_bare {
            return (Way::Direct, None);
        }
        let workers = &mut self.nodes[part.node as usize].workers;
        let is_local = part.node == it.node;
        let waiting = workers.waiting(kind, bytes);
        let goes = bytes <= BLOCK_BYTES && self.policy.block_goes(kind, waiting, || is_local);
        let access = Access {
            kind,
            bytes: part.bytes,
            is_local,
            active: workers.active(kind, part.bytes),
            waiting: workers.waiting(kind, part.bytes),
            served: workers.serve(),
        };
        let way = match self.policy.minds(kind, bytes) && !goes {
            true => self.policy.decide(&access).way,
            false => Way::Direct,
        };
        if way == Way::Delegate || !self.policy.limits(kind) {
            return (way, None);
        }
        match workers.try_enter(kind, part.bytes) {
            None if access.served => (Way::Delegate, None),
            None => (way, Some(workers.enter(kind, part.bytes))),
            turns => (way, turns),
        }
    }

    /// Bytes of the longest piece of a part that workers get.
    fn piece(&self, thread: u32, part: &Part) -> u64 {
        let (kind, workers) =
            (self.threads[thread as usize].call.kind, &self.nodes[part.node as usize].workers);
        let waiting = workers.waiting(kind, part.bytes);
        let by_policy = || {
            let most = self.policy.piece(kind, part.bytes, workers.count(), waiting);
            let pieces = part.bytes.div_ceil(most).max(1);
            part.bytes.div_ceil(pieces).next_multiple_of(BLOCK_BYTES)
        };
        self.setting.system.piece_bytes.unwrap_or_else(by_policy).max(1)
    }

    pub(super) fn ask(&mut self, thread: u32) {
        let it = &mut self.threads[thread as usize];
        let (kind, theirs) = (it.call.kind, std::mem::take(&mut it.theirs));
        for part in &theirs {
            let piece = Piece { thread, kind, bytes: part.bytes };
            let chance = self.random.draw();
            self.nodes[part.node as usize].workers.ask(piece, chance);
            self.serve(part.node);
        }
        let theirs_again = &mut self.threads[thread as usize].theirs;
        *theirs_again = theirs;
        theirs_again.clear();
    }

    /// Workers take what waits.
    fn serve(&mut self, node: u32) {
        while let Some((seat, piece)) = self.nodes[node as usize].workers.take() {
            let wait = self.latency(piece.kind, false);
            self.events.at(self.now + wait, Event::Worker(node, seat));
        }
    }

    pub(super) fn begin_own(&mut self, thread: u32) {
        let it = &self.threads[thread as usize];
        if let Some(part) = it.own.last() {
            let wait = self.latency(it.call.kind, part.node != it.node);
            self.events.at(self.now + wait, Event::Own(thread));
        }
    }

    /// A thread has copied a part itself.
    pub(super) fn own_done(&mut self, thread: u32) {
        let it = &mut self.threads[thread as usize];
        let kind = it.call.kind;
        let Some(part) = it.own.pop() else { return };
        let copied = &mut self.nodes[part.node as usize].copied;
        match part.node == it.node {
            true => copied.local += part.bytes,
            false => copied.remote += part.bytes,
        }
        if !it.own.is_empty() {
            return self.begin_own(thread);
        }
        // before anybody is waited for
        while let Some((node, turns, bytes)) = self.threads[thread as usize].turns.pop() {
            self.nodes[node as usize].workers.leave(kind, turns, bytes);
            self.serve(node);
        }
        self.end_if_done(thread);
    }

    pub(super) fn worker_done(&mut self, node: u32, seat: u32) {
        let it = &mut self.nodes[node as usize];
        let Some(piece) = it.workers.done(seat) else { return };
        it.copied.workers += piece.bytes;
        self.threads[piece.thread as usize].left -= 1;
        self.serve(node);
        self.end_if_done(piece.thread);
    }
}
