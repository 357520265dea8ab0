//! The figures for people.

use super::{Deck, Figure, Who};

/// The figures of one size, a line each.
pub fn table(deck: &Deck, figures: &[Figure]) -> String {
    let Some(first) = figures.first() else { return String::new() };
    let times =
        if first.passes == 1 { "once".to_owned() } else { format!("{} times", first.passes) };
    let mut text = format!(
        "{} B to each page of {} MiB, {times}  [{}, {}]\n{:44} {:>24} {:>20} {:>22}\n",
        first.bytes,
        deck.array_bytes >> 20,
        deck.domain,
        deck.medium,
        "",
        "ns (min to max)",
        "by ours",
        "by the floor",
    );
    figures.iter().for_each(|figure| text.push_str(&line(figure)));
    text
}

fn line(figure: &Figure) -> String {
    if let Some(why) = &figure.skipped {
        return format!("  {:42} {why}\n", figure.name);
    }
    let range =
        |of: &crate::row::Spread| format!("{:.2} ({:.2} to {:.2})", of.median, of.min, of.max);
    let ns = format!("{:.0} ({:.0} to {:.0})", figure.ns.median, figure.ns.min, figure.ns.max);
    let (by_ours, by_floor) = (range(&figure.by_ours), range(&figure.by_floor));
    let line = format!("  {:42} {ns:>24} {by_ours:>20} {by_floor:>22}", figure.name);
    let background = match figure.who {
        Who::Ours => format!("  background {:.0} ns", figure.background_ns),
        _ => String::new(),
    };
    format!("{line}{background}{}\n", verdict(figure))
}

/// What was asked for and whether it was reached.
fn verdict(figure: &Figure) -> String {
    let Some(asked) = figure.asked else { return String::new() };
    let (is_reached, side) = match figure.who {
        Who::Ours => (figure.by_floor.median <= asked, "at most"),
        _ => (figure.by_ours.median >= asked, "at least"),
    };
    format!("  asked {side} {asked}: {}", if is_reached { "ok" } else { "MISSED" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Spread;

    fn figure(who: Who, ratio: f64, asked: f64) -> Figure {
        let of = |median| Spread { min: median, median, max: median };
        Figure {
            who,
            name: "name".to_owned(),
            bytes: 64,
            passes: 1,
            writes: 1,
            ns: of(100.0),
            background_ns: 0.0,
            by_ours: of(ratio),
            by_floor: of(ratio),
            asked: Some(asked),
            skipped: None,
        }
    }

    #[test]
    fn ours_is_to_be_near_the_floor_and_peers_far_from_ours() {
        assert!(verdict(&figure(Who::Ours, 1.4, 1.5)).ends_with("ok"));
        assert!(verdict(&figure(Who::Ours, 1.6, 1.5)).ends_with("MISSED"));
        assert!(verdict(&figure(Who::Pmdk, 3.1, 3.0)).ends_with("ok"));
        assert!(verdict(&figure(Who::Pmdk, 2.9, 3.0)).ends_with("MISSED"));
    }

    #[test]
    fn what_is_not_there_says_why() {
        let why = Some("not installed (x)".to_owned());
        assert!(line(&Figure { skipped: why, ..figure(Who::Pmdk, 1.0, 1.0) }).contains("(x)"));
    }
}
