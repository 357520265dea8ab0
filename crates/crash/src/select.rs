//! Which of the images that a crash point allows are looked at.
//!
//! All of them where they are few: every number of steps of each unit with every other. Of more
//! than that, samples by a seed: first those that tell most (all and nothing is durable, what was
//! stored until a moment, one unit alone is lost, kept or torn), then random ones, in which the
//! units that recovery reads are what differs.

use crate::model::{InFlight, LineId, Unit};
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// How many images of a crash point.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// All of them, if they are no more than this.
    pub exhaustive: u64,
    /// Otherwise so many.
    pub samples: usize,
}

impl Budget {
    /// For tests.
    pub const SMALL: Budget = Budget { exhaustive: 128, samples: 64 };
    /// For long recordings: few of each of many points.
    pub const SPARSE: Budget = Budget { exhaustive: 16, samples: 12 };
    /// For long runs.
    pub const LARGE: Budget = Budget { exhaustive: 65_536, samples: 4_096 };
}

/// Steps of each unit in flight: one image.
pub type Choice = Vec<u16>;

/// How many images there are.
pub fn count(units: &[InFlight]) -> u64 {
    units.iter().fold(1, |count: u64, unit| count.saturating_mul(unit.steps as u64 + 1))
}

/// All images, from the one in which everything is durable to the one in which nothing is.
pub fn all(units: &[InFlight]) -> impl Iterator<Item = Choice> {
    let most: Choice = units.iter().map(|unit| unit.steps as u16).collect();
    let below = most.clone();
    std::iter::successors(Some(most), move |choice| {
        let mut next = choice.clone();
        let index = next.iter().position(|steps| *steps > 0)?;
        next[index] -= 1;
        next[..index].copy_from_slice(&below[..index]);
        Some(next)
    })
}

/// At most `most` images that tell much, each once.
pub fn telling(units: &[InFlight], most: usize, rng: &mut Rng) -> Vec<Choice> {
    let all: Choice = units.iter().map(|unit| unit.steps as u16).collect();
    let none: Choice = vec![0; units.len()];
    let mut chosen = vec![all.clone(), none.clone()];
    let moments = moments(units);
    for index in some(moments.len(), most / 4, rng) {
        chosen.push(until(units, moments[index]));
    }
    for index in some(units.len(), most / 6, rng) {
        let mut but = |steps: u16| {
            for mut choice in [all.clone(), none.clone()] {
                choice[index] = steps;
                chosen.push(choice);
            }
        };
        but(0);
        but(all[index]);
        if units[index].steps > 1 {
            but(1 + rng.below(units[index].steps - 1) as u16);
        }
    }
    let mut seen = BTreeSet::new();
    chosen.retain(|choice| seen.insert(choice.clone()));
    chosen.truncate(most);
    chosen
}

/// The events that stored what is in flight.
fn moments(units: &[InFlight]) -> Vec<usize> {
    let events = units.iter().flat_map(|unit| unit.stores.iter().map(|(event, _)| *event));
    events.collect::<BTreeSet<usize>>().into_iter().collect()
}

/// What is durable if everything became durable in the order in which it was stored.
fn until(units: &[InFlight], last: usize) -> Choice {
    units.iter().map(|unit| steps_until(unit, last)).collect()
}

fn steps_until(unit: &InFlight, last: usize) -> u16 {
    let done = unit.stores.iter().rev().find(|(event, _)| *event <= last);
    done.map_or(0, |(_, steps)| *steps as u16)
}

/// One image by chance. `pages`: of a medium that takes pages, in any order.
pub fn random(units: &[InFlight], read: &BTreeSet<LineId>, pages: bool, rng: &mut Rng) -> Choice {
    if pages && rng.below(2) == 0 {
        return written(units, rng);
    }
    let way = rng.below(4);
    // how many of those that are read go the other way
    let told = units.iter().filter(|unit| is_read(unit, read)).count().max(1);
    let few = 1 + rng.below(3);
    let mut steps = |unit: &InFlight| {
        let all = unit.steps as u16;
        if matches!(unit.unit, Unit::Thread(_)) {
            return rng.below(unit.steps + 1) as u16;
        }
        if !is_read(unit, read) {
            return if rng.below(2) == 0 { 0 } else { all };
        }
        let other = match way {
            0 | 1 => rng.below(told) < few,
            2 => rng.below(2) == 0,
            _ => rng.below(8) == 0,
        };
        match (other, way) {
            (true, 3) => rng.below(unit.steps + 1) as u16,
            (true, 1) | (false, 0 | 2 | 3) => all,
            (true, _) | (false, _) => 0,
        }
    };
    units.iter().map(&mut steps).collect()
}

fn is_read(unit: &InFlight, read: &BTreeSet<LineId>) -> bool {
    match unit.unit {
        Unit::Line(line) => read.contains(&line),
        Unit::Thread(_) => true,
    }
}

const PAGE_SECTORS: u64 = 4096 / 512;
const SECTOR_LINES: u64 = 512 / crate::model::LINE as u64;

