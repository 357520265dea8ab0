//! What a process does.

use crate::state::{Bounds, Doing, HOLDERS, Record, Service, State};

/// A step of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HolderStep {
    /// Asks for the lease.
    Ask,
    /// Stores a record in its lane.
    Store,
    /// The store leaves the buffer of the processor: others see it. This happens by itself, and
    /// after the death of the process, too.
    Drain,
    /// The fence behind the store is over: the record is durable, and others see it.
    Fence,
    /// Looks at its word: is its generation the one that may write, the write has happened.
    Look,
    /// Hears what became of a write.
    Hear,
    /// Gives its lease back.
    Release,
    /// Sees that its lease is gone, and does nothing with it.
    Notice,
    /// Is killed.
    Die,
}

impl State {
    pub(crate) fn holder_steps(&self, number: usize, bounds: &Bounds) -> Vec<HolderStep> {
        use HolderStep::{Ask, Die, Drain, Fence, Hear, Look, Notice, Release, Store};
        let holder = &self.holders[number];
        let more = holder.begun < bounds.writes;
        let may_ask = more && self.generations[number] < bounds.grants;
        let is_fence_over = holder.buffer.is_none() || bounds.has(crate::Fault::NoFence);
        let mut steps = match holder.doing {
            Doing::Idle if may_ask => vec![Ask],
            Doing::Stored(_) if is_fence_over => vec![Fence],
            Doing::Fenced(_) => vec![Look],
            Doing::Unsure(_) if self.has_answer(number, bounds) => vec![Hear],
            Doing::Holding => {
                let mut steps = vec![];
                // who is recalled may not have seen it yet
                steps.extend(more.then_some(Store));
                let is_recalled = self.service == Service::Recalled(number);
                steps.extend((is_recalled && holder.buffer.is_none()).then_some(Release));
                steps.extend((self.words[number] != holder.generation).then_some(Notice));
                steps
            }
            _ => vec![],
        };
        steps.extend(holder.buffer.is_some().then_some(Drain));
        let may_die = self.deaths < bounds.deaths && holder.doing != Doing::Dead;
        steps.extend(may_die.then_some(Die));
        steps
    }

    /// Whether the service knows what became of the write that this one stored last: nobody folds
    /// records of its generation any more.
    fn has_answer(&self, number: usize, bounds: &Bounds) -> bool {
        let is_open = self.granted == Some((number, self.holders[number].generation));
        self.service != Service::Down && (!is_open || bounds.has(crate::Fault::AnswersEarly))
    }

    pub(crate) fn take_holder(&mut self, number: usize, step: HolderStep) {
        let word = self.words[number];
        let holder = &mut self.holders[number];
        match (step, holder.doing) {
            (HolderStep::Ask, _) => holder.doing = Doing::Waiting,
            (HolderStep::Store, _) => {
                let write = holder.begun * HOLDERS as u8 + number as u8;
                holder.begun += 1;
                holder.buffer = Some(Record { write, generation: holder.generation });
                holder.doing = Doing::Stored(write);
                self.before[usize::from(write)] = self.acknowledged;
            }
            (HolderStep::Drain, _) => holder.lane.extend(holder.buffer.take()),
            (HolderStep::Fence, Doing::Stored(write)) => holder.doing = Doing::Fenced(write),
            (HolderStep::Look, Doing::Fenced(write)) if word == holder.generation => {
                holder.doing = Doing::Holding;
                self.acknowledged |= 1 << write;
            }
            (HolderStep::Look, Doing::Fenced(write)) => holder.doing = Doing::Unsure(write),
            (HolderStep::Hear, Doing::Unsure(write)) => {
                holder.doing = Doing::Idle;
                match self.history.contains(&write) {
                    true => self.acknowledged |= 1 << write,
                    false => self.refused |= 1 << write,
                }
            }
            (HolderStep::Release | HolderStep::Notice, _) => holder.doing = Doing::Idle,
            (HolderStep::Die, _) => {
                holder.doing = Doing::Dead;
                self.deaths += 1;
            }
            (step, doing) => unreachable!("{step:?} in {doing:?}"),
        }
    }
}
