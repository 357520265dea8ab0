//! What shows that a claim of README is true, and whether it is there.

use crate::claims::{PAGE, ReadFile};
use crate::one_line;
use crate::source::Source;

/// Where the verbs of `nearside` are named.
const VERBS: (&str, &str) = ("crates/cli/src/args.rs", "Command");
/// Where the measurements are named that are verbs of `nearside bench`.
const STUDIES: (&str, &str) = ("crates/bench/src/study.rs", "Study");
/// Where the rows of `nearside bench` are named.
const ROWS: &str = "crates/bench/src/rows.rs";
/// Systems of others. A public page is evidence enough for the row of a table that is about one.
const PEERS: [&str; 4] = ["tmpfs", "ext4-DAX", "PMDK", "JuiceFS"];

/// What shows that a claim is true.
#[derive(Debug)]
pub enum Evidence {
    /// A test function.
    Test {
        /// Its file, from the repository's root.
        path: String,
        /// Its name.
        name: String,
    },
    /// A command that repeats a figure, or shows what is claimed.
    Command(String),
    /// A public page about another system.
    Source(String),
    /// Words of another page of the repository.
    Doc {
        /// The page, from the repository's root.
        path: String,
        /// What it says, verbatim but for line breaks.
        words: String,
    },
}

impl Evidence {
    /// Reads `test: PATH NAME`, `command: COMMAND`, `source: URL` or `doc: PATH WORDS`.
    pub fn parse(text: &str) -> Option<Evidence> {
        let (kind, rest) = text.split_once(": ")?;
        match kind {
            "test" => {
                let (path, name) = rest.trim().split_once(' ')?;
                Some(Evidence::Test { path: path.to_owned(), name: name.to_owned() })
            }
            "command" => Some(Evidence::Command(rest.trim().to_owned())),
            "source" => Some(Evidence::Source(rest.trim().to_owned())),
            "doc" => {
                let (path, words) = rest.trim().split_once(' ')?;
                Some(Evidence::Doc { path: path.to_owned(), words: one_line(words) })
            }
            _ => None,
        }
    }

    /// Whether a claim with these words needs no other evidence. A source is enough only for the
    /// row of a table that begins with another system's name.
    pub fn suffices(&self, words: &str) -> bool {
        let is_peers_row = || PEERS.iter().any(|peer| words.starts_with(&format!("| {peer} |")));
        !matches!(self, Evidence::Source(_)) || is_peers_row()
    }

    /// Whether this is `command`.
    pub fn is_command(&self, command: &str) -> bool {
        matches!(self, Evidence::Command(known) if known == command)
    }

    /// Why this is no evidence.
    pub fn fault(&self, read: ReadFile) -> Option<String> {
        match self {
            Evidence::Test { path, name } => {
                let Some(text) = read(path) else { return Some(format!("{path} is no file")) };
                let has = has_test(&Source::new(path, &text), name);
                (!has).then(|| format!("{path} has no test {name}"))
            }
            Evidence::Command(command) => command_fault(command, read),
            Evidence::Doc { path, words } => doc_fault(path, words, read),
            Evidence::Source(url) => {
                (!url.starts_with("https://")).then(|| format!("{url} is no address of a page"))
            }
        }
    }
}

/// Why the words are no evidence: the page does not exist, lacks them, or is README itself.
fn doc_fault(path: &str, words: &str, read: ReadFile) -> Option<String> {
    if path == PAGE {
        return Some(format!("{PAGE} is no evidence of what it says itself"));
    }
    let Some(text) = read(path) else { return Some(format!("{path} is no file")) };
    (!one_line(&text).contains(words)).then(|| format!("{path} has no such words: \"{words}\""))
}

/// Whether `source` has a test of that name that is not ignored.
fn has_test(source: &Source, name: &str) -> bool {
    source.words(name).into_iter().any(|at| {
        let head = source.code[..at].trim_end();
        let attributes = head.rsplit(['{', '}', ';']).next().unwrap_or_default();
        head.ends_with("fn") && attributes.contains("#[test]") && !attributes.contains("#[ignore")
    })
}

/// Why `command` cannot be run here: its verb, row, measurement or script does not exist.
pub fn command_fault(command: &str, read: ReadFile) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["nearside", "--version" | "--help", ..] => None,
        ["nearside", "bench", rest @ ..] => bench_fault(rest, read),
        ["nearside", verb, ..] => {
            let missing = !variants(VERBS, read).iter().any(|known| known == verb);
            missing.then(|| format!("nearside has no verb {verb}"))
        }
        [path, ..] if is_path(path) => {
            let missing = read(path.trim_start_matches("./")).is_none();
            missing.then(|| format!("{path} is no file"))
        }
        _ => Some(format!("\"{command}\" is neither a verb of nearside nor a script of ours")),
    }
}

/// Whether a command's first word names a file of the repository.
pub fn is_path(word: &str) -> bool {
    ["./", "scripts/", "crates/"].iter().any(|start| word.starts_with(start))
}

