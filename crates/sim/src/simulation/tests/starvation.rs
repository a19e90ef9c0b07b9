//! A large pod among small ones that never stop coming.

use super::*;
use crate::machine::open_cpus;
use crate::workload::ContainerResources;

/// CPUs of the large pod: a zone, but for one.
const LARGE: u32 = 15;
/// When it arrives.
const ARRIVES_MS: u64 = 30_000;

/// How long the large pod waits for a node while pods of two and four CPUs ask for one and a half times what there is,
/// and how long one of them lives at most. `None`: as long as they come.
fn waited_ms(seed: u64) -> (Option<u64>, u64) {
    let machines = Shape::even(2, 16).unwrap().machines(4).unwrap();
    let kinds = [2, 4].map(ContainerResources::of_cpus).to_vec();
    let cpus = open_cpus(&machines);
    let open = OpenArrivals { pods: 1_200, rate: 6.0, load: 1.5, cpus, max_pending: None, kinds, seed };
    let mut workload = open.workload().unwrap();
    let (life_ms, ends_ms) = (
        workload.arrivals.iter().filter_map(|arrival| arrival.life_ms).max().unwrap(),
        workload.arrivals.last().unwrap().at_ms,
    );
    workload.arrivals.push(Arrival::new(ARRIVES_MS, LARGE, 1_000));
    workload.arrivals.sort_by_key(|arrival| arrival.at_ms);
    let large = workload.arrivals.iter().position(|arrival| arrival.cpus == LARGE).unwrap();
    let latency = Latency::cluster();
    let mut placed_ms = None;
    Simulation::new(healthy(&machines, &workload, &latency, seed)).run_observed(
        &mut |_| {},
        &mut |simulation| {
            if placed_ms.is_none() && simulation.pods.get(large).is_some_and(|pod| pod.node.is_some()) {
                placed_ms = Some(simulation.now_ms);
            }
        },
    );
    let in_time = placed_ms.filter(|placed| *placed < ends_ms);
    (in_time.map(|placed| placed - ARRIVES_MS), life_ms)
}

/// A node is held once the pod has waited a minute. Then the longest of the small pods there decides.
#[test]
fn no_stream_of_small_pods_starves_a_large_one() {
    let seeds = std::env::var("STARVATION_SEEDS").map_or(5, |seeds| seeds.parse().unwrap());
    let mut longest_ms = 0;
    for seed in 0..seeds {
        let (waited, life_ms) = waited_ms(seed);
        let waited = waited.unwrap_or(u64::MAX);
        assert!(waited <= HOLD_AFTER_MS + life_ms + 1_000, "seed {seed}: {waited} ms, lives {life_ms} ms");
        longest_ms = longest_ms.max(waited);
    }
    println!("starvation: {seeds} streams, longest wait {:.1} s", longest_ms as f64 / 1000.0);
}
