//! `nearside region dump`: what a region holds, for people or as it is.

use clap::Args;

use super::{At, refused};
use crate::content::Content;
use crate::error::{Error, Result};
use crate::inside::Opening;
use crate::pool_path::PoolPath;
use crate::{access, output, size};

/// Bytes read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes of a line.
const LINE_BYTES: usize = 16;
/// Lines of a hole that are worth leaping over.
const LEAP_LINES: u64 = 256;

/// Arguments of `region dump`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside region dump /data/pool /counters --length 256
  nearside region dump /data/pool:/counters --offset 4K --raw > bytes

A line has the offset and 16 bytes, in hexadecimal and as text; a row of equal lines is one and
an asterisk. The last line is where it ends. What a transaction changes meanwhile may be seen in
part.")]
pub struct DumpArgs {
    #[command(flatten)]
    at: At,
    /// Where to begin, bytes, like 4K.
    #[arg(long, value_name = "N", default_value = "0", value_parser = size::parse)]
    offset: u64,
    /// How many bytes [default: up to the end].
    #[arg(long, value_name = "N", value_parser = size::parse)]
    length: Option<u64>,
    /// The bytes as they are.
    #[arg(long)]
    raw: bool,
}

/// Dumps a region.
pub fn run(args: &DumpArgs) -> Result<()> {
    let at = args.at.place()?;
    let pool = access::reading(&at.pool)?;
    let file = pool.open(&at.path, Opening::Read).map_err(refused(&at))?;
    let size = file.len().map_err(|error| at.refuse(error.to_string()))?;
    let end = end(size, args.offset, args.length).ok_or_else(|| {
        at.refuse(format!("the file ends at byte {size}; choose a range that lies in it"))
    })?;
    let mut dump = Dump { at: &at, file, from: args.offset, end };
    if args.raw { dump.raw() } else { dump.lines() }
}

/// Where a range ends, if it lies in a file of `size` bytes.
fn end(size: u64, offset: u64, length: Option<u64>) -> Option<u64> {
    let end = match length {
        Some(length) => offset.checked_add(length)?,
        None => size,
    };
    (offset <= end && end <= size).then_some(end)
}

/// A range of a file that is still to be printed.
struct Dump<'a> {
    at: &'a PoolPath,
    file: Content,
    from: u64,
    end: u64,
}

impl Dump<'_> {
    fn raw(&mut self) -> Result<()> {
        while let Some(bytes) = self.piece()? {
            if !output::piece(&bytes)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn lines(&mut self) -> Result<()> {
        let mut lines = Lines::default();
        loop {
            self.leap(&mut lines)?;
            let from = self.from;
            let Some(bytes) = self.piece()? else { break };
            for (number, line) in (0..).zip(bytes.chunks(LINE_BYTES)) {
                lines.push(from + number * LINE_BYTES as u64, line);
            }
            if !output::piece(&std::mem::take(&mut lines.text))? {
                return Ok(());
            }
        }
        lines.end(self.from);
        output::bytes(&lines.text)
    }

    /// The next bytes, whole lines but at the end; none: all were printed, or the file was cut.
    fn piece(&mut self) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; (self.end - self.from).min(PIECE_BYTES) as usize];
        let said = |error: std::io::Error| self.at.refuse(error.to_string());
        self.file.go_to(self.from).map_err(said)?;
        let mut done = 0;
        while done < bytes.len() {
            let part = &mut bytes[done..];
            match self.file.read(part, self.from + done as u64).map_err(said)? {
                0 => break,
                read => done += read,
            }
        }
        bytes.truncate(done);
        self.from += done as u64;
        Ok((done > 0).then_some(bytes))
    }

    /// Goes over whole lines of a hole, which are all the same.
    fn leap(&mut self, lines: &mut Lines) -> Result<()> {
        let said = |error: std::io::Error| -> Error { self.at.refuse(error.to_string()) };
        let data = self.file.next_data(self.from).map_err(said)?;
        let hole_end = data.map_or(self.end, |(start, _)| start.min(self.end));
        let count = hole_end.saturating_sub(self.from) / LINE_BYTES as u64;
        if count < LEAP_LINES {
            return Ok(());
        }
        for number in 0..2 {
            lines.push(self.from + number * LINE_BYTES as u64, &[0; LINE_BYTES]);
        }
        self.from += count * LINE_BYTES as u64;
        Ok(())
    }
}

/// Lines that are to be printed.
#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    last: Option<[u8; LINE_BYTES]>,
    /// The last one was there before, and so was said.
    is_repeated: bool,
}

impl Lines {
    /// One more, whole or the last.
    fn push(&mut self, offset: u64, bytes: &[u8]) {
        let whole = <[u8; LINE_BYTES]>::try_from(bytes).ok();
        if whole.is_some() && whole == self.last {
            if !std::mem::replace(&mut self.is_repeated, true) {
                self.text.extend_from_slice(b"*\n");
            }
            return;
        }
        (self.last, self.is_repeated) = (whole, false);
        self.text.extend_from_slice(line(offset, bytes).as_bytes());
    }

    /// Nothing follows.
    fn end(&mut self, offset: u64) {
        self.text.extend_from_slice(format!("{offset:08x}\n").as_bytes());
    }
}

fn line(offset: u64, bytes: &[u8]) -> String {
    let mut text = format!("{offset:08x} ");
    for index in 0..LINE_BYTES {
        if index.is_multiple_of(LINE_BYTES / 2) {
            text.push(' ');
        }
        match bytes.get(index) {
            Some(byte) => text.push_str(&format!("{byte:02x} ")),
            None => text.push_str("   "),
        }
    }
    let seen = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
    text.push_str(&format!(" |{}|\n", bytes.iter().map(seen).collect::<String>()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lines_are_one_and_an_asterisk() {
        let mut lines = Lines::default();
        for (number, byte) in (0..).zip([0, 0, 0, 7, 0, 0]) {
            lines.push(number * 16, &[byte; 16]);
        }
        lines.push(96, b"\0 Az~\x7f\xff");
        lines.end(103);
        let zeros = "00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|";
        let want = format!(
            "00000000  {zeros}\n*\n\
             00000030  07 07 07 07 07 07 07 07  07 07 07 07 07 07 07 07  |................|\n\
             00000040  {zeros}\n*\n\
             00000060  00 20 41 7a 7e 7f ff                              |. Az~..|\n\
             00000067\n"
        );
        assert_eq!(String::from_utf8(lines.text).unwrap(), want);
        assert!(line(1 << 40, b"x").starts_with("10000000000  78 "));
    }

    #[test]
    fn a_range_lies_in_its_file() {
        assert_eq!(end(100, 0, None), Some(100));
        assert_eq!((end(100, 100, None), end(100, 40, Some(60))), (Some(100), Some(100)));
        for (offset, length) in [(101, None), (40, Some(61)), (100, Some(1)), (9, Some(u64::MAX))] {
            assert_eq!(end(100, offset, length), None, "{offset} {length:?}");
        }
    }
}
