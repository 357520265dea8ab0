//! What others have measured on two sockets of Optane, and what a run says of it.
//!
//! MiB/s of both nodes together. Sources: OdinFS's raw logs (OSDI'22), and the tables of
//! ChimeraFS's artifact (EuroSys'26), which ran OdinFS with other numbers of workers.

use placement::{Kind, Machine};

use crate::run::run;
use crate::setting::{Refused, Setting};
use crate::system::{Layout, Rule, System};
use crate::workload::Workload;

/// Who copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Threads on the memory's node, without a file system.
    Threads,
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

const K: u64 = 1 << 10;
const ONE: &str = "one node";
const SEATS: &str = "workers per node";
const APPENDS: &str = "append, 32 writers";

/// A row: of which table, what calls did, who copied for how many threads, what was measured.
fn row(
    table: &'static str,
    (kind, bytes): (Kind, u64),
    (by, threads, rate): (By, u32, f64),
) -> Published {
    // the machine's curves, and the journal's lock
    let is_fitted = table == ONE || table == SEATS && bytes == 4 * K && by == By::Workers(12);
    Published { table, by, kind, bytes, threads, rate, is_fitted }
}

/// All of them.
#[must_use]
pub fn published() -> Vec<Published> {
    use By::{Callers, Threads, Workers};
    use Kind::{Read, Write};
    let mut all = Vec::new();
    for (access, measured) in [
        ((Write, 4 * K), &[(8, 12_900.0), (56, 9_400.0)][..]),
        ((Write, 32 * K), &[(4, 15_300.0), (56, 8_700.0)]),
        ((Read, 32 * K), &[(2, 7_200.0), (16, 45_000.0), (32, 50_000.0), (56, 48_000.0)]),
    ] {
        for &(threads, rate) in measured {
            all.push(row(ONE, access, (Threads, threads, rate)));
        }
    }
    let large = [(1, 7_164.0), (2, 13_210.0), (4, 12_732.0), (8, 11_878.0), (12, 11_230.0)];
    let large_reads = [(1, 7_726.0), (2, 14_882.0), (4, 28_297.0), (8, 44_817.0), (12, 49_118.0)];
    for (access, threads, measured) in [
        ((Write, 2048 * K), 8, &large[..]),
        ((Read, 2048 * K), 8, &large_reads),
        ((Write, 32 * K), 32, &[(1, 6_959.0), (2, 11_298.0), (4, 11_401.0), (12, 10_147.0)]),
        ((Read, 32 * K), 32, &[(1, 6_461.0), (4, 22_323.0), (8, 31_061.0), (12, 30_242.0)]),
        ((Write, 4 * K), 32, &[(1, 3_060.0), (4, 4_879.0), (12, 4_438.0)]),
        ((Read, 2048 * K), 1, &[(1, 7_577.0), (12, 28_399.0)]),
    ] {
        for &(workers, rate) in measured {
            all.push(row(SEATS, access, (Workers(workers), threads, rate)));
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
        all.push(row(APPENDS, (Write, bytes), (Workers(12), 32, delegated)));
        all.push(row(APPENDS, (Write, bytes), (Callers, 32, inline)));
    }
    all
}

/// Runs what each of them measured, on this machine.
///
/// # Errors
/// The machine is none.
pub fn compare(machine: &Machine) -> Result<Vec<Compared>, Refused> {
    let compared = |published: Published| {
        let rate = run(&setting(machine, &published))?.rate();
        Ok(Compared { published, rate })
    };
    published().into_iter().map(compared).collect()
}

fn setting(machine: &Machine, published: &Published) -> Setting {
    let Published { table, by, kind, bytes, threads, .. } = *published;
    let odinfs = System::known("odinfs").unwrap_or_default();
    let system = match by {
        By::Threads => System { layout: Layout::Near, ..System::default() },
        // what the appends were measured with has no such lock
        By::Workers(workers) => System {
            workers: Some(workers),
            serial_ns: if table == APPENDS { [0.0; 2] } else { odinfs.serial_ns },
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
    let workload = Workload { is_spread: true, ..Workload::fio(kind, bytes, threads) };
    // some thousand calls, and more
    let time = if bytes < 32 * K { [1e6, 1e7] } else { [2e7, 1e8] };
    Setting { machine: machine.clone(), system, workload, others: Vec::new(), seed: 1, time }
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
        let compared = compare(&parse(KNOWN[0].1).unwrap()).unwrap();
        let errors = |is_fitted: bool| -> Vec<f64> {
            let its = compared.iter().filter(|it| it.published.is_fitted == is_fitted);
            its.map(Compared::error).collect()
        };
        let (fitted, held_out) = (errors(true), errors(false));
        assert_eq!((fitted.len(), held_out.len()), (9, 36));
        println!("fitted {fitted:.2?}, held out {held_out:.2?}");
        assert!(fitted.iter().all(|error| *error < 0.05), "{fitted:?}");
        assert!(median(held_out.clone()) < 0.16, "{held_out:?}");
        assert!(held_out.iter().all(|error| *error < 0.55), "{held_out:?}");
    }
}
