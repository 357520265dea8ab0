//! Every error and warning has its entry in the page for those who run Nearside.

use crate::{Finding, one_line, source::Source};

/// The page, from the repository's root.
pub const PAGE: &str = "docs/operations.md";
/// The crates whose messages people see; the others are tools for those who work on Nearside.
const CRATES: [&str; 12] = [
    "pmem", "topology", "pool", "fs", "shm", "fabric", "wire", "client", "nearside", "server",
    "fuse", "cli",
];
/// What a message stands in.
const OPENINGS: [&str; 5] =
    ["#[error(", "tracing::warn!(", "tracing::error!(", "eprintln!(", "complain("];
/// Fewer letters than this are no words to search for: the message passes another one on.
const LETTERS_MIN: usize = 5;

/// Messages of `source` that `page` does not have.
pub fn check(source: &Source, page: &str) -> Vec<Finding> {
    let is_shown = |name: &str| source.path.starts_with(&format!("crates/{name}/src/"));
    if source.is_test() || !CRATES.iter().any(|name| is_shown(name)) {
        return Vec::new();
    }
    let page = one_line(page);
    let missing = messages(source).into_iter().filter_map(|(line, text)| {
        let words = constant_words(&text)?;
        let message = format!("{PAGE} has no entry with the words \"{words}\"");
        (!page.contains(&words)).then(|| Finding::new(source.path, line, message))
    });
    missing.collect()
}

/// Line and text of each message.
fn messages(source: &Source) -> Vec<(usize, String)> {
    // The same number of characters in both, though not of bytes.
    let (code, text): (Vec<char>, Vec<char>) =
        (source.code.chars().collect(), source.text.chars().collect());
    let tests = source.test_modules();
    let mut found = Vec::new();
    for opening in OPENINGS {
        for (at, _) in source.code.match_indices(opening) {
            if tests.iter().any(|range| range.contains(&at)) {
                continue;
            }
            let start = source.code[..at + opening.len()].chars().count();
            if let Some((open, close)) = literal(&code, start) {
                found.push((source.line_of(at), text[open..close].iter().collect()));
            }
        }
    }
    found
}

/// Where the first string literal after `start` lies, before the parenthesis there closes.
fn literal(code: &[char], start: usize) -> Option<(usize, usize)> {
    let mut depth = 1;
    let mut open = None;
    for (at, c) in code.iter().enumerate().skip(start) {
        match (c, open) {
            ('"', None) => open = Some(at + 1),
            ('"', Some(open)) => return Some((open, at)),
            ('(', None) => depth += 1,
            (')', None) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return None;
        }
    }
    None
}

/// The longest run of words that is always the same; `None` if there are none to speak of.
fn constant_words(text: &str) -> Option<String> {
    let text = one_line(&text.replace("\\\n", " "));
    let parts = text.split(['{', '}']).step_by(2);
    let longest = parts
        .map(|part| part.trim_matches(|c: char| !c.is_alphanumeric()))
        .max_by_key(|part| part.len())?;
    let letters = longest.chars().filter(|c| c.is_alphabetic()).count();
    (letters >= LETTERS_MIN).then(|| longest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str, page: &str) -> usize {
        check(&Source::new("crates/pool/src/error.rs", text), page).len()
    }

    #[test]
    fn canary_a_message_without_an_entry_is_found() {
        let texts = [
            "#[error(\"{path}: the é pool is full: {0}\")]",
            "#[error(\n \"the é pool \\\n  is full\",\n path.display()\n)]",
            "fn f() { tracing::warn!(%error, \"the é pool is full\"); }",
            "fn f() { eprintln!(\"nearside: {}: the é pool is full; go\", pool(\"x\")); }",
            "fn f() { output::complain(&format!(\"{}: the é pool is full\", x.display())); }",
        ];
        for text in texts {
            assert_eq!(findings(text, "the pool is empty"), 1, "{text}");
        }
        let page = "**the é pool\nis full; go**";
        assert_eq!(texts.map(|text| findings(text, page)), [0; 5]);
    }

    #[test]
    fn what_passes_on_others_words_and_what_tests_say_need_none() {
        for text in [
            "#[error(\"{}: {source}\", path.display())]",
            "#[error(transparent)] A(#[from] B), fn f() { g(\"some words\") }",
            "#[cfg(test)]\nmod t { fn f() { eprintln!(\"the words of a test\") } }",
        ] {
            assert_eq!(findings(text, ""), 0, "{text}");
        }
        let text = "#[error(\"the words of a tool\")]";
        assert_eq!(check(&Source::new("crates/crash/src/lib.rs", text), "").len(), 0);
    }
}
