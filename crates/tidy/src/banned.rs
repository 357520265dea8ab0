//! What is fine while writing and wrong when committed.

use crate::{Finding, source::Source};

const MACROS: &[(&str, &str)] = &[
    ("todo", "unfinished code: finish it or return an error"),
    ("unimplemented", "unfinished code: finish it or return an error"),
    ("dbg", "a print for debugging: remove it"),
];

/// Panic when stderr cannot be written, in what must go on without it.
const STDERR_MACROS: [&str; 2] = ["eprintln", "eprint"];
/// The command, whose terminal may go away.
const COMMAND: &str = "crates/cli/src/";

/// Unfinished code, debugging prints, what a terminal that went away would end, and tests that are
/// off without a word why.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, message) in MACROS {
        for at in source.words(name) {
            if source.code[at + name.len()..].starts_with('!') {
                findings.push(Finding::new(source.path, source.line_of(at), *message));
            }
        }
    }
    if source.path.starts_with(COMMAND) {
        let calls = STDERR_MACROS.iter().flat_map(|name| {
            let at = source.words(name).into_iter();
            at.filter(|at| source.code[at + name.len()..].starts_with('!'))
        });
        let message = "panics when stderr has gone: use output::complain";
        findings.extend(calls.map(|at| Finding::new(source.path, source.line_of(at), message)));
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
    fn canary_prints_of_the_command_to_stderr_are_found() {
        for text in ["eprintln!(\"x\")", "fn f() { eprint!(\"x\"); }"] {
            let found = |path| check(&Source::new(path, text)).len();
            assert_eq!(found("crates/cli/src/mount.rs"), 1, "{text}");
            assert_eq!(found("crates/cli/tests/mount/main.rs"), 0, "{text}");
        }
        let fine = "// eprintln!(x)\nwriteln!(stderr, \"eprint!\")";
        assert_eq!(check(&Source::new("crates/cli/src/output.rs", fine)).len(), 0);
    }

    #[test]
    fn words_and_reasons_are_fine() {
        for text in ["// todo!()", "\"dbg!\"", "fn todo() {}", "#[ignore = \"takes an hour\"]"] {
            assert_eq!(findings(text), 0, "{text}");
        }
    }
}
