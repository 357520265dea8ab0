//! Processes that share one pool, beside as many that have a pool each: YCSB's mixes, all at once.
//!
//! Three sides take turns in rounds: processes that are attached to the service of a pool,
//! processes that own a pool of such a part of its size, and processes that are attached and each
//! in a container. Each process has records of its own, in a region. A turn is as long for each;
//! what counts is how many operations all processes of a side make in it, a second. Before a
//! side's next turn its background rests.

mod container;

use crate::error::Result;
use crate::options::Options;
use crate::scratch::Scratch;
use crate::service::seat::{Order, Seat};
use crate::service::{Asked, Figure};
use crate::ycsb::Mix;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a record: the deck's, and YCSB's own.
const RECORD_BYTES: [usize; 2] = [64 << 10, 1 << 10];
/// Bytes of all records of a process, before scaling.
const DATA_BYTES: f64 = 32.0 * 1048576.0;
/// A turn, before scaling.
const TURN: Duration = Duration::from_millis(200);
/// Of what one has to itself, or has outside of a container.
const ASKED: Asked = Asked::AtLeast(0.95);

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct SharingOptions {
    /// Processes of a side.
    pub processes: u32,
    /// Records and turns are so many times as large.
    pub scale: f64,
    /// Rounds.
    pub rounds: usize,
}

/// Measures; shows each figure as soon as it is there.
pub fn sharing(
    options: &Options,
    asked: &SharingOptions,
    show: &mut dyn FnMut(&Figure),
) -> Result<Vec<Figure>> {
    let scale = asked.scale * if options.quick { 0.25 } else { 1.0 };
    let study = Studied {
        scratch: Scratch::new(options.dir())?,
        processes: asked.processes,
        data_bytes: ((DATA_BYTES * scale) as u64).next_multiple_of(RECORD_BYTES[0] as u64),
        turn: TURN.mul_f64(scale),
        rounds: asked.rounds.max(1),
    };
    let mut attached = study.attached("attached", |_, socket| Seat::attached(socket))?;
    let mut embedded = study.embedded()?;
    let no_containers = container::missing(&study.root("probe")?);
    let mut contained = match no_containers {
        None => Some(study.attached("contained", |number, socket| {
            let root = study.root(&format!("root-{number}"))?;
            let mut seat = Seat::start_by(container::command(&root, socket)?)?;
            seat.ask(&Order::Attach { dir: container::SOCKET.into() })?;
            Ok(seat)
        })?),
        Some(_) => None,
    };
    let mut figures = Vec::new();
    for bytes in RECORD_BYTES {
        for mix in Mix::all() {
            let sides: Vec<&mut Side> =
                [&mut attached, &mut embedded].into_iter().chain(&mut contained).collect();
            let rates = study.mix(mix, bytes, sides)?;
            for figure in compared(mix, bytes, &rates, no_containers) {
                show(&figure);
                figures.push(figure);
            }
        }
    }
    Ok(figures)
}

/// Operations a second by side and round, as figures.
fn compared(
    mix: Mix,
    bytes: usize,
    rates: &[Vec<f64>],
    no_containers: Option<&'static str>,
) -> Vec<Figure> {
    let name = format!("{} KiB, {}", bytes >> 10, mix.name());
    let figure = |name: String, ours: &[f64], who: &'static str, theirs: &[f64]| {
        let ratios: Vec<_> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        Figure::new(name, "/s", ours).beside(who, theirs, &ratios).asked(ASKED)
    };
    let in_containers = format!("{name}: in containers");
    let mut figures = Vec::new();
    if let [attached, embedded, others @ ..] = rates {
        figures.push(figure(name, attached, "embedded", embedded));
        figures.push(match (others, no_containers) {
            ([contained, ..], None) => figure(in_containers, contained, "plain", attached),
            (_, why) => Figure::skipped(in_containers, why.unwrap_or_default()),
        });
    }
    figures
}

/// Processes that work at once, and the one that serves them, if it is none of them.
struct Side {
    seats: Vec<Seat>,
    service: Option<Seat>,
}

impl Side {
    /// Has all do it at once; the sum of what they did a second.
    fn ask(&mut self, order: impl Fn(usize) -> Order) -> Result<f64> {
        for (number, seat) in self.seats.iter_mut().enumerate() {
            seat.order(&order(number))?;
        }
        let mut sum = 0.0;
        for seat in &mut self.seats {
            sum += seat.answer()?.rate();
        }
        if let Some(service) = &mut self.service {
            service.ask(&Order::Rest)?;
        }
        Ok(sum)
    }
}

struct Studied {
    scratch: Scratch,
    processes: u32,
    /// Bytes of all records of a process.
    data_bytes: u64,
    turn: Duration,
    rounds: usize,
}

impl Studied {
    /// Bytes of a slice for each process: a write puts its record into new blocks.
    fn share_bytes(&self) -> u64 {
        2 * self.data_bytes + (32 << 20)
    }

    /// An empty directory.
    fn root(&self, name: &str) -> Result<PathBuf> {
        let path = self.scratch.path().join(name);
        std::fs::create_dir(&path).map_err(crate::error::io(&path))?;
        Ok(path)
    }

    fn attached(&self, name: &str, start: impl Fn(u32, &Path) -> Result<Seat>) -> Result<Side> {
        let dir = self.scratch.path().join(name);
        let mut service = Seat::start()?;
        let bytes = u64::from(self.processes) * self.share_bytes();
        service.ask(&Order::Own { dir: dir.clone(), bytes, serves: true })?;
        let socket = dir.join(nearside::ATTACH_SOCKET);
        let seats = (0..self.processes).map(|number| start(number, &socket));
        self.filled(Side { seats: seats.collect::<Result<_>>()?, service: Some(service) })
    }

    fn embedded(&self) -> Result<Side> {
        let owner = |number| {
            let (mut seat, dir) =
                (Seat::start()?, self.scratch.path().join(format!("own-{number}")));
            seat.ask(&Order::Own { dir, bytes: self.share_bytes(), serves: false })?;
            Ok(seat)
        };
        let seats = (0..self.processes).map(owner).collect::<Result<_>>()?;
        self.filled(Side { seats, service: None })
    }

    /// With the records of each.
    fn filled(&self, mut side: Side) -> Result<Side> {
        let bytes = self.data_bytes;
        side.ask(|number| Order::File { name: format!("records-{number}"), bytes })?;
        side.ask(|_| Order::Map)?;
        Ok(side)
    }

    /// All turns of a mix: operations a second by side and round.
    fn mix(&self, mix: Mix, bytes: usize, mut sides: Vec<&mut Side>) -> Result<Vec<Vec<f64>>> {
        let mut rates = vec![Vec::new(); sides.len()];
        let order = |turn: Duration, round: usize| {
            move |number: usize| {
                let seed = (round * 64 + number) as u64;
                Order::Mix { mix, bytes, turn, seed }
            }
        };
        for side in &mut sides {
            // for warmth, and for leases; where one began, pages went
            side.ask(order(self.turn / 4, 0))?;
            side.ask(|_| Order::Map)?;
        }
        for round in 0..self.rounds {
            for step in 0..sides.len() {
                let index = (step + round) % sides.len();
                rates[index].push(sides[index].ask(order(self.turn, round + 1))?);
            }
        }
        Ok(rates)
    }
}
