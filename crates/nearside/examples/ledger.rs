//! A ledger whose every entry is durable before it is acknowledged, and the proof of it.
//!
//! ```text
//! ledger write POOL DIR [ENTRIES]        makes DIR in the pool, prints "ack N" when entry N is
//!                                        durable; without ENTRIES for ever
//! ledger verify POOL DIR ACKNOWLEDGED    after whatever happened: are those there, and right?
//! ```
//!
//! Entry N is four changes in this order: its page is overwritten, its name made, an old name
//! removed, its line appended. So the lines say how far it came: of the entry behind the last
//! line any part may be there, and of no other entry. A page is one call, hence whole or not there.

use nearside::{Error, OpenFlags, Pool};
use std::io::Write;
use std::process::ExitCode;

/// Pages that entries take turns in overwriting.
const PAGES: u64 = 32;
/// Bytes of a page: several blocks, the last not whole.
const PAGE_BYTES: usize = 12_000;
/// Names that exist at a time.
const NAMES: u64 = 16;
/// Bytes of a line.
const LINE_BYTES: usize = 32;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn line(entry: u64) -> Vec<u8> {
    format!("entry {entry:>width$}\n", width = LINE_BYTES - 7).into_bytes()
}

/// No two entries have the same bytes anywhere but by chance.
fn page(entry: u64) -> Vec<u8> {
    let mut state = entry.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(entry);
        (state >> 56) as u8
    };
    (0..PAGE_BYTES).map(next).collect()
}

/// A ledger in a directory of a pool.
struct Ledger<'a> {
    pool: &'a Pool,
    dir: &'a str,
}

impl Ledger<'_> {
    fn lines_path(&self) -> String {
        format!("{}/lines", self.dir)
    }

    fn page_path(&self, entry: u64) -> String {
        format!("{}/page-{}", self.dir, entry % PAGES)
    }

    fn name_path(&self, entry: u64) -> String {
        format!("{}/name-{entry}", self.dir)
    }

    fn enter(&self, entry: u64) -> Result<()> {
        let create = OpenFlags::new().write(true).create(true);
        let page_file = self.pool.open_file(self.page_path(entry), &create)?;
        page_file.write_all_at(&page(entry), 0)?;
        self.pool.create_file(self.name_path(entry))?;
        if entry > NAMES {
            self.pool.remove_file(self.name_path(entry - NAMES))?;
        }
        let lines = self.pool.open_file(self.lines_path(), &create)?;
        lines.append(&line(entry))?;
        // Needed in the `sync` domain only.
        Ok(lines.sync()?)
    }

    /// How many entries are there, by the lines, each of which must be right.
    fn entries(&self) -> Result<u64> {
        let lines = self.pool.read(self.lines_path())?;
        let count = (lines.len() / LINE_BYTES) as u64;
        let right: Vec<u8> = (1..=count).flat_map(line).collect();
        if lines != right {
            return Err(format!("the lines of {count} entries are not as written").into());
        }
        Ok(count)
    }

    /// The page that `entry`, the last in its place, wrote; or what the unfinished one left there.
    fn check_page(&self, entry: u64, unfinished: u64) -> Result<()> {
        let same_place = unfinished % PAGES == entry % PAGES;
        let found = self.pool.read(self.page_path(entry))?;
        if found == page(entry) || (same_place && found == page(unfinished)) {
            return Ok(());
        }
        Err(format!("the page of entry {entry} is not as it was written").into())
    }

    fn check_name(&self, entry: u64, expected: bool) -> Result<()> {
        if self.pool.exists(self.name_path(entry))? == expected {
            return Ok(());
        }
        Err(format!("name {entry}: expected {expected}").into())
    }

    /// Checks all entries, and gives their number.
    fn check(&self) -> Result<u64> {
        let count = self.entries()?;
        for entry in count.saturating_sub(PAGES - 1).max(1)..=count {
            self.check_page(entry, count + 1)?;
        }
        // The unfinished entry may have removed the name of the one before these.
        for entry in (count + 1).saturating_sub(NAMES - 1).max(1)..=count {
            self.check_name(entry, true)?;
        }
        for entry in 1..=count.saturating_sub(NAMES) {
            self.check_name(entry, false)?;
        }
        self.check_name(count + 2, false)?;
        Ok(count)
    }
}

fn write(pool: &str, dir: &str, entries: u64) -> Result<()> {
    let pool = Pool::open(pool)?;
    pool.create_dir(dir)?;
    let ledger = Ledger { pool: &pool, dir };
    for entry in 1..=entries {
        ledger.enter(entry)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "ack {entry}")?;
        out.flush()?;
    }
    Ok(pool.close()?)
}

fn verify(pool: &str, dir: &str, acknowledged: u64) -> Result<()> {
    let pool = Pool::open(pool)?;
    let count = Ledger { pool: &pool, dir }.check()?;
    if count < acknowledged {
        return Err(format!("{acknowledged} entries were acknowledged, {count} are there").into());
    }
    for note in pool.info().notes {
        println!("note: {note}");
    }
    println!("verified: {count} entries are there and right, {acknowledged} were acknowledged");
    Ok(pool.close()?)
}

const USAGE: &str = "usage: ledger write POOL DIR [ENTRIES] | ledger verify POOL DIR ACKNOWLEDGED";

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["write", pool, dir] => write(pool, dir, u64::MAX),
        ["write", pool, dir, entries] => write(pool, dir, entries.parse()?),
        ["verify", pool, dir, acknowledged] => verify(pool, dir, acknowledged.parse()?),
        _ => Err(USAGE.into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let errno = error.downcast_ref::<Error>().map_or(0, Error::errno);
            eprintln!("ledger: {error} (errno {errno})");
            ExitCode::FAILURE
        }
    }
}
