//! `nearside stats`: what a pool in use does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::control::{Client, is_served};
use crate::error::{Error, Result};
use crate::sample::Sample;
use crate::size::show;
use crate::{access, output, place};

/// Arguments of `stats`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside stats /mnt/near                          since its server began
  nearside stats /mnt/near --every 5                and then what happened in each 5 seconds
  nearside stats /data/pool --every 1 --count 60 --json

p50 and p99 are the times that half and 99 % of the calls stayed below, to a quarter. A slice's
calls are those that CPUs near it served, its cache is what DRAM holds of it; checkpoints are the
whole pool's. Of a capacity tier: how much of the slices is in use (dirty), what moves to the
devices, and what DRAM holds of them. Writes are shown with the bytes that went to persistent
memory for each that programs wrote. With --json each look is one line. A server that follows
another one (see nearside upgrade) counts from its own beginning. The server tells the pool's owner
and root.")]
pub struct StatsArgs {
    /// A pool in use, mounted or served: its directory, or the one it is mounted on.
    #[arg(value_name = "DIR|POOL")]
    pub place: PathBuf,
    /// Look again every N seconds, and show what happened in between.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub every: Option<u32>,
    /// End after K looks [default: 1; with --every: until Ctrl-C].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    /// Print JSON: what was counted since the server began, in every look.
    #[arg(long)]
    pub json: bool,
}

/// Shows them.
pub fn run(args: &StatsArgs) -> Result<()> {
    let pool = pool_of(&args.place)?;
    let looks = args.count.unwrap_or(if args.every.is_some() { u32::MAX } else { 1 });
    let pause = Duration::from_secs(args.every.unwrap_or(1).into());
    let mut before: Option<Sample> = None;
    for round in 0..looks {
        if round > 0 {
            std::thread::sleep(pause);
        }
        let sample = look(&pool)?;
        let goes_on = match args.json {
            true => output::json_line(&sample)?,
            false => {
                let shown = before.as_ref().map_or_else(|| sample.clone(), |it| sample.since(it));
                output::piece(text(&shown).as_bytes())?
            }
        };
        if !goes_on {
            return Ok(());
        }
        before = Some(sample);
    }
    Ok(())
}

/// What the server has counted. One that goes away instead of answering is followed by another.
pub fn look(pool: &Path) -> Result<Sample> {
    let ask = || Client::connect(pool)?.stats();
    ask().or_else(|error| if is_served(pool) { ask() } else { Err(error) })
}

/// The pool that is meant: mounted on `place`, or in it and in use.
pub fn pool_of(place: &Path) -> Result<PathBuf> {
    let mounted = place::mounted_on(place)?.and_then(|entry| place::pool_of(&entry));
    if let Some(pool) = mounted {
        return Ok(pool);
    }
    // a service's pool need not be mounted
    if is_served(place) || access::mount_of(place)?.is_some() {
        return Ok(place.to_path_buf());
    }
    Err(Error::Place {
        dir: place.to_path_buf(),
        reason: "no pool in use; give its directory, or where it is mounted (see /proc/mounts)"
            .to_owned(),
    })
}

/// A sample as tables.
pub fn text(sample: &Sample) -> String {
    let mut text = format!(
        "{} on {}, process {}, {:.1} s\n\n",
        output::shown(sample.pool.as_bytes()),
        output::shown(sample.dir.as_bytes()),
        sample.process,
        sample.serving_seconds
    );
    text.push_str(&calls(sample, usize::MAX));
    text.push('\n');
    text.push_str(&slices(sample));
    text.push('\n');
    text.push_str(&pool_lines(sample));
    text.push('\n');
    text
}

