//! `nearside top`: what a mounted pool does, on a terminal, again and again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use crate::control::{Client, is_served};
use crate::error::{Error, Result};
use crate::output;
use crate::sample::{Sample, SliceSample};
use crate::screen::{self, Event, Screen, Size};
use crate::size::show;
use crate::stats::{self, nanos};

/// Ctrl-C and Ctrl-D, as keys.
const KEYS_TO_END: [u8; 4] = [b'q', b'Q', 3, 4];
/// Columns of the bar of a log.
const BAR_COLUMNS: u64 = 10;
/// Lines that are there whatever the pool does, besides those of the whole pool: the first two,
/// heads, empty ones.
const FIXED_LINES: usize = 6;

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside top /mnt/near
  nearside top /data/pool --every 5

q or Ctrl-C ends it. Without a terminal it prints one table; nearside stats is made for that. The
server tells the pool's owner and root.")]
pub struct TopArgs {
    /// A mounted pool: the directory that it is mounted on, or its own.
    #[arg(value_name = "DIR|POOL")]
    pub place: PathBuf,
    /// Seconds between two looks.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub every: u32,
}

/// Shows them until a key or a signal ends it.
pub fn run(args: &TopArgs) -> Result<()> {
    let pool = stats::pool_of(&args.place)?;
    let first = stats::look(&pool)?;
    if !screen::is_there() {
        output::complain("no terminal to draw on, so this is one table; see nearside stats");
        return output::text(&stats::text(&first));
    }
    let screen = Screen::take().map_err(Error::Output)?;
    watch(&screen, &pool, first, Duration::from_secs(args.every.into()))
}

