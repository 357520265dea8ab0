//! What a durable write costs over a network: an exchange with the service, beside the bare
//! transport, the same transport with a write to a synced file of the kernel's, and Redis.
//!
//! All go over TCP on loopback, from one process to another one, which are on a CPU each where
//! there are two, and look without sleeping. They take turns in rounds; printed are medians over
//! the rounds, of what half of the calls took at most, and all but one in a hundred.

mod iperf;
mod long;
mod peers;
mod picture;
pub mod wire;

pub use picture::draw;

use crate::door;
use crate::error::Result;
use crate::looped::{Kind, Looped};
use crate::options::Options;
use crate::scratch::Scratch;
use crate::service::seat::{FILE_BYTES, Order, Seat, Took};
use crate::service::{Asked, Figure, idle_figures};
use peers::Redis;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::Work;

/// Bytes of a write.
const BYTES: usize = 2048;
/// Those of its message over that, and of the answer, as ours has them.
const MORE_BYTES: usize = 26;
const ANSWER_BYTES: usize = 20;
/// Bytes of a short write.
const SHORT_BYTES: usize = 64;
/// Bytes of a long write, and how many fewer of them there are.
const LONG_BYTES: usize = 1 << 20;
const LONG_SHARE: u64 = 50;
/// So many fewer wait for a disk.
const DISK_SHARE: u64 = 50;
/// Bytes of a slice, and of a loop device.
const POOL_BYTES: u64 = 256 << 20;
const DEVICE_BYTES: u64 = 512 << 20;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct RemoteOptions {
    /// Rounds.
    pub rounds: usize,
    /// Connections that do nothing.
    pub idle: usize,
}

/// Measures; shows each figure as soon as it is there.
///
/// # Errors
/// What the engine, the kernel or a peer's program said.
pub fn remote(
    options: &Options,
    asked: &RemoteOptions,
    show: &mut (dyn FnMut(&Figure) + Send),
) -> Result<Vec<Figure>> {
    let mut measure = || {
        let mut figures = Vec::new();
        let study = Studied::new(options, asked)?;
        let mut done = |all: Vec<Figure>| {
            all.iter().for_each(&mut *show);
            figures.extend(all);
        };
        done(study.writes(options)?);
        done(study.encrypted()?);
        done(study.pipelined()?);
        done(study.long_writes()?);
        done(study.long_writes_pipelined()?);
        done(study.placed()?);
        done(study.idle(asked.idle)?);
        Ok(figures)
    };
    match door::missing() {
        None => door::apart(measure),
        Some(_) => measure(),
    }
}

struct Studied {
    scratch: Scratch,
    rounds: usize,
    calls: u64,
    /// CPUs of the clients, and of the servers.
    cpus: Option<(u32, u32)>,
}

/// One that is compared: who asks whom for what.
struct Side {
    name: &'static str,
    asks: Seat,
    order: Order,
    turns: Vec<Took>,
    /// Ours is to take at most so much of what it takes.
    asked: Option<f64>,
}

impl Studied {
    fn new(options: &Options, asked: &RemoteOptions) -> Result<Studied> {
        let cpus = topology::allowed_cpus()?;
        Ok(Studied {
            scratch: Scratch::new(options.dir())?,
            rounds: asked.rounds,
            calls: if options.quick { 4000 } else { 20_000 },
            cpus: cpus.first().copied().zip(cpus.get(1..).and_then(|more| more.last().copied())),
        })
    }

    fn seat(&self, serves: bool) -> Result<Seat> {
        let mut seat = Seat::start()?;
        if let Some((client, server)) = self.cpus {
            seat.ask(&Order::Pin { cpu: if serves { server } else { client } })?;
        }
        Ok(seat)
    }

    /// A pool that is served; its directory, and where programs of other machines attach.
    fn service(&self, name: &str) -> Result<(Seat, PathBuf, PathBuf)> {
        let dir = self.scratch.path().join(name);
        let mut seat = self.seat(true)?;
        seat.ask(&Order::Own { dir: dir.clone(), bytes: POOL_BYTES, serves: true })?;
        let port = seat.ask(&Order::Listen)?.count;
        Ok((seat, dir, format!("near+insecure://127.0.0.1:{port}").into()))
    }

    /// One that is attached at this place, with a file of its own.
    fn attached(&self, place: &Path, file: &str) -> Result<Seat> {
        let mut seat = self.seat(false)?;
        seat.ask(&Order::Attach { dir: place.to_owned() })?;
        seat.ask(&Order::File { name: file.to_owned(), bytes: FILE_BYTES })?;
        Ok(seat)
    }

