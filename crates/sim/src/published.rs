//! What others have measured on two sockets of Optane, and what a run says of it.
//!
//! MiB/s of both nodes together. Sources: OdinFS's raw logs (OSDI'22), and the tables of
//! ChimeraFS's artifact (EuroSys'26), which ran OdinFS with other numbers of workers.

use placement::{BLOCK_BYTES, Kind, Machine, PIECE_BYTES};

use crate::runs::run_all;
use crate::setting::{Refused, Setting};
use crate::system::{Layout, Rule, System};
use crate::workload::{Made, Workload};

/// Who copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Threads on both nodes, each on its own memory, without a file system.
    Threads,
    /// Threads on one node, on its memory, without a file system.
    Near,
    /// The same on the other node's memory.
    Far,
    /// So many of OdinFS's workers on each node.
    Workers(u32),
    /// Callers of OdinFS.
    Callers,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// The table that it is of.
    pub table: &'static str,
    /// Who copied.
    pub by: By,
    /// What calls did.
    pub kind: Kind,
    /// Bytes of a call.
    pub bytes: u64,
    /// Threads on both nodes.
    pub threads: u32,
    /// MiB/s.
    pub rate: f64,
    /// A number of the model follows from it.
    pub is_fitted: bool,
}

/// What a run says beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// What was measured.
    pub published: Published,
    /// What a run says, MiB/s.
    pub rate: f64,
}

impl Compared {
    /// The run's part of what was measured.
    pub fn ratio(&self) -> f64 {
        self.rate / self.published.rate
    }

    /// How far it is off, as a part.
    pub fn error(&self) -> f64 {
        (self.ratio() - 1.0).abs()
    }
}

/// What the runs are made with.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The machine.
    pub machine: Machine,
    /// For how long a write of OdinFS has the lock of its journal, ns.
    pub lock_ns: f64,
}

impl Model {
    /// This machine, and OdinFS as it is known.
    pub fn of(machine: Machine) -> Model {
        Model { machine, lock_ns: odinfs().serial_ns[1] }
    }
}

fn odinfs() -> System {
    System::known("odinfs").unwrap_or_default()
}

/// OdinFS's workers on a node, as it was published.
const WORKERS: u32 = 12;
/// Nodes that were measured, and CPUs of each.
const NODES: u32 = 2;
const CPUS: u32 = 28;
const K: u64 = 1 << 10;
const APPENDS: &str = "appends, 32 writers";

impl Published {
    /// Workers who had a CPU each copied long calls, more of them than they came to: what they
    /// moved may be all that the memory does.
    pub(crate) fn is_by_busy_workers(&self) -> Option<u32> {
        let By::Workers(workers) = self.by else { return None };
        let have_cpus = self.threads + NODES * workers <= NODES * CPUS;
        let is_one = self.bytes >= PIECE_BYTES && self.threads > NODES && have_cpus;
        is_one.then_some(workers)
    }

    /// As many workers as OdinFS has wrote calls of one block, of which its journal is the most.
    pub(crate) fn is_by_lock(&self) -> bool {
        let by = (self.kind, self.by) == (Kind::Write, By::Workers(WORKERS));
        by && self.bytes == BLOCK_BYTES && self.has_lock()
    }

    /// What the appends were measured with has no such lock.
    fn has_lock(&self) -> bool {
        matches!(self.by, By::Workers(_)) && self.table != APPENDS
    }
}

/// A row: of which table, what calls did, who copied for how many threads, what was measured.
fn row(
    table: &'static str,
    (kind, bytes): (Kind, u64),
    (by, threads, rate): (By, u32, f64),
) -> Published {
    let it = Published { table, by, kind, bytes, threads, rate, is_fitted: false };
    // `fit` uses these; a test has it so
    let is_fitted = match by {
        By::Threads | By::Near | By::Far => true,
        By::Workers(_) => {
            kind == Kind::Read && it.is_by_busy_workers().is_some() || it.is_by_lock()
        }
        By::Callers => false,
    };
    Published { is_fitted, ..it }
}

/// All of them.
#[must_use]
pub fn published() -> Vec<Published> {
    use Kind::{Read, Write};
    let mut all = bare();
    let large = [(1, 7_164.0), (2, 13_210.0), (4, 12_732.0), (8, 11_878.0), (12, 11_230.0)];
    let large_reads = [(1, 7_726.0), (2, 14_882.0), (4, 28_297.0), (8, 44_817.0), (12, 49_118.0)];
    let writes = [(1, 6_959.0), (2, 11_298.0), (4, 11_401.0), (12, 10_147.0)];
    let reads = [(1, 6_461.0), (4, 22_323.0), (8, 31_061.0), (12, 30_242.0)];
    for (table, access, threads, measured) in [
        ("workers: 2M writes", (Write, 2048 * K), 8, &large[..]),
        ("workers: 2M reads", (Read, 2048 * K), 8, &large_reads),
        ("workers: 32K writes", (Write, 32 * K), 32, &writes),
        ("workers: 32K reads", (Read, 32 * K), 32, &reads),
        (
            "workers: 4K writes",
            (Write, 4 * K),
            32,
            &[(1, 3_060.0), (4, 4_879.0), (WORKERS, 4_438.0)],
        ),
        ("workers: one reader", (Read, 2048 * K), 1, &[(1, 7_577.0), (12, 28_399.0)]),
        ("workers: 56 readers", (Read, 2048 * K), 56, &[(12, 31_400.0)]),
    ] {
        for &(workers, rate) in measured {
            all.push(row(table, access, (By::Workers(workers), threads, rate)));
        }
    }
    for (bytes, delegated, inline) in [
        (K / 4, 1_973.0, 5_326.0),
        (K / 2, 3_905.0, 10_158.0),
        (K, 6_759.0, 11_162.0),
        (2 * K, 10_854.0, 10_854.0),
        (4 * K, 11_878.0, 9_042.0),
        (8 * K, 11_981.0, 8_678.0),
        (16 * K, 12_902.0, 7_877.0),
    ] {
        all.push(row(APPENDS, (Write, bytes), (By::Workers(WORKERS), 32, delegated)));
        all.push(row(APPENDS, (Write, bytes), (By::Callers, 32, inline)));
    }
    all
}

