//! Histories one after the other on one pool, which is opened anew in the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nearside::{FormatOptions, Pool, SliceSpec};
use rustix::process::Signal;

use crate::door::{Door, DoorKind};
use crate::hosts::{Host, Places, this_program};
use crate::library::Library;
use crate::plan::{FILES, History, HostKind, Kind, LEAST_CELLS};
use crate::record::{Act, Head, Record};
use crate::rng::Rng;
use crate::run::Settings;
use crate::watched::Watched;
use crate::wrong_caller::Mutant;
use crate::{Result, clock, said};

/// The caller that makes files as long as they are at the beginning.
const BEFORE: u32 = 199;
/// The caller that reads what is there when the pool was opened anew.
const AFTERWARDS: u32 = 200;
/// A server that served for less is followed after a pause.
const SERVED_LEAST_NS: u64 = 300_000_000;
/// Of a service's log, for who asks why a batch failed.
const LOG_LINES: usize = 8;
/// Callers begin so long after they were told.
const LEAD_NS: u64 = 1_500_000;

/// A process that calls at one door.
struct Worker {
    kind: &'static str,
    /// Its first caller.
    first: u32,
    process: Watched,
}

/// Histories that share a pool.
pub struct Batch<'s> {
    settings: &'s Settings,
    scratch: tempfile::TempDir,
    places: Places,
    host: Host,
    /// The door of each caller.
    doors: Vec<DoorKind>,
    workers: Vec<Worker>,
    /// The driver's own.
    pool: Pool,
    served_since: u64,
    /// Services killed in this history: from when on, and when the next one answered.
    kills: Vec<[u64; 2]>,
    /// Owner and callers were killed.
    is_left: bool,
    done: Vec<(History, Head)>,
    /// What happened, by its name.
    pub events: BTreeMap<&'static str, u64>,
}

