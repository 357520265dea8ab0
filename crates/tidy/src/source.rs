//! Rust text with its comments and literals blanked out, so that a search finds code only.

use std::ops::Range;

/// One Rust file.
pub struct Source<'a> {
    /// The file, from the repository's root.
    pub path: &'a str,
    /// Its text.
    pub text: &'a str,
    /// Its text with each character of a comment, string or character literal replaced by a
    /// space; the same number of characters in every line. Quotes themselves are kept.
    pub code: String,
}

/// What the character at hand is part of.
enum Within {
    Code,
    LineComment,
    BlockComment { depth: u32 },
    Text { end: String, escapes: bool },
}

impl<'a> Source<'a> {
    /// Reads `text` as Rust.
    pub fn new(path: &'a str, text: &'a str) -> Source<'a> {
        Source { path, text, code: blank(text) }
    }

    /// Whether all of it is test code: in a folder or a file named for tests.
    pub fn is_test(&self) -> bool {
        let folder = |name: &str| self.path.split('/').any(|part| part == name);
        folder("tests") || folder("benches") || self.path.ends_with("tests.rs")
    }

    /// The 1-based line of a byte offset in `code`.
    pub fn line_of(&self, offset: usize) -> usize {
        self.code[..offset].bytes().filter(|&byte| byte == b'\n').count() + 1
    }

    /// Byte offsets in `code` at which the whole word `word` stands.
    pub fn words(&self, word: &str) -> Vec<usize> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let stands_alone = |&(at, _): &(usize, &str)| {
            !self.code[..at].ends_with(is_part)
                && !self.code[at + word.len()..].starts_with(is_part)
        };
        self.code.match_indices(word).filter(stands_alone).map(|(at, _)| at).collect()
    }

    /// Byte ranges in `code` of the bodies of modules under `#[cfg(test)]`.
    pub fn test_modules(&self) -> Vec<Range<usize>> {
        let mut modules = Vec::new();
        for (at, attribute) in self.code.match_indices("#[cfg(test)]") {
            let after = at + attribute.len();
            let open = self.code[after..].find(['{', ';']).map(|n| after + n);
            if let Some(open) = open.filter(|&open| self.code[open..].starts_with('{')) {
                modules.push(open..self.closing_brace(open));
            }
        }
        modules
    }

    /// The byte offset of the brace that closes the one at `open`, or of the end of the file.
    pub fn closing_brace(&self, open: usize) -> usize {
        let mut depth = 0usize;
        for (n, byte) in self.code.bytes().enumerate().skip(open) {
            match byte {
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                _ => continue,
            }
            if depth == 0 {
                return n;
            }
        }
        self.code.len()
    }
}

/// The text with comments and the insides of literals as spaces.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut within = Within::Code;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let (length, keep) = match &mut within {
            Within::Code => enter(text, at, &mut within),
            Within::LineComment if rest.starts_with('\n') => {
                within = Within::Code;
                (1, true)
            }
            Within::LineComment => (first(rest), false),
            Within::BlockComment { depth } => {
                let length = block_comment(rest, depth);
                if *depth == 0 {
                    within = Within::Code;
                }
                (length, false)
            }
            Within::Text { end, .. } if rest.starts_with(end.as_str()) => {
                let length = end.len();
                within = Within::Code;
                (length, true)
            }
            Within::Text { escapes: true, .. } if rest.starts_with('\\') => {
                (1 + first(&rest[1..]), false)
            }
            Within::Text { .. } => (first(rest), false),
        };
        for c in rest[..length].chars() {
            code.push(if keep || c == '\n' { c } else { ' ' });
        }
        at += length;
    }
    code
}

/// Bytes of the first character; 0 at the end.
fn first(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

/// One step inside a block comment (they nest), ending at depth 0.
fn block_comment(rest: &str, depth: &mut u32) -> usize {
    if rest.starts_with("/*") {
        *depth += 1;
        2
    } else if rest.starts_with("*/") {
        *depth -= 1;
        2
    } else {
        first(rest)
    }
}

/// One step in code: how many bytes to take, and whether to keep them.
fn enter(text: &str, at: usize, within: &mut Within) -> (usize, bool) {
    let rest = &text[at..];
    if rest.starts_with("//") {
        *within = Within::LineComment;
        return (2, false);
    }
    if rest.starts_with("/*") {
        *within = Within::BlockComment { depth: 1 };
        return (2, false);
    }
    if let Some(length) = raw_string(text, at) {
        let hashes = &rest[1..length - 1];
        *within = Within::Text { end: format!("\"{hashes}"), escapes: false };
        return (length, true);
    }
    if rest.starts_with('"') {
        *within = Within::Text { end: "\"".to_owned(), escapes: true };
        return (1, true);
    }
    if is_character_literal(rest) {
        *within = Within::Text { end: "'".to_owned(), escapes: true };
        return (1, true);
    }
    (first(rest), true)
}

/// The length of `r"`, `r#"` and so on, if one opens here.
fn raw_string(text: &str, at: usize) -> Option<usize> {
    let before = text[..at].chars().next_back().unwrap_or(' ');
    let is_prefix = matches!(before, 'b' | 'c') || !(before.is_alphanumeric() || before == '_');
    let rest = text[at..].strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    (is_prefix && rest[hashes..].starts_with('"')).then_some(hashes + 2)
}

/// Whether a quote opens a character rather than a lifetime.
fn is_character_literal(rest: &str) -> bool {
    let mut chars = rest.chars();
    if chars.next() != Some('\'') {
        return false;
    }
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new("x.rs", text).code
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        assert_eq!(code("a // b\nc"), "a     \nc");
        assert_eq!(code("a /* b /* c */ d */ e"), "a                   e");
        assert_eq!(code(r#"f("{ \" }", 1)"#), r#"f("      ", 1)"#);
        assert_eq!(code(r##"f(r#"a " b"#)"##), r##"f(r#"     "#)"##);
        assert_eq!(code("b\"x\" '{' '\\'' 'é'"), "b\" \" ' ' '  ' ' '");
    }

    #[test]
    fn lifetimes_and_names_stay() {
        for text in ["fn f<'a>(x: &'a str)", "for", "r#type", "'outer: loop {}", "expr + r"] {
            assert_eq!(code(text), text);
        }
    }

    #[test]
    fn unfinished_text_ends_with_the_file() {
        for text in ["\"abc", "/* abc", "r#\"abc\"", "'\\", "'", "\"\\"] {
            assert_eq!(code(text).chars().count(), text.chars().count());
        }
    }

    #[test]
    fn words_stand_alone() {
        let source = Source::new("x.rs", "unsafe { not_unsafe(unsafe_code) } // unsafe");
        assert_eq!(source.words("unsafe"), [0]);
    }

    #[test]
    fn test_modules_are_found() {
        let source = Source::new("x.rs", "fn a() {}\n#[cfg(test)]\nmod t {\n{}\n}\nfn b() {}");
        let modules = source.test_modules();
        assert_eq!(modules.len(), 1);
        assert_eq!((source.line_of(modules[0].start), source.line_of(modules[0].end)), (3, 5));
        assert!(Source::new("x.rs", "#[cfg(test)]\nmod t;\nfn f() {}").test_modules().is_empty());
    }
}
