//! What a check found, as JSON and the control socket say it.

use nearside::CheckReport;
use serde::{Deserialize, Serialize};

/// What a check found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether nothing is wrong.
    pub clean: bool,
    /// What is.
    pub findings: Vec<Finding>,
    /// Inodes visited.
    pub inodes: u64,
    /// Data blocks verified.
    pub blocks: u64,
    /// Records of the log that were replayed.
    pub records: u64,
    /// Requests that were done and perhaps not answered.
    #[serde(default)]
    pub requests: u64,
}

/// One thing that is wrong.
#[derive(Debug, Serialize, Deserialize)]
pub struct Finding {
    /// Where.
    pub place: String,
    /// What.
    pub what: String,
    /// The path of the file or directory, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl Finding {
    /// As a line.
    pub fn text(&self) -> String {
        match &self.path {
            Some(path) => format!("{} ({path}): {}", self.place, self.what),
            None => format!("{}: {}", self.place, self.what),
        }
    }
}

impl From<nearside::Finding> for Finding {
    fn from(finding: nearside::Finding) -> Finding {
        Finding { place: finding.place, what: finding.what, path: finding.path }
    }
}

impl From<CheckReport> for Verdict {
    fn from(report: CheckReport) -> Verdict {
        let CheckReport { findings, inodes, blocks, records, requests } = report;
        let clean = findings.is_empty();
        let findings = findings.into_iter().map(Finding::from).collect();
        Verdict { clean, findings, inodes, blocks, records, requests }
    }
}