impl<'s> Batch<'s> {
    /// Makes a pool, and has it served.
    pub fn begin(settings: &'s Settings, kind: HostKind) -> Result<Batch<'s>> {
        let scratch = tempfile::Builder::new().prefix("nearside-history.").tempdir();
        let scratch = scratch.map_err(said("scratch"))?;
        let at = |name: &str| scratch.path().join(name);
        let made = ["mnt", "away", "records"].map(at).iter().try_for_each(std::fs::create_dir);
        made.map_err(said("scratch"))?;
        let places = Places {
            pool: at("pool"),
            mnt: settings.mounts.then(|| at("mnt")),
            away: has_away(settings, kind).then(|| at("away")),
            nearside: settings.nearside.clone(),
        };
        format(&places.pool)?;
        let host = Host::start(kind, &places)?;
        let pool = Pool::attach(&places.pool).map_err(said("attach"))?;
        let mut doors = match kind {
            HostKind::Owner => DoorKind::of_process("own").to_vec(),
            HostKind::Serve => Vec::new(),
        };
        let mut workers = Vec::new();
        let mut kinds = vec!["attached", "attached"];
        if settings.mounts {
            kinds.extend(["mount", "pages"]);
            kinds.extend(settings.nearside.exists().then_some("copies"));
            kinds.extend(places.away.as_ref().map(|_| "away"));
        }
        for kind in kinds {
            let first = doors.len() as u32;
            workers.push(Worker { kind, first, process: start(kind, &places, first)? });
            doors.extend(DoorKind::of_process(kind));
        }
        Ok(Batch {
            settings,
            scratch,
            places,
            host,
            doors,
            workers,
            pool,
            served_since: clock::now(),
            kills: Vec::new(),
            is_left: false,
            done: Vec::new(),
            events: BTreeMap::new(),
        })
    }

    /// One history. After the last one nobody is left, if `ends_by_kill`.
    pub fn history(
        &mut self,
        number: u32,
        kind: Kind,
        mutant: Option<(Mutant, DoorKind)>,
        ends_by_kill: bool,
    ) -> Result<()> {
        let stores = match mutant {
            Some((_, door)) => door != DoorKind::CopiesIn,
            None => number.is_multiple_of(2),
        };
        let mut rng = Rng::new(&[self.settings.seed, number.into()]);
        let disturbance = match mutant.is_some() || ends_by_kill {
            true => Disturbance::None,
            false => Disturbance::draw(&mut rng, &self.host),
        };
        let callers = self.callers(kind, disturbance);
        let caller = |door| self.doors.iter().position(|it| *it == door).map(|it| it as u32);
        let wrong = |(mutant, door)| Some((mutant, caller(door)?));
        let mutant = mutant.map(|it| wrong(it).ok_or("no caller has this door")).transpose()?;
        let mut history = History {
            number,
            kind,
            seed: self.settings.seed,
            start_ns: 0,
            calls: self.settings.calls / callers,
            callers,
            stores,
            records: self.scratch.path().join("records"),
            is_final: false,
            mutant,
        };
        if self.call_from_away(callers) {
            *self.events.entry("histories with callers over a network").or_default() += 1;
        }
        let names = self.prepare(&history)?;
        history.start_ns = clock::now() + LEAD_NS;
        self.tell(&history)?;
        let mut told = String::new();
        match ends_by_kill {
            true => self.kill_all(&history, &mut rng, &mut told),
            false => self.disturb(disturbance, &history, &mut rng, &mut told)?,
        }
        if !ends_by_kill {
            self.hear()?;
            history.is_final = true;
            self.tell(&history)?;
            self.hear()?;
        }
        let doors = self.doors.clone();
        let kills = std::mem::take(&mut self.kills);
        let head = Head { history: number, seed: history.seed, kind, told, names, doors, kills };
        self.done.push((history, head));
        Ok(())
    }

    /// Whether a caller has this door.
    pub fn has_door(&self, door: DoorKind) -> bool {
        self.doors.contains(&door)
    }

    /// Callers that take part. Those behind the kernel's pages only do where all know their rules.
    /// Where a service is killed all callers wait at one time: those of another machine are left
    /// out, for more orders than can be searched are possible with them.
    fn callers(&self, kind: Kind, disturbance: Disturbance) -> u32 {
        let left_out = match (kind, disturbance) {
            (Kind::Pages, Disturbance::KillService) => Some("away"),
            (Kind::Pages, _) => None,
            _ => Some("pages"),
        };
        let first = self.workers.iter().find(|worker| Some(worker.kind) == left_out);
        first.map_or(self.doors.len() as u32, |worker| worker.first)
    }

    fn call_from_away(&self, callers: u32) -> bool {
        self.workers.iter().any(|worker| worker.kind == "away" && worker.first < callers)
    }

    /// An error, and what the service said last, if there is one.
    pub fn with_log(&self, error: String) -> String {
        let log = std::fs::read_to_string(self.places.pool.join("nearside.log"));
        let log = log.unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
        std::iter::once(error.as_str()).chain(last.iter().copied()).collect::<Vec<_>>().join("\n  ")
    }

    /// Makes what is there at the beginning; the names that are.
    fn prepare(&self, history: &History) -> Result<BTreeMap<String, u64>> {
        let pool = &self.pool;
        pool.create_dir(history.dir()).map_err(said("the driver"))?;
        match history.kind {
            Kind::Data | Kind::Transactions => {
                let make = |file| pool.create_file(history.file(file)).map(drop);
                (0..FILES).try_for_each(make).map_err(said("the driver"))?;
                Ok(BTreeMap::new())
            }
            Kind::Pages => {
                let make = |file| pool.create_file(history.file(file)).map(drop);
                (0..FILES).try_for_each(make).map_err(said("the driver"))?;
                let library = Library::open(pool, history).map_err(said("the driver"))?;
                let mut record = Record::create(&history.records, history.number, BEFORE)?;
                let act = |file| Act::Truncate { file, cells: LEAST_CELLS };
                let mut door = Door::Library(library);
                let mut make = |file| door.act(history, &mut record, &act(file));
                (0..FILES).try_for_each(&mut make)?;
                Ok(BTreeMap::new())
            }
            Kind::Links | Kind::Renames => {
                let make = |name: &str| {
                    let file = pool.create_file(format!("{}/{name}", history.dir()))?;
                    Ok((name.to_owned(), file.metadata()?.ino()))
                };
                let made: nearside::Result<_> = ["a", "b"].into_iter().map(make).collect();
                made.map_err(said("the driver"))
            }
        }
    }

    fn everybody(&mut self) -> impl Iterator<Item = &mut Watched> {
        let workers = self.workers.iter_mut().map(|worker| &mut worker.process);
        self.host.caller().into_iter().chain(workers)
    }

    fn tell(&mut self, history: &History) -> Result<()> {
        self.everybody().try_for_each(|process| process.tell(history))
    }

    fn hear(&mut self) -> Result<()> {
        self.everybody().try_for_each(|process| process.hear("done"))
    }

    fn count(&mut self, what: &'static str, told: &mut String) {
        *self.events.entry(what).or_default() += 1;
        // to a string
        let _ = write!(told, "{what} at {}; ", clock::now());
    }

    /// Kills or stops somebody, or nobody.
    fn disturb(
        &mut self,
        disturbance: Disturbance,
        history: &History,
        rng: &mut Rng,
        told: &mut String,
    ) -> Result<()> {
        let moment = history.start_ns + rng.below(25_000_000);
        // Attached processes only: calls of as many doors as other processes have, which do not
        // return or wait long, have more orders than can be searched.
        let which = rng.below(2) as usize;
        match disturbance {
            Disturbance::KillAttached => {
                clock::sleep_until(moment);
                self.count("attached processes killed", told);
                self.workers[which].process.kill();
                let Worker { kind, first, .. } = self.workers[which];
                let mut process = start(kind, &self.places, first)?;
                // it has nothing to do with this one, but reads in the end
                process.tell(&History { calls: 0, ..history.clone() })?;
                self.workers[which].process = process;
            }
            Disturbance::StopAttached => {
                clock::sleep_until(moment);
                self.count("attached processes stopped", told);
                self.workers[which].process.signal(Signal::STOP)?;
                std::thread::sleep(Duration::from_millis(rng.below(160)));
                self.workers[which].process.signal(Signal::CONT)?;
            }
            Disturbance::KillService => {
                clock::sleep_until(moment.max(self.served_since + SERVED_LEAST_NS));
                self.count("services killed", told);
                let killed = clock::now();
                self.host.kill_server()?;
                // until the next one answers
                self.pool.metadata("/").map_err(said("after a service was killed"))?;
                self.served_since = clock::now();
                self.kills.push([killed, self.served_since]);
            }
            Disturbance::None => {}
        }
        Ok(())
    }

    fn kill_all(&mut self, history: &History, rng: &mut Rng, told: &mut String) {
        clock::sleep_until(history.start_ns + rng.below(30_000_000));
        self.count("pools left by kill", told);
        // who is attached would wait for the next service
        self.workers.iter_mut().for_each(|worker| worker.process.kill());
        self.host.kill();
        self.is_left = true;
    }

    /// Ends all, opens the pool again, reads what is there, and writes all histories to one file.
    pub fn end(self, to: &Path) -> Result<BTreeMap<&'static str, u64>> {
        let Batch { scratch, places, host, mut workers, pool, done, events, is_left, .. } = self;
        drop(pool);
        for worker in &mut workers {
            worker.process.kill();
        }
        match is_left {
            true => drop(host),
            false => host.end()?,
        }
        let pool = Pool::open(&places.pool).map_err(said("open again"))?;
        let mut out = std::io::BufWriter::new(
            std::fs::File::create(to).map_err(|error| format!("{}: {error}", to.display()))?,
        );
        let records = scratch.path().join("records");
        for (history, head) in &done {
            let library = Library::open(&pool, history).map_err(said("open again"))?;
            let mut door = Door::Library(library);
            let mut record = Record::create(&records, history.number, AFTERWARDS)?;
            let acts = history.last_acts(door.abilities());
            acts.iter().try_for_each(|act| door.act(history, &mut record, act))?;
            let head = serde_json::to_string(head).map_err(said("a head"))?;
            writeln!(out, "{head}").map_err(said("histories"))?;
            for client in 0..=AFTERWARDS {
                let path = records.join(format!("{}.{client}", history.number));
                if let Ok(lines) = std::fs::read(&path) {
                    out.write_all(&lines).map_err(said("histories"))?;
                }
            }
        }
        out.flush().map_err(said("histories"))?;
        pool.close().map_err(said("close"))?;
        drop(pool);
        let report = nearside::check(&places.pool).map_err(said("check"))?;
        match report.findings.is_empty() {
            true => Ok(events),
            false => Err(format!("check: {:?}", report.findings)),
        }
    }
}

