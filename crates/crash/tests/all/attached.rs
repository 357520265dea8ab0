//! A process that is attached commits to its lane, its service folds that and recalls leases, and
//! the power is cut at every point: what was committed is there, all of it or nothing.

use crate::common::none;
use crash::attached::stores;
use crash::catalog::find;
use crash::explore::{Settings, explore};
use crash::plan::{Job, Kind as Plan, job};
use crash::recording::{Start, Workload, record};
use crash::report::Report;
use pmem::Domain;

const DOMAINS: [Domain; 2] = [Domain::CpuFlush, Domain::CpuCache];

fn workload(domain: Domain, names: &[&str]) -> Workload {
    let ops = names.iter().map(|name| find(name).unwrap()).collect();
    Workload { start: Start::Attached, domain, ops, cpu: 0 }
}

#[test]
fn every_operation_of_a_process_and_its_service() {
    for domain in DOMAINS {
        let mut report = Report::default();
        for op in stores() {
            let recording = record(&workload(domain, &[op.name])).unwrap();
            report.add(explore(&recording, &Settings::quick(1)));
        }
        eprintln!("{domain}: {} states in {} workloads", report.states, report.workloads);
        none(&report);
    }
}

#[test]
fn sequences_of_what_a_process_and_others_do() {
    let mut report = Report::default();
    for number in (1..34).step_by(2) {
        let Job::Workload(workload, settings) = job(Plan::Attached, 7, number) else { continue };
        report.add(explore(&record(&workload).unwrap(), &settings));
    }
    eprintln!("{} states in {} workloads", report.states, report.workloads);
    none(&report);
}
