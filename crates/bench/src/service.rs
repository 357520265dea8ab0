//! What it costs to share a pool: processes that are attached to a service, beside one that has a
//! pool to itself, and beside the bare store.
//!
//! All who take part are processes of their own, this program again (`seat`). Those who are
//! compared take turns in rounds. A turn is so many durable writes at random places of a file;
//! printed are medians over the rounds, of what half of the calls took at most, and of all.

pub mod seat;
mod table;

use crate::error::Result;
use crate::options::Options;
use crate::row::Spread;
use crate::scratch::Scratch;
use crate::stats::{median, spread};
pub use seat::be_seated_if_asked;
use seat::{FILE_BYTES, Order, Seat, Took};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
pub use table::table;

/// Bytes of a write.
const UNITS: [usize; 2] = [64, 4096];
/// Bytes of a slice.
const POOL_BYTES: u64 = 256 << 20;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Asked {
    fn is_reached(self, value: f64) -> bool {
        match self {
            Asked::AtMost(most) => value <= most,
            Asked::AtLeast(least) => value >= least,
        }
    }
}

/// One thing that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What.
    pub name: String,
    /// Of what the values are.
    pub unit: &'static str,
    /// The value.
    pub ours: Spread,
    /// What it is compared with, and its value.
    pub beside: Option<(&'static str, Spread)>,
    /// Ours by that, round by round.
    pub ratio: Option<Spread>,
    /// What is asked for: of the ratio, or of the value where there is none.
    pub asked: Option<Asked>,
    /// Not measured: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<&'static str>,
}

impl Figure {
    /// A value alone.
    pub fn new(name: impl Into<String>, unit: &'static str, values: &[f64]) -> Figure {
        let (name, ours) = (name.into(), spread(values));
        Figure { name, unit, ours, beside: None, ratio: None, asked: None, skipped: None }
    }

    /// One that cannot be measured here.
    pub fn skipped(name: impl Into<String>, why: &'static str) -> Figure {
        Figure { skipped: Some(why), ..Figure::new(name, "", &[]) }
    }

    /// With what it is compared with.
    pub fn beside(self, who: &'static str, values: &[f64], ratios: &[f64]) -> Figure {
        Figure { beside: Some((who, spread(values))), ratio: Some(spread(ratios)), ..self }
    }

    /// With what is asked for.
    pub fn asked(self, asked: Asked) -> Figure {
        Figure { asked: Some(asked), ..self }
    }
}

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct ServiceOptions {
    /// Rounds.
    pub rounds: usize,
    /// Processes that are attached, and do nothing.
    pub idle: usize,
}

/// Measures; shows each figure as soon as it is there.
pub fn service(
    options: &Options,
    asked: &ServiceOptions,
    show: &mut dyn FnMut(&Figure),
) -> Result<Vec<Figure>> {
    let study = Studied {
        scratch: Scratch::new(options.dir())?,
        rounds: asked.rounds,
        calls: if options.quick { 20_000 } else { 100_000 },
    };
    let mut figures = Vec::new();
    let mut done = |all: Vec<Figure>| {
        all.iter().for_each(&mut *show);
        figures.extend(all);
    };
    for bytes in UNITS {
        done(study.writes(bytes)?);
    }
    done(study.commits(UNITS[0])?);
    for bytes in UNITS {
        done(study.reads(bytes)?);
    }
    done(vec![study.two()?]);
    done(study.handing_over()?);
    done(vec![study.attaching()?]);
    done(study.idle(asked.idle)?);
    Ok(figures)
}

/// Writes of who has a lease before it is taken away, few and many.
const FEW: u64 = 8;
const MANY: u64 = 64;

struct Studied {
    scratch: Scratch,
    rounds: usize,
    /// Calls of a turn.
    calls: u64,
}

