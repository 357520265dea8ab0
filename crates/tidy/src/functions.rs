//! Lengths of functions.

use crate::{Finding, source::Source};

/// Lines of a function from its `fn` to its closing brace, at most.
pub const FUNCTION_LINES_MAX: usize = 70;

/// Functions over the limit. Test code is exempt: a long story told in order is fine there.
pub fn check(source: &Source) -> Vec<Finding> {
    if source.is_test() {
        return Vec::new();
    }
    let tests = source.test_modules();
    let mut findings = Vec::new();
    for at in source.words("fn") {
        if tests.iter().any(|module| module.contains(&at)) {
            continue;
        }
        let Some(open) = body(&source.code, at) else { continue };
        let first = source.line_of(at);
        let lines = source.line_of(source.closing_brace(open)) - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let message = format!("a function of {lines} lines, over {FUNCTION_LINES_MAX}");
            findings.push(Finding::new(source.path, first, message));
        }
    }
    findings
}

/// Where the body of the function whose `fn` stands at `at` opens; `None` for a declaration
/// without one and for the type of a function pointer.
fn body(code: &str, at: usize) -> Option<usize> {
    let after = code[at + 2..].trim_start();
    if !after.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return None;
    }
    let mut depth = 0i32;
    for (n, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(n),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn f(x: [u8; 4]) -> u8 {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    fn findings(path: &str, text: &str) -> Vec<Finding> {
        check(&Source::new(path, text))
    }

    #[test]
    fn canary_a_long_function_is_found() {
        assert!(findings("x.rs", &function(FUNCTION_LINES_MAX)).is_empty());
        let found = findings("x.rs", &format!("\n{}", function(FUNCTION_LINES_MAX + 1)));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn braces_in_text_do_not_count() {
        let text = function(60) + "// {\nconst X: &str = \"{\";\n" + &function(60);
        assert!(findings("x.rs", &text).is_empty());
    }

    #[test]
    fn declarations_and_pointers_have_no_body() {
        let text = "trait T { fn f(&self) -> [u8; 2]; }\ntype F = fn(u8);\n".to_owned();
        assert!(findings("x.rs", &(text + &"\n".repeat(80) + "const A: u8 = { 1 };")).is_empty());
    }

    #[test]
    fn tests_may_be_long() {
        let long = function(FUNCTION_LINES_MAX + 9);
        assert!(findings("x.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n")).is_empty());
        assert!(findings("crates/x/tests/y.rs", &long).is_empty());
        assert_eq!(findings("crates/x/src/y.rs", &long).len(), 1);
    }
}
