//! A sample in the text exposition format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write;

use nearside::files::meter::{BUCKETS, bucket_end};

use crate::sample::{CallSample, Sample, SliceCall, SliceSample};

/// Buckets of ours in one of theirs: a bucket for each power of four.
const BUCKETS_JOINED: usize = 8;

/// Lines of one metric, under its heads.
struct Page(String);

impl Page {
    fn heads(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP nearside_{name} {help}\n# TYPE nearside_{name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        // Writing to a string does not fail.
        let _ = match labels {
            "" => writeln!(self.0, "nearside_{name} {value}"),
            labels => writeln!(self.0, "nearside_{name}{{{labels}}} {value}"),
        };
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.heads(name, kind, help);
        self.line(name, "", value);
    }
}

/// The sample as a page of metrics.
pub fn text(sample: &Sample) -> String {
    let mut page = Page(String::new());
    page.heads("info", "gauge", "What this server serves.");
    let (pool, dir) = (escaped(&sample.pool), escaped(&sample.dir));
    page.line("info", &format!("pool=\"{pool}\",dir=\"{dir}\""), 1);
    page.one("serving_seconds", "gauge", "Time since the mount.", sample.serving_seconds);
    calls(&mut page, sample);
    let done = &sample.checkpoints;
    page.one("checkpoints_total", "counter", "Checkpoints.", done.count);
    page.one("checkpoint_bytes_total", "counter", "Bytes that checkpoints wrote.", done.bytes);
    page.one("checkpoint_seconds_total", "counter", "Time in checkpoints.", done.seconds);
    let delay = "Time that changes were delayed, so that the log does not run full.";
    page.one("log_delayed_seconds_total", "counter", delay, done.delay_seconds);
    let waits = "Changes that found the log full, and waited for a checkpoint.";
    page.one("log_waits_total", "counter", waits, done.waits);
    page.one("checkpoint_last_seconds", "gauge", "Time of the last one.", done.last_seconds);
    if let Some(age) = done.age_seconds {
        page.one("checkpoint_age_seconds", "gauge", "Time since the last one.", age);
    }
    page.one("syncs_total", "counter", "Syncs that closed an epoch.", sample.syncs);
    caches(&mut page, sample);
    slices(&mut page, sample);
    moves(&mut page, sample);
    tier(&mut page, sample);
    page.0
}

fn calls(page: &mut Page, sample: &Sample) {
    let labels = |call: &CallSample| format!("call=\"{}\"", escaped(&call.call));
    page.heads("call_errors_total", "counter", "Calls that failed.");
    for call in &sample.calls {
        page.line("call_errors_total", &labels(call), call.errors);
    }
    page.heads("call_bytes_total", "counter", "Bytes that calls moved.");
    for call in sample.calls.iter().filter(|call| call.bytes > 0) {
        page.line("call_bytes_total", &labels(call), call.bytes);
    }
    page.heads("call_seconds", "histogram", "How long calls took.");
    for call in &sample.calls {
        let mut below = 0;
        for end in (BUCKETS_JOINED..=BUCKETS).step_by(BUCKETS_JOINED) {
            let joined = end - BUCKETS_JOINED..end;
            let counts = call.buckets.iter().filter(|(index, _)| joined.contains(index));
            below += counts.map(|(_, count)| count).sum::<u64>();
            // The last one has no end.
            if end < BUCKETS {
                let seconds = bucket_end(end - 1) as f64 / 1e9;
                let labels = format!("{},le=\"{seconds}\"", labels(call));
                page.line("call_seconds_bucket", &labels, below);
            }
        }
        page.line("call_seconds_bucket", &format!("{},le=\"+Inf\"", labels(call)), call.count);
        page.line("call_seconds_sum", &labels(call), call.nanos as f64 / 1e9);
        page.line("call_seconds_count", &labels(call), call.count);
    }
}