impl Studied {
    /// A pool of its own with a process that owns it, and serves it if asked.
    fn owner(&self, name: &str, serves: bool) -> Result<(Seat, std::path::PathBuf)> {
        let dir = self.scratch.path().join(name);
        let mut seat = Seat::start()?;
        seat.ask(&Order::Own { dir: dir.clone(), bytes: POOL_BYTES, serves })?;
        Ok((seat, dir))
    }

    fn attached(dir: &Path, file: &str) -> Result<Seat> {
        let mut seat = Seat::attached(dir)?;
        seat.ask(&Order::File { name: file.to_owned(), bytes: FILE_BYTES })?;
        Ok(seat)
    }

    /// Writes of one process, lease held: attached, beside embedded, beside the bare store.
    fn writes(&self, bytes: usize) -> Result<Vec<Figure>> {
        let (_service, dir) = self.owner(&format!("served-{bytes}"), true)?;
        let (mut embedded, _) = self.owner(&format!("owned-{bytes}"), false)?;
        embedded.ask(&Order::File { name: "file".to_owned(), bytes: FILE_BYTES })?;
        let mut attached = Studied::attached(&dir, "file")?;
        let mut bare = Seat::start()?;
        bare.ask(&Order::Bare { path: self.scratch.path().join("bare") })?;
        let order = Order::Write { bytes, count: self.calls };
        let mut turns: [Vec<Took>; 3] = Default::default();
        // the first turn is for warmth, and for the lease
        for round in 0..=self.rounds {
            for (seat, turns) in
                [&mut attached, &mut embedded, &mut bare].into_iter().zip(&mut turns)
            {
                let took = seat.ask(&order)?;
                if round > 0 {
                    turns.push(took);
                }
            }
        }
        let [attached, embedded, bare] = turns;
        let mut figures = Vec::new();
        let mut compare = |what: &str, of: fn(&Took) -> f64| {
            let values = |turns: &[Took]| turns.iter().map(of).collect::<Vec<_>>();
            let (ours, theirs, floor) = (values(&attached), values(&embedded), values(&bare));
            let by = |those: &[f64]| {
                ours.iter().zip(those).map(|(ours, those)| ours / those).collect::<Vec<_>>()
            };
            let name = format!("{bytes} B durable write, lease held: {what}");
            let figure = Figure::new(&name, "ns", &ours).beside("embedded", &theirs, &by(&theirs));
            figures.push(figure.asked(Asked::AtMost(1.2)));
            figures.push(Figure::new(name, "ns", &ours).beside("floor", &floor, &by(&floor)));
        };
        compare("half of the calls", |took| took.p50_ns);
        compare("all calls, mean", Took::mean_ns);
        Ok(figures)
    }

    /// Commits of one process to a region whose pages are there, lease held: attached, beside
    /// embedded.
    fn commits(&self, bytes: usize) -> Result<Vec<Figure>> {
        let (_service, dir) = self.owner("served-region", true)?;
        let (mut embedded, _) = self.owner("owned-region", false)?;
        embedded.ask(&Order::File { name: "file".to_owned(), bytes: FILE_BYTES })?;
        let mut seats = [Studied::attached(&dir, "file")?, embedded];
        let mut turns: [Vec<Took>; 2] = Default::default();
        // the first turn is for warmth, and for the lease
        for round in 0..=self.rounds {
            for (seat, turns) in seats.iter_mut().zip(&mut turns) {
                // where a lease began, the pages went
                seat.ask(&Order::Map)?;
                let took = seat.ask(&Order::Commit { bytes, count: self.calls })?;
                if round > 0 {
                    turns.push(took);
                }
            }
        }
        let figure = |what: &str, of: fn(&Took) -> f64| {
            let [ours, theirs] =
                turns.each_ref().map(|turns| turns.iter().map(of).collect::<Vec<_>>());
            let ratios: Vec<_> = ours.iter().zip(&theirs).map(|(it, by)| it / by).collect();
            let name = format!("{bytes} B region commit, lease held: {what}");
            let figure = Figure::new(name, "ns", &ours).beside("embedded", &theirs, &ratios);
            figure.asked(Asked::AtMost(1.2))
        };
        let half = figure("half of the calls", |took| took.p50_ns);
        Ok(vec![half, figure("all calls, mean", Took::mean_ns)])
    }