/// Whether the pool is mounted over a network, too.
fn has_away(settings: &Settings, host: HostKind) -> bool {
    settings.away && settings.mounts && host == HostKind::Serve
}

/// What is done to others while callers call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    KillAttached,
    StopAttached,
    KillService,
    None,
}

impl Disturbance {
    fn draw(rng: &mut Rng, host: &Host) -> Disturbance {
        match rng.below(20) {
            0..=3 => Disturbance::KillAttached,
            4..=5 => Disturbance::StopAttached,
            6..=9 if matches!(host, Host::Serve(_)) => Disturbance::KillService,
            _ => Disturbance::None,
        }
    }
}

fn start(kind: &str, places: &Places, first: u32) -> Result<Watched> {
    let place = match (kind, &places.mnt, &places.away) {
        ("mount" | "pages", Some(mnt), _) => mnt,
        ("away", _, Some(away)) => away,
        _ => &places.pool,
    };
    let mut command: Command = this_program()?;
    command.arg("work").arg(kind).arg(place).arg(first.to_string());
    command.args((kind == "copies").then_some(&places.nearside));
    Watched::start(kind, &mut command)
}

fn format(pool: &PathBuf) -> Result<()> {
    let options = FormatOptions {
        slices: vec![SliceSpec::default(); 2],
        slice_bytes: 48 << 20,
        process: true,
        ..FormatOptions::default()
    };
    Pool::format(pool, &options).map_err(said("format"))
}
