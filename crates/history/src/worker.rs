//! A process that calls at one door, by several threads, as it is told on its standard input.

use std::io::Write;
use std::path::{Path, PathBuf};

use nearside::Pool;

use crate::door::Door;
use crate::library::Library;
use crate::outside::Outside;
use crate::plan::{History, LENGTH_NS, Mutant};
use crate::record::{Act, Answer, Record};
use crate::regions::Mapped;
use crate::rng::Rng;
use crate::{Result, clock, said};

/// Begins a line that is said to the driver.
pub const MARK: &str = "@ ";

/// Where the callers of a process call.
#[derive(Debug)]
pub enum Place<'p> {
    /// The library. The second number: how many of the callers transact.
    Pool(&'p Pool, u32),
    /// A mount.
    Mount(PathBuf),
}

/// The callers of a process.
#[derive(Debug)]
pub struct Callers<'p> {
    /// Where.
    pub place: Place<'p>,
    /// The first one's number.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Of all processes.
    pub all: u32,
}

/// Says a line to the driver.
pub fn say(words: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{words}").and_then(|()| out.flush()).map_err(said("the driver has gone"))
}

/// The process: `attached POOL`, or `mount DIR`, and the numbers of its callers.
pub fn run(door: &str, place: &Path, [first, count, all]: [u32; 3]) -> Result<()> {
    match door {
        "attached" => {
            let pool = Pool::attach(place).map_err(said("attach"))?;
            serve(&Callers { place: Place::Pool(&pool, count / 2), first, count, all })
        }
        "mount" => serve(&Callers { place: Place::Mount(place.to_owned()), first, count, all }),
        _ => Err(format!("no door {door:?}")),
    }
}

/// Makes the histories that it is told, until there are no more.
pub fn serve(callers: &Callers<'_>) -> Result<()> {
    say("ready")?;
    for line in std::io::stdin().lines() {
        let line = line.map_err(said("the driver"))?;
        let history: History = serde_json::from_str(&line).map_err(said("a history"))?;
        std::thread::scope(|threads| {
            let call = |number| {
                let history = &history;
                threads.spawn(move || callers.call(number, history))
            };
            let running: Vec<_> = (0..callers.count).map(call).collect();
            let ended = running.into_iter().map(|it| it.join().unwrap_or(Err("panicked".into())));
            ended.collect::<Result<Vec<()>>>()
        })?;
        say("done")?;
    }
    Ok(())
}

impl<'p> Callers<'p> {
    fn door(&self, number: u32, history: &History) -> Result<Door<'p>> {
        match &self.place {
            Place::Pool(pool, transacting) => {
                let library = Library::open(pool, history).map_err(said("open"))?;
                if number < *transacting {
                    let mapped = Mapped::map(pool, library, history);
                    return Ok(match mapped.is_mapped() {
                        true => Door::Regions(mapped),
                        false => Door::Library(mapped.into_library()),
                    });
                }
                Ok(Door::Library(library))
            }
            Place::Mount(dir) => {
                let outside = Outside::open(dir, history, number % 2 == 1);
                Ok(Door::Outside(outside.map_err(said("open in the mount"))?))
            }
        }
    }

    fn call(&self, number: u32, history: &History) -> Result<()> {
        let client = self.first + number;
        let door = self.door(number, history)?;
        let mut record = Record::create(&history.records, history.number, client)?;
        if history.is_final {
            let mut record = record.goes_on();
            let acts = history.last_acts();
            return acts.iter().try_for_each(|act| door.act(history, &mut record, act));
        }
        let mut rng = Rng::new(&[history.seed, history.number.into(), client.into(), u64::MAX]);
        let mut faults =
            Faults { mutant: history.mutant.filter(|_| client == 0), seen: Vec::new() };
        clock::sleep_until(history.start_ns);
        let mut made = 0;
        while made < history.calls {
            let now = clock::now();
            if now > history.start_ns + LENGTH_NS {
                break;
            }
            let (alone, until) = history.alone(now, self.all);
            if alone.is_some_and(|it| it != client) {
                // one now and then also meanwhile
                if !rng.one_in(8) {
                    clock::sleep_until(until);
                    continue;
                }
            }
            let act = history.act(&mut rng, alone == Some(client), door.abilities());
            match faults.mutant {
                Some(mutant) => faults.act(mutant, &door, history, &mut record, &act)?,
                None => door.act(history, &mut record, &act)?,
            }
            made += 1;
        }
        Ok(())
    }
}

/// What a mutant remembers.
struct Faults {
    mutant: Option<Mutant>,
    /// Reads and what they saw.
    seen: Vec<(Act, Answer)>,
}

impl Faults {
    fn act(
        &mut self,
        mutant: Mutant,
        door: &Door<'_>,
        history: &History,
        record: &mut Record,
        act: &Act,
    ) -> Result<()> {
        let mut late = None;
        let answer = record.call(act, |number| match (mutant, act) {
            (Mutant::Lost, Act::Write { .. }) => Default::default(),
            (Mutant::Late, Act::Write { .. }) => {
                late = Some(number);
                Default::default()
            }
            (Mutant::Torn, Act::Write { file, at, cells }) if *cells > 1 => {
                let half = cells / 2;
                let (one, other) = (*at, at + half);
                let first = Act::Write { file: *file, at: one, cells: half };
                let second = Act::Write { file: *file, at: other, cells: cells - half };
                door.answer(history, &first, number);
                std::thread::sleep(std::time::Duration::from_millis(1));
                door.answer(history, &second, number)
            }
            (Mutant::Stale, Act::Read { .. }) => {
                let seen = self.seen.iter().find(|(before, _)| before == act);
                seen.map_or_else(|| door.answer(history, act, number), |(_, seen)| seen.clone())
            }
            (Mutant::Halves, Act::Rename { from, to }) if from != to => {
                door.answer(history, &Act::Unlink { name: to.clone() }, number);
                std::thread::sleep(std::time::Duration::from_millis(1));
                door.answer(history, act, number)
            }
            _ => door.answer(history, act, number),
        })?;
        if let Some(number) = late {
            std::thread::sleep(std::time::Duration::from_millis(2));
            door.answer(history, act, number);
        }
        if matches!(act, Act::Read { .. }) {
            self.seen.push((act.clone(), answer));
        }
        Ok(())
    }
}
