//! Long writes, and the two ways in which what comes gets to a block.

use super::wire::Work;
use super::{BYTES, LONG_BYTES, LONG_SHARE, MORE_BYTES, Side, Studied, iperf, pairwise};
use crate::error::Result;
use crate::service::seat::{Order, Took};
use crate::service::{Asked, Figure};

/// The other way to a block.
const THERE: &str = "received there, never flushed";

impl Studied {
    /// Writes of 1 MiB that do not wait for each other, beside bytes that nobody looks at.
    pub fn long_writes_pipelined(&self) -> Result<Vec<Figure>> {
        let name = "1 MiB durable writes, pipelined";
        let (_service, _, place) = self.service("long-pipelined")?;
        let mut client = self.attached(&place, "far")?;
        let count = (self.calls / LONG_SHARE).max(10);
        let order = Order::WritePipelined { bytes: LONG_BYTES, count };
        let (mut ours, mut theirs, mut missing) = (Vec::new(), Vec::new(), None);
        let mib = f64::from(1 << 20);
        for round in 0..=self.rounds {
            let took = client.ask(&order)?;
            let rate = iperf::rate(count * LONG_BYTES as u64, self.cpus)?;
            if round == 0 {
                continue;
            }
            ours.push(took.rate() * LONG_BYTES as f64 / mib);
            match rate {
                Ok(rate) => theirs.push(rate / mib),
                Err(why) => missing = Some(why),
            }
        }
        let figure = Figure::new(name, "MiB/s", &ours);
        if let Some(why) = missing {
            return Ok(vec![figure, Figure::skipped("iperf3", why)]);
        }
        let ratios = pairwise(&ours, &theirs, |one, other| one / other);
        Ok(vec![figure.beside("iperf3", &theirs, &ratios).asked(Asked::AtLeast(0.8))])
    }

    /// Writes of 1 MiB, one after the other.
    pub fn long_writes(&self) -> Result<Vec<Figure>> {
        let (_service, _, place) = self.service("long")?;
        let count = (self.calls / LONG_SHARE).max(10);
        let order = Order::Write { bytes: LONG_BYTES, count };
        let ours = self.attached(&place, "far")?;
        let ours = Side { name: "ours", asks: ours, order, turns: Vec::new(), asked: None };
        let exchanges = (LONG_BYTES + MORE_BYTES, count);
        let (_bare, bare) = self.exchanging("bare exchange", Work::Nothing, exchanges, None)?;
        let mut sides = [ours, bare];
        self.take_turns(&mut sides)?;
        let rate = |took: &Took| took.rate() * LONG_BYTES as f64 / f64::from(1 << 20);
        let [ours, bare] = sides.map(|side| side.turns.iter().map(rate).collect::<Vec<_>>());
        let ratios = pairwise(&ours, &bare, |one, other| one / other);
        let figure = Figure::new("1 MiB durable writes, one after the other", "MiB/s", &ours);
        Ok(vec![figure.beside("bare exchange", &bare, &ratios).asked(Asked::AtLeast(0.8))])
    }

    /// The two ways to a block: through a buffer, or straight away.
    pub fn placed(&self) -> Result<Vec<Figure>> {
        let mut figures = Vec::new();
        for (bytes, words) in [
            (4 << 10, "4 KiB into a block: through a buffer, summed and copied past the caches"),
            (16 << 10, "16 KiB into blocks: the same"),
            (64 << 10, "64 KiB into blocks: the same"),
            (LONG_BYTES, "1 MiB into blocks: the same"),
        ] {
            let count = (self.calls * BYTES as u64 / bytes as u64).max(10);
            let exchanges = (bytes, count);
            let (_copies, copied) = self.exchanging("copied", Work::Copied, exchanges, None)?;
            let (_places, placed) = self.exchanging(THERE, Work::Placed, exchanges, None)?;
            let mut sides = [copied, placed];
            self.take_turns(&mut sides)?;
            let [copied, placed] = sides
                .map(|side| side.turns.iter().map(|took| took.p50_ns / 1e3).collect::<Vec<_>>());
            let ratios = pairwise(&copied, &placed, |one, other| one / other);
            let figure = Figure::new(words, "us", &copied);
            figures.push(figure.beside(THERE, &placed, &ratios));
        }
        Ok(figures)
    }
}