    /// Reads of one process, of what it has read before: attached, beside embedded. And where
    /// another one has a lease, so that the service is asked.
    fn reads(&self, bytes: usize) -> Result<Vec<Figure>> {
        let (_service, dir) = self.owner(&format!("read-{bytes}"), true)?;
        let (mut embedded, _) = self.owner(&format!("owned-read-{bytes}"), false)?;
        embedded.ask(&Order::File { name: "file".to_owned(), bytes: FILE_BYTES })?;
        let mut writer = Studied::attached(&dir, "leased")?;
        writer.ask(&Order::Write { bytes: UNITS[0], count: FEW })?;
        let (attached, asking) =
            (Studied::attached(&dir, "file")?, Studied::attached(&dir, "leased")?);
        let mut seats = [attached, embedded, asking];
        let mut turns: [Vec<Took>; 3] = Default::default();
        // the first turns are for warmth, and for what is to be read again
        for round in 0..self.rounds + 2 {
            for (number, (seat, turns)) in seats.iter_mut().zip(&mut turns).enumerate() {
                let mut count = self.calls;
                if number == 2 {
                    // a lease that is not used goes
                    writer.ask(&Order::Write { bytes: UNITS[0], count: FEW })?;
                    count = FEW;
                }
                let took = seat.ask(&Order::Read { bytes, count })?;
                if round > 1 {
                    turns.push(took);
                }
            }
        }
        let figure = |what: &str, ours: usize, of: fn(&Took) -> f64| {
            let values = |which: usize| turns[which].iter().map(of).collect::<Vec<_>>();
            let (ours, theirs) = (values(ours), values(1));
            let ratios: Vec<_> = ours.iter().zip(&theirs).map(|(it, by)| it / by).collect();
            Figure::new(format!("{bytes} B read, {what}"), "ns", &ours)
                .beside("embedded", &theirs, &ratios)
        };
        let half = |took: &Took| took.p50_ns;
        Ok(vec![
            figure("read before: half of the calls", 0, half),
            figure("read before: all calls, mean", 0, Took::mean_ns),
            figure("another has a lease: half of the calls", 2, half),
        ])
    }

    /// How much more two processes write than one, beside how much more two store.
    fn two(&self) -> Result<Figure> {
        let (_service, dir) = self.owner("shared", true)?;
        let mut attached = [Studied::attached(&dir, "one")?, Studied::attached(&dir, "two")?];
        let mut bare = [Seat::start()?, Seat::start()?];
        for (number, seat) in bare.iter_mut().enumerate() {
            seat.ask(&Order::Bare { path: self.scratch.path().join(format!("bare-{number}")) })?;
        }
        let order = Order::Write { bytes: 4096, count: self.calls };
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for round in 0..=self.rounds {
            for (seats, values) in [(&mut attached, &mut ours), (&mut bare, &mut floor)] {
                let alone = seats[0].ask(&order)?.rate();
                seats.iter_mut().try_for_each(|seat| seat.order(&order))?;
                let both = seats[0].answer()?.rate() + seats[1].answer()?.rate();
                if round > 0 {
                    values.push(both / alone);
                }
            }
        }
        let ratios: Vec<_> = ours.iter().zip(&floor).map(|(ours, floor)| ours / floor).collect();
        let figure = Figure::new("two processes, two files: times what one writes", "", &ours);
        Ok(figure.beside("floor", &floor, &ratios).asked(Asked::AtLeast(0.9)))
    }