fn caches(page: &mut Page, sample: &Sample) {
    let limit = sample.cache.limit_bytes;
    page.one("cache_limit_bytes", "gauge", "DRAM that caches may use.", limit);
    page.heads("cache_bytes", "gauge", "DRAM in caches of what lies on a slice.");
    for slice in &sample.slices {
        let held = &slice.cache;
        for (name, bytes) in
            [("maps", held.map_bytes), ("entries", held.entry_bytes), ("pages", held.page_bytes)]
        {
            let labels = format!("of=\"{name}\",slice=\"{}\"", slice.index);
            page.line("cache_bytes", &labels, bytes);
        }
    }
}

fn slices(page: &mut Page, sample: &Sample) {
    type Value = fn(&SliceSample) -> u64;
    let rows: [(&str, &str, &str, Value); 11] = [
        ("log_bytes", "gauge", "Size of a slice's log.", |it| it.log_bytes),
        ("log_used_bytes", "gauge", "Bytes of it in use.", |it| it.log_used_bytes),
        ("log_written_bytes_total", "counter", "Bytes of records.", |it| it.log_written_bytes),
        ("blocks", "gauge", "Data blocks of 4 KiB of a slice.", |it| it.blocks),
        ("blocks_free", "gauge", "Free ones.", |it| it.blocks_free),
        ("slice_copies", "gauge", "Current copies of a slice.", |it| it.copies.into()),
        ("cached_inodes", "gauge", "Inodes in DRAM.", |it| it.cache.inodes),
        ("workers", "gauge", "Workers of a slice.", |it| it.workers.count.into()),
        ("workers_stalled", "gauge", "Whether they serve nobody.", |it| it.workers.stalled.into()),
        ("arrived_bytes_total", "counter", "Bytes that came from other slices.", |it| {
            it.arrived_bytes
        }),
        ("worker_deaths_total", "counter", "Requests that one died of.", |it| it.workers.deaths),
    ];
    for (name, kind, help, value) in rows {
        page.heads(name, kind, help);
        for slice in &sample.slices {
            page.line(name, &format!("slice=\"{}\"", slice.index), value(slice));
        }
    }
    page.heads("copied_bytes_total", "counter", "Bytes of a slice, by who copied them.");
    for slice in &sample.slices {
        let (workers, own) = (&slice.workers, &slice.copied);
        for (from, kind, bytes) in [
            ("worker", "read", workers.read_bytes),
            ("worker", "write", workers.written_bytes),
            ("local", "read", own.local_read_bytes),
            ("local", "write", own.local_written_bytes),
            ("remote", "read", own.remote_read_bytes),
            ("remote", "write", own.remote_written_bytes),
        ] {
            let labels = format!("slice=\"{}\",by=\"{from}\",kind=\"{kind}\"", slice.index);
            page.line("copied_bytes_total", &labels, bytes);
        }
    }
    type Count = fn(&SliceCall) -> u64;
    let rows: [(&str, &str, Count); 2] = [
        ("slice_calls_total", "Calls that were served on CPUs near a slice.", |it| it.count),
        ("slice_call_bytes_total", "Bytes that these moved.", |it| it.bytes),
    ];
    for (name, help, count) in rows {
        page.heads(name, "counter", help);
        for slice in &sample.slices {
            for call in &slice.calls {
                let name_of_call = escaped(&call.call);
                let labels = format!("slice=\"{}\",call=\"{name_of_call}\"", slice.index);
                page.line(name, &labels, count(call));
            }
        }
    }
}

fn moves(page: &mut Page, sample: &Sample) {
    let Some(moves) = sample.moves else { return };
    page.heads("slice_busy_ratio", "gauge", "Part of the time for which a memory is busy.");
    for slice in &sample.slices {
        if let Some(busy) = slice.busy_percent {
            let labels = format!("slice=\"{}\"", slice.index);
            page.line("slice_busy_ratio", &labels, f64::from(busy) / 100.0);
        }
    }
    for (name, kind, help, value) in [
        ("thread_moves_total", "counter", "Threads that went to their data.", moves.threads),
        ("threads_held", "gauge", "Threads that are held there.", moves.threads_held),
        ("data_moves_total", "counter", "Parts of files that went to readers.", moves.data),
        ("data_moves_waiting", "gauge", "Those that wait.", moves.data_waiting),
    ] {
        page.one(name, kind, help, value);
    }
    let gain = "What moves were expected to gain beyond what they cost.";
    page.one("move_gain_seconds_total", "counter", gain, moves.gain_ns as f64 / 1e9);
}

