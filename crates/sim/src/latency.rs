//! How long calls took: counts by classes that are 6 % wide.

/// Classes of a power of two.
const FINE: u64 = 16;
const FINE_BITS: u32 = FINE.trailing_zeros();

/// Times of calls, ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    counts: Vec<u64>,
    calls: u64,
    sum: f64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { counts: vec![0; (u64::BITS as usize + 1) * FINE as usize], calls: 0, sum: 0.0 }
    }
}

impl Latency {
    /// A call took so long.
    pub fn add(&mut self, nanos: f64) {
        self.counts[class(nanos as u64)] += 1;
        self.calls += 1;
        self.sum += nanos;
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// What one took, on average.
    pub fn mean(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.sum / self.calls as f64 }
    }

    /// What this part of the calls took at most, within a class.
    pub fn quantile(&self, part: f64) -> f64 {
        let wanted = (part * self.calls as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reaches = |count: &u64| {
            seen += count;
            seen >= wanted
        };
        self.counts.iter().position(reaches).map_or(0.0, |index| upper(index as u64))
    }
}

/// Below `FINE` each number is one; above there are `FINE` for each power of two.
fn class(nanos: u64) -> usize {
    if nanos < FINE {
        return nanos as usize;
    }
    let power = nanos.ilog2() - FINE_BITS;
    (u64::from(power + 1) * FINE + (nanos >> power) - FINE) as usize
}

/// The largest number of a class.
fn upper(class: u64) -> f64 {
    match class / FINE {
        0 => class as f64,
        power => ((class % FINE + FINE + 1) as f64) * 2f64.powi(power as i32 - 1) - 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_each_other_and_hold_their_numbers() {
        let mut last = 0;
        for nanos in (0..5000).chain((5000..1 << 30).step_by(99_991)) {
            let class = class(nanos);
            assert!(class == last || class == last + 1 || nanos > 5000, "{nanos}");
            let (most, least) = (upper(class as u64), upper((class as u64).saturating_sub(1)));
            assert!(nanos as f64 <= most && (class == 0 || nanos as f64 > least), "{nanos}");
            assert!(most <= nanos as f64 * (1.0 + 1.0 / FINE as f64), "{nanos}: {most}");
            last = class;
        }
    }

    #[test]
    fn quantiles_are_those_of_what_was_added() {
        let mut latency = Latency::default();
        (1..=1000).for_each(|nanos| latency.add(f64::from(nanos)));
        assert_eq!((latency.calls(), latency.mean()), (1000, 500.5));
        for (part, exact) in [(0.5, 500.0), (0.99, 990.0), (0.001, 1.0), (1.0, 1000.0)] {
            let found = latency.quantile(part);
            assert!(found >= exact && found <= exact * 1.0625, "{part}: {found}");
        }
        assert_eq!(Latency::default().quantile(0.5), 0.0);
    }
}
