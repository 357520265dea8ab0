//! Every check over every file of the repository.
#![allow(clippy::unwrap_used)]

use std::fs;
use tidy::source::Source;
use tidy::{
    Finding, banned, claims, files, functions, lines, messages, paths, ratchet, unsafe_code,
};

/// Path and text of every text file for which `wanted` holds.
fn texts(wanted: fn(&str) -> bool) -> Vec<(String, String)> {
    let root = files::root();
    let list = files::list(&root).unwrap();
    let found: Vec<_> = list
        .into_iter()
        .filter(|path| wanted(path))
        .filter_map(|path| Some((path.clone(), fs::read_to_string(root.join(path)).ok()?)))
        .collect();
    assert!(found.len() > 10, "only {} files found: nothing was checked", found.len());
    found
}

/// What `check` finds in all Rust files.
fn in_rust(check: impl Fn(&Source) -> Vec<Finding>) -> Vec<Finding> {
    let files = texts(|path| path.ends_with(".rs"));
    files.iter().flat_map(|(path, text)| check(&Source::new(path, text))).collect()
}

#[track_caller]
fn assert_none(findings: Vec<Finding>) {
    let list = findings.iter().map(|finding| format!("{finding}\n")).collect::<String>();
    assert!(findings.is_empty(), "{} places:\n{list}", findings.len());
}

#[test]
fn files_and_lines_are_short() {
    assert_none(in_rust(lines::check));
}

#[test]
fn unsafe_code_is_where_it_may_be_and_says_why_it_is_sound() {
    assert_none(in_rust(unsafe_code::check));
}

#[test]
fn nothing_unfinished_is_committed() {
    assert_none(in_rust(banned::check));
}

#[test]
fn every_message_has_its_entry_for_those_who_run_nearside() {
    let page = fs::read_to_string(files::root().join(messages::PAGE)).unwrap();
    assert_none(in_rust(|source| messages::check(source, &page)));
}

#[test]
fn every_claim_of_the_first_page_has_a_test_or_a_command() {
    assert_none(claims::check(&|path: &str| fs::read_to_string(files::root().join(path)).ok()));
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    let files = texts(|_| true);
    assert_none(files.iter().flat_map(|(path, text)| paths::check(path, text)).collect());
}

#[test]
fn counts_only_fall() {
    let text = fs::read_to_string(files::root().join(ratchet::FILE)).unwrap();
    let long = |source: &Source| {
        let lines = source.text.lines().count();
        let message = format!("{lines} lines, over {}", ratchet::LONG_FILE_LINES);
        let finding = (lines > ratchet::LONG_FILE_LINES)
            .then(|| Finding::new(source.path, ratchet::LONG_FILE_LINES + 1, message));
        finding.into_iter().collect()
    };
    let counted = [
        ("functions_over_70_lines", in_rust(functions::check)),
        ("files_over_400_lines", in_rust(long)),
    ];
    let failures = ratchet::check(&ratchet::parse(&text).unwrap(), &counted);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Features of `pmem` in a build of this package alone.
fn features_of_pmem(package: &str) -> Vec<String> {
    let arguments = ["tree", "--locked", "--offline", "-e", "features,no-dev", "-p", package];
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done =
        std::process::Command::new(cargo).args(arguments).current_dir(files::root()).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).unwrap();
    let features = text.lines().filter_map(|line| line.split("nearside-pmem feature ").nth(1));
    features.map(|feature| feature.trim_matches(['"', ' ', '(', '*', ')']).to_owned()).collect()
}

/// The recorder, and failures made on purpose, are compiled into the tests and the crash explorer
/// only: what is shipped does not hold a line of them.
#[test]
fn the_recorder_costs_nothing_where_it_is_not_asked_for() {
    let recorder = "recorder".to_owned();
    assert!(features_of_pmem("nearside-crash").contains(&recorder));
    for package in
        ["nearside-cli", "nearside-fuse", "nearside", "nearside-bench", "nearside-icount"]
    {
        let features = features_of_pmem(package);
        assert!(!features.is_empty() && !features.contains(&recorder), "{package}: {features:?}");
    }
}
