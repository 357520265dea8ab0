//! The figures for people.

use super::{Engine, Figure};
use crate::row::Spread;

/// What is measured, and on what.
fn head(engine: &Engine) -> String {
    format!(
        "{}, {} MiB of records of 1 KiB, {} clients, every write synced{}\n\
         ours: a slice of {} MiB on {}, domain {}, the tier's device on {}\n",
        engine.engine,
        engine.records_bytes >> 20,
        engine.clients,
        if engine.direct { ", past the page cache" } else { "" },
        engine.slice_bytes >> 20,
        engine.slices_on,
        engine.domain,
        engine.disk,
    )
}

/// The figures of one mix, a line each; the load's come first.
pub fn table(engine: &Engine, figures: &[Figure]) -> String {
    let Some(first) = figures.first() else { return String::new() };
    let mut text = match first.write_percent {
        None => format!("{}load, in batches, unsynced\n", head(engine)),
        Some(writes) => format!("{writes} % writes, zipfian\n"),
    };
    for figure in figures {
        text.push_str(&format!(
            "  {:28} {:>34}/s   ours by it {}\n",
            figure.system.name(),
            range(&figure.per_second, 0),
            range(&figure.ours_by, 2),
        ));
    }
    text
}

/// What the tier did, and what there is not.
pub fn tail(engine: &Engine) -> String {
    let mut text = String::new();
    if !engine.figures.is_empty() {
        let tier = &engine.tier;
        text = format!(
            "ours wrote {} MiB to the tier and read {} MiB of it; its changes were delayed by {} \
             ms in all\n",
            tier.written_mib, tier.read_mib, tier.delayed_ms
        );
    }
    engine.skipped.iter().for_each(|why| text.push_str(&format!("skipped: {why}\n")));
    text
}

fn range(of: &Spread, digits: usize) -> String {
    format!("{:.digits$} ({:.digits$} to {:.digits$})", of.median, of.min, of.max)
}

#[cfg(test)]
mod tests {
    use super::super::System;
    use super::*;

    #[test]
    fn a_figure_has_its_name_its_rate_and_its_ratio() {
        let of = |median| Spread { min: median / 2.0, median, max: 2.0 * median };
        let (per_second, ours_by) = (of(1000.0), of(0.5));
        let (system, write_percent) = (System::Ext4OnDisk, Some(50));
        let figure = Figure { system, write_percent, per_second, ours_by };
        let engine = Engine { skipped: vec!["ext4: why".to_owned()], ..Engine::default() };
        let text = table(&engine, &[figure]);
        assert!(text.starts_with("50 % writes"), "{text}");
        assert!(text.contains("1000 (500 to 2000)/s") && text.contains("0.50 (0.25 to 1.00)"));
        assert_eq!(tail(&engine), "skipped: ext4: why\n");
    }
}
