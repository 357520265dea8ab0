//! The bars for people.

use super::{Bar, Ycsb};

/// The bars of one mix, a line each.
pub fn table(ycsb: &Ycsb, bars: &[Bar]) -> String {
    let Some(first) = bars.first() else { return String::new() };
    let mut text = format!(
        "{}/{} writes and reads, {}, data {} of {} MiB\n",
        first.write_percent,
        100 - first.write_percent,
        first.wanted.name(),
        first.share,
        ycsb.cache_bytes >> 20,
    );
    for bar in bars {
        let Bar { per_second, of_memory, .. } = bar;
        text.push_str(&format!(
            "  {:34} {:>9.0}/s ({:.0} to {:.0})  {:.3} of all in memory ({:.3} to {:.3})\n",
            bar.system.name(),
            per_second.median,
            per_second.min,
            per_second.max,
            of_memory.median,
            of_memory.min,
            of_memory.max,
        ));
    }
    text
}

/// What the bars were measured on.
pub fn summary(ycsb: &Ycsb) -> String {
    format!(
        "cache {} MiB on {}; DRAM {} MiB for the region and as much for caches; logs {} and {} KiB; \
         device and file on {}\n",
        ycsb.cache_bytes >> 20,
        ycsb.slices_on,
        ycsb.memory_bytes >> 20,
        ycsb.log_bytes[0] >> 10,
        ycsb.log_bytes[1] >> 10,
        ycsb.disk,
    )
}
