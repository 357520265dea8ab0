//! The claims of README, each with its evidence.
//!
//! `claims.txt` names words of README and what shows that they are true: a test, a command that
//! repeats a figure, or a public page about another system. Page and list keep each other true: a
//! claim whose words README lost is found, and so is a bullet, a table row or a figure of README
//! that no claim covers.

use crate::evidence::{self, Evidence};
use crate::readme_units::{self, ReadmeUnit};
use crate::{Finding, one_line};
use std::ops::Range;

/// Where the claims are listed, from the repository's root.
pub const FILE: &str = "crates/tidy/claims.txt";
/// The page that makes them.
pub const PAGE: &str = "README.md";

/// Gives the text of a file, by its path from the repository's root; `None` where there is none.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Words of README, and what shows that they are true.
struct ReadmeClaim {
    line: usize,
    words: String,
    evidence: Vec<(usize, Evidence)>,
}

/// Claims without words or evidence, and what README says without a claim.
pub fn check(read: ReadFile) -> Vec<Finding> {
    let (Some(page), Some(list)) = (read(PAGE), read(FILE)) else {
        return vec![Finding::new(FILE, 1, format!("{FILE} or {PAGE} is missing"))];
    };
    let (claims, mut findings) = parse(&list);
    let units = readme_units::units(&page);
    for claim in &claims {
        findings.extend(unfounded(claim, &units, read));
    }
    for unit in &units {
        findings.extend(unclaimed(unit, &claims));
    }
    for (line, command) in readme_units::commands(&page) {
        let fault = evidence::command_fault(&command, read);
        findings.extend(fault.map(|fault| Finding::new(PAGE, line, fault)));
    }
    findings
}

/// Reads `claim: WORDS`, which lines that begin with blanks continue, and below it
/// `test: PATH NAME`, `command: COMMAND` and `source: URL`. `#` begins a comment.
fn parse(list: &str) -> (Vec<ReadmeClaim>, Vec<Finding>) {
    let (mut claims, mut findings) = (Vec::<ReadmeClaim>::new(), Vec::new());
    for (n, text) in list.lines().enumerate() {
        let line = n + 1;
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(words) = text.strip_prefix("claim: ") {
            claims.push(ReadmeClaim { line, words: one_line(words), evidence: Vec::new() });
            continue;
        }
        match (claims.last_mut(), Evidence::parse(text)) {
            (Some(claim), None) if text.starts_with(' ') && claim.evidence.is_empty() => {
                claim.words = one_line(&format!("{} {text}", claim.words));
            }
            (Some(claim), Some(evidence)) => claim.evidence.push((line, evidence)),
            _ => findings.push(Finding::new(FILE, line, "neither a claim nor its evidence")),
        }
    }
    (claims, findings)
}

/// What is wrong with one claim.
fn unfounded(claim: &ReadmeClaim, units: &[ReadmeUnit], read: ReadFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !units.iter().any(|unit| unit.text.contains(&claim.words)) {
        let message = format!("{PAGE} has no such words: \"{}\"", claim.words);
        findings.push(Finding::new(FILE, claim.line, message));
    }
    if !claim.evidence.iter().any(|(_, evidence)| evidence.suffices(&claim.words)) {
        let message = format!("no test and no command for \"{}\"", claim.words);
        findings.push(Finding::new(FILE, claim.line, message));
    }
    for (line, evidence) in &claim.evidence {
        let fault = evidence.fault(read);
        findings.extend(fault.map(|fault| Finding::new(FILE, *line, fault)));
    }
    findings
}

/// What `unit` says without a claim: all of it, or a figure.
fn unclaimed(unit: &ReadmeUnit, claims: &[ReadmeClaim]) -> Vec<Finding> {
    let covered: Vec<Range<usize>> = claims
        .iter()
        .flat_map(|claim| unit.text.match_indices(claim.words.as_str()))
        .map(|(at, words)| at..at + words.len())
        .collect();
    if unit.is_claim && covered.is_empty() {
        let message = format!("no claim of {FILE} covers \"{}\"", unit.text);
        return vec![Finding::new(PAGE, unit.line, message)];
    }
    let is_covered = |figure: &Range<usize>| {
        covered.iter().any(|words| words.start <= figure.start && figure.end <= words.end)
    };
    let figures = readme_units::figures(&unit.text).into_iter();
    let without = figures.filter(|figure| !is_covered(figure)).map(|figure| {
        let message =
            format!("no claim of {FILE} covers {} in \"{}\"", &unit.text[figure], unit.text);
        Finding::new(PAGE, unit.line, message)
    });
    without.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "# A page\n\nIt makes\n2 claims.\n\n- A call is quick.\n\n\
        | what | ours |\n|---|---|\n| a call | 3 us |\n\n```sh\nnearside info ~/pool\n```\n";
    const CLAIMS: &str = "# all of them\nclaim: It makes\n  2 claims.\ntest: a.rs it_claims\n\n\
        claim: A call is quick.\ncommand: nearside info\n\n\
        claim: | a call | 3 us |\ncommand: nearside info\n";

    fn findings(readme: &str, claims: &str) -> Vec<String> {
        let read = |path: &str| match path {
            PAGE => Some(readme.to_owned()),
            FILE => Some(claims.to_owned()),
            "a.rs" => Some("#[test]\nfn it_claims() {}\n".to_owned()),
            "crates/cli/src/args.rs" => Some("pub enum Command {\n    Info(A),\n}".to_owned()),
            _ => None,
        };
        check(&read).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_page_whose_claims_all_have_evidence_is_fine() {
        assert_eq!(findings(README, CLAIMS), Vec::<String>::new());
    }

    #[test]
    fn canary_a_made_up_claim_is_found() {
        let claims = format!("{CLAIMS}claim: It is never wrong.\ntest: a.rs it_claims\n");
        let found = findings(README, &claims);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("has no such words: \"It is never wrong.\""), "{found:?}");
    }

    #[test]
    fn canary_what_the_page_says_without_a_claim_is_found() {
        for added in ["- It never fails.", "\n| a word | is said |", "\nIt takes 4 us.", "- 5 us"] {
            let found = findings(&format!("{README}{added}\n"), CLAIMS);
            assert_eq!(found.len(), 1, "{added}: {found:?}");
            assert!(found[0].starts_with("README.md:1"), "{found:?}");
        }
        let found = findings(&README.replace("3 us", "2 us"), CLAIMS);
        assert_eq!(found.len(), 2, "words that are gone, and a row without a claim: {found:?}");
    }

    #[test]
    fn canary_evidence_that_is_none_is_found() {
        for (from, to) in [
            ("test: a.rs it_claims", "test: a.rs it_lies"),
            ("test: a.rs it_claims", "test: b.rs it_claims"),
            ("test: a.rs it_claims", ""),
            ("test: a.rs it_claims", "source: https://example.org"),
            ("test: a.rs it_claims", "a test will come\ntest: a.rs it_claims"),
            ("claim: It", "and this\nclaim: It"),
        ] {
            let found = findings(README, &CLAIMS.replace(from, to));
            assert_eq!(found.len(), 1, "{to}: {found:?}");
        }
        let found = findings(&README.replace("nearside info", "nearside inform"), CLAIMS);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_page_about_another_system_suffices_for_words_about_it() {
        let readme = format!("{README}- tmpfs forgets.\n");
        let claims = format!("{CLAIMS}claim: tmpfs forgets.\nsource: https://example.org\n");
        assert_eq!(findings(&readme, &claims), Vec::<String>::new());
    }
}
