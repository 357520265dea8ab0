//! Which record is next: any of them alike, or a few of them most of the time.

use crate::dice::Dice;
use serde::{Deserialize, Serialize};

/// Of YCSB: the n-th most wanted record is wanted `n^-0.99` times as often as the first.
const THETA: f64 = 0.99;
/// Numbers that the dice give.
const SIDES: u64 = 1 << 53;

/// How often records are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// All alike.
    Uniform,
    /// A few of them most of the time.
    Zipfian,
}

impl Wanted {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Wanted::Uniform => "uniform",
            Wanted::Zipfian => "zipfian",
        }
    }
}

/// Chooses records.
#[derive(Debug)]
pub struct Chooser {
    dice: Dice,
    /// For each rank the share of all choices that fall on it or on a lower one.
    shares: Vec<f64>,
    /// The record of each rank: those that are wanted most lie anywhere.
    records: Vec<u32>,
}

impl Chooser {
    /// Among `count` records; the same choices for the same seed.
    pub fn new(wanted: Wanted, count: u32, seed: u64) -> Chooser {
        let weight = |rank: u32| match wanted {
            Wanted::Uniform => 1.0,
            Wanted::Zipfian => f64::from(rank + 1).powf(-THETA),
        };
        let mut sum = 0.0;
        let mut shares: Vec<f64> = (0..count)
            .map(|rank| {
                sum += weight(rank);
                sum
            })
            .collect();
        shares.iter_mut().for_each(|share| *share /= sum);
        // the same order for all seeds: who comes first decides what is cached for the next
        let mut order = Dice::new(99);
        let mut records: Vec<u32> = (0..count).collect();
        for end in (1..count).rev() {
            records.swap(end as usize, order.below(u64::from(end) + 1) as usize);
        }
        Chooser { dice: Dice::new(seed), shares, records }
    }

    /// The next record.
    pub fn next(&mut self) -> u32 {
        let place = self.dice.below(SIDES) as f64 / SIDES as f64;
        let rank = self.shares.partition_point(|share| *share <= place);
        self.records[rank.min(self.records.len() - 1)]
    }

    /// Whether the next call is one of `percent` in a hundred.
    pub fn is_among(&mut self, percent: u32) -> bool {
        self.dice.below(100) < u64::from(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(wanted: Wanted, count: u32, tries: u32) -> Vec<f64> {
        let mut chooser = Chooser::new(wanted, count, 1);
        let mut counts = vec![0.0; count as usize];
        (0..tries).for_each(|_| counts[chooser.next() as usize] += 1.0);
        counts
    }

    #[test]
    fn the_most_wanted_records_are_chosen_as_often_as_zipf_says() {
        let (count, tries) = (100, 400_000);
        let mut found = counts(Wanted::Zipfian, count, tries);
        found.sort_by(|a, b| b.total_cmp(a));
        let sum: f64 = (1..=count).map(|rank| f64::from(rank).powf(-0.99)).sum();
        for rank in [1, 2, 5, 20] {
            let expected = f64::from(rank).powf(-0.99) / sum * f64::from(tries);
            let off = (found[rank as usize - 1] / expected - 1.0).abs();
            assert!(off < 0.05, "rank {rank}: {off}");
        }
    }

    #[test]
    fn uniform_choices_fall_on_all_alike() {
        let found = counts(Wanted::Uniform, 50, 500_000);
        assert!(found.iter().all(|count| (count / 10_000.0 - 1.0).abs() < 0.1), "{found:?}");
    }

    #[test]
    fn every_record_has_one_rank_and_the_first_is_not_the_first() {
        let chooser = Chooser::new(Wanted::Zipfian, 1000, 1);
        let mut records = chooser.records.clone();
        assert_ne!(records[..10], (0..10).collect::<Vec<_>>());
        records.sort_unstable();
        assert_eq!(records, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn one_record_is_always_chosen() {
        assert_eq!(counts(Wanted::Zipfian, 1, 10), [10.0]);
    }

    #[test]
    fn shares_of_writes_are_kept() {
        let mut chooser = Chooser::new(Wanted::Uniform, 1, 3);
        assert!((0..1000).all(|_| chooser.is_among(100)));
        let few = (0..100_000).filter(|_| chooser.is_among(5)).count();
        assert!((4700..5300).contains(&few), "{few}");
    }
}
