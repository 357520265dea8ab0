//! Lengths of files and lines.

use crate::{Finding, source::Source};

/// Lines of a file, at most.
pub const FILE_LINES_MAX: usize = 800;
/// Columns of a line, at most.
pub const LINE_COLUMNS_MAX: usize = 100;

/// Files and lines over the limits. A line may be longer for a URL or a literal, which cannot be
/// wrapped: what counts then is whether it would fit without.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        let message = format!("{lines} lines, over {FILE_LINES_MAX}: split the file");
        findings.push(Finding::new(source.path, FILE_LINES_MAX + 1, message));
    }
    for (n, (text, code)) in source.text.lines().zip(source.code.lines()).enumerate() {
        let columns = text.chars().count();
        if columns > LINE_COLUMNS_MAX && !is_excused(text, code) {
            let message = format!("{columns} columns, over {LINE_COLUMNS_MAX}: wrap the line");
            findings.push(Finding::new(source.path, n + 1, message));
        }
    }
    findings
}

fn is_excused(text: &str, code: &str) -> bool {
    let has_url = text.contains("https://") || text.contains("http://");
    // Outside comments, long runs of blanks are literals; a comment is never an excuse.
    let code_alone = code.split_whitespace().map(|word| word.chars().count() + 1).sum::<usize>();
    let indent = code.len() - code.trim_start().len();
    let has_literal = code.contains('"') && !text.contains("//");
    has_url || (has_literal && indent + code_alone <= LINE_COLUMNS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> usize {
        check(&Source::new("x.rs", text)).len()
    }

    #[test]
    fn canary_a_long_file_is_found() {
        assert_eq!(findings(&"\n".repeat(FILE_LINES_MAX)), 0);
        assert_eq!(findings(&"\n".repeat(FILE_LINES_MAX + 1)), 1);
    }

    #[test]
    fn canary_a_long_line_is_found() {
        assert_eq!(findings(&"x".repeat(LINE_COLUMNS_MAX)), 0);
        assert_eq!(findings(&"x".repeat(LINE_COLUMNS_MAX + 1)), 1);
        assert_eq!(findings(&format!("// {}", "word ".repeat(30))), 1);
        assert_eq!(findings(&"é".repeat(LINE_COLUMNS_MAX)), 0, "columns, not bytes");
    }

    #[test]
    fn what_cannot_be_wrapped_may_be_long() {
        assert_eq!(findings(&format!("// see https://{}", "x".repeat(100))), 0);
        assert_eq!(findings(&format!("    \"{}\",", "a word ".repeat(20))), 0);
        assert_eq!(findings(&format!("f(\"a\") + {}", "x".repeat(100))), 1);
    }
}
