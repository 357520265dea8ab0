//! What is fine while writing and wrong when committed.

use crate::{Finding, source::Source};

const MACROS: &[(&str, &str)] = &[
    ("todo", "unfinished code: finish it or return an error"),
    ("unimplemented", "unfinished code: finish it or return an error"),
    ("dbg", "a print for debugging: remove it"),
];

/// Unfinished code, debugging prints, and tests that are off without a word why.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, message) in MACROS {
        for at in source.words(name) {
            if source.code[at + name.len()..].starts_with('!') {
                findings.push(Finding::new(source.path, source.line_of(at), *message));
            }
        }
    }
    for (at, _) in source.code.match_indices("#[ignore]") {
        let message = "an ignored test without a reason: write #[ignore = \"why\"]";
        findings.push(Finding::new(source.path, source.line_of(at), message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> usize {
        check(&Source::new("x.rs", text)).len()
    }

    #[test]
    fn canary_what_must_not_be_committed_is_found() {
        for text in ["todo!()", "{ unimplemented!(\"x\") }", "dbg!(x)", "#[ignore]\nfn f() {}"] {
            assert_eq!(findings(text), 1, "{text}");
        }
    }

    #[test]
    fn words_and_reasons_are_fine() {
        for text in ["// todo!()", "\"dbg!\"", "fn todo() {}", "#[ignore = \"takes an hour\"]"] {
            assert_eq!(findings(text), 0, "{text}");
        }
    }
}
