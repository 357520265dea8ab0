//! Numbers that follow from tables: those that are known, and those of a machine that is made up.

use super::*;
use crate::published::published;
use crate::system::System;
use crate::{KNOWN, parse};

fn known() -> Machine {
    parse(KNOWN[0].1).unwrap()
}

fn errors(its: &[Compared]) -> Vec<f64> {
    its.iter().map(Compared::error).collect()
}

/// The file that comes along and the system's number are what the tables say: they cannot part.
#[test]
fn the_machine_and_the_lock_that_come_along_follow_from_the_tables() {
    let rows = published();
    let Fit { model, numbers } = fit(&rows, &known()).unwrap();
    assert_eq!(model.machine, known());
    assert_eq!(model.lock_ns, System::known("odinfs").unwrap().serial_ns[1]);
    // and rows from which one follows, and no others, are said to be fitted
    let used = |place: usize| numbers.iter().any(|number| number.rows.contains(&place));
    for (place, row) in rows.iter().enumerate() {
        assert_eq!(used(place), row.is_fitted, "{row:?}");
    }
    for number in numbers {
        assert!(number.rows.iter().all(|place| rows[*place].table == number.from), "{number:?}");
    }
}

/// Tables that are the runs of a machine say its numbers, not those of the one that comes along.
#[test]
fn a_machine_is_found_again_in_what_its_runs_say() {
    let slower = |access: &MachineAccess, remote_factor: f64| {
        let class = |bytes: u64, points: &[(u32, f64)]| Class { bytes, points: points.to_vec() };
        let small = class(BLOCK_BYTES, &[(1, 1900.0), (4, 4800.0), (28, 3000.0)]);
        let large = class(32 << 10, &[(1, 3850.0), (2, 6000.0), (28, 2500.0)]);
        let local = Curve::new(vec![small, large]).unwrap();
        MachineAccess { local, remote_factor, ..access.clone() }
    };
    let base = known();
    let made_up = Machine { write: slower(&base.write, 0.7), ..base.clone() };
    let told = Model { machine: made_up, lock_ns: 1500.0 };
    let its = compare(&told, &published()).unwrap();
    let rows: Vec<Published> =
        its.iter().map(|it| Published { rate: it.rate, ..it.published }).collect();
    let found = fit(&rows, &base).unwrap().model;
    let near = |found: f64, told: f64| {
        assert!((found / told - 1.0).abs() < 0.05, "{found} is not {told}");
    };
    near(found.lock_ns, 1500.0);
    near(found.machine.write.remote_factor, 0.7);
    near(found.machine.read.remote_factor, 1.0);
    for (bytes, threads) in [(4, 4), (4, 28), (32, 2), (32, 28)].map(|it| (it.0 << 10, it.1)) {
        let of = |model: &Model| model.machine.write.local.rate(threads, bytes);
        near(of(&found), of(&told));
    }
    for (bytes, threads) in [(32, 1), (32, 8), (32, 28)].map(|it| (it.0 << 10, it.1)) {
        let of = |model: &Model| model.machine.read.local.rate(threads, bytes);
        near(of(&found), of(&told));
    }
}

#[test]
fn what_only_a_left_out_table_says_is_not_known_and_other_tables_change_nothing() {
    let (rows, base) = (published(), known());
    let full = fit(&rows, &base).unwrap();
    let compared = compare(&full.model, &rows).unwrap();
    let all = leave_one_out((&rows, &base), (&full, &compared)).unwrap();
    assert_eq!(all.iter().map(|it| it.with.len()).sum::<usize>(), rows.len());
    for it in &all {
        let (with, without) = (errors(&it.with), errors(&it.without));
        println!("{}: {with:.2?}, without it {without:.2?}", it.table);
        let is_fitted = it.with.iter().any(|row| row.published.is_fitted);
        assert_eq!(it.is_used, is_fitted, "{}", it.table);
        if !it.is_used {
            assert_eq!(it.with, it.without, "{}", it.table);
        }
    }
    let off = |table: &str| {
        let it = all.iter().find(|it| it.table == table).unwrap();
        let sum = |its: &[Compared]| errors(its).iter().sum::<f64>();
        (sum(&it.with), sum(&it.without))
    };
    for table in ["one node: 4K writes", "one node: 32K writes", "workers: 4K writes"] {
        let (with, without) = off(table);
        assert!(without > with + 0.1, "{table}: {with}, without it {without}");
    }
    // long reads say nearly what those of 32 KiB do, and runs of writes are too slow by as much as
    // the other node would make them
    for table in ["one node: 32K reads", "remote: 2M writes"] {
        assert_ne!(off(table).0, off(table).1, "{table}");
    }
    // without the curve of small writes that of large ones answers; without the lock there is none
    let without = |table: &str| {
        let others: Vec<Published> = rows.iter().filter(|it| it.table != table).copied().collect();
        fit(&others, &base).unwrap().model
    };
    let write = without("one node: 4K writes").machine.write.local;
    assert_eq!(write.rate(4, 4096), write.rate(4, 32768));
    assert_eq!(without("workers: 4K writes").lock_ns, LOCK_NS);
    assert_eq!(without("remote: 2M writes").machine.write.remote_factor, REMOTE);
    assert_eq!(without("workers: 2M writes"), full.model);
}

/// Where workers move less than threads do, it is not the memory that they say.
#[test]
fn workers_that_were_held_up_say_nothing_of_the_memory() {
    let mut rows = published();
    for row in &mut rows {
        if row.table == "workers: 2M reads" {
            row.rate *= 0.9;
        }
    }
    let machine = fit(&rows, &known()).unwrap().model.machine;
    assert_eq!(machine.read.local.largest(), 32 << 10);
    // and where there are no threads to compare with, they are all that is known
    rows.retain(|row| row.by != By::Threads || row.kind != Kind::Read);
    let machine = fit(&rows, &known()).unwrap().model.machine;
    assert_eq!(machine.read.local.largest(), PIECE_BYTES);
    rows.retain(|row| row.kind != Kind::Read);
    assert!(fit(&rows, &known()).is_err());
}