fn tier(page: &mut Page, sample: &Sample) {
    if let Some(bytes) = sample.bytes_per_user_byte() {
        let help = "Bytes written to slices for each that programs wrote.";
        page.one("slice_bytes_per_user_byte", "gauge", help, bytes);
    }
    let Some(tier) = sample.tier else { return };
    let moved = tier.moved_bytes();
    let rows = [
        ("hits_total", "counter", "Looks that found their block without a device.", tier.hits),
        ("read_blocks_total", "counter", "Blocks read from devices.", tier.read_blocks),
        ("ahead_blocks_total", "counter", "Of these ahead of readers.", tier.ahead_blocks),
        ("written_blocks_total", "counter", "Blocks written to devices.", tier.written_blocks),
        ("waits_total", "counter", "Changes that found no room, and waited.", tier.waits),
        ("moved_bytes_total", "counter", "Bytes that moved from slices to devices.", moved),
        ("cached_bytes", "gauge", "DRAM in caches of the devices.", tier.cached_bytes),
        ("slice_blocks", "gauge", "Data blocks of all slices.", tier.slice_blocks),
        ("slice_blocks_used", "gauge", "Those not free for files.", tier.slice_blocks_used),
        ("slice_blocks_clean", "gauge", "Copies of devices' blocks.", tier.slice_blocks_clean),
        ("device_blocks", "gauge", "Data blocks of all devices.", tier.device_blocks),
        ("device_blocks_free", "gauge", "Free ones.", tier.device_blocks_free),
        ("blocks_withdrawn", "gauge", "Damaged places, not used again.", tier.blocks_withdrawn),
    ];
    for (name, kind, help, value) in rows {
        page.one(&format!("tier_{name}"), kind, help, value);
    }
    let delayed = tier.delayed_ns as f64 / 1e9;
    let help = "Time that changes were delayed while blocks were written back.";
    page.one("tier_delayed_seconds_total", "counter", help, delayed);
    let dirty = tier.dirty_percent() / 100.0;
    page.one("tier_dirty_ratio", "gauge", "Part of the slices that is in use.", dirty);
    if let Some(percent) = tier.hit_percent() {
        page.one("tier_hit_ratio", "gauge", "Part of the looks that were hits.", percent / 100.0);
    }
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::sample;
    use crate::tier::facts::TierFacts;

    #[test]
    fn every_line_has_heads_and_a_histogram_only_grows() {
        let mut odd = sample(1000, 2.0);
        odd.pool = "a\"b\\c\nd".to_owned();
        odd.tier = Some(TierFacts { hits: 1, read_blocks: 3, ..TierFacts::default() });
        let text = text(&odd);
        assert!(
            text.contains("nearside_info{pool=\"a\\\"b\\\\c\\nd\",dir=\"/mnt\"} 1\n"),
            "{text}"
        );
        let mut last = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = name.split('{').next().unwrap();
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end).filter(|it| it.ends_with("_seconds")))
                .unwrap_or(name);
            assert!(text.contains(&format!("# TYPE {base} ")), "{line}");
            if name == "nearside_call_seconds_bucket" {
                let value: u64 = value.parse().unwrap();
                assert!(value >= last, "{line}");
                last = value;
            }
        }
        assert_eq!(last, 1000);
        let half = "nearside_call_seconds_bucket{call=\"read\",le=\"0.000000512\"} 500\n";
        assert!(text.contains(half), "{text}");
        assert!(text.contains("\nnearside_tier_hit_ratio 0.25\n"), "{text}");
    }
}