/// The calls that took most time in all, `most` of them.
pub fn calls(sample: &Sample, most: usize) -> String {
    let heads = ["CALL", "COUNT", "PER S", "ERRORS", "BYTES", "BYTES/S", "P50", "P99", "MEAN"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let mut calls: Vec<_> = sample.calls.iter().collect();
    calls.sort_by(|one, next| next.nanos.cmp(&one.nanos).then(one.call.cmp(&next.call)));
    for call in calls.into_iter().take(most) {
        let below = |part| call.quantile(part).map_or_else(|| "-".to_owned(), nanos);
        rows.push(vec![
            call.call.clone(),
            call.count.to_string(),
            format!("{:.0}", sample.rate(call.count)),
            call.errors.to_string(),
            show(call.bytes),
            show(sample.rate(call.bytes) as u64),
            below(0.5),
            below(0.99),
            call.nanos.checked_div(call.count).map_or_else(|| "-".to_owned(), nanos),
        ]);
    }
    output::table(&rows)
}

/// The slices.
pub fn slices(sample: &Sample) -> String {
    let heads = [
        "SLICE",
        "CALLS/S",
        "BYTES/S",
        "LOG",
        "IN USE",
        "%",
        "WRITTEN",
        "WRITTEN/S",
        "BLOCKS",
        "FREE",
        "USE",
        "CACHE",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for slice in &sample.slices {
        let used = slice.blocks.saturating_sub(slice.blocks_free);
        let (calls, bytes) = slice.calls_and_bytes();
        rows.push(vec![
            slice.index.to_string(),
            format!("{:.0}", sample.rate(calls)),
            show(sample.rate(bytes) as u64),
            show(slice.log_bytes),
            show(slice.log_used_bytes),
            percent(slice.log_used_bytes, slice.log_bytes),
            show(slice.log_written_bytes),
            show(sample.rate(slice.log_written_bytes) as u64),
            slice.blocks.to_string(),
            slice.blocks_free.to_string(),
            percent(used, slice.blocks),
            show(slice.cache.bytes()),
        ]);
    }
    output::table(&rows)
}

/// What is the whole pool's.
pub fn pool_lines(sample: &Sample) -> String {
    let (done, limit) = (&sample.checkpoints, sample.cache.limit_bytes);
    let cache = &sample.cache.held;
    let seconds = |it: f64| nanos((it * 1e9) as u64);
    let age = done.age_seconds.map_or_else(|| "never".to_owned(), |age| format!("{age:.1} s ago"));
    let lines = format!(
        "checkpoints  {}, {} written, {} in all, the last took {}, {age}\n\
         log          changes delayed for {}, {} waited for a checkpoint\n\
         syncs        {}\n\
         caches       {} maps, {} entries, {} tree pages, {} inodes; limit {}\n",
        done.count,
        show(done.bytes),
        seconds(done.seconds),
        seconds(done.last_seconds),
        seconds(done.delay_seconds),
        done.waits,
        sample.syncs,
        show(cache.map_bytes),
        show(cache.entry_bytes),
        show(cache.page_bytes),
        cache.inodes,
        show(limit),
    );
    lines + &write_line(sample) + &tier_line(sample) + &move_line(sample)
}

/// What writing costs the slices, where that is known.
fn write_line(sample: &Sample) -> String {
    let each = sample.bytes_per_user_byte();
    each.map_or_else(String::new, |it| format!("writes       {it} PM bytes per user byte\n"))
}

/// What the capacity tier does, if the pool has one.
fn tier_line(sample: &Sample) -> String {
    let Some(tier) = sample.tier else { return String::new() };
    format!("tier         {}\n", tier.line(sample.rate(tier.moved_bytes())))
}

/// What moved to be near, where it is known what accesses take.
fn move_line(sample: &Sample) -> String {
    let Some(moves) = sample.moves else { return String::new() };
    let bytes = sample.slices.iter().fold(0, |sum: u64, it| sum.saturating_add(it.arrived_bytes));
    format!("placement    {}\n", moves.line(bytes))
}

/// A part of a hundred, rounded up.
pub fn percent(part: u64, all: u64) -> String {
    format!("{} %", (u128::from(part) * 100).div_ceil(u128::from(all.max(1))))
}

/// A time for people.
pub fn nanos(nanos: u64) -> String {
    match nanos {
        0..10_000 => format!("{nanos} ns"),
        10_000..10_000_000 => format!("{} us", nanos / 1000),
        10_000_000..10_000_000_000 => format!("{} ms", nanos / 1_000_000),
        _ => format!("{} s", nanos / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::sample;
    use crate::tier::facts::TierFacts;

    #[test]
    fn the_tables_show_what_was_counted() {
        let text = text(&sample(1000, 10.0));
        let line = |word: &str| text.lines().find(|line| line.starts_with(word)).unwrap();
        let cells = |word: &str| line(word).split("  ").map(str::trim).collect::<Vec<_>>();
        let read: Vec<_> = cells("read").into_iter().filter(|it| !it.is_empty()).collect();
        assert_eq!(read[1..7], ["1000", "100", "100", "3.9 MiB", "400 KiB", "448 ns"], "{text}");
        assert!(line("0 ").contains("25 %") && line("0 ").contains("75 %"), "{text}");
        assert!(line("checkpoints").contains("the last took 250 ms, 3.0 s ago"), "{text}");
        assert_eq!(nanos(12_345), "12 us");
    }

    #[test]
    fn a_tier_has_a_line() {
        let mut sample = sample(1000, 2.0);
        assert!(!text(&sample).contains("tier"));
        let tier = TierFacts {
            moved_blocks: 512,
            cached_bytes: 3 << 20,
            slice_blocks: 100,
            slice_blocks_used: 30,
            ..TierFacts::default()
        };
        sample.tier = Some(tier);
        let line = "\ntier         30 % dirty, 1 MiB/s written back, 3 MiB cached, no looks\n";
        assert!(text(&sample).contains(line), "{}", text(&sample));
        sample.tier = Some(TierFacts { hits: 3, read_blocks: 1, ..tier });
        sample.calls[0].call = "write".to_owned();
        for line in ["3 MiB cached, 75 % hits\n", "\nwrites       0 PM bytes per user byte\n"] {
            assert!(text(&sample).contains(line), "{}", text(&sample));
        }
    }
}
