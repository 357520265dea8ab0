//! One of those who take part: a process that does what it is told, a line of JSON at a time.

mod order;

pub use order::Order;

use crate::caller::CALL_BYTES_MAX;
use crate::clock::{self, threads_ns};
use crate::dice::{Dice, Sources};
use crate::error::{Error, Result, io};
use crate::lab::{touch_slice, touched_file};
use crate::piped::Piped;
use crate::remote::wire::{self, Wire};
use crate::rows::status_bytes;
use crate::ycsb::Store;
use nearside::{AttachOptions, File, FormatOptions, OpenFlags, Pool, Region, SliceSpec};
use pmem::Mapping;
use serde::{Deserialize, Serialize};
use server::{Door, Service};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Says to a process that it takes part.
const SEATED: &str = "NEARSIDE_BENCH_SEAT";
/// Bytes of each file that is written to at random places, and of the bare store's.
pub const FILE_BYTES: u64 = 32 << 20;
/// Calls that wake all who have a part in them.
const CALLS_BEFORE: u32 = 8;

/// What it took.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Took {
    /// Calls.
    pub count: u64,
    /// All of it, ns.
    pub wall_ns: f64,
    /// What half of the calls took at most, ns.
    pub p50_ns: f64,
    /// What all but one in a hundred took at most, ns.
    pub p99_ns: f64,
}

impl Took {
    /// Of calls that took so long each, and all together.
    pub fn of(wall: Duration, mut each: Vec<u64>) -> Took {
        each.sort_unstable();
        let at =
            |hundredth: usize| each.get(each.len() * hundredth / 100).copied().unwrap_or(0) as f64;
        let (count, wall_ns) = (each.len() as u64, wall.as_nanos() as f64);
        Took { count, wall_ns, p50_ns: at(50), p99_ns: at(99) }
    }

    /// Of something that was done once; or that is a number.
    fn once(count: u64, wall: Duration) -> Took {
        Took { count, wall_ns: wall.as_nanos() as f64, ..Took::default() }
    }

    /// Of a call, ns.
    pub fn mean_ns(&self) -> f64 {
        self.wall_ns / self.count as f64
    }

    /// Calls a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.wall_ns * 1e9
    }
}

/// The other end of such a process, which ends with this.
pub struct Seat(Piped);

impl Seat {
    /// Starts one.
    pub fn start() -> Result<Seat> {
        Ok(Seat(Piped::again(SEATED, Path::new("seat"))?))
    }

    /// Starts one by a command that starts this program and gives it what arguments come.
    pub fn start_by(command: Command) -> Result<Seat> {
        Ok(Seat(Piped::again_by(command, SEATED, Path::new("seat"))?))
    }

    /// Starts one, and attaches it to the service of a pool.
    pub fn attached(dir: &Path) -> Result<Seat> {
        let mut seat = Seat::start()?;
        seat.ask(&Order::Attach { dir: dir.to_owned() })?;
        Ok(seat)
    }

    /// Has it do something, and waits until it is done.
    pub fn ask(&mut self, order: &Order) -> Result<Took> {
        self.order(order)?;
        self.answer()
    }

    /// Has it do something.
    pub fn order(&mut self, order: &Order) -> Result<()> {
        self.0.tell(&as_json(order)?)
    }

    /// Waits for the answer.
    pub fn answer(&mut self) -> Result<Took> {
        let line = self.0.hear()?;
        let answer: Answer = serde_json::from_str(&line).map_err(|_| nonsense(&line))?;
        answer.map_err(Error::Seat)
    }

    /// Memory that it takes, bytes: its own, and shared memory that it made.
    pub fn memory_bytes(&self) -> Result<u64> {
        status_bytes(&self.proc(), &["RssAnon:", "RssShmem:"])
    }

    /// CPU time that it has taken.
    pub fn cpu(&self) -> Result<Duration> {
        Ok(Duration::from_nanos(threads_ns(&self.proc(), None)?))
    }

    fn proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.0.id()))
    }
}

/// What it took, or what went wrong.
type Answer = std::result::Result<Took, String>;

fn nonsense(line: &str) -> Error {
    Error::Seat(if line.is_empty() { "it has ended".to_owned() } else { format!("{line:?}") })
}

fn as_json(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(value).map_err(std::io::Error::from);
    text.map_err(io(Path::new("seat")))
}