/// Those without a file system.
fn bare() -> Vec<Published> {
    use By::{Far, Near, Threads};
    use Kind::{Read, Write};
    let mut all = Vec::new();
    let reads = [(2, 7_200.0), (16, 45_000.0), (32, 50_000.0), (56, 48_000.0)];
    for (table, access, measured) in [
        ("one node: 4K writes", (Write, 4 * K), &[(8, 12_900.0), (56, 9_400.0)][..]),
        ("one node: 32K writes", (Write, 32 * K), &[(4, 15_300.0), (56, 8_700.0)]),
        ("one node: 32K reads", (Read, 32 * K), &reads),
    ] {
        for &(threads, rate) in measured {
            all.push(row(table, access, (Threads, threads, rate)));
        }
    }
    // 17.3 GiB/s
    for (table, kind, threads, near, far) in [
        ("remote: 2M reads", Read, 28, 17_715.0, 17_715.0),
        ("remote: 2M writes", Write, 8, 7_751.0, 7_168.0),
    ] {
        all.push(row(table, (kind, 2048 * K), (Near, threads, near)));
        all.push(row(table, (kind, 2048 * K), (Far, threads, far)));
    }
    all
}

/// Runs what each of these measured.
///
/// # Errors
/// The machine is none.
pub fn compare(model: &Model, rows: &[Published]) -> Result<Vec<Compared>, Refused> {
    let settings: Vec<Setting> = rows.iter().map(|it| setting(model, it)).collect();
    let outcomes = run_all(&settings)?;
    let compared = |(row, rate): (&Published, f64)| Compared { published: *row, rate };
    Ok(rows.iter().zip(outcomes.iter().map(|it| it.rate())).map(compared).collect())
}

pub(crate) fn setting(model: &Model, published: &Published) -> Setting {
    let Published { by, kind, bytes, threads, .. } = *published;
    let odinfs = odinfs();
    let system = match by {
        By::Threads | By::Near | By::Far => System { layout: Layout::Near, ..System::default() },
        By::Workers(workers) => System {
            workers: Some(workers),
            serial_ns: [0.0, if published.has_lock() { model.lock_ns } else { 0.0 }],
            ..odinfs
        },
        By::Callers => System {
            rule: Rule::Callers,
            workers: Some(0),
            own_rings: false,
            serial_ns: [0.0; 2],
            ..odinfs
        },
    };
    let fio = Workload::fio(kind, bytes, threads);
    let workload = Workload {
        is_spread: true,
        on_nodes: if matches!(by, By::Near | By::Far) { 1 } else { fio.on_nodes },
        made: if by == By::Far { Made::Beside } else { fio.made },
        ..fio
    };
    // some thousand calls, and more
    let time = if bytes < 32 * K { [1e6, 1e7] } else { [2e7, 1e8] };
    let machine = model.machine.clone();
    Setting { machine, system, workload, others: Vec::new(), seed: 1, time }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KNOWN, parse};

    fn median(mut errors: Vec<f64>) -> f64 {
        errors.sort_by(f64::total_cmp);
        errors[errors.len() / 2]
    }

    /// What the model's numbers follow from it says again, and most of the rest it says about
    /// right.
    #[test]
    fn what_others_measured_is_met() {
        let model = Model::of(parse(KNOWN[0].1).unwrap());
        let compared = compare(&model, &published()).unwrap();
        let errors = |is_one: &dyn Fn(&Published) -> bool| -> Vec<f64> {
            let its = compared.iter().filter(|it| is_one(&it.published));
            its.map(Compared::error).collect()
        };
        let (fitted, held_out) = (errors(&|it| it.is_fitted), errors(&|it| !it.is_fitted));
        assert_eq!((fitted.len(), held_out.len()), (18, 32));
        println!("fitted {fitted:.2?}, held out {held_out:.2?}");
        assert!(median(fitted.clone()) < 0.15, "{fitted:?}");
        assert!(median(held_out.clone()) < 0.16, "{held_out:?}");
        assert!(fitted.iter().chain(&held_out).all(|error| *error < 0.55));
        // the curve's points and the lock's row
        let met = errors(&|it| it.by == By::Threads || it.is_by_lock());
        assert!(met.len() == 9 && met.iter().all(|error| *error < 0.05), "{met:?}");
        // from the other node it is the part of the other node, whatever that of its own is
        for pair in compared.windows(2).filter(|pair| pair[1].published.by == By::Far) {
            let part = |of: fn(&Compared) -> f64| of(&pair[1]) / of(&pair[0]);
            let (measured, says) = (part(|it| it.published.rate), part(|it| it.rate));
            assert!((says / measured - 1.0).abs() < 0.01, "{pair:?}");
        }
    }
}
