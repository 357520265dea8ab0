//! What the tests share.
#![allow(dead_code)]

use crash::explore::{Settings, explore};
use crash::recording::Recording;
use crash::report::Report;

/// Explores and stops the test at a violation.
pub fn clean(recording: &Recording, settings: &Settings) -> Report {
    let report = explore(recording, settings);
    none(&report);
    report
}

/// Stops the test at a violation.
pub fn none(report: &Report) {
    let all: Vec<String> = report.violations.iter().take(5).map(ToString::to_string).collect();
    assert!(
        report.violations.is_empty(),
        "{} violations in {} states:\n{}",
        report.violations.len(),
        report.states,
        all.join("\n")
    );
}
