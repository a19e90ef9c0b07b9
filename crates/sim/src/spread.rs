//! The spread of results over several seeds.
//!
//! In: the [`Summary`] of each run. Out: the least, median and greatest value of each number. Never: a mean, which one
//! odd run can move.

use serde::Serialize;

use crate::record::Summary;

/// One contender's results over several seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    /// The contender.
    pub scheduler: String,
    /// Pods of a run.
    pub pods: Range<usize>,
    /// [`Summary::running`].
    pub running: Range<usize>,
    /// [`Summary::aligned`].
    pub aligned: Range<usize>,
    /// [`Summary::misaligned`].
    pub misaligned: Range<usize>,
    /// [`Summary::rejected`].
    pub rejected: Range<usize>,
    /// [`Summary::unplaced`].
    pub unplaced: Range<usize>,
    /// [`Summary::p50_s`].
    pub p50_s: Range<f64>,
    /// [`Summary::p95_s`].
    pub p95_s: Range<f64>,
    /// [`Summary::max_s`].
    pub max_s: Range<f64>,
    /// [`Summary::allocated_share`].
    pub allocated_share: Range<f64>,
    /// The runs, in the order of seeds.
    pub runs: Vec<Summary>,
}

/// The least, median and greatest of some values; of an even number, the lower of the two in the middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Range<T> {
    /// The least.
    pub min: T,
    /// The median.
    pub median: T,
    /// The greatest.
    pub max: T,
}

impl Spread {
    /// The spread of one contender's runs; `None` without runs.
    #[must_use]
    pub fn of(runs: Vec<Summary>) -> Option<Self> {
        let scheduler = runs.first()?.scheduler.clone();
        let whole = |value: fn(&Summary) -> usize| Range::of(runs.iter().map(value).collect());
        let real = |value: fn(&Summary) -> f64| Range::of(runs.iter().map(value).collect());
        Some(Self {
            scheduler,
            pods: whole(|run| run.pods),
            running: whole(|run| run.running),
            aligned: whole(|run| run.aligned),
            misaligned: whole(|run| run.misaligned),
            rejected: whole(|run| run.rejected),
            unplaced: whole(|run| run.unplaced),
            p50_s: real(|run| run.p50_s),
            p95_s: real(|run| run.p95_s),
            max_s: real(|run| run.max_s),
            allocated_share: real(|run| run.allocated_share),
            runs,
        })
    }
}

impl<T: Copy + Default + PartialOrd> Range<T> {
    fn of(mut values: Vec<T>) -> Self {
        values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        let at = |index: usize| values.get(index).copied().unwrap_or_default();
        let last = values.len().saturating_sub(1);
        Self { min: at(0), median: at(last / 2), max: at(last) }
    }

    /// The text of each value, as `MEDIAN (MIN to MAX)`, or one value if all have the same text.
    #[must_use]
    pub fn text(self, text: impl Fn(T) -> String) -> String {
        let (min, median, max) = (text(self.min), text(self.median), text(self.max));
        if min == max { median } else { format!("{median} ({min} to {max})") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_their_least_median_and_greatest() {
        for (values, expected, text) in [
            (vec![], (0, 0, 0), "0"),
            (vec![3], (3, 3, 3), "3"),
            (vec![9, 1], (1, 1, 9), "1 (1 to 9)"),
            (vec![5, 1, 9], (1, 5, 9), "5 (1 to 9)"),
        ] {
            let range = Range::<usize>::of(values);
            assert_eq!((range.min, range.median, range.max), expected);
            assert_eq!(range.text(|value| value.to_string()), text);
        }
    }
}
