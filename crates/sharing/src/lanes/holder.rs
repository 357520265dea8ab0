//! What a process does.

use super::bounds::{Bounds, HOLDERS, SLOTS};
use super::fault::Fault;
use super::state::{Ask, Doing, Lease, Old, Phase, Record, State, write_of};

/// A step of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HolderStep {
    /// Asks for one of the things that it may wish.
    Ask(usize),
    /// Stores a record in its lane.
    Store,
    /// The store leaves the buffer of the processor: others see it. This happens by itself, and
    /// after the death of the process, too.
    Drain,
    /// The fence behind the store is over: the record is durable, and others see it. It looks at
    /// the word of a slot: is it the generation that the record names, and so the words of all
    /// others that it names, the write has happened.
    Look(usize),
    /// Hears what became of a write. Who lost his connection asks by another one.
    Hear,
    /// Gives a lease back.
    Release(usize),
    /// Sees that leases are gone.
    Notice,
    /// Is killed.
    Die,
    /// Loses its connection, and does not know.
    Lose,
    /// In whose place there is another process already: its store leaves the buffer.
    OldDrain,
    /// In whose place there is another process already: looks at its words.
    OldLook,
}

impl State {
    pub(super) fn holder_steps(&self, number: usize, bounds: &Bounds) -> Vec<HolderStep> {
        use HolderStep::{Ask, Die, Drain, Hear, Look, Lose, Notice, OldDrain, OldLook};
        let holder = &self.holders[number];
        let mut steps = Vec::new();
        let wishes = 0..bounds.wishes[number].len();
        steps.extend(wishes.filter(|wish| self.may_ask(number, *wish, bounds)).map(Ask));
        if holder.doing == Doing::Idle {
            steps.extend(self.store_of(number, bounds).map(|_| HolderStep::Store));
        }
        let is_fence_over = holder.buffer.is_none() || bounds.has(Fault::NoFence);
        let is_busy = self.copied.is_some();
        match holder.doing {
            Doing::Stored(_) if is_fence_over => {
                steps.extend((0..SLOTS).filter(|slot| holder.named[*slot] != 0).map(Look));
            }
            Doing::Unsure(_) if self.is_up && !is_busy => steps.push(Hear),
            _ => {}
        }
        let gone = |slot: usize| self.is_gone(number, slot);
        if holder.doing != Doing::Dead {
            let given = (0..SLOTS).filter(|slot| self.may_release(number, *slot));
            steps.extend(given.map(HolderStep::Release));
            // another thread may, while one is at a write
            steps.extend((0..SLOTS).any(gone).then_some(Notice));
            let is_honest = !bounds.is_hostile(number) && !bounds.wishes[number].is_empty();
            let may_die = is_honest && self.spent.kills < bounds.kills;
            steps.extend(may_die.then_some(Die));
            let may_lose = is_honest && self.spent.losses < bounds.losses && holder.is_connected;
            steps.extend(may_lose.then_some(Lose));
        }
        steps.extend(holder.buffer.is_some().then_some(Drain));
        match self.old[number] {
            Some(old) if old.buffer.is_some() => steps.push(OldDrain),
            Some(_) => steps.push(OldLook),
            None => {}
        }
        steps
    }

    fn may_ask(&self, number: usize, wish: usize, bounds: &Bounds) -> bool {
        let (holder, wish) = (&self.holders[number], bounds.wishes[number][wish]);
        let has_use = usize::from(holder.begun) < bounds.writes[number].len();
        let is_open = |slot: usize| {
            let is_asked = |ask: &Ask| usize::from(ask.holder) == number && ask.wish[slot] != 0;
            let may_have = self.slots[number][slot].last < bounds.grants;
            may_have && holder.leases[slot].generation == 0 && !self.queue.iter().any(is_asked)
        };
        let mut slots = (0..SLOTS).filter(|slot| wish[*slot] != 0);
        self.is_up && holder.is_connected && has_use && slots.all(is_open)
    }

    /// The record that this one may store now.
    fn store_of(&self, number: usize, bounds: &Bounds) -> Option<Record> {
        let holder = &self.holders[number];
        let range = *bounds.writes[number].get(usize::from(holder.begun))?;
        let (mut named, mut covered) = ([0; SLOTS], 0);
        for (named, lease) in named.iter_mut().zip(holder.leases) {
            if lease.range & range != 0 {
                (*named, covered) = (lease.generation, covered | lease.range);
            }
        }
        let has_room = holder.stored < self.folded[number] + bounds.places;
        let may = range & !covered == 0
            && (has_room || bounds.has(Fault::Overwrites))
            && holder.buffer.is_none()
            && !bounds.is_hostile(number);
        may.then_some(Record {
            seed: holder.seed,
            place: holder.stored,
            request: holder.begun,
            range,
            named,
            is_whole: true,
        })
    }

    fn is_gone(&self, number: usize, slot: usize) -> bool {
        let generation = self.holders[number].leases[slot].generation;
        generation != 0 && generation != self.slots[number][slot].word
    }

    /// What is recalled is given back when no store is under way that relies on it, and of which it
    /// has not seen yet that the word was open behind it.
    fn may_release(&self, number: usize, slot: usize) -> bool {
        let (holder, is_at) = (&self.holders[number], &self.slots[number][slot]);
        let generation = holder.leases[slot].generation;
        let is_recalled = is_at.phase == Phase::Recalled && is_at.granted.generation == generation;
        is_recalled && generation != 0 && holder.named[slot] == 0 && holder.is_connected
    }

