//! What changes of a file mean for the pages that a kernel keeps of it.

use std::ops::{Range, RangeInclusive};
use std::sync::atomic::Ordering;

use nearside::files::{BLOCK_BYTES, Before, Error, Mapped, Pages, Wait};
use rangemap::RangeSet;

use super::base::Base;
use super::file::{FilePages, blocks_of, parts_of};
use super::state::{State, common};
use super::{OWN_MAX, SERVING, Serving, TOLD_MAX, Way, look_before_answer, waited_for};

/// How somebody waits for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Freely,
    /// He holds pages of this kernel.
    Holding(u64),
}

impl Waits {
    fn wait(self, file: &FilePages, blocks: &Range<u64>) {
        let is_told = match self {
            Waits::Freely => file.wait_for_blocks(blocks, TOLD_MAX, || false),
            Waits::Holding(own) => {
                let is_wanted = || waited_for(own).load(Ordering::SeqCst) > 0;
                file.wait_for_blocks(blocks, TOLD_MAX, is_wanted) || is_wanted()
            }
        };
        if !is_told {
            tracing::warn!(ino = file.ino.0, "the kernel has not dropped its pages in time");
        }
    }
}

impl FilePages {
    /// How whoever makes a change waits for the kernel, if he does.
    fn waits(&self, serving: Option<Serving>) -> Option<Waits> {
        let is_own = serving.is_some_and(|it| it.kernel == self.kernel.number);
        let may = !self.kernel.is_away || serving.is_some_and(|it| it.waits_for_away);
        match serving {
            _ if !may => None,
            None => Some(Waits::Freely),
            Some(serving) => match serving.way {
                Way::Back => None,
                Way::Past => Some(Waits::Freely),
                // its own pages are what it holds
                Way::Through(_) | Way::Cut if is_own => None,
                Way::Through(_) | Way::Cut => Some(Waits::Holding(serving.kernel)),
            },
        }
    }

    /// Has the kernel drop pages of those blocks into which it wrote and of which nobody knows
    /// whether they have it: `unsure` ones of these, and what a READ beside the write brings. What
    /// is stored to them when the write has returned could not be told from what was there before:
    /// so the write waits for that, as far as it may.
    fn drop_unsure(&self, state: &mut State, blocks: Range<u64>, unsure: &RangeSet<u64>) {
        let given: Vec<_> = unsure.iter().filter(|run| state.given.overlaps(run)).collect();
        for run in given {
            self.owe_blocks(state, run.clone());
        }
        let is_sure = unsure.is_empty() && !state.is_filling(&blocks, u64::MAX);
        let Some(file) = self.this.upgrade() else { return };
        if is_sure || self.kernel.is_away {
            return;
        }
        let wait: Wait = Box::new(move || {
            if !file.wait_for_blocks(&blocks, OWN_MAX, || false) {
                tracing::debug!(ino = file.ino.0, "pages of a write were not dropped in time");
            }
        });
        look_before_answer(Box::new(move || Some(wait)));
    }

    /// The server before made this write through pages, which may have been dropped since, and
    /// filled before that.
    pub(super) fn came_back(&self, offset: u64, data: &[u8]) {
        let mut state = self.state.lock();
        self.put_maybe_in(&mut state, offset, data);
        let blocks = blocks_of(offset, data.len());
        let known = state.known_runs(&blocks).into_iter().collect();
        self.drop_unsure(&mut state, blocks, &known);
    }

    /// The way of the change that this thread makes for the kernel whose pages these are.
    fn own_way(&self) -> Option<Way> {
        SERVING.get().filter(|it| it.kernel == self.kernel.number).map(|it| it.way)
    }
}

impl Mapped for FilePages {
    fn is_told_before(&self) -> bool {
        true
    }

    fn changes(&self, blocks: &RangeInclusive<u64>, before: &Before<'_>) -> Result<(), Error> {
        let mut state = self.state.lock();
        let all = *blocks.start()..blocks.end().saturating_add(1);
        match self.own_way() {
            // what was stored is told from what was given
            Some(Way::Back) => return Ok(()),
            Some(Way::Through(_)) => {
                let doubted: Vec<_> = state.doubted.overlapping(&all).cloned().collect();
                for run in doubted {
                    let run = common(&run, &all);
                    self.keep_before(&mut state, &(run.start..=run.end - 1), before)?;
                }
                return Ok(());
            }
            // nobody else lets the file grow again before its pages are gone
            Some(Way::Cut) if self.kernel.is_sole => return Ok(()),
            _ => {}
        }
        if self.tells.strong_count() == 0 {
            return Ok(());
        }
        if self.keep_before(&mut state, blocks, before)? {
            self.owe_blocks(&mut state, all.clone());
        }
        drop(state);
        // also where the kernel has no page: it may get one meanwhile that is of before
        let serving = SERVING.get();
        if let (Some(waits), Some(file)) = (self.waits(serving), self.this.upgrade()) {
            match serving {
                None => before.wait(Box::new(move || waits.wait(&file, &all))),
                Some(_) => look_before_answer(Box::new(move || {
                    let is_behind = file.is_behind(&all);
                    is_behind.then(|| -> Wait { Box::new(move || waits.wait(&file, &all)) })
                })),
            }
        }
        Ok(())
    }

