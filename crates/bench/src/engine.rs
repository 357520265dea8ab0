//! A database's engine on files of a tiered pool behind a mount, beside the same on ext4.
//!
//! RocksDB holds more records than the pool's slice has room for, and syncs every write. The same
//! program runs in a process of its own for each side, and takes turns: on our mount, on ext4 on a
//! loop device in the memory that our slice lies in, and on one on the disk where our tier's device
//! lies. A turn is as long for each, and what counts is how many operations end in it.
//!
//! All mounts are in a namespace of the measurement's own, and end with its processes; so do the
//! loop devices.

mod sides;
mod table;

use crate::door;
use crate::error::Result;
use crate::lab::medium;
use crate::options::Options;
use crate::row::Spread;
use crate::scratch::Scratch;
use crate::stats::spread;
use serde::Serialize;
use sides::Side;
use std::time::Duration;
pub use table::{table, tail};

/// Of a hundred operations so many write.
const WRITE_PERCENTS: [u32; 4] = [100, 50, 5, 0];
/// Bytes of a record.
const RECORD_BYTES: u64 = 1024;
/// Bytes of the pool's slice, before scaling.
const SLICE_BYTES: f64 = 256.0 * 1048576.0;
/// Bytes of all records by those of the slice.
const SHARE: u64 = 2;
/// A turn.
const TURN: Duration = Duration::from_secs(3);
const QUICK_TURN: Duration = Duration::from_millis(400);

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Slice and records are so many times as large.
    pub scale: f64,
    /// Turns of each that count.
    pub rounds: usize,
    /// Threads of the program.
    pub clients: u32,
    /// The engine reads its tables, and writes them, past the page cache.
    pub direct: bool,
}

/// Where its files were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// In a pool with a capacity tier.
    Ours,
    /// On ext4 in the memory that the pool's slice lies in.
    Ext4InMemory,
    /// On ext4 on the disk that the tier's device lies on.
    Ext4OnDisk,
}

impl System {
    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            System::Ours => "ours, with a tier",
            System::Ext4InMemory => "ext4 in the slice's memory",
            System::Ext4OnDisk => "ext4 on the tier's disk",
        }
    }
}

/// What one of them did of one mix.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Which.
    pub system: System,
    /// Of a hundred operations so many write; none: the load.
    pub write_percent: Option<u32>,
    /// Operations a second.
    pub per_second: Spread,
    /// Ours by it, round by round.
    pub ours_by: Spread,
}

/// What of ours went to the tier, MiB.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TierTraffic {
    /// Written to its device.
    pub written_mib: u64,
    /// Read from it.
    pub read_mib: u64,
    /// Time that changes were delayed by, ms.
    pub delayed_ms: u64,
}

/// All of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Engine {
    /// The engine and its version.
    pub engine: String,
    /// Bytes of all records.
    pub records_bytes: u64,
    /// Bytes of the pool's slice.
    pub slice_bytes: u64,
    /// Threads of the program.
    pub clients: u32,
    /// The engine passed by the page cache.
    pub direct: bool,
    /// Durability domain of ours.
    pub domain: String,
    /// What the slice lay on, and the loop device beside it.
    pub slices_on: String,
    /// What the tier's device lay on, and the other loop device.
    pub disk: String,
    /// What was done.
    pub figures: Vec<Figure>,
    /// What ours wrote to the tier and read from it.
    pub tier: TierTraffic,
    /// What could not be measured here, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

/// What each side has.
#[derive(Clone, Copy, Debug)]
struct Load {
    records: u64,
    slice_bytes: u64,
    clients: u32,
    direct: bool,
}

/// Measures, and shows the figures of each mix as soon as they are there.
///
/// # Errors
/// What the engine, the kernel or the program said.
pub fn engine(
    options: &Options,
    asked: &EngineOptions,
    show: &mut (dyn FnMut(&Engine, &[Figure]) + Send),
) -> Result<Engine> {
    let scale = asked.scale * if options.quick { 0.25 } else { 1.0 };
    let slice_bytes = ((SLICE_BYTES * scale) as u64).next_multiple_of(1 << 20);
    let records = SHARE * slice_bytes / RECORD_BYTES;
    let (clients, direct) = (asked.clients, asked.direct);
    let load = Load { records, slice_bytes, clients, direct };
    let mut engine = Engine {
        engine: sides::ROCKSDB.name.to_owned(),
        records_bytes: records * RECORD_BYTES,
        slice_bytes,
        clients,
        direct,
        domain: String::new(),
        slices_on: medium(options.dir()),
        disk: medium(&options.disk()),
        figures: Vec::new(),
        tier: TierTraffic::default(),
        skipped: Vec::new(),
    };
    if let Some(why) = door::missing() {
        engine.skipped.push(why.to_owned());
        return Ok(engine);
    }
    door::apart(|| {
        measure(options, asked, load, &mut engine, show)?;
        Ok(engine)
    })
}

