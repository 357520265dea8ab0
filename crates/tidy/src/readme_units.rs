//! README in the units that claims are about: bullets, table rows, paragraphs.

use crate::{evidence, one_line};
use std::ops::Range;

/// How the line begins that divides the head of a table from its rows.
const RULE: &str = "|--";

/// A bullet, a row of a table, or a paragraph.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadmeUnit {
    /// Its first line, from 1.
    pub line: usize,
    /// Whether its form makes it a claim: a bullet, or a row. A paragraph may be a plain remark.
    pub is_claim: bool,
    /// Its text in one line.
    pub text: String,
}

impl ReadmeUnit {
    /// Where the command stands that a row ends with: all of its last cell, as `code`.
    pub fn command_cell(&self) -> Option<Range<usize>> {
        let cells = self.text.strip_prefix('|')?.strip_suffix("` |")?;
        let (before, command) = cells.rsplit_once("| `")?;
        let start = 1 + before.len() + "| `".len();
        (!command.contains('`')).then_some(start..start + command.len())
    }
}

/// The units of `page`; blocks of code, headings and heads of tables are none.
pub fn units(page: &str) -> Vec<ReadmeUnit> {
    let mut units = Vec::<ReadmeUnit>::new();
    let mut goes_on = false;
    let lines: Vec<(usize, &str)> = prose(page);
    for (at, &(line, text)) in lines.iter().enumerate() {
        let follows = lines.get(at + 1).map_or("", |&(_, text)| text);
        let is_row = text.starts_with('|');
        let is_head = text.starts_with('#') || (is_row && follows.starts_with(RULE));
        if text.trim().is_empty() || is_head || text.starts_with(RULE) {
            goes_on = false;
        } else if let Some(bullet) = text.strip_prefix("- ") {
            units.push(ReadmeUnit { line, is_claim: true, text: one_line(bullet) });
            goes_on = true;
        } else if let Some(unit) = units.last_mut().filter(|_| goes_on && !is_row) {
            unit.text = one_line(&format!("{} {text}", unit.text));
        } else {
            units.push(ReadmeUnit { line, is_claim: is_row, text: one_line(text) });
            goes_on = !is_row;
        }
    }
    units
}

/// The lines outside of blocks of code, each with its number; such a block is an empty line.
fn prose(page: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let lines = page.lines().enumerate().map(|(n, text)| {
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        (n + 1, if is_code || is_fence { "" } else { text })
    });
    lines.collect()
}

/// Where figures stand in `text`: words outside of `code` that begin with a digit.
pub fn figures(text: &str) -> Vec<Range<usize>> {
    let mut figures = Vec::new();
    let mut at = 0;
    for (n, part) in text.split('`').enumerate() {
        if n.is_multiple_of(2) {
            figures.extend(words(part).filter(|word| is_figure(&part[word.clone()])).map(|word| {
                let end = part[word.clone()].trim_end_matches(|c: char| !c.is_alphanumeric()).len();
                at + word.start..at + word.start + end
            }));
        }
        at += part.len() + 1;
    }
    figures
}

/// Where the words of `text` lie, which blanks divide.
fn words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    text.split_inclusive(' ').map(move |word| {
        let start = at;
        at += word.len();
        start..start + word.trim_end().len()
    })
}

/// The runs of words of `text` that do not lie in any range of `covered`.
pub fn without(text: &str, covered: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut runs = Vec::<Range<usize>>::new();
    let mut goes_on = false;
    // What divides cells is no word.
    let spoken = words(text).filter(|word| text[word.clone()].contains(char::is_alphanumeric));
    for word in spoken {
        let is_covered =
            covered.iter().any(|range| range.start <= word.start && word.end <= range.end);
        match runs.last_mut() {
            Some(run) if goes_on && !is_covered => run.end = word.end,
            _ if !is_covered => runs.push(word),
            _ => {}
        }
        goes_on = !is_covered;
    }
    runs
}

fn is_figure(word: &str) -> bool {
    word.chars().find(|c| c.is_alphanumeric()).is_some_and(|c| c.is_ascii_digit())
}

