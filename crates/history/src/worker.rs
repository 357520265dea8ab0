//! A process that calls at one door, by several threads, as it is told on its standard input.

use std::io::Write;
use std::path::Path;

use nearside::Pool;

use crate::door::{Door, DoorKind, Place};
use crate::plan::{History, LENGTH_NS, PAGE_CELLS};
use crate::record::{Act, Answer, Record};
use crate::rng::Rng;
use crate::wrong_caller::Mutant;
use crate::{Result, clock, said};

/// Begins a line that is said to the driver.
pub const MARK: &str = "@ ";

/// The callers of a process.
#[derive(Debug)]
pub struct Callers<'p> {
    /// Where.
    pub place: Place<'p>,
    /// The first one's number.
    pub first: u32,
    /// The door of each.
    pub doors: &'static [DoorKind],
}

/// Says a line to the driver.
pub fn say(words: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{words}").and_then(|()| out.flush()).map_err(said("the driver has gone"))
}

/// The process: `attached POOL`, or `mount`, `pages` or `away` and a mount, and the number of its
/// first caller;
/// or `copies POOL` with the command `nearside`.
pub fn run(process: &str, place: &Path, first: u32, nearside: Option<&Path>) -> Result<()> {
    let doors = DoorKind::of_process(process);
    match process {
        "attached" => {
            let pool = Pool::attach(place).map_err(said("attach"))?;
            serve(&Callers { place: Place::Pool(&pool), first, doors })
        }
        "mount" | "pages" | "away" => {
            serve(&Callers { place: Place::Mount(place.to_owned()), first, doors })
        }
        "copies" => {
            let nearside = nearside.ok_or("a program is wanted")?.to_owned();
            let pool = Pool::attach(place).map_err(said("attach"))?;
            let place = Place::Program { nearside, dir: place.to_owned(), pool: &pool };
            serve(&Callers { place, first, doors })
        }
        _ => Err(format!("no process {process:?}")),
    }
}

/// Makes the histories that it is told, until there are no more.
pub fn serve(callers: &Callers<'_>) -> Result<()> {
    say("ready")?;
    for line in std::io::stdin().lines() {
        let line = line.map_err(said("the driver"))?;
        let history: History = serde_json::from_str(&line).map_err(said("a history"))?;
        std::thread::scope(|threads| {
            let call = |(number, kind): (u32, &DoorKind)| {
                let (history, kind) = (&history, *kind);
                threads.spawn(move || callers.call(number, kind, history))
            };
            let acting = (callers.first..history.callers).zip(callers.doors);
            let running: Vec<_> = acting.map(call).collect();
            let ended = running.into_iter().map(|it| it.join().unwrap_or(Err("panicked".into())));
            ended.collect::<Result<Vec<()>>>()
        })?;
        say("done")?;
    }
    Ok(())
}

impl Callers<'_> {
    fn call(&self, client: u32, kind: DoorKind, history: &History) -> Result<()> {
        let mut door = kind.open(&self.place, history)?;
        let mut record = Record::create(&history.records, history.number, client)?;
        if history.is_final {
            let mut record = record.goes_on();
            let acts = history.last_acts(door.abilities());
            return acts.iter().try_for_each(|act| door.act(history, &mut record, act));
        }
        let mut rng = Rng::new(&[history.seed, history.number.into(), client.into(), u64::MAX]);
        let mutant = history.mutant.filter(|(_, wrong)| client == *wrong).map(|it| it.0);
        let mut faults = Faults { mutant, seen: Vec::new() };
        clock::sleep_until(history.start_ns);
        let mut made = 0;
        let calls = kind.calls(history);
        while made < calls {
            let now = clock::now();
            if now > history.start_ns + LENGTH_NS {
                break;
            }
            let (alone, until) = history.alone(now);
            if alone.is_some_and(|it| it != client) && !kind.copies() {
                // one now and then also meanwhile
                if !rng.one_in(8) {
                    clock::sleep_until(until);
                    continue;
                }
            }
            let act = history.act(&mut rng, alone == Some(client), door.abilities());
            match faults.mutant {
                Some(mutant) => {
                    let act = with_one_place(mutant, act);
                    faults.act(mutant, &mut door, history, &mut record, &act)?;
                }
                None => door.act(history, &mut record, &act)?,
            }
            made += 1;
        }
        Ok(())
    }
}

/// The act; one that would tell an old answer is always at the same place, to have one.
fn with_one_place(mutant: Mutant, act: Act) -> Act {
    match (mutant, act) {
        (Mutant::Stale, Act::Copy { at, cells, .. }) => Act::Copy { file: 0, at, cells },
        (Mutant::Stale, Act::Read { file, .. }) => Act::Read { file, at: 0, cells: PAGE_CELLS },
        (Mutant::Stale, Act::Load { file, .. }) => Act::Load { file, at: 0, cells: PAGE_CELLS },
        (_, act) => act,
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
        door: &mut Door<'_>,
        history: &History,
        record: &mut Record,
        act: &Act,
    ) -> Result<()> {
        let mut late = None;
        let answer = record.call(act, |number| match (mutant, act) {
            (Mutant::Lost, Act::Write { .. } | Act::Store { .. }) => Default::default(),
            (Mutant::Late, Act::Write { .. } | Act::Store { .. }) => {
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
            (Mutant::Torn, Act::Transact { reads, writes }) if reads.is_empty() => {
                let answers = writes.iter().map(|part| {
                    let act = Act::Transact { reads: Vec::new(), writes: vec![*part] };
                    let answer = door.answer(history, &act, number);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    answer
                });
                answers.last().unwrap_or_default()
            }
            (Mutant::Gap, _) => door.answer_with_gap(history, act, number),
            (Mutant::Stale, Act::Read { .. } | Act::Load { .. } | Act::Copy { .. }) => {
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
        if matches!(act, Act::Read { .. } | Act::Load { .. } | Act::Copy { .. }) {
            self.seen.push((act.clone(), answer));
        }
        Ok(())
    }
}
