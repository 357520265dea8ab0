//! `bench`, where it takes processes of its own.

use serde_json::Value;

use crate::support::{ok, run};

#[test]
fn processes_that_share_a_pool_are_measured_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    let mut words = vec!["bench", "sharing", "--json", "--quick", "--dir", dir];
    words.extend(["--scale", "0.1", "--rounds", "1", "--processes", "2"]);
    let figures: Vec<Value> = serde_json::from_slice(&ok(run(words))).unwrap();
    // two sizes, two choices of records, five shares of writes; each plain and in containers
    assert_eq!(figures.len(), 2 * 2 * 5 * 2, "{figures:?}");
    for figure in &figures {
        let is_measured = figure["ratio"]["median"].as_f64().is_some_and(|ratio| ratio > 0.0);
        let is_contained = figure["name"].as_str().unwrap().ends_with(": in containers");
        assert!(is_measured || is_contained && figure["skipped"].is_string(), "{figure}");
    }
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
}
