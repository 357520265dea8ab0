//! What commands print: text for people, JSON for programs.

use std::io::Write;

use serde::Serialize;

use crate::error::{Error, Result};

/// Prints `text` on stdout. A reader that went away (`nearside info | head`) is no error.
pub fn text(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(Error::Output),
    }
}

/// Prints `value` as JSON on stdout.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Output(std::io::Error::other(error)))?;
    line.push('\n');
    text(&line)
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