/// If this process was started to take part: does what stdin says, and ends.
pub fn be_seated_if_asked() {
    if std::env::var_os(SEATED).is_none() {
        return;
    }
    // it says nothing else than its answers: where nobody hears them any more, nobody waits
    let done = Seated::default().serve();
    std::process::exit(i32::from(done.is_err()));
}

/// What such a process has.
#[derive(Default)]
struct Seated {
    /// Goes before its pool does.
    service: Option<Service>,
    file: Option<File>,
    region: Option<Region>,
    bare: Option<Mapping>,
    pool: Option<Arc<Pool>>,
    many: Vec<Pool>,
    /// How it attaches; with these credentials it listens, too.
    attach: AttachOptions,
}

impl Seated {
    fn listen(&mut self) -> Result<u16> {
        let failed = io(Path::new("127.0.0.1"));
        let door = TcpListener::bind("127.0.0.1:0").map_err(&failed)?;
        let port = door.local_addr().map_err(&failed)?.port();
        if let Some(service) = &mut self.service {
            match self.attach.credentials.clone() {
                None => service.listen(door, server::Rights::new(0, 0))?,
                Some(credentials) => {
                    service.listen_secured(door, server::Secured { credentials, access: None })?;
                }
            }
        }
        Ok(port)
    }

    fn serve(&mut self) -> Result<()> {
        let mut dice = Dice::new(21);
        for line in std::io::stdin().lines() {
            let line = line.map_err(io(Path::new("stdin")))?;
            let order = serde_json::from_str(&line).map_err(|_| nonsense(&line))?;
            let answer: Answer = self.obey(order, &mut dice).map_err(|error| error.to_string());
            let (text, mut out) = (as_json(&answer)?, std::io::stdout().lock());
            let said = writeln!(out, "{text}").and_then(|()| out.flush());
            said.map_err(io(Path::new("stdout")))?;
        }
        Ok(())
    }

    fn obey(&mut self, order: Order, dice: &mut Dice) -> Result<Took> {
        let start = Instant::now();
        match order {
            Order::Own { dir, bytes, serves } => self.own(&dir, bytes, serves)?,
            Order::Attach { dir } => {
                self.pool = Some(Arc::new(Pool::attach_with(dir, &self.attach)?));
            }
            Order::Credentials { dir } => self.attach.credentials = Some(dir),
            Order::File { name, bytes } => self.open(&name, bytes)?,
            Order::Bare { path } => self.bare = Some(touched_file(&path, FILE_BYTES)?),
            Order::Write { bytes, count } => {
                return self.each(0, (bytes, count), dice, |place, data| self.write(place, data));
            }
            Order::WritePipelined { bytes, count } => {
                self.write_pipelined(bytes, count, dice)?;
                return Ok(Took::once(count, start.elapsed()));
            }
            Order::Read { bytes, count } => {
                let mut buffer = vec![0; bytes];
                return self.each(0, (bytes, count), dice, |place, _| {
                    let Some(file) = &self.file else { return Ok(()) };
                    Ok(file.read_exact_at(&mut buffer, place)?)
                });
            }
            Order::WriteBehindCalls { bytes } => {
                // what is written with is made before the calls
                return self
                    .each(CALLS_BEFORE, (bytes, 1), dice, |place, data| self.write(place, data));
            }
            Order::Map => self.map()?,
            Order::Commit { bytes, count } => {
                return self.each(0, (bytes, count), dice, |place, data| self.commit(place, data));
            }
            Order::Mix { mix, bytes, turn, seed } => {
                let records = self.region.as_ref().map_or(0, Region::len) / bytes.max(1);
                let (count, took) =
                    mix.turn(&mut Records(self), (records as u32, bytes), turn, seed)?;
                return Ok(Took::once(count, took));
            }
            Order::Rest => clock::rest(),
            Order::Pin { cpu } => drop(topology::pin_current_thread(&[cpu])?),
            Order::Listen => return Ok(Took::once(u64::from(self.listen()?), start.elapsed())),
            Order::Answer { work } => {
                return Ok(Took::once(u64::from(wire::answer(work)?), start.elapsed()));
            }
            Order::Exchange { port, bytes, answers, count } => {
                return Wire::to(port)?.exchange(bytes, answers, count);
            }
            Order::Set { port, bytes, count } => return Wire::to(port)?.set(bytes, count),
            Order::AttachMany { dir, count } => {
                for _ in 0..count {
                    self.many.push(Pool::attach(&dir)?);
                }
            }
        }
        Ok(Took::once(1, start.elapsed()))
    }