/// What is to be seen now; why nothing is, while the server is being replaced.
fn look(pool: &Path) -> Result<std::result::Result<Sample, String>> {
    match Client::connect_now(pool).and_then(|mut client| client.stats()) {
        Ok(sample) => Ok(Ok(sample)),
        Err(error) if is_served(pool) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

fn watch(screen: &Screen, pool: &Path, first: Sample, pause: Duration) -> Result<()> {
    // What came before the first look is shown until there is a second.
    let (mut before, mut shown) = (first.clone(), first);
    let mut missing = None;
    let mut next = Instant::now() + pause;
    loop {
        if screen.show(&frame(&shown, missing.as_deref(), screen.size())).is_err() {
            // Nobody sits there any more.
            return Ok(());
        }
        match screen.wait(next).map_err(Error::Output)? {
            Event::Key(key) if KEYS_TO_END.contains(&key) => return Ok(()),
            Event::End => return Ok(()),
            Event::Key(_) | Event::Resized => {}
            Event::Time => {
                missing = match look(pool)? {
                    Ok(now) => {
                        shown = now.since(&before);
                        before = now;
                        None
                    }
                    Err(why) => Some(why),
                };
                next = Instant::now() + pause;
            }
        }
    }
}

/// What fits a screen of this size: the slices and the calls share what the rest leaves. `missing`
/// says why there is nothing newer.
fn frame(sample: &Sample, missing: Option<&str>, size: Size) -> Vec<String> {
    let count: u64 = sample.calls.iter().map(|call| call.count).sum();
    let bytes: u64 = sample.calls.iter().map(|call| call.bytes).sum();
    let mut lines = vec![
        format!(
            "nearside {} on {}, process {}; q ends",
            printable(&sample.pool),
            printable(&sample.dir),
            sample.process
        ),
        match missing {
            Some(why) => format!("the server is being replaced: {}", printable(why)),
            None => format!(
                "{:.1} s: {:.0} calls/s, {}/s",
                sample.serving_seconds,
                sample.rate(count),
                show(sample.rate(bytes) as u64)
            ),
        },
        String::new(),
    ];
    let of_pool = stats::pool_lines(sample);
    lines.extend(of_pool.lines().map(str::to_owned));
    lines.push(String::new());
    let room = size.rows.saturating_sub(FIXED_LINES + of_pool.lines().count());
    let slices = sample.slices.len().min((room / 2).max(1));
    lines.extend(slice_table(sample, slices).lines().map(str::to_owned));
    lines.push(String::new());
    let calls = size.rows.saturating_sub(lines.len() + 1);
    lines.extend(call_table(sample, calls).lines().map(str::to_owned));
    lines.truncate(size.rows);
    lines
}

fn slice_table(sample: &Sample, most: usize) -> String {
    let heads = ["SLICE", "CALLS/S", "READ/S", "WRITE/S", "REMOTE", "BUSY", "LOG", "FREE", "CACHE"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for slice in sample.slices.iter().take(most) {
        let ((calls, _), (read, written)) = (slice.calls_and_bytes(), slice.read_and_written());
        let (remote, all) = slice.remote_and_all();
        let none = || "-".to_owned();
        rows.push(vec![
            slice.index.to_string(),
            format!("{:.0}", sample.rate(calls)),
            show(sample.rate(read) as u64),
            show(sample.rate(written) as u64),
            if all > 0 { stats::percent(remote, all) } else { none() },
            slice.busy_percent.map_or_else(none, |busy| format!("{busy} %")),
            fill(slice),
            stats::percent(slice.blocks_free, slice.blocks),
            show(slice.cache.bytes()),
        ]);
    }
    output::table(&rows)
}

fn fill(slice: &SliceSample) -> String {
    let of = slice.log_bytes.max(1);
    let used = slice.log_used_bytes.min(of);
    let part = (u128::from(used) * u128::from(BAR_COLUMNS)).div_ceil(u128::from(of)) as u64;
    let (full, empty) = ("#".repeat(part as usize), "-".repeat((BAR_COLUMNS - part) as usize));
    format!("{full}{empty} {} %", u128::from(used) * 100 / u128::from(of))
}

/// The calls that took most time.
fn call_table(sample: &Sample, most: usize) -> String {
    let heads = ["CALL", "PER S", "ERRORS", "BYTES/S", "P50", "P99"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let mut calls: Vec<_> = sample.calls.iter().collect();
    calls.sort_by(|one, next| next.nanos.cmp(&one.nanos).then(one.call.cmp(&next.call)));
    for call in calls.into_iter().take(most) {
        let below = |part| call.quantile(part).map_or_else(|| "-".to_owned(), nanos);
        rows.push(vec![
            call.call.clone(),
            format!("{:.0}", sample.rate(call.count)),
            call.errors.to_string(),
            show(sample.rate(call.bytes) as u64),
            below(0.5),
            below(0.99),
        ]);
    }
    output::table(&rows)
}

/// What a server says is drawn on a terminal, and must not command it.
fn printable(text: &str) -> String {
    String::from_utf8_lossy(&crate::about::escaped(text.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::sample;
    use crate::tier::facts::TierFacts;

    #[test]
    fn a_frame_fits_its_screen() {
        let mut many = sample(1000, 2.0);
        let (call, slice) = (many.calls[0].clone(), many.slices[0].clone());
        many.calls = (0..30)
            .map(|n| crate::sample::CallSample { call: format!("call{n}"), ..call.clone() })
            .collect();
        many.slices = (0..20).map(|index| SliceSample { index, ..slice.clone() }).collect();
        many.pool = "\x1b[31m/p".to_owned();
        for (rows, columns) in [(24, 80), (50, 132), (10, 40), (1, 1), (3, 200)] {
            let lines = frame(&many, None, Size { columns, rows });
            assert!(lines.len() <= rows, "{rows}: {lines:#?}");
            assert!(!lines.concat().contains('\x1b'));
        }
        let lines = frame(&many, None, Size { columns: 80, rows: 24 });
        assert_eq!(lines.len(), 24);
        assert!(lines.iter().any(|line| line.starts_with("CALL")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("call0 ")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("0 ")), "{lines:#?}");
        let few = frame(&sample(1000, 2.0), None, Size { columns: 80, rows: 24 });
        assert!(few.iter().all(|line| line.chars().count() <= 80), "{few:#?}");
        assert!(few[1].contains("500 calls/s, 1.9 MiB/s"), "{few:?}");
        let gone = frame(&sample(1000, 2.0), Some("\x1bgone"), Size { columns: 80, rows: 24 });
        assert!(gone[1].contains("is being replaced") && !gone[1].contains('\x1b'), "{gone:?}");
        assert_eq!(gone[2..], few[2..], "what was seen last stays");
        assert!(few.iter().any(|line| line.contains("###------- 25 %")), "{few:#?}");
        let tier = TierFacts { hits: 3, read_blocks: 1, moved_blocks: 512, ..TierFacts::default() };
        let tiered = Sample { tier: Some(tier), ..sample(1000, 2.0) };
        let tiered = frame(&tiered, None, Size { columns: 80, rows: 24 }).join("\n");
        for part in ["\ntier ", " % dirty, 1 MiB/s written back", " 75 % hits"] {
            assert!(tiered.contains(part), "{part}: {tiered}");
        }
    }
}
