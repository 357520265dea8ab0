//! One case: a seed's image, changes to it, and its use.

use crate::corpus::Seed;
use crate::exercise::{Stage, Terms, exercise, mend};
use crate::image::{BLOCK, Image, Part};
use crate::mutate::{another_boot, mutate};
use crate::place::Files;
use crate::random::Random;
use crate::seal::{mirror, seal};
use std::path::Path;

/// The corpus, with where its structures are.
#[derive(Debug)]
pub struct Corpus {
    seeds: Vec<(Seed, Vec<Part>)>,
}

/// An image to be used.
#[derive(Debug)]
pub struct Case<'c> {
    image: Image,
    terms: Terms<'c>,
    /// What was done to which image.
    pub story: String,
}

impl Corpus {
    /// Makes it, in `dir`.
    pub fn make(dir: &Path) -> Corpus {
        let with_parts = |seed: Seed| {
            let parts = seed.image.parts();
            (seed, parts)
        };
        Corpus { seeds: crate::corpus::make(dir).into_iter().map(with_parts).collect() }
    }

    /// The images that cases start from.
    pub fn seeds(&self) -> impl Iterator<Item = &Seed> {
        self.seeds.iter().map(|(seed, _)| seed)
    }

    /// The case of this number.
    pub fn case(&self, number: u64) -> Case<'_> {
        let mut random = Random::new(number);
        let (seed, parts) = &self.seeds[random.below(self.seeds.len())];
        let others = self.seeds().filter(|other| other.name != seed.name);
        let foreign: Vec<&Vec<u8>> = others.flat_map(|other| &other.image.devices).collect();
        let mut image = seed.image.clone();
        if random.once_in(3) {
            another_boot(&mut image);
        }
        let mut changes = mutate(&mut image, parts, &foreign, &mut random);
        let one = blocks_changed(&seed.image, &image) <= 1;
        let sealed = random.once_in(2);
        if sealed {
            seal(&mut image, parts);
            changes.push("sealed".to_owned());
        } else if random.once_in(2) {
            mirror(&mut image, parts);
            changes.push("in both copies".to_owned());
        }
        let known = if one { Some(&seed.legal) } else { seed.history.as_ref() };
        let legal = known.filter(|_| !sealed).map(Vec::as_slice);
        let (kill, moves) = (random.once_in(2), random.once_in(2));
        let terms = Terms { legal, sound: !sealed, kill, moves };
        Case { image, terms, story: format!("{}: {}", seed.name, changes.join(", ")) }
    }
}

/// In how many blocks the images differ.
fn blocks_changed(one: &Image, other: &Image) -> usize {
    fn all(image: &Image) -> impl Iterator<Item = &Vec<u8>> {
        image.slices.iter().chain(&image.devices)
    }
    let same_shape = all(one).map(Vec::len).eq(all(other).map(Vec::len));
    if !same_shape || one.devices.len() != other.devices.len() {
        return usize::MAX;
    }
    let blocks = all(one)
        .zip(all(other))
        .flat_map(|(one, other)| one.chunks(BLOCK).zip(other.chunks(BLOCK)));
    blocks.filter(|(one, other)| one != other).count()
}

impl Case<'_> {
    /// Uses the image, in `dir`.
    pub fn run(&self, dir: &Path) -> Stage {
        let mut files = Files::new(dir, 0);
        files.hold(&self.image);
        let stage = exercise(&files, self.terms);
        if stage < Stage::Whole {
            files.hold(&self.image);
            mend(&files);
        }
        stage
    }

    /// Puts the image into `dir`, to be looked at.
    pub fn write(&self, dir: &Path) {
        Files::new(dir, 0).hold(&self.image);
    }
}
