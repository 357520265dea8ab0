//! Medians and spreads.

use crate::row::Spread;

/// The value in the middle; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value that the share `at` of all lie below; 0 of none.
pub fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = ((sorted.len() as f64 * at) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}

/// Lowest, middle and highest.
pub fn spread(values: &[f64]) -> Spread {
    Spread { min: quantile(values, 0.0), median: median(values), max: quantile(values, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends_are_found() {
        let values = [5.0, 1.0, 3.0];
        assert_eq!(median(&values), 3.0);
        assert_eq!(spread(&values), Spread { min: 1.0, median: 3.0, max: 5.0 });
        assert_eq!(median(&[]), 0.0);
    }
}