    pub(super) fn take_holder(&mut self, number: usize, step: HolderStep, bounds: &Bounds) {
        match step {
            HolderStep::Ask(wish) => {
                let wish = bounds.wishes[number][wish];
                self.queue.push(Ask { holder: number as u8, wish });
            }
            HolderStep::Store => self.store(number, bounds),
            HolderStep::Drain => {
                let record = self.holders[number].buffer.take();
                self.arrive(number, record, bounds);
            }
            HolderStep::Look(slot) => self.look(number, slot, bounds),
            HolderStep::Hear => {
                if !bounds.has(Fault::AnswersEarly) {
                    self.fold(number, bounds);
                }
                let Doing::Unsure(request) = self.holders[number].doing else { return };
                self.holders[number].doing = Doing::Idle;
                self.tell_of(number, request);
            }
            HolderStep::Release(slot) => {
                self.holders[number].leases[slot] = Lease::default();
            }
            HolderStep::Notice => self.notice(number),
            HolderStep::Die => {
                let holder = &mut self.holders[number];
                (holder.doing, holder.is_connected) = (Doing::Dead, false);
                (holder.leases, holder.named) = ([Lease::default(); SLOTS], [0; SLOTS]);
                self.queue.retain(|ask| usize::from(ask.holder) != number);
                self.spent.kills += 1;
            }
            HolderStep::Lose => {
                self.holders[number].is_connected = false;
                self.queue.retain(|ask| usize::from(ask.holder) != number);
                self.spent.losses += 1;
            }
            HolderStep::OldDrain => {
                let record = self.old[number].as_mut().and_then(|old| old.buffer.take());
                self.arrive(number, record, bounds);
            }
            HolderStep::OldLook => {
                let Some(Old { request, named, .. }) = self.old[number].take() else { return };
                match self.is_open(number, named) {
                    true => self.returns(number, request),
                    false if self.is_up => self.tell_of(number, request),
                    false => {}
                }
            }
        }
    }

    fn store(&mut self, number: usize, bounds: &Bounds) {
        let Some(record) = self.store_of(number, bounds) else { return };
        let write = write_of(number, record.request);
        let before = State::touching(self.acknowledged, record.range, bounds);
        self.before[usize::from(write)] = before;
        let holder = &mut self.holders[number];
        holder.buffer = Some(record);
        holder.named = record.named;
        holder.doing = Doing::Stored(record.request);
        holder.stored += 1;
        holder.begun += 1;
    }

    /// A record comes to where others see it.
    fn arrive(&mut self, number: usize, record: Option<Record>, bounds: &Bounds) {
        if let Some(record) = record {
            self.holders[number].lane[usize::from(record.place % bounds.places)] = Some(record);
        }
    }

    fn look(&mut self, number: usize, slot: usize, bounds: &Bounds) {
        let holder = &mut self.holders[number];
        let Doing::Stored(request) = holder.doing else { return };
        if holder.named[slot] != self.slots[number][slot].word {
            (holder.doing, holder.named) = (Doing::Unsure(request), [0; SLOTS]);
            self.notice(number);
            return;
        }
        holder.named[slot] = 0;
        if holder.named == [0; SLOTS] || bounds.has(Fault::LooksAtOneWord) {
            (holder.doing, holder.named) = (Doing::Idle, [0; SLOTS]);
            self.returns(number, request);
        }
    }

    fn notice(&mut self, number: usize) {
        for slot in 0..SLOTS {
            if self.is_gone(number, slot) {
                self.holders[number].leases[slot] = Lease::default();
            }
        }
    }

    /// A write returns.
    fn returns(&mut self, number: usize, request: u8) {
        let write = write_of(number, request);
        if !self.history.contains(&write) {
            self.acknowledged |= 1 << write;
        }
    }

    /// A process learns from the service whether a write of its happened.
    fn tell_of(&mut self, number: usize, request: u8) {
        let write = write_of(number, request);
        match self.history.contains(&write) {
            true => self.returns(number, request),
            false => {
                self.refused |= 1 << write;
                self.before[usize::from(write)] = 0;
            }
        }
    }

    /// Of each process, whether its last record may be lost when power is cut.
    pub(super) fn at_risk(&self, bounds: &Bounds) -> u8 {
        let is_at_risk = |number: usize| {
            let holder = &self.holders[number];
            let Some(request) = holder.begun.checked_sub(1) else { return false };
            let is_known = self.acknowledged >> write_of(number, request) & 1 == 1;
            let is_flushed = match holder.doing {
                Doing::Stored(_) => false,
                Doing::Dead => is_known,
                Doing::Idle | Doing::Unsure(_) => true,
            };
            holder.stored > self.folded[number] && (!is_flushed || bounds.has(Fault::NoFlush))
        };
        (0..HOLDERS).filter(|number| is_at_risk(*number)).fold(0, |all, number| all | 1 << number)
    }

    /// Power is cut: all processes are dead, and so is the service. Of the records that are not
    /// known to be durable those are whole that are said to be; of others there are pieces.
    pub(super) fn cut(&mut self, kept: u8, bounds: &Bounds) {
        let at_risk = self.at_risk(bounds);
        for number in 0..HOLDERS {
            let holder = &mut self.holders[number];
            let place = usize::from(holder.stored.wrapping_sub(1) % bounds.places);
            if let Some(record) = holder.buffer.take() {
                holder.lane[place] = Some(record);
            }
            if at_risk >> number & 1 == 1 && kept >> number & 1 == 0 {
                let torn = |record| Record { is_whole: false, ..record };
                holder.lane[place] = holder.lane[place].map(torn);
            }
            (holder.doing, holder.is_connected) = (Doing::Dead, false);
            (holder.leases, holder.named) = ([Lease::default(); SLOTS], [0; SLOTS]);
            self.slots[number].iter_mut().for_each(|slot| slot.word = 0);
        }
        self.old = [None; HOLDERS];
        self.reading = None;
        self.spent.cuts += 1;
        self.die(bounds);
    }
}
