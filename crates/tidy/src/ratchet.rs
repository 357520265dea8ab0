//! Counts that only fall.
//!
//! `ratchet.txt` holds a count for each thing that there should be less of. More than that fails;
//! so does less, until the file says so, which keeps what was won.

use crate::Finding;
use std::collections::BTreeMap;

/// Where the counts are kept, from the repository's root.
pub const FILE: &str = "crates/tidy/ratchet.txt";

/// Lines of a file above which it counts.
pub const LONG_FILE_LINES: usize = 400;

/// A name and a count on each line; `#` starts a comment.
pub fn parse(text: &str) -> Result<BTreeMap<String, usize>, String> {
    let mut counts = BTreeMap::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if line.is_empty() {
            continue;
        }
        let (name, count) = line.split_once(' ').ok_or(format!("no count in {line:?}"))?;
        let count = count.trim().parse().map_err(|_| format!("not a count in {line:?}"))?;
        if counts.insert(name.to_owned(), count).is_some() {
            return Err(format!("{name} is there twice"));
        }
    }
    Ok(counts)
}

/// Compares what was `counted` with what the file allows.
pub fn check(allowed: &BTreeMap<String, usize>, counted: &[(&str, Vec<Finding>)]) -> Vec<String> {
    let mut failures = Vec::new();
    for (name, found) in counted {
        let Some(&limit) = allowed.get(*name) else {
            failures.push(format!("{FILE} has no line for {name}: write `{name} {}`", found.len()));
            continue;
        };
        if found.len() > limit {
            let list = found.iter().map(|f| format!("\n  {f}")).collect::<String>();
            failures.push(format!("{name}: {} now, at most {limit} allowed:{list}", found.len()));
        } else if found.len() < limit {
            let now = found.len();
            failures.push(format!("{name} fell from {limit} to {now}: write that into {FILE}"));
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(limit: usize, found: usize) -> Vec<String> {
        let allowed = parse(&format!("# why\nlong {limit} # note\n")).unwrap();
        check(&allowed, &[("long", vec![Finding::new("x.rs", 7, "too long"); found])])
    }

    #[test]
    fn canary_a_count_that_rises_fails_and_says_where() {
        let failures = failures(1, 2);
        assert_eq!(failures.len(), 1);
        assert!(failures[0].contains("x.rs:7: too long"), "{failures:?}");
    }

    #[test]
    fn canary_a_count_that_falls_must_be_written_down() {
        assert_eq!(failures(2, 2), Vec::<String>::new());
        assert!(failures(2, 1)[0].contains("fell from 2 to 1"));
    }

    #[test]
    fn a_damaged_file_is_refused() {
        for text in ["long", "long x", "long -1", "long 1\nlong 2"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert_eq!(check(&BTreeMap::new(), &[("long", Vec::new())]).len(), 1);
    }
}
