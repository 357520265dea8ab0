//! The figures for people.

use super::{Asked, Figure};
use crate::row::Spread;

/// A line of each.
pub fn table(figures: &[Figure]) -> String {
    figures.iter().map(line).collect()
}

fn line(figure: &Figure) -> String {
    if let Some(why) = figure.skipped {
        return format!("{:52} skipped: {why}\n", figure.name);
    }
    let range =
        |of: &Spread| format!("{} ({} to {})", digits(of.median), digits(of.min), digits(of.max));
    let mut text = format!("{:52} {:>24} {:3}", figure.name, range(&figure.ours), figure.unit);
    if let Some((who, value)) = &figure.beside {
        text.push_str(&format!("  {who} {}", digits(value.median)));
    }
    if let Some(ratio) = &figure.ratio {
        text.push_str(&format!("  ratio {}", range(ratio)));
    }
    if let Some(asked) = figure.asked {
        let value = figure.ratio.as_ref().unwrap_or(&figure.ours).median;
        let (words, limit) = match asked {
            Asked::AtMost(most) => ("at most", most),
            Asked::AtLeast(least) => ("at least", least),
        };
        let verdict = if asked.is_reached(value) { "ok" } else { "MISSED" };
        text.push_str(&format!("  asked {words} {limit}: {verdict}"));
    }
    text + "\n"
}

/// Three digits that count.
fn digits(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_a_ratio_is_not_asked_of_the_value() {
        let figure = Figure::new("write", "ns", &[500.0]).asked(Asked::AtMost(1.2));
        assert!(line(&figure).ends_with("MISSED\n"));
        let figure = figure.beside("embedded", &[450.0], &[500.0 / 450.0]);
        assert!(line(&figure).ends_with("ratio 1.11 (1.11 to 1.11)  asked at most 1.2: ok\n"));
        let two = Figure::new("two", "", &[1.5]).beside("floor", &[2.0], &[0.75]);
        assert!(line(&two.asked(Asked::AtLeast(0.9))).ends_with("MISSED\n"));
        assert!(line(&Figure::skipped("two", "no room")).ends_with("skipped: no room\n"));
    }
}
