//! Percentiles and medians of samples.

use std::time::Duration;

/// Durations of repeated runs.
#[derive(Debug, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    pub fn push(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub fn append(&mut self, mut more: Self) {
        self.0.append(&mut more.0);
    }

    /// The smallest sample that at least `percent` of all do not exceed, in microseconds.
    pub fn percentile_us(&mut self, percent: usize) -> f64 {
        self.0.sort_unstable();
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0
            .get(rank - 1)
            .map_or(f64::NAN, |took| took.as_secs_f64() * 1e6)
    }
}

/// The median of a few rates, which a disturbed round does not move.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(micros: impl IntoIterator<Item = u64>) -> Samples {
        Samples(micros.into_iter().map(Duration::from_micros).collect())
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn percentiles_are_samples_that_were_taken() {
        let mut hundred = samples((1..=100).rev());
        for percent in [1, 50, 95, 99, 100] {
            assert!(close(hundred.percentile_us(percent), percent as f64));
        }
        assert!(close(samples([7]).percentile_us(50), 7.0));
        assert!(close(samples([7, 9]).percentile_us(50), 7.0));
        assert!(close(samples([7, 9]).percentile_us(51), 9.0));
    }

    #[test]
    fn no_samples_give_nan() {
        assert!(samples([]).percentile_us(50).is_nan());
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn one_disturbed_round_does_not_move_the_median() {
        assert!(close(median(vec![900.0, 10.0, 11.0]), 11.0));
    }
}
