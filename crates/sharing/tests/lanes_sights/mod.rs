//! What must be seen: an exploration in which it cannot happen would show nothing.

use crate::{Explored, Seen};
use sharing::lanes::{Doing, Holder, Phase, Record, Slot, State, of_write, write_of};

fn any(state: &State, is_so: impl Fn(usize, &Holder, &[Slot]) -> bool) -> bool {
    let mut all = state.holders.iter().zip(&state.slots).enumerate();
    all.any(|(number, (holder, slots))| is_so(number, holder, slots))
}

/// Whether there is a record in a lane that is not folded yet, and so.
fn any_unfolded(state: &State, is_so: impl Fn(&Record, &[Slot]) -> bool) -> bool {
    any(state, |number, holder, slots| {
        let of_this = |it: &&Record| it.seed == holder.seed && it.place >= state.folded[number];
        holder.lane.iter().flatten().filter(of_this).any(|record| is_so(record, slots))
    })
}

/// Whether what is named was taken away.
fn is_lost(named: &[u8], slots: &[Slot]) -> bool {
    named.iter().zip(slots).any(|(named, slot)| *named != 0 && *named != slot.word)
}

pub const CLOSED_BEHIND: Seen = ("a word is closed between store and look", |_, state| {
    any(state, |_, holder, slots| {
        matches!(holder.doing, Doing::Stored(_)) && is_lost(&holder.named, slots)
    })
});

pub const HAPPENED: Seen = ("a write happened whose process saw a closed word", |_, state| {
    any(state, |number, holder, _| match holder.doing {
        Doing::Unsure(request) => state.history.contains(&write_of(number, request)),
        _ => false,
    })
});

pub const REFUSED: Seen =
    ("one is told that its write did not happen", |_, state| state.refused != 0);

pub const LATE: Seen = ("a record comes when its lease is free", |_, state| {
    any_unfolded(state, |record, slots| {
        slots.iter().zip(record.named).any(|(slot, named)| named != 0 && slot.phase == Phase::Free)
    })
});

pub const ONE_OF_TWO: Seen = ("a lease is closed while another is written under", |_, state| {
    any(state, |_, holder, slots| {
        let is_under = |slot: usize| holder.named[slot] != 0 && slots[slot].phase == Phase::Held;
        let is_closed = |slot: usize| slots[slot].phase == Phase::Closed;
        let is_named_alone = holder.named.contains(&0);
        is_named_alone && (is_under(0) && is_closed(1) || is_under(1) && is_closed(0))
    })
});

pub const ALL_WRITTEN: Seen = ("all that was to be written is", |model, state| {
    state.history.len() == model.bounds.writes.iter().map(|writes| writes.len()).sum::<usize>()
});

pub const ALL_WAIT: Seen = ("all three wait", |_, state| state.queue.len() == 3);

pub const MUST_FOLD: Seen = ("what a read is to see is not folded", |_, state| {
    state.reading.is_some_and(|reading| reading.before & state.acknowledged != 0)
});

pub const NEXT_LAP: Seen = ("a lane is stored to in its third lap", |model, state| {
    any(state, |_, holder, _| holder.stored > 2 * model.bounds.places)
});

pub const WITHOUT_SERVICE: Seen = ("a write is to return while the service is dead", |_, state| {
    any(state, |_, holder, slots| {
        let is_stored = matches!(holder.doing, Doing::Stored(_)) && holder.buffer.is_none();
        !state.is_up && is_stored && !is_lost(&holder.named, slots)
    })
});

pub const OF_NEW: Seen = ("a write of a new connection happened", |_, state| {
    any(state, |number, holder, _| {
        let last = holder.begun.checked_sub(1).map(|request| write_of(number, request));
        let is_there = last.is_some_and(|write| state.history.contains(&write));
        holder.seed > 0 && holder.stored > 0 && is_there
    })
});

pub const OLD: Seen = ("one is at a write whose place was given away", |_, state| {
    state.old.iter().any(Option::is_some)
});

pub const TORN: Seen = ("power is cut, and of a record there are pieces", |_, state| {
    state.spent.cuts > 0 && any_unfolded(state, |record, _| !record.is_whole)
});

pub const SURVIVES: Seen = ("power is cut, and a write is there all the same", |model, state| {
    let pending = state.pending(&model.bounds);
    let has_returned = |write: u8| state.acknowledged >> write & 1 == 1;
    state.spent.cuts > 0 && pending.iter().any(|write| !has_returned(*write))
});

/// Writes in the history of who is hostile.
fn of_hostile(state: &State) -> usize {
    state.history.iter().filter(|write| of_write(**write).0 == 0).count()
}

pub const OF_HOSTILE: Seen = ("a forged record is folded", |model: &Explored, state| {
    model.bounds.is_hostile(0) && of_hostile(state) > 0
});

pub const SKIPPED: Seen =
    ("a forged record is skipped", |_, state| usize::from(state.folded[0]) > of_hostile(state));
