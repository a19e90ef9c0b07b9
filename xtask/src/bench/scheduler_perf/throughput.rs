//! The figure SchedulingThroughput: pods a second, as upstream's `scheduler_perf` computes it.
//!
//! In: when each pod was seen on a node, counted from the start of a measurement, and how long that lasted. Out: the
//! average and percentiles of samples, one each second. Like upstream's collector: the first second with a
//! pod in it only starts the count, a second without a new pod takes the rate of the next sample that has one, and
//! what comes after the last full second does not count.

use std::time::Duration;

use serde::Serialize;

/// Pods a second over the samples of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Throughput {
    pub(super) average: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
}

/// The throughput; none when all pods were scheduled too quickly for a sample.
pub(super) fn throughput(scheduled: &[Duration], lasted: Duration) -> Option<Throughput> {
    let mut samples = samples(scheduled, lasted);
    if samples.is_empty() {
        return None;
    }
    samples.sort_by(f64::total_cmp);
    let average = samples.iter().sum::<f64>() / samples.len() as f64;
    let percentile = |percent: usize| {
        let rank = (samples.len() * percent).div_ceil(100).max(1);
        samples.get(rank - 1).copied()
    };
    Some(Throughput { average, p50: percentile(50)?, p90: percentile(90)?, p99: percentile(99)? })
}

/// The rate of each second, in order. Cost grows with pods plus seconds.
fn samples(scheduled: &[Duration], lasted: Duration) -> Vec<f64> {
    let mut times = scheduled.to_vec();
    times.sort_unstable();
    let (mut rates, mut last, mut passed, mut waited) = (Vec::new(), None, 0, 0);
    for second in 1..=lasted.as_secs() {
        let tick = Duration::from_secs(second);
        while times.get(passed).is_some_and(|time| *time <= tick) {
            passed += 1;
        }
        match last {
            _ if passed == 0 => {}
            None => last = Some(passed),
            Some(before) if passed == before => waited += 1,
            Some(before) => {
                let seconds = waited + 1;
                rates.extend(std::iter::repeat_n((passed - before) as f64 / seconds as f64, seconds));
                (last, waited) = (Some(passed), 0);
            }
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many pods in each second, from the first on.
    fn per_second(pods: &[usize]) -> Vec<Duration> {
        let of_second = |(second, pods): (usize, &usize)| {
            let time = Duration::from_secs(second as u64) + Duration::from_millis(500);
            std::iter::repeat_n(time, *pods)
        };
        pods.iter().enumerate().flat_map(of_second).collect()
    }

    #[test]
    fn samples_are_those_of_upstream() {
        let cases: [(&str, &[usize], u64, &[f64]); 6] = [
            ("nothing", &[], 5, &[]),
            ("all in the first second", &[100], 1, &[]),
            ("the first second starts the count", &[70, 100, 80], 3, &[100.0, 80.0]),
            ("empty seconds before the first pod do not count", &[0, 0, 70, 90], 4, &[90.0]),
            ("empty seconds share the next sample", &[10, 0, 0, 90, 20], 5, &[30.0, 30.0, 30.0, 20.0]),
            ("after the last full second", &[10, 20, 30], 2, &[20.0]),
        ];
        for (name, pods, seconds, expected) in cases {
            assert_eq!(samples(&per_second(pods), Duration::from_secs(seconds)), expected, "{name}");
        }
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let pods: Vec<usize> = (0..=10).map(|second| second * 10).collect();
        let result = throughput(&per_second(&pods), Duration::from_secs(11)).unwrap();
        // Seconds 2 to 11 have 10, 20, ... 100 pods; the first of them only starts the count.
        assert_eq!(result, Throughput { average: 60.0, p50: 60.0, p90: 100.0, p99: 100.0 });
        assert_eq!(throughput(&[], Duration::from_secs(11)), None);
    }
}