/// Commands of ours that `page` names, in blocks of shell code and in `code`, with their lines.
pub fn commands(page: &str) -> Vec<(usize, String)> {
    let mut named = Vec::new();
    for unit in units(page) {
        let spans = unit.text.split('`').skip(1).step_by(2);
        named.extend(spans.map(|span| (unit.line, span.to_owned())));
    }
    for (line, text) in shell(page) {
        let code = text.split('#').next().unwrap_or_default();
        named.extend(code.split("&&").map(|part| (line, part.trim().to_owned())));
    }
    named.retain(|(_, command)| is_ours(command));
    named
}

/// The lines of blocks of shell code, each with its number.
fn shell(page: &str) -> Vec<(usize, &str)> {
    let (mut is_code, mut is_shell) = (false, false);
    let mut lines = Vec::new();
    for (n, text) in page.lines().enumerate() {
        if text.starts_with("```") {
            is_code = !is_code;
            is_shell = is_code && text == "```sh";
        } else if is_shell {
            lines.push((n + 1, text));
        }
    }
    lines
}

fn is_ours(command: &str) -> bool {
    command.starts_with("nearside ") || evidence::is_path(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# 1 title\n\nA paragraph\nof `2` lines.\n- A bullet\n  of two.\n\
        - Another.\n\n| head | 3 |\n|---|---|\n| row | 4 |\n| row | 5 |\nBelow.\n\
        ```sh\nnearside 6 # 7\n```\nEnd.\n";

    #[test]
    fn a_page_is_divided() {
        let unit =
            |line, is_claim, text: &str| ReadmeUnit { line, is_claim, text: text.to_owned() };
        let expected = [
            unit(3, false, "A paragraph of `2` lines."),
            unit(5, true, "A bullet of two."),
            unit(7, true, "Another."),
            unit(11, true, "| row | 4 |"),
            unit(12, true, "| row | 5 |"),
            unit(13, false, "Below."),
            unit(17, false, "End."),
        ];
        assert_eq!(units(PAGE), expected);
    }

    #[test]
    fn canary_figures_are_found() {
        let found = |text: &'static str| -> Vec<&str> {
            figures(text).into_iter().map(|figure| &text[figure]).collect()
        };
        assert_eq!(found("It takes 1.3 us (0.85 us), x 2."), ["1.3", "(0.85", "2"]);
        assert_eq!(found("é `3 us` é 4, ext4 and `a` `b` TLS 1.3; 5"), ["4", "1.3", "5"]);
        assert_eq!(found("Apache-2.0, `2`, x86-64"), Vec::<&str>::new());
    }

    #[test]
    fn canary_words_outside_of_ranges_are_found() {
        let found = |text: &'static str, covered: &[Range<usize>]| -> Vec<&str> {
            without(text, covered).into_iter().map(|run| &text[run]).collect()
        };
        assert_eq!(found("a b c d", &[0..1, 4..5]), ["b", "d"]);
        assert_eq!(found("a b c d", &[]), ["a b c d"]);
        assert_eq!(
            found("ab cd", std::slice::from_ref(&(0..4))),
            ["cd"],
            "half of a word is not enough"
        );
        assert_eq!(found("| a | b |", &[2..3, 6..7]), Vec::<&str>::new());
    }

    #[test]
    fn the_command_of_a_row_is_its_last_cell() {
        let command = |text: &str| {
            let unit = ReadmeUnit { line: 1, is_claim: true, text: text.to_owned() };
            unit.command_cell().map(|cell| unit.text[cell].to_owned())
        };
        assert_eq!(command("| a | 3 us | `nearside info` |").as_deref(), Some("nearside info"));
        assert_eq!(command("| a | `b` and `c` |"), None);
        assert_eq!(command("| a | see `b` |"), None);
        assert_eq!(command("| a | b |"), None);
        assert_eq!(command("a | `b`"), None);
    }

    #[test]
    fn commands_are_found_in_blocks_and_between_words() {
        let page = "See `scripts/compare` and\n`nearside\ntop`, `format --size 1G`.\n```sh\n\
            mkdir a && nearside info a # nearside not\n./demo    # x\n```\n\
            ```text\nnearside none\n```\n";
        let found: Vec<String> = commands(page).into_iter().map(|(_, command)| command).collect();
        assert_eq!(found, ["scripts/compare", "nearside top", "nearside info a", "./demo"]);
    }
}