    /// Who exchanges messages with one who does this with each.
    fn exchanging(
        &self,
        name: &'static str,
        work: Work,
        (bytes, count): (usize, u64),
        asked: Option<f64>,
    ) -> Result<(Seat, Side)> {
        let mut answers = self.seat(true)?;
        let port = answers.ask(&Order::Answer { work })?.count as u16;
        let order = Order::Exchange { port, bytes, answers: ANSWER_BYTES, count };
        let asks = self.seat(false)?;
        Ok((answers, Side { name, asks, order, turns: Vec::new(), asked }))
    }

    fn take_turns(&self, sides: &mut [Side]) -> Result<()> {
        // the first turn is for warmth
        for round in 0..=self.rounds {
            for side in &mut *sides {
                let took = side.asks.ask(&side.order)?;
                if round > 0 {
                    side.turns.push(took);
                }
            }
        }
        Ok(())
    }

    fn writes(&self, options: &Options) -> Result<Vec<Figure>> {
        let side = |name, asks, order| Side { name, asks, order, turns: Vec::new(), asked: None };
        let (_service, dir, place) = self.service("served")?;
        let write = || Order::Write { bytes: BYTES, count: self.calls };
        let exchanges = (BYTES + MORE_BYTES, self.calls);
        let (_bare, bare) = self.exchanging("bare exchange", Work::Nothing, exchanges, None)?;
        let mut sides = vec![
            side("ours", self.attached(&place, "far")?, write()),
            bare,
            side("ours, shared memory", self.attached(&dir, "here")?, write()),
        ];
        let (mut others, mut mounts, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
        let media = [("memory", options.dir().to_owned()), ("disk", options.disk())];
        for (on, parent) in &media {
            for kind in [Kind::Ext4, Kind::Xfs] {
                let name = peers::name_of(kind, on);
                match Looped::new(parent, DEVICE_BYTES, kind)? {
                    Ok(mount) => {
                        let work = Work::Sync(mount.dir().join("file"));
                        let (count, asked) = match *on {
                            "memory" => (self.calls, Some(0.22)),
                            _ => (self.calls / DISK_SHARE, None),
                        };
                        let exchanges = (BYTES + MORE_BYTES, count);
                        let (answers, side) = self.exchanging(name, work, exchanges, asked)?;
                        others.push(answers);
                        sides.push(side);
                        mounts.push(mount);
                    }
                    Err(why) => skipped.push(Figure::skipped(name, peers::known(&why))),
                }
            }
        }
        let mut redis = Vec::new();
        let places = [("Redis, appendfsync always, tmpfs", options.dir().to_owned())];
        let on_ext4 = mounts
            .first()
            .map(|mount| ("Redis, appendfsync always, ext4 in memory", mount.dir().to_owned()));
        for (name, parent) in places.into_iter().chain(on_ext4) {
            match Redis::start(&parent, self.cpus.map(|(_, server)| server))? {
                Ok(one) => {
                    let order = Order::Set { port: one.port, bytes: BYTES, count: self.calls };
                    let asked = Some(1.0 / 3.0);
                    sides.push(Side { asked, ..side(name, self.seat(false)?, order) });
                    redis.push(one);
                }
                Err(why) => skipped.push(Figure::skipped(name, why)),
            }
        }
        self.take_turns(&mut sides)?;
        drop(redis);
        drop(others);
        let mut figures = compared(&sides);
        figures.extend(skipped);
        drop(sides);
        mounts.into_iter().try_for_each(Looped::close)?;
        Ok(figures)
    }

    /// Writes that are encrypted, beside the bare transport, which is not.
    fn encrypted(&self) -> Result<Vec<Figure>> {
        let name = "encrypted (TLS 1.3)";
        let Some((server, client)) = peers::credentials(self.scratch.path()) else {
            return Ok(vec![Figure::skipped(name, "nearside cert cannot make certificates here")]);
        };
        let dir = self.scratch.path().join("encrypted");
        let mut service = self.seat(true)?;
        service.ask(&Order::Own { dir, bytes: POOL_BYTES, serves: true })?;
        service.ask(&Order::Credentials { dir: server })?;
        let port = service.ask(&Order::Listen)?.count;
        let mut asks = self.seat(false)?;
        asks.ask(&Order::Credentials { dir: client })?;
        asks.ask(&Order::Attach { dir: format!("near://127.0.0.1:{port}").into() })?;
        asks.ask(&Order::File { name: "far".to_owned(), bytes: FILE_BYTES })?;
        let order = Order::Write { bytes: BYTES, count: self.calls };
        let ours = Side { name, asks, order, turns: Vec::new(), asked: None };
        let exchanges = (BYTES + MORE_BYTES, self.calls);
        let (_bare, bare) = self.exchanging("bare exchange", Work::Nothing, exchanges, None)?;
        let mut sides = [ours, bare];
        self.take_turns(&mut sides)?;
        let [ours, bare] =
            sides.map(|side| side.turns.iter().map(|took| took.p50_ns / 1e3).collect::<Vec<_>>());
        let ratios = pairwise(&ours, &bare, |one, other| one / other);
        let more = pairwise(&ours, &bare, |one, other| one - other);
        let words = format!("{BYTES} B durable write, {name}: half of the calls");
        Ok(vec![
            Figure::new(words, "us", &ours).beside("bare exchange", &bare, &ratios),
            Figure::new(format!("more than the bare exchange, {name}"), "us", &more)
                .asked(Asked::AtMost(3.0)),
        ])
    }

    /// Small writes over one connection that do not wait for each other, and who is busy meanwhile.
    fn pipelined(&self) -> Result<Vec<Figure>> {
        let (service, _, place) = self.service("pipelined")?;
        let mut client = self.attached(&place, "far")?;
        let order = Order::WritePipelined { bytes: SHORT_BYTES, count: 5 * self.calls };
        let [mut rates, mut of_service, mut of_client] = [const { Vec::new() }; 3];
        // the first turn is for warmth
        for round in 0..=self.rounds {
            let before = (service.cpu()?, client.cpu()?);
            let took = client.ask(&order)?;
            if round > 0 {
                let share = |busy: Duration| 100.0 * busy.as_nanos() as f64 / took.wall_ns;
                rates.push(took.rate());
                of_service.push(share(service.cpu()? - before.0));
                of_client.push(share(client.cpu()? - before.1));
            }
        }
        let name = format!("{SHORT_BYTES} B durable writes, pipelined over one connection");
        let busy =
            |who: &str, shares: &[f64]| Figure::new(format!("CPU of the {who}"), "%", shares);
        Ok(vec![
            Figure::new(name, "/s", &rates).asked(Asked::AtLeast(200_000.0)),
            busy("service meanwhile", &of_service),
            busy("client meanwhile", &of_client),
        ])
    }

    /// Connections that do nothing.
    fn idle(&self, count: usize) -> Result<Vec<Figure>> {
        let (service, _, dir) = self.service("idle")?;
        let mut clients = self.seat(false)?;
        idle_figures("connections", &service, count, || {
            clients.ask(&Order::AttachMany { dir: dir.clone(), count }).map(drop)
        })
    }
}

/// What of a turn, us.
type Quantile = fn(&Took) -> f64;

/// What comes of each of these and its counterpart.
fn pairwise(ones: &[f64], others: &[f64], what: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    ones.iter().zip(others).map(|(one, other)| what(*one, *other)).collect()
}

/// The first beside each of the others.
fn compared(sides: &[Side]) -> Vec<Figure> {
    let Some((ours, others)) = sides.split_first() else { return Vec::new() };
    let quantiles: [(&str, Quantile); 2] =
        [("half of the calls", |took| took.p50_ns / 1e3), ("99 of 100", |took| took.p99_ns / 1e3)];
    let mut figures = Vec::new();
    for (words, of) in quantiles {
        let values = |side: &Side| side.turns.iter().map(of).collect::<Vec<_>>();
        let mine = values(ours);
        for other in others {
            let theirs = values(other);
            let ratios = pairwise(&mine, &theirs, |one, other| one / other);
            let name = format!("{BYTES} B durable write: {words}");
            let figure = Figure::new(name, "us", &mine).beside(other.name, &theirs, &ratios);
            figures.push(match other.asked {
                Some(most) => figure.asked(Asked::AtMost(most)),
                None => figure,
            });
        }
        if let [bare, here, ..] = others {
            let bare = values(bare);
            let more = pairwise(&mine, &bare, |one, other| one - other);
            let figure = Figure::new(format!("more than the bare exchange: {words}"), "us", &more);
            figures.push(figure.asked(Asked::AtMost(1.5)));
            let figure = Figure::new(format!("{}: {words}", here.name), "us", &values(here));
            figures.push(figure.asked(Asked::AtMost(3.0)));
        }
    }
    figures
}
