//! What commands print: text for people, JSON for programs.

use std::io::{IsTerminal, Write};
use std::path::Path;

use serde::Serialize;

use crate::about;
use crate::error::{Error, Result};

/// Prints `text` on stdout. A reader that went away (`nearside info | head`) is no error.
pub fn text(text: &str) -> Result<()> {
    bytes(text.as_bytes())
}

/// Prints `bytes` on stdout as they are; a reader that went away is no error.
pub fn bytes(bytes: &[u8]) -> Result<()> {
    piece(bytes).map(drop)
}

/// Prints a piece of what stdout is to get; false when its reader went away.
pub fn piece(bytes: &[u8]) -> Result<bool> {
    let mut stdout = std::io::stdout().lock();
    // What does not end a line waits in the buffer, and an error at the end would be lost.
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        done => done.map(|()| true).map_err(Error::Output),
    }
}

/// Whether a terminal may be coloured (<https://no-color.org>).
pub fn may_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A name for stdout: as it is, but harmless where stdout is a terminal.
pub fn name(name: &[u8]) -> Vec<u8> {
    if std::io::stdout().is_terminal() { about::escaped(name) } else { name.to_vec() }
}

/// The same for text.
pub fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&self::name(name)).into_owned()
}

/// Says on stderr what went wrong, or will be missing. A path in it may hold what commands a
/// terminal; its lines stay lines. Nothing is broken off because stderr went away.
pub fn complain(text: &str) {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| match std::io::stderr().is_terminal() {
            true => String::from_utf8_lossy(&about::escaped(line.as_bytes())).into_owned(),
            false => line.to_owned(),
        })
        .collect();
    let _ = writeln!(std::io::stderr(), "nearside: {}", lines.join("\n"));
}

/// Does `act` with each of these, also after one that fails: its error is told at once, the last
/// one's is returned.
pub fn each_of<T>(all: &[T], mut act: impl FnMut(&T) -> Result<()>) -> Result<()> {
    let mut failed = None;
    for one in all {
        if let Err(error) = act(one)
            && let Some(before) = failed.replace(error)
        {
            complain(&before.to_string());
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Prints `value` as JSON on stdout.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Output(std::io::Error::other(error)))?;
    line.push('\n');
    text(&line)
}

/// Prints `value` as one line of JSON; false when stdout's reader went away.
pub fn json_line(value: &impl Serialize) -> Result<bool> {
    let mut line =
        serde_json::to_vec(value).map_err(|error| Error::Output(std::io::Error::other(error)))?;
    line.push(b'\n');
    piece(&line)
}

/// Rows with columns of equal width, the first row being the heads.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A path as a shell takes it.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@%,:=".contains(&byte);
    match text.bytes().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["A", "BB"]), row(["ccc", "d"])]), "A    BB\nccc  d\n");
        assert_eq!(table(&[]), "");
    }
}
