//! The style's limits, as tests: what rustfmt and clippy do not look at.
//!
//! `tests/repository.rs` runs every check over every file of the repository. Each check has a
//! canary beside it: a planted violation that it must find, since a check that finds nothing
//! looks exactly like tidy code.
//!
//! It reads Rust as text, not as a syntax tree: comments and literals are blanked out by
//! [`source`], and what is left is searched for words and counted in braces. That is enough for
//! code that rustfmt has laid out, and needs no parser to keep up to date.
#![forbid(unsafe_code)]

pub mod banned;
pub mod claims;
pub mod evidence;
pub mod files;
pub mod functions;
pub mod lines;
pub mod messages;
pub mod paths;
pub mod ratchet;
pub mod readme_units;
pub mod source;
pub mod unsafe_code;

use std::fmt;

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, from the repository's root.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Finding {
    /// A finding in `path` at `line`, counted from 1.
    pub fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// `text` in one line, with one blank between words.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