fn bench_fault(arguments: &[&str], read: ReadFile) -> Option<String> {
    match arguments {
        ["--only", row, ..] => {
            let rows = read(ROWS).unwrap_or_default();
            let missing = !rows.contains(&format!("(\"{row}\","));
            missing.then(|| format!("nearside bench has no row {row}"))
        }
        [study, ..] if !study.starts_with('-') => {
            let missing = !variants(STUDIES, read).iter().any(|known| known == study);
            missing.then(|| format!("nearside bench has no measurement {study}"))
        }
        _ => None,
    }
}

/// The variants of an enum of a file, in lower case, as the command line has them.
fn variants((path, name): (&str, &str), read: ReadFile) -> Vec<String> {
    let text = read(path).unwrap_or_default();
    let source = Source::new(path, &text);
    let opening = format!("pub enum {name} {{");
    let Some(at) = source.code.find(&opening) else { return Vec::new() };
    let open = at + opening.len() - 1;
    let body = &source.code[open + 1..source.closing_brace(open)];
    let mut depth = 0usize;
    let mut found = Vec::new();
    for line in body.lines() {
        let line = line.trim();
        if depth == 0 && line.starts_with(|c: char| c.is_ascii_uppercase()) {
            let word = line.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            found.push(word.to_lowercase());
        }
        depth += line.matches(['{', '(']).count();
        depth = depth.saturating_sub(line.matches(['}', ')']).count());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Option<String> {
        let text = match path {
            "crates/cli/src/args.rs" => "pub enum Command {\n    /// Info\n    Info(Args),\n}",
            "crates/bench/src/study.rs" => {
                "pub enum Study {\n    #[command(after_help = \"\\\nNo verb:\n  Nor this\")]\n    \
                 Deck {\n        Field: u8,\n    },\n    Ycsb {},\n}\nenum Other {\n    None,\n}"
            }
            "crates/bench/src/rows.rs" => "[(\"read_4k\", read)]",
            "scripts/compare" | "demo" => "#!/bin/sh",
            "docs/a.md" | PAGE => "It ran on\ntwo CPUs.",
            "a.rs" => {
                "//! fn in_a_comment\n#![allow(x)]\n#[test]\nfn first() { helper() }\n\
                 fn helper() {}\n#[test]\n#[cfg(unix)]\nfn second() {}\n\
                 #[test]\n#[ignore = \"slow\"]\nfn third() {}\n"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }

    #[test]
    fn canary_commands_that_do_not_exist_are_found() {
        for fine in [
            "nearside info ~/pool",
            "nearside --version",
            "nearside bench",
            "nearside bench --only read_4k --quick",
            "nearside bench deck --quick",
            "nearside bench ycsb",
            "scripts/compare --rounds 3",
            "./demo --short",
        ] {
            assert_eq!(command_fault(fine, &read), None, "{fine}");
        }
        for wrong in [
            "nearside inform ~/pool",
            "nearside",
            "nearside bench --only read_5k",
            "nearside bench field",
            "nearside bench none",
            "nearside bench nor",
            "scripts/contrast",
            "./demonstration",
            "dd if=a of=b",
        ] {
            assert!(command_fault(wrong, &read).is_some(), "{wrong}");
        }
    }

    #[test]
    fn canary_tests_that_do_not_exist_are_found() {
        let fault = |text: &str| Evidence::parse(text).unwrap().fault(&read);
        assert_eq!(fault("test: a.rs first"), None);
        assert_eq!(fault("test: a.rs second"), None);
        for wrong in ["a.rs helper", "a.rs third", "a.rs no", "a.rs in_a_comment", "b.rs first"] {
            assert!(fault(&format!("test: {wrong}")).is_some(), "{wrong}");
        }
        assert!(fault("source: example.org").is_some());
        assert!(Evidence::parse("text: a.rs first").is_none());
        assert!(Evidence::parse("test: a.rs").is_none());
    }

    #[test]
    fn canary_words_that_no_document_has_are_found() {
        let fault = |text: &str| Evidence::parse(text).unwrap().fault(&read);
        assert_eq!(fault("doc: docs/a.md ran on two CPUs."), None);
        for wrong in ["docs/a.md ran on six CPUs.", "docs/b.md ran on", "README.md ran on"] {
            assert!(fault(&format!("doc: {wrong}")).is_some(), "{wrong}");
        }
        assert!(Evidence::parse("doc: docs/a.md").is_none());
    }

    #[test]
    fn canary_a_source_is_not_enough_for_our_own_figures() {
        let source = Evidence::parse("source: https://example.org").unwrap();
        assert!(source.suffices("| PMDK | transactions |"));
        assert!(!source.suffices("| transaction | 0.73 us | 1.02 us: PMDK 1.12 |"));
        assert!(!source.suffices("PMDK is slower."));
        assert!(Evidence::parse("command: ./demo").unwrap().suffices("PMDK is slower."));
    }
}
