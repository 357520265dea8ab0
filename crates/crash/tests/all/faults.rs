//! Every allocation of space and every sync of every operation fails once.

use crash::catalog::catalog;
use crash::faults::{Failed, in_turn};
use crash::recording::Start;
use pmem::{Domain, Fault};

fn all(start: Start, domain: Domain, fault: Fault) -> Failed {
    let mut sum = Failed::default();
    let mut wrong = Vec::new();
    for op in catalog() {
        match in_turn(start, domain, op, fault) {
            Ok(found) => {
                sum.faults += found.faults;
                sum.minded += found.minded;
            }
            Err(what) => wrong.push(what),
        }
    }
    assert!(wrong.is_empty(), "{} of the operations:\n{}", wrong.len(), wrong.join("\n"));
    eprintln!("{start:?} {domain} {fault:?}: {sum:?}");
    sum
}

/// Where one slice has no space another one has.
#[test]
fn a_slice_without_space_is_passed_over() {
    for (start, domain) in [(Start::Logged, Domain::CpuFlush), (Start::Folded, Domain::Sync)] {
        let found = all(start, domain, Fault::Space);
        assert!(found.faults >= 20 && found.minded == 0, "{found:?}");
    }
}

#[test]
fn space_runs_out_in_every_place() {
    let starts = [
        (Start::Logged, Domain::CpuFlush),
        (Start::Folded, Domain::CpuFlush),
        (Start::Recovered, Domain::CpuFlush),
        (Start::Logged, Domain::Sync),
    ];
    for (start, domain) in starts {
        let found = all(start, domain, Fault::Full);
        assert!(found.faults >= 40 && found.minded >= 10, "{found:?}");
    }
}

#[test]
fn a_sync_that_fails_is_never_passed_over() {
    let found = all(Start::Logged, Domain::Sync, Fault::Sync);
    assert!(found.faults > 5 && found.minded == found.faults, "{found:?}");
}