/// What is durable if each page was written at some time or never, one of them torn between two
/// sectors.
fn written(units: &[InFlight], rng: &mut Rng) -> Choice {
    let moments = moments(units);
    let mut when = || match rng.below(3) {
        0 => None,
        1 => moments.last().copied(),
        _ => moments.get(rng.below(moments.len().max(1))).copied(),
    };
    let (torn, torn_when) = (when(), when());
    let torn = torn.and_then(|event| units.iter().find(|unit| unit.stores[0].0 >= event));
    let torn = torn.map(|unit| sector(unit.unit));
    let mut pages: BTreeMap<Option<(u32, u64)>, Option<usize>> = BTreeMap::new();
    let mut steps = |unit: &InFlight| {
        let sector = sector(unit.unit);
        let page = sector.map(|(slice, number)| (slice, number / PAGE_SECTORS));
        let page = *pages.entry(page).or_insert_with(&mut when);
        let written = if torn == Some(sector) { torn_when } else { page };
        written.map_or(0, |last| steps_until(unit, last))
    };
    units.iter().map(&mut steps).collect()
}

fn sector(unit: Unit) -> Option<(u32, u64)> {
    match unit {
        Unit::Line((slice, number)) => Some((slice, number / SECTOR_LINES)),
        Unit::Thread(_) => None,
    }
}

/// At most `most` of the indices below `count`, in order.
fn some(count: usize, most: usize, rng: &mut Rng) -> Vec<usize> {
    if count <= most {
        return (0..count).collect();
    }
    let mut taken = BTreeSet::new();
    while taken.len() < most {
        taken.insert(rng.below(count));
    }
    taken.into_iter().collect()
}

/// A choice in few characters: steps, repeated so many times.
pub fn encode(choice: &[u16]) -> String {
    let mut runs: Vec<(u16, usize)> = Vec::new();
    for steps in choice {
        match runs.last_mut() {
            Some((last, count)) if last == steps => *count += 1,
            _ => runs.push((*steps, 1)),
        }
    }
    let runs: Vec<String> = runs.iter().map(|(steps, count)| format!("{steps}x{count}")).collect();
    if runs.is_empty() { "-".to_owned() } else { runs.join(",") }
}

/// The choice that `encode` wrote.
pub fn decode(text: &str) -> Option<Choice> {
    let mut choice = Vec::new();
    for run in text.split(',').filter(|run| *run != "-") {
        let (steps, count) = run.split_once('x')?;
        let (steps, count): (u16, usize) = (steps.parse().ok()?, count.parse().ok()?);
        choice.resize(choice.len().checked_add(count).filter(|n| *n < 1 << 24)?, steps);
    }
    Some(choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(count: usize, steps: usize) -> Vec<InFlight> {
        let unit = |index| {
            let unit = Unit::Line((0, index));
            InFlight { unit, stores: vec![(index as usize, steps)], steps }
        };
        (0..count as u64).map(unit).collect()
    }

    #[test]
    fn all_images_are_each_number_of_steps_with_each_other_once() {
        let units = [units(2, 8), units(1, 2)].concat();
        let images: Vec<Choice> = all(&units).collect();
        assert_eq!((images.len() as u64, count(&units)), (9 * 9 * 3, 9 * 9 * 3));
        assert_eq!(images.iter().collect::<BTreeSet<_>>().len(), images.len());
        assert_eq!((&images[0], &images[images.len() - 1]), (&vec![8, 8, 2], &vec![0; 3]));
        assert_eq!(all(&[]).collect::<Vec<_>>(), [Choice::new()]);
        assert_eq!(count(&self::units(64, 8)), u64::MAX);
    }

    #[test]
    fn samples_lose_one_keep_one_and_tear_one_and_follow_the_seed_alone() {
        let units = units(64, 8);
        let samples = |seed| telling(&units, 4096, &mut Rng::new(seed));
        let chosen = samples(1);
        let with = |steps: u16, count: usize| {
            let has = |c: &&Choice| c.iter().filter(|s| **s == steps).count() == count;
            chosen.iter().filter(has).count()
        };
        assert_eq!((with(0, 1), with(8, 1)), (64, 64));
        let torn = chosen.iter().filter(|c| c.iter().any(|s| (1..8).contains(s)));
        assert_eq!(torn.count(), 128, "each, of all and alone");
        assert_eq!(chosen, samples(1));
        assert!((2..=10).contains(&telling(&units, 10, &mut Rng::new(1)).len()));
    }

    #[test]
    fn random_samples_differ_in_the_lines_that_are_read() {
        let (units, mut rng) = (units(64, 8), Rng::new(3));
        let read = BTreeSet::from([(0, 5), (0, 6)]);
        let drawn: Vec<Choice> = (0..400).map(|_| random(&units, &read, false, &mut rng)).collect();
        let of_both: BTreeSet<(u16, u16)> = drawn.iter().map(|c| (c[5], c[6])).collect();
        assert!(of_both.len() >= 12, "{of_both:?}");
    }

    #[test]
    fn a_page_is_written_as_it_was_at_one_moment_but_for_one_sector_of_it() {
        let (units, mut rng) = (units(128, 1), Rng::new(4));
        let mut part = 0;
        for _ in 0..200 {
            let choice = written(&units, &mut rng);
            for page in choice.chunks(64) {
                let sectors: BTreeSet<&[u16]> = page.chunks(8).collect();
                let edges = page.windows(2).filter(|pair| pair[0] != pair[1]).count();
                assert!(edges <= 3, "{page:?}");
                part += usize::from(sectors.len() > 1);
            }
        }
        assert!(part > 100, "{part}");
    }

    #[test]
    fn a_choice_round_trips() {
        for choice in [vec![], vec![8], vec![0, 0, 8, 3, 3]] {
            assert_eq!(decode(&encode(&choice)), Some(choice));
        }
        assert_eq!(decode("nonsense"), None);
        assert_eq!(decode("1x99999999999"), None);
    }
}
