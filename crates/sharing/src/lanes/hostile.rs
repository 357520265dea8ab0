//! What a hostile process does: it stores what it likes into its lane.

use super::bounds::{Bounds, Range, SLOTS};
use super::state::{Record, State};

/// A record that it makes up, as its service sees it: it arrives at once, and may lie over one that
/// was looked at already.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Forgery {
    /// How far behind what is folded.
    pub behind: u8,
    /// The number of a request, new or used.
    pub request: u8,
    /// A range, its own or another's.
    pub range: Range,
    /// How much the generation of each slot is more than the last one; none where it is.
    pub named: [Option<u8>; SLOTS],
    /// It is all there.
    pub is_whole: bool,
}

/// Generations that it names: its last one, the one that comes after that, and of two slots.
const NAMED: [[Option<u8>; SLOTS]; 3] = [[Some(0), None], [Some(1), None], [Some(0), Some(0)]];
/// Requests that it names, in any order and again and again.
const REQUESTS: u8 = 2;

impl State {
    pub(super) fn forgeries(&self, bounds: &Bounds) -> Vec<Forgery> {
        if self.spent.forgeries >= bounds.forgeries {
            return Vec::new();
        }
        let mut all = Vec::new();
        for behind in 0..bounds.places {
            for request in 0..REQUESTS {
                for range in 1..4 {
                    for named in NAMED {
                        let whole = Forgery { behind, request, range, named, is_whole: true };
                        all.push(whole);
                    }
                }
            }
            // of a record that is not whole nobody is to look at the rest
            let named = NAMED[0];
            all.push(Forgery { behind, request: 0, range: 1, named, is_whole: false });
        }
        all
    }

    pub(super) fn forge(&mut self, forgery: Forgery, bounds: &Bounds) {
        let place = self.folded[0] + forgery.behind;
        let mut named = [0; SLOTS];
        for (slot, named) in named.iter_mut().enumerate() {
            *named = forgery.named[slot].map_or(0, |more| self.slots[0][slot].last + more);
        }
        let record = Record {
            seed: self.holders[0].seed,
            place,
            request: forgery.request,
            range: forgery.range,
            named,
            is_whole: forgery.is_whole,
        };
        self.holders[0].lane[usize::from(place % bounds.places)] = Some(record);
        self.spent.forgeries += 1;
    }
}
