//! Ours and the floor in turns.

use crate::clock::Turn;
use crate::error::Result;
use crate::row::Spread;
use crate::stats::{median, spread};

/// The turns of both sides, round by round.
#[derive(Clone, Debug, Default)]
pub struct Duel {
    /// Ours.
    pub ours: Vec<Turn>,
    /// The floor's or peer's.
    pub theirs: Vec<Turn>,
}

impl Duel {
    /// One turn each that does not count, then `rounds` that do; who begins changes.
    pub fn run(
        rounds: usize,
        mut ours: impl FnMut() -> Result<Turn>,
        mut theirs: impl FnMut() -> Result<Turn>,
    ) -> Result<Duel> {
        let mut duel = Duel::default();
        ours()?;
        theirs()?;
        for round in 0..rounds {
            if round % 2 == 0 {
                duel.ours.push(ours()?);
                duel.theirs.push(theirs()?);
            } else {
                duel.theirs.push(theirs()?);
                duel.ours.push(ours()?);
            }
        }
        Ok(duel)
    }

    /// Median over our turns.
    pub fn ours(&self, of: fn(&Turn) -> f64) -> f64 {
        median(&self.ours.iter().map(of).collect::<Vec<_>>())
    }

    /// Median over their turns.
    pub fn theirs(&self, of: fn(&Turn) -> f64) -> f64 {
        median(&self.theirs.iter().map(of).collect::<Vec<_>>())
    }

    /// Ratios of the rounds: theirs by ours.
    pub fn ratios(&self, of: fn(&Turn) -> f64) -> Spread {
        let pairs = self.theirs.iter().zip(&self.ours);
        spread(&pairs.map(|(theirs, ours)| of(theirs) / of(ours)).collect::<Vec<_>>())
    }
}
