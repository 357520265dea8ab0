//! Pages of copies that the other side has not been told to be gone: no more than so many runs.

use std::collections::BTreeSet;
use std::ops::Range;

use wire::OfCopy;

/// Runs of pages, at most, but for one of each copy.
const RUNS_MAX: usize = 256;
/// All pages of a copy.
const ALL: Range<u64> = 0..u64::MAX;

/// What is to be told, in no order: nothing comes between.
#[derive(Debug, Default)]
pub struct Gone(Vec<(u64, Range<u64>)>);

impl Gone {
    /// Pages of a copy have gone.
    pub fn add(&mut self, copy: u64, pages: Range<u64>) {
        if let Some((last, run)) = self.0.last_mut()
            && (*last, run.end) == (copy, pages.start)
        {
            run.end = pages.end;
        } else if self.0.contains(&(copy, ALL)) {
        } else if self.0.len() < RUNS_MAX {
            self.0.push((copy, pages));
        } else {
            // who takes nothing loses all: it asks again for what it wants
            let copies = self.0.iter().map(|(copy, _)| *copy).chain([copy]);
            let copies: BTreeSet<u64> = copies.collect();
            self.0 = copies.into_iter().map(|copy| (copy, ALL)).collect();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that is to be told, which is told then.
    pub fn take(&mut self) -> impl Iterator<Item = OfCopy> {
        let runs = std::mem::take(&mut self.0);
        let told = |(copy, pages): (u64, Range<u64>)| OfCopy::Gone {
            copy,
            page: pages.start,
            pages: pages.end - pages.start,
        };
        runs.into_iter().map(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_gone_is_told_and_no_more_is_kept_than_there_may_be() {
        let mut gone = Gone::default();
        for page in 0..10 {
            gone.add(1, page..page + 1);
        }
        assert_eq!(gone.0, [(1, 0..10)]);
        for page in 0..1_000_000u64 {
            gone.add(1 + page % 7, 3 * page..3 * page + 1);
            assert!(gone.0.len() <= RUNS_MAX + 7);
        }
        let told: Vec<_> = gone.take().collect();
        for copy in 1..8 {
            assert!(told.contains(&OfCopy::Gone { copy, page: 0, pages: u64::MAX }), "{copy}");
        }
        assert!(gone.is_empty());
    }
}
