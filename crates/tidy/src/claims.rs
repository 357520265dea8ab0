//! The claims of README, each with its evidence.
//!
//! `claims.txt` names words of README and what shows that they are true: a test, a command that
//! repeats a figure, words of another document, or a public page about another system. Page and
//! list keep each other true: a claim whose words README lost is found, and so is every word of
//! README that no claim covers. A sentence that needs no evidence (an opinion, advice, an admitted
//! lack, a pointer to a document) is listed as `plain`. No bullet, table row or figure is plain.

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
    /// Whether they need no evidence.
    is_plain: bool,
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

/// Reads `claim: WORDS` or `plain: WORDS`, which lines that begin with blanks continue, and below
/// it the lines of [`Evidence::parse`]. `#` begins a comment.
fn parse(list: &str) -> (Vec<ReadmeClaim>, Vec<Finding>) {
    let (mut claims, mut findings) = (Vec::<ReadmeClaim>::new(), Vec::new());
    for (n, text) in list.lines().enumerate() {
        let line = n + 1;
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some((kind @ ("claim" | "plain"), words)) = text.split_once(": ") {
            let (words, is_plain) = (one_line(words), kind == "plain");
            claims.push(ReadmeClaim { line, words, is_plain, evidence: Vec::new() });
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
    if !units.iter().any(|unit| !places(claim, unit).is_empty()) {
        let message = format!("{PAGE} has no such words: \"{}\"", claim.words);
        findings.push(Finding::new(FILE, claim.line, message));
    }
    let is_founded = claim.evidence.iter().any(|(_, evidence)| evidence.suffices(&claim.words));
    if !claim.is_plain && !is_founded {
        let message = format!("no test, command or document for \"{}\"", claim.words);
        findings.push(Finding::new(FILE, claim.line, message));
    }
    if claim.is_plain && !readme_units::figures(&claim.words).is_empty() {
        let message = format!("a figure needs evidence: \"{}\"", claim.words);
        findings.push(Finding::new(FILE, claim.line, message));
    }
    for (line, evidence) in &claim.evidence {
        let fault = evidence.fault(read);
        findings.extend(fault.map(|fault| Finding::new(FILE, *line, fault)));
    }
    findings
}

/// Where `claim` covers `unit`: nowhere if the form of the unit makes it a claim, and the words are
/// listed as plain.
fn places(claim: &ReadmeClaim, unit: &ReadmeUnit) -> Vec<Range<usize>> {
    if claim.words.is_empty() || (claim.is_plain && unit.is_claim) {
        return Vec::new();
    }
    let found = unit.text.match_indices(claim.words.as_str());
    found.map(|(at, words)| at..at + words.len()).collect()
}

/// Words of `unit` that no claim covers, and a command of a row that none of its claims names.
fn unclaimed(unit: &ReadmeUnit, claims: &[ReadmeClaim]) -> Vec<Finding> {
    let covered: Vec<Range<usize>> = claims.iter().flat_map(|claim| places(claim, unit)).collect();
    let command = unit.command_cell();
    let end = command.as_ref().map_or(unit.text.len(), |cell| cell.start);
    let text = &unit.text[..end];
    let mut findings: Vec<Finding> = readme_units::without(text, &covered)
        .into_iter()
        .map(|words| {
            let message = format!("no claim of {FILE} covers \"{}\"", &text[words]);
            Finding::new(PAGE, unit.line, message)
        })
        .collect();
    let Some(command) = command.map(|cell| &unit.text[cell]) else { return findings };
    let names_it = |claim: &ReadmeClaim| {
        !places(claim, unit).is_empty()
            && claim.evidence.iter().any(|(_, evidence)| evidence.is_command(command))
    };
    if !claims.iter().any(names_it) {
        let message = format!("no claim of this row names the command \"{command}\"");
        findings.push(Finding::new(PAGE, unit.line, message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "# A page\n\nIt makes\n2 claims.\n\n- A call is quick.\n\n\
        | what | ours | command |\n|---|---|---|\n| a call | 3 us | `nearside info` |\n\n\
        ```sh\nnearside info ~/pool\n```\n";
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
        let added = [
            "- It is old.",
            "\n| a word | is said |",
            "\nIt takes 4 us.",
            "- 5 us",
            "\nIt is quick.",
        ];
        for added in added {
            let found = findings(&format!("{README}{added}\n"), CLAIMS);
            assert_eq!(found.len(), 1, "{added}: {found:?}");
            assert!(found[0].starts_with("README.md:1"), "{found:?}");
        }
        let found = findings(&README.replace("3 us", "2 us"), CLAIMS);
        assert!(found[0].contains("has no such words"), "{found:?}");
        assert!(found[1].contains("covers \"a call | 2 us\""), "{found:?}");
    }

    #[test]
    fn canary_a_sentence_in_a_covered_unit_is_found() {
        for (covered, added) in [
            ("A call is quick.", "A call is quick. It never fails."),
            ("A call is quick.", "It never fails. A call is quick."),
            ("2 claims.", "2 claims. It never fails."),
            ("| 3 us |", "| 3 us, It never fails. |"),
        ] {
            let found = findings(&README.replace(covered, added), CLAIMS);
            assert!(!found.is_empty(), "{added}: nothing found");
            assert!(found.iter().any(|finding| finding.contains("never fails.")), "{found:?}");
        }
    }

    #[test]
    fn canary_a_row_with_another_command_than_its_claim_is_found() {
        let found = findings(&README.replace("`nearside info`", "`nearside bench`"), CLAIMS);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("names the command \"nearside bench\""), "{found:?}");
    }

    #[test]
    fn a_plain_sentence_needs_no_evidence() {
        let readme = format!("{README}\nWe like it.\n");
        let claims = format!("{CLAIMS}plain: We like it.\n");
        assert_eq!(findings(&readme, &claims), Vec::<String>::new());
    }

    #[test]
    fn canary_a_bullet_a_row_or_a_figure_that_is_plain_is_found() {
        for (added, words) in [
            ("- We like it.", "We like it."),
            ("\n| We | like it |", "| We | like it |"),
            ("\nWe like 2 of it.", "We like 2 of it."),
            ("\nWe like it.", "We never liked it."),
        ] {
            let claims = format!("{CLAIMS}plain: {words}\n");
            let found = findings(&format!("{README}{added}\n"), &claims);
            assert!(!found.is_empty(), "{added}: nothing found");
        }
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
        let found = findings(&README.replace("info ~/pool", "inform ~/pool"), CLAIMS);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_page_about_another_system_suffices_for_a_row_about_it() {
        let readme = format!("{README}\n| tmpfs | forgets |\n");
        let claims = format!("{CLAIMS}claim: | tmpfs | forgets |\nsource: https://example.org\n");
        assert_eq!(findings(&readme, &claims), Vec::<String>::new());
    }
}
