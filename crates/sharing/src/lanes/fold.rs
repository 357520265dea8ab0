//! To fold a lane: records come from it into the history, or are skipped for ever.

use super::bounds::{Bounds, PLACES, SLOTS, WRITES};
use super::fault::Fault;
use super::properties::Flaw;
use super::state::{Copied, Phase, Record, State, Write, of_write, write_of};
use crate::few::Few;

impl State {
    /// What there is in a lane behind what is folded, in its order.
    pub(super) fn read(&self, number: usize, bounds: &Bounds) -> Few<Record, PLACES> {
        let holder = &self.holders[number];
        let places = self.folded[number]..self.folded[number] + bounds.places;
        let records = places.map_while(|place| {
            let record = holder.lane[usize::from(place % bounds.places)]?;
            let is_whole = record.is_whole || bounds.has(Fault::NoChecksum);
            let is_of_lap = record.place == place || bounds.has(Fault::NoLap);
            let is_of_lane = record.seed == holder.seed || bounds.has(Fault::NoSeed);
            (is_whole && is_of_lap && is_of_lane).then_some(record)
        });
        records.collect()
    }

    /// Whether a record is folded, behind this history.
    fn accepts(&self, number: usize, record: &Record, history: &[Write], bounds: &Bounds) -> bool {
        let slots = &self.slots[number];
        let is_there = |slot: &usize| {
            let is_same = slots[*slot].granted.generation == record.named[*slot];
            is_same && slots[*slot].is_written || bounds.has(Fault::AnyGeneration)
        };
        let named = || (0..SLOTS).filter(|slot| record.named[*slot] != 0);
        let are_there = match bounds.has(Fault::OneLeaseIsEnough) {
            true => named().any(|slot| is_there(&slot)),
            false => named().all(|slot| is_there(&slot)),
        };
        let covered = named().fold(0, |all, slot| all | slots[slot].granted.range);
        let is_within = record.range & !covered == 0 && named().count() > 0;
        let used = history.iter().map(|write| of_write(*write));
        let is_used = used.filter(|it| it.0 == number).any(|it| it.1 >= record.request);
        let is_not_asked = [Fault::AnyRange, Fault::AnyGeneration, Fault::OneLeaseIsEnough]
            .map(|it| bounds.has(it));
        are_there
            && (is_within || is_not_asked.contains(&true))
            && (!is_used || bounds.has(Fault::AnyRequest) || bounds.has(Fault::ForgetsFolded))
    }

    /// Writes that will be in the history whatever happens: they would be folded next, and no
    /// lease that they name is freed before that.
    pub fn pending(&self, bounds: &Bounds) -> Few<Write, WRITES> {
        let mut all = Few::default();
        for number in 0..self.holders.len() {
            let mut history = self.history;
            for record in self.read(number, bounds).iter() {
                if self.accepts(number, record, &history, bounds) {
                    history.push(write_of(number, record.request));
                    all.push(write_of(number, record.request));
                }
            }
        }
        all
    }

    /// Copies what there is in a lane.
    pub(super) fn copy(&mut self, number: usize, bounds: &Bounds) {
        let records = self.read(number, bounds);
        let is_early = bounds.has(Fault::JudgesEarly) || bounds.has(Fault::ReadsTwice);
        let verdict = |record| self.accepts(number, record, &self.history, bounds);
        let verdicts = records.iter().enumerate().filter(|(_, it)| is_early && verdict(it));
        let verdicts = verdicts.fold(0, |all, (at, _)| all | 1 << at);
        self.copied = Some(Copied { holder: number as u8, records, verdicts });
        self.move_on(number, Phase::Closed, Phase::Read);
    }

    /// Folds what was copied, and notes how far, in one record of the service's own log. A record
    /// is judged now: nothing that it names is freed in between.
    pub(super) fn commit(&mut self, bounds: &Bounds) {
        let Some(copied) = self.copied.take() else { return };
        let number = usize::from(copied.holder);
        let is_of_recall = |record: &Record| {
            let phase = |slot: usize| self.slots[number][slot].phase;
            let mut closing = (0..SLOTS).filter(|slot| phase(*slot) == Phase::Read).peekable();
            closing.peek().is_none() || closing.any(|slot| record.named[slot] != 0)
        };
        let skipped: Few<bool, PLACES> =
            copied.records.iter().map(|it| !is_of_recall(it)).collect();
        for (at, record) in copied.records.iter().enumerate() {
            let verdict = copied.verdicts >> at & 1 == 1;
            let place = usize::from(self.folded[number] % bounds.places);
            let again = self.holders[number].lane[place].unwrap_or(*record);
            let (record, is_accepted) = match bounds.fault {
                Some(Fault::JudgesEarly) => (*record, verdict),
                Some(Fault::ReadsTwice) => (again, verdict),
                Some(Fault::FoldsOneLease) if skipped[at] => (*record, false),
                _ => (*record, self.accepts(number, record, &self.history, bounds)),
            };
            self.folded[number] += 1;
            if is_accepted {
                self.enter(number, &record);
            }
        }
        self.move_on(number, Phase::Read, Phase::Folded);
    }

    /// Folds a lane, with nothing in between.
    pub(super) fn fold(&mut self, number: usize, bounds: &Bounds) {
        // where a lease was told and not written down, which is a fault, that is made good now
        for slot in &mut self.slots[number] {
            slot.is_written = slot.granted.generation != 0;
        }
        self.copy(number, bounds);
        self.commit(bounds);
    }

    fn move_on(&mut self, number: usize, from: Phase, to: Phase) {
        for slot in &mut self.slots[number] {
            if slot.phase == from {
                slot.phase = to;
            }
        }
    }

    fn enter(&mut self, number: usize, record: &Record) {
        let write = write_of(number, record.request);
        let of_others = self.leases().filter(|it| it.0 != number);
        let foreign = of_others.fold(0, |all, it| all | it.2.granted.range);
        let own = self.slots[number].iter().fold(0, |all, slot| all | slot.granted.range);
        if record.range & foreign != 0 || record.range & !own != 0 {
            self.wrong = Some(Flaw::Intrusion(write));
        }
        if !record.is_whole {
            self.wrong = Some(Flaw::Torn(write));
        }
        if self.before[usize::from(write)] != 0 {
            self.wrong = Some(Flaw::Order(write));
        }
        self.before.iter_mut().for_each(|before| *before &= !(1 << write));
        self.acknowledged &= !(1 << write);
        if self.history.len() < WRITES {
            self.history.push(write);
        }
    }
}