    fn written(&self, offset: u64, data: &[u8]) {
        let Some(Way::Through(at)) = self.own_way() else { return };
        let mut state = self.state.lock();
        let blocks = blocks_of(at, data.len());
        // other pages than whole ones are read before they are mapped
        let whole = at.div_ceil(BLOCK_BYTES)..(at + data.len() as u64) / BLOCK_BYTES;
        let doubted = state.end_doubt();
        let known = state.known_runs(&blocks);
        let mut unsure = RangeSet::new();
        if at == offset {
            // the pages may have been dropped, and filled again before these bytes came here
            let doubted = known.iter().flat_map(|run| doubted.overlapping(run));
            unsure.extend(doubted.map(|run| common(run, &blocks)));
            for (block, at, part) in parts_of(offset, data) {
                let is_maybe = unsure.contains(&block);
                self.change_bases(&mut state, block..block + 1, |_, base| match is_maybe {
                    true => base.put_maybe(at, part),
                    false => base.put(at, part),
                });
            }
            unsure.extend(state.zeroed(at, data.len()));
        } else {
            // the kernel took another place for the file's end: its pages have these bytes there
            unsure.extend(known);
            unsure.extend((!whole.is_empty()).then(|| whole.clone()));
            for run in unsure.iter() {
                self.drop_bases(&mut state, run);
                state.unknown.insert(run.clone());
            }
        }
        state.note_given(whole);
        self.drop_unsure(&mut state, blocks, &unsure);
    }

    fn changed(&self, _offset: u64, _len: u64) {}

    fn cuts(&self, end: u64) {
        // A kernel that hears of it fills its pages with zeros from there on, whose ever it is. One
        // that cuts the file by itself writes nothing of it meanwhile (`fuse_set_nowrite`): what
        // comes from it later was in its pages behind the zeros.
        let is_own = self.own_way() == Some(Way::Cut);
        let mut state = self.state.lock();
        if is_own {
            // nor does it write through them
            state.end_doubt();
        }
        self.change_bases(&mut state, end / BLOCK_BYTES..u64::MAX, |block, base| {
            let zeros_from = end.saturating_sub(block * BLOCK_BYTES);
            match is_own {
                true => base.zero(zeros_from as usize),
                false => base.may_be_zero_from(zeros_from),
            }
        });
        for fill in state.fills.values_mut() {
            fill.cut_from = fill.cut_from.min(end);
        }
    }

    fn keeps_up(&self) -> Option<Wait> {
        let waits = self.waits(SERVING.get())?;
        let (file, all) = (self.this.upgrade()?, 0..u64::MAX);
        let is_behind = file.is_behind(&all);
        is_behind.then(|| -> Wait { Box::new(move || waits.wait(&file, &all)) })
    }
}

impl Pages for FilePages {
    fn is_changed(&self, block: u64) -> bool {
        self.state.lock().is_changed(block)
    }

    fn merge(&self, block: u64, at: usize, pages: &[u8], now: &mut [u8]) {
        if let Some(kept) = self.state.lock().bases.get(&block) {
            kept.base.merge(at, pages, now);
        }
    }

    fn taken(&self, offset: u64, data: &[u8]) {
        let mut state = self.state.lock();
        self.put_in(&mut state, offset, data);
        let blocks = blocks_of(offset, data.len());
        if state.known_runs(&blocks).is_empty() {
            // a page that somebody has pinned stays when it is to be dropped
            state.give(blocks);
        }
    }

    fn left(&self, offset: u64, data: &[u8], end: u64) {
        let mut state = self.state.lock();
        for (block, at, part) in parts_of(offset, data) {
            let start = block * BLOCK_BYTES;
            if start + BLOCK_BYTES <= end {
                continue;
            }
            if !state.is_changed(block) {
                // what lies before the end was taken just now
                match at == 0 {
                    true => self.keep(&mut state, block, Base::of(part)),
                    false => state.unknown.insert(block..block + 1),
                }
            }
            let left = (end.saturating_sub(start) as usize).max(at);
            let behind = part.get(left - at..).unwrap_or_default();
            self.change_bases(&mut state, block..block + 1, |_, base| {
                base.put(left, behind);
                base.may_be_zero_from(left as u64);
            });
        }
        let blocks = end / BLOCK_BYTES..blocks_of(offset, data.len()).end;
        self.owe_blocks(&mut state, blocks);
    }
}
