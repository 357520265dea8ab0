//! Which of the images that a crash point allows are looked at.

use crate::model::InFlight;
use crate::rng::Rng;
use std::collections::BTreeSet;

/// How many.
#[derive(Clone, Debug)]
pub struct Budget {
    /// With at most this many lines in flight, every subset.
    pub exhaustive_lines: usize,
    /// Otherwise this many random ones.
    pub subsets: usize,
    /// Torn states of each line in flight (7 is all of a line that was stored once).
    pub tears: usize,
    /// Lines of which each alone is lost or kept, at most; random ones of more.
    pub single_lines: usize,
}

impl Budget {
    /// For tests.
    pub fn small() -> Budget {
        Budget { exhaustive_lines: 6, subsets: 16, tears: 1, single_lines: 16 }
    }

    /// For long runs.
    pub fn large() -> Budget {
        Budget { exhaustive_lines: 10, subsets: 256, tears: 7, single_lines: usize::MAX }
    }
}

/// Steps of each line in flight: one image.
pub type Choice = Vec<u16>;

/// The images to look at, each once.
pub fn choices(lines: &[InFlight], budget: &Budget, rng: &mut Rng) -> Vec<Choice> {
    let all: Choice = lines.iter().map(|line| line.steps as u16).collect();
    let none: Choice = vec![0; lines.len()];
    let mut seen = BTreeSet::new();
    let mut chosen = Vec::new();
    let mut add = |choice: Choice| {
        if seen.insert(choice.clone()) {
            chosen.push(choice);
        }
    };
    add(all.clone());
    add(none.clone());
    prefixes(lines).into_iter().for_each(&mut add);
    for index in some(lines.len(), budget.single_lines, rng) {
        let mut lost = all.clone();
        lost[index] = 0;
        add(lost);
        let mut kept = none.clone();
        kept[index] = all[index];
        add(kept);
        let tears: Vec<usize> = (1..lines[index].steps).collect();
        for tear in some(tears.len(), budget.tears, rng) {
            let mut torn = all.clone();
            torn[index] = tears[tear] as u16;
            add(torn);
            let mut alone = none.clone();
            alone[index] = tears[tear] as u16;
            add(alone);
        }
    }
    if lines.len() <= budget.exhaustive_lines {
        for subset in 0..1u64 << lines.len() {
            let kept = |index: usize| if subset >> index & 1 == 1 { all[index] } else { 0 };
            add((0..lines.len()).map(kept).collect());
        }
    } else {
        (0..budget.subsets).for_each(|_| add(random(lines, rng)));
    }
    chosen
}

/// What is durable if everything became durable in the order in which it was stored.
fn prefixes(lines: &[InFlight]) -> Vec<Choice> {
    let events: BTreeSet<usize> =
        lines.iter().flat_map(|line| line.stores.iter().map(|(event, _)| *event)).collect();
    let prefix = |last: &usize| {
        let steps = |line: &InFlight| {
            let done = line.stores.iter().rev().find(|(event, _)| event <= last);
            done.map_or(0, |(_, steps)| *steps as u16)
        };
        lines.iter().map(steps).collect()
    };
    events.iter().map(prefix).collect()
}

fn random(lines: &[InFlight], rng: &mut Rng) -> Choice {
    let few = rng.below(3);
    let mut steps = |line: &InFlight| match (rng.below(16), few) {
        (0, _) => rng.below(line.steps + 1) as u16,
        // a third of them loses few lines, a third keeps few
        (1..=2, 0) | (1..=8, 1) | (1..=14, 2) => 0,
        _ => line.steps as u16,
    };
    lines.iter().map(&mut steps).collect()
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

    fn lines(count: usize) -> Vec<InFlight> {
        let line =
            |index| InFlight { line: (0, index), stores: vec![(index as usize, 8)], steps: 8 };
        (0..count as u64).map(line).collect()
    }

    #[test]
    fn few_lines_are_explored_exhaustively_and_once() {
        let budget = Budget { tears: 0, ..Budget::large() };
        assert_eq!(choices(&lines(4), &budget, &mut Rng::new(1)).len(), 16);
        let torn = choices(&lines(2), &Budget::large(), &mut Rng::new(1));
        assert_eq!(torn.len(), 4 + 2 * 7 * 2);
    }

    #[test]
    fn many_lines_lose_each_one_and_keep_each_one() {
        let budget = Budget { tears: 0, subsets: 5, ..Budget::large() };
        let chosen = choices(&lines(64), &budget, &mut Rng::new(1));
        let lost_one = chosen.iter().filter(|c| c.iter().filter(|s| **s == 0).count() == 1);
        assert_eq!(lost_one.count(), 64);
        assert_eq!(chosen, choices(&lines(64), &budget, &mut Rng::new(1)), "by the seed alone");
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