    /// A process writes where another one has a lease.
    fn handing_over(&self) -> Result<Vec<Figure>> {
        let (_service, dir) = self.owner("handed", true)?;
        let mut seats = [Studied::attached(&dir, "file")?, Studied::attached(&dir, "file")?];
        let [mut takes, mut leases, mut both, mut folding, mut from_rest] =
            [const { Vec::new() }; 5];
        for round in 0..60 * self.rounds {
            // it has the lease, and is at work when it is taken
            let (has, wants) = seats.split_at_mut(1);
            let (has, wants) = match round % 2 {
                0 => (&mut has[0], &mut wants[0]),
                _ => (&mut wants[0], &mut has[0]),
            };
            for seat in [&mut *has, &mut *wants] {
                // as if nobody had written yet
                seat.ask(&Order::File { name: "file".to_owned(), bytes: FILE_BYTES })?;
            }
            let case = round / 2 % 3;
            let count = if case == 1 { MANY } else { FEW };
            has.ask(&Order::Write { bytes: 4096, count })?;
            std::thread::sleep(Duration::from_millis(4));
            let mut write = || {
                let order = match case {
                    2 => Order::Write { bytes: 4096, count: 1 },
                    _ => Order::WriteBehindCalls { bytes: 4096 },
                };
                wants.ask(&order).map(|took| took.wall_ns / 1e3)
            };
            let (take, lease) = (write()?, write()?);
            match case {
                0 => {
                    takes.push(take);
                    leases.push(lease);
                    both.push(take + lease);
                }
                1 => folding.push(take + lease),
                _ => from_rest.push(take + lease),
            }
        }
        let same =
            |what: &str, times: &[f64]| Figure::new(format!("the same, {what}"), "us", times);
        Ok(vec![
            Figure::new("a write that takes another's lease away", "us", &takes),
            Figure::new("the next, which gets a lease", "us", &leases),
            Figure::new("both: a lease handed over", "us", &both).asked(Asked::AtMost(30.0)),
            same(&format!("{MANY} writes of 4 KiB of the other's to be folded first"), &folding),
            same("from rest: with all that has to wake up", &from_rest),
        ])
    }

    fn attaching(&self) -> Result<Figure> {
        let (_service, dir) = self.owner("attached", true)?;
        let mut times = Vec::new();
        for _ in 0..20 * self.rounds {
            let mut seat = Seat::start()?;
            times.push(seat.ask(&Order::Attach { dir: dir.clone() })?.wall_ns / 1e6);
        }
        Ok(Figure::new("attaching", "ms", &times).asked(Asked::AtMost(5.0)))
    }

    /// Processes that are attached, and do nothing.
    fn idle(&self, count: usize) -> Result<Vec<Figure>> {
        let (service, dir) = self.owner("idle", true)?;
        let mut seats = Vec::with_capacity(count);
        idle_figures("processes", &service, count, || {
            for _ in 0..count {
                let mut seat = Seat::start()?;
                seat.ask(&Order::Attach { dir: dir.clone() })?;
                seats.push(seat);
            }
            Ok(())
        })
    }
}

/// What so many cost a service that do nothing once they have attached.
pub fn idle_figures(
    who: &str,
    service: &Seat,
    count: usize,
    attach: impl FnOnce() -> Result<()>,
) -> Result<Vec<Figure>> {
    let before = service.memory_bytes()?;
    attach()?;
    let after = service.memory_bytes()?;
    let mut shares = Vec::new();
    for _ in 0..3 {
        let busy = service.cpu()?;
        std::thread::sleep(Duration::from_secs(2));
        shares.push((service.cpu()? - busy).as_secs_f64() / 2.0 * 100.0);
    }
    let mib = after.saturating_sub(before) as f64 / f64::from(1 << 20);
    let name = |what| format!("{count} idle {who}: {what}");
    let busy = [median(&shares)];
    Ok(vec![
        Figure::new(name("memory of the service"), "MiB", &[mib]).asked(Asked::AtMost(64.0)),
        Figure::new(name("its CPU"), "%", &busy).asked(Asked::AtMost(0.5)),
    ])
}
