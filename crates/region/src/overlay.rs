//! What a long transaction wrote so far, by place: reads find it without looking at every write.

use std::collections::BTreeMap;
use std::ops::Range;

/// The last bytes that were written to each place of each file.
#[derive(Debug, Default)]
pub struct Overlay {
    /// By the file's number and where it begins: where it ends, and where its bytes lie in the
    /// transaction's memory. No two overlap.
    written: BTreeMap<(u64, u64), (u64, usize)>,
}

impl Overlay {
    /// The bytes at `at` of the transaction's memory are those of this range of a file from now on.
    pub fn put(&mut self, file: u64, range: Range<u64>, at: usize) {
        // what reaches into it from before keeps what lies before, and behind
        if let Some((&(_, start), &(end, old))) =
            self.written.range((file, 0)..(file, range.start)).next_back()
            && end > range.start
        {
            self.written.insert((file, start), (range.start, old));
            if end > range.end {
                let behind = old + (range.end - start) as usize;
                self.written.insert((file, range.end), (end, behind));
            }
        }
        while let Some((&(_, start), &(end, old))) =
            self.written.range((file, range.start)..(file, range.end)).next()
        {
            self.written.remove(&(file, start));
            if end > range.end {
                let behind = old + (range.end - start) as usize;
                self.written.insert((file, range.end), (end, behind));
            }
        }
        self.written.insert((file, range.start), (range.end, at));
    }

    /// Calls `each` with the parts of a range that were written, and where their bytes lie.
    pub fn within(&self, file: u64, range: Range<u64>, each: &mut dyn FnMut(Range<u64>, usize)) {
        let before = self.written.range((file, 0)..(file, range.start)).next_back();
        let inside = self.written.range((file, range.start)..(file, range.end));
        for (&(_, start), &(end, at)) in before.into_iter().chain(inside) {
            let (low, high) = (start.max(range.start), end.min(range.end));
            if low < high {
                each(low..high, at + (low - start) as usize);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_last_is_what_is_there(
            writes in prop::collection::vec((0u64..2, 0u64..80, 1u64..30), 1..40),
            (from, len) in (0u64..100, 1u64..60),
        ) {
            let (mut overlay, mut model) = (Overlay::default(), vec![vec![None; 200]; 2]);
            let mut at = 0;
            for (file, start, len) in writes {
                overlay.put(file, start..start + len, at);
                for place in start..start + len {
                    model[file as usize][place as usize] = Some(at + (place - start) as usize);
                }
                at += len as usize;
            }
            for file in 0..2 {
                let mut seen = vec![None; 200];
                overlay.within(file, from..from + len, &mut |range, at| {
                    for place in range.clone() {
                        assert!(seen[place as usize].is_none(), "{place} twice");
                        seen[place as usize] = Some(at + (place - range.start) as usize);
                    }
                });
                for place in 0..200 {
                    let inside = (from..from + len).contains(&place);
                    let want = model[file as usize][place as usize].filter(|_| inside);
                    prop_assert_eq!(seen[place as usize], want, "{} of {}", place, file);
                }
            }
        }
    }
}