    fn own(&mut self, dir: &Path, bytes: u64, serves: bool) -> Result<()> {
        let format = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: bytes,
            process: true,
            ..FormatOptions::default()
        };
        Pool::format(dir, &format)?;
        touch_slice(&dir.join("slice.0"))?;
        let pool = Arc::new(Pool::open(dir)?);
        if serves {
            let door = Door::open(&dir.join(nearside::ATTACH_SOCKET), 0o600)?;
            let options =
                server::Options { lanes: Some(dir.to_owned()), ..server::Options::default() };
            self.service = Some(Service::start(pool.clone(), door, &options)?);
        }
        self.pool = Some(pool);
        Ok(())
    }

    fn open(&mut self, name: &str, bytes: u64) -> Result<()> {
        // what is leased of it goes with the last who has it open
        self.file = None;
        let Some(pool) = &self.pool else { return Ok(()) };
        let flags = OpenFlags::new().read(true).write(true).create(true);
        let file = pool.open_file(Path::new("/").join(name), &flags)?;
        let piece = vec![0x5A; 1 << 20];
        for at in (file.metadata()?.len()..bytes).step_by(piece.len()) {
            file.write_all_at(&piece[..piece.len().min((bytes - at) as usize)], at)?;
        }
        self.file = Some(file);
        Ok(())
    }

    fn map(&mut self) -> Result<()> {
        let (Some(pool), Some(file)) = (&self.pool, &self.file) else { return Ok(()) };
        let region = match self.region.take() {
            Some(region) => region,
            None => pool.map(file, 0, file.metadata()?.len())?,
        };
        region.load(0, &mut vec![0; region.len()])?;
        self.region = Some(region);
        Ok(())
    }

    fn write(&self, place: u64, data: &[u8]) -> Result<()> {
        match (&self.file, &self.bare) {
            (Some(file), _) => file.write_all_at(data, place)?,
            (None, Some(bare)) => drop(pmem::fence(bare.write(place, data))),
            (None, None) => {}
        }
        Ok(())
    }

    fn write_pipelined(&self, bytes: usize, count: u64, dice: &mut Dice) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let bytes = bytes.clamp(1, CALL_BYTES_MAX);
        let (mut writes, mut sources) = (file.pipelined(), Sources::new(bytes));
        for _ in 0..count {
            let place = dice.below(FILE_BYTES / bytes as u64) * bytes as u64;
            writes.write_all_at(sources.turn(), place)?;
        }
        Ok(writes.finish()?)
    }

    fn commit(&self, place: u64, data: &[u8]) -> Result<()> {
        let (Some(pool), Some(region)) = (&self.pool, &self.region) else { return Ok(()) };
        let mut transaction = pool.begin()?;
        transaction.write(region, place as usize, data)?;
        Ok(transaction.commit()?)
    }

    /// Makes so many calls, each with bytes for a random place; before that, others.
    fn each(
        &self,
        others: u32,
        (bytes, count): (usize, u64),
        dice: &mut Dice,
        mut call: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<Took> {
        let bytes = bytes.clamp(1, CALL_BYTES_MAX);
        let mut sources = Sources::new(bytes);
        let mut each = Vec::with_capacity(count as usize);
        if let Some(pool) = &self.pool {
            (0..others).try_for_each(|_| pool.metadata("/").map(drop))?;
        }
        let (units, start) = (FILE_BYTES / bytes as u64, Instant::now());
        let mut last = start;
        for _ in 0..count {
            let place = dice.below(units) * bytes as u64;
            call(place, sources.turn())?;
            let now = Instant::now();
            each.push((now - last).as_nanos() as u64);
            last = now;
        }
        Ok(Took::of(start.elapsed(), each))
    }
}

/// Records in what is mapped.
struct Records<'s>(&'s Seated);

impl Store for Records<'_> {
    fn read(&mut self, record: u32, buffer: &mut [u8]) -> Result<()> {
        let Some(region) = &self.0.region else { return Ok(()) };
        Ok(region.load(record as usize * buffer.len(), buffer)?)
    }

    fn write(&mut self, record: u32, data: &[u8]) -> Result<()> {
        self.0.commit(u64::from(record) * data.len() as u64, data)
    }
}