fn measure(
    options: &Options,
    asked: &EngineOptions,
    load: Load,
    engine: &mut Engine,
    show: &mut dyn FnMut(&Engine, &[Figure]),
) -> Result<()> {
    let programs = Scratch::new(&options.disk())?;
    let mut sides = Vec::new();
    for system in [System::Ours, System::Ext4InMemory, System::Ext4OnDisk] {
        match Side::start(system, options, &load, programs.path())? {
            Ok(side) => sides.push(side),
            Err(why) => engine.skipped.push(format!("{}: {why}", system.name())),
        }
        if sides.is_empty() {
            // there is nothing to compare with
            return Ok(());
        }
    }
    engine.engine = sides[0].version().to_owned();
    engine.domain = sides[0].domain().to_owned();
    let loads: Vec<Vec<f64>> =
        sides.iter().map(|side| vec![load.records as f64 / side.load_seconds()]).collect();
    let systems: Vec<System> = sides.iter().map(Side::system).collect();
    let mut add = |write_percent, rates: &[Vec<f64>]| {
        let figures = figures(&systems, write_percent, rates);
        show(engine, &figures);
        engine.figures.extend(figures);
    };
    add(None, &loads);
    let turn = if options.quick { QUICK_TURN } else { TURN };
    for write_percent in WRITE_PERCENTS {
        let rates = turns(&mut sides, write_percent, turn, asked.rounds.max(1))?;
        add(Some(write_percent), &rates);
    }
    engine.tier = sides[0].tier();
    sides.into_iter().try_for_each(Side::close)
}

/// All turns of one mix; first of each side one that does not count.
fn turns(
    sides: &mut [Side],
    write_percent: u32,
    turn: Duration,
    rounds: usize,
) -> Result<Vec<Vec<f64>>> {
    let mut rates = vec![Vec::new(); sides.len()];
    for side in sides.iter_mut() {
        side.turn(write_percent, turn / 4, 0)?;
    }
    for round in 0..rounds {
        for step in 0..sides.len() {
            let index = (step + round) % sides.len();
            rates[index].push(sides[index].turn(write_percent, turn, round as u64 + 1)?);
        }
    }
    Ok(rates)
}

fn figures(systems: &[System], write_percent: Option<u32>, rates: &[Vec<f64>]) -> Vec<Figure> {
    let figure = |(system, own): (&System, &Vec<f64>)| {
        let pairs = rates[0].iter().zip(own);
        Figure {
            system: *system,
            write_percent,
            per_second: spread(own),
            ours_by: spread(&pairs.map(|(ours, own)| ours / own).collect::<Vec<_>>()),
        }
    };
    systems.iter().zip(rates).map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_has_a_figure_for_each_or_says_why_not() {
        let options = Options {
            dir: Some(std::env::temp_dir()),
            disk: Some(std::env::temp_dir()),
            quick: true,
            ..Options::default()
        };
        let asked = EngineOptions { scale: 0.5, rounds: 1, clients: 2, direct: false };
        let engine = engine(&options, &asked, &mut |_, _| ()).unwrap();
        let systems = engine.figures.len() / (WRITE_PERCENTS.len() + 1);
        assert!(systems + engine.skipped.len() >= 1, "{engine:?}");
        if systems == 0 {
            println!("skipped: {:?}", engine.skipped);
            return;
        }
        assert_eq!(systems + engine.skipped.len(), 3, "{engine:?}");
        assert!(engine.figures.iter().all(|figure| figure.per_second.median > 0.0));
        let ours = engine.figures.iter().filter(|figure| figure.system == System::Ours);
        assert!(ours.clone().all(|figure| figure.ours_by.median == 1.0));
        // more than the slice holds
        assert!(engine.tier.written_mib > 0, "{engine:?}");
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains("nearside-bench-"), "{mounts}");
    }
}
