//! The checker's verdicts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::{Result, said};

/// What it says of some histories.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Verdicts {
    /// How many there were.
    pub histories: u64,
    /// Calls in them.
    pub calls: u64,
    /// Calls of which nobody knows whether they happened.
    pub unfinished: u64,
    /// Histories that no order explains, and why not.
    pub illegal: Vec<String>,
    /// Which ones those are, counted from 0 in the file.
    pub illegal_numbers: Vec<usize>,
    /// Calls by each door.
    pub doors: BTreeMap<String, u64>,
    /// Histories of which it did not find out in time.
    pub unknown: Vec<String>,
    /// Histories of pages.
    pub pages: u64,
    /// Those of them of which every load keeps its rule, and the search for an order of a sample of
    /// them with the calls did not end in time.
    pub unsearched: Vec<String>,
}

impl Verdicts {
    /// Whether so many searches did not end that what they found says little: more than one, and
    /// more than one in ten.
    pub fn are_hardly_searched(&self) -> bool {
        let unsearched = self.unsearched.len() as u64;
        unsearched > 1 && unsearched * 10 > self.pages
    }

    /// Counts others, too.
    pub fn add(&mut self, other: Verdicts) {
        self.histories += other.histories;
        self.calls += other.calls;
        self.unfinished += other.unfinished;
        for (door, count) in other.doors {
            *self.doors.entry(door).or_default() += count;
        }
        self.illegal.extend(other.illegal);
        self.unknown.extend(other.unknown);
        self.pages += other.pages;
        self.unsearched.extend(other.unsearched);
    }
}

/// Asks it; why a history has no order it says with pictures, in this directory.
pub fn check(checker: &Path, histories: &Path, pictures: Option<&PathBuf>) -> Result<Verdicts> {
    let mut command = Command::new(checker);
    match pictures {
        Some(pictures) => command.arg("-pictures").arg(pictures),
        // a search that takes longer finds nothing, mostly, and there is another history
        None => command.args(["-explain=false", "-timeout=1s"]),
    };
    let output = command.arg(histories).output();
    let output = output.map_err(|error| format!("{}: {error}", checker.display()))?;
    if !output.status.success() {
        return Err(format!("the checker: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(said("the checker"))
}
