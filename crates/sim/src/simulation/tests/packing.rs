//! How full clusters are when a pod first finds no place: ours against the rules of the Go plugin.

use super::*;
use crate::machine::open_cpus;
use crate::preset::{Defaults, Preset};

/// Time between two arrivals, in which every exporter and cache has settled.
const APART_MS: u64 = 60_000;
/// Enough to fill each cluster.
const PODS: usize = 120;
/// The share of the CPUs in use when a pod is first refused, or rejected by its kubelet. Pods stay for ever.
fn packed(preset: Preset, accounting: Accounting, strategy: Strategy, seed: u64) -> f64 {
    let Defaults { machine, nodes, policy, kinds, .. } = preset.defaults();
    let mut shape: Shape = machine.parse().unwrap();
    shape.rules.policy = policy;
    let machines = shape.machines(nodes).unwrap();
    let open =
        OpenArrivals { pods: PODS, kinds, seed, cpus: open_cpus(&machines), ..OpenArrivals::default() };
    let mut workload = open.workload().unwrap();
    for (at, arrival) in (0..).zip(&mut workload.arrivals) {
        (arrival.at_ms, arrival.life_ms) = (at * APART_MS, None);
    }
    let latency = Latency::cluster();
    let is_ours = accounting == Accounting::Exact;
    let setup = Setup {
        accounting: Some(accounting),
        strategy,
        scan_period_ms: (!is_ours).then_some(10_000),
        ids: is_ours.then_some(HashKey::Name),
        ..healthy(&machines, &workload, &latency, seed)
    };
    let mut full = None;
    Simulation::new(setup).run_observed(&mut |_| {}, &mut |simulation| {
        let is_refused =
            |pod: &Pod| pod.refused.is_some() || (pod.view.progress.terminal && pod.node.is_some());
        if full.is_none() && simulation.pods.iter().any(is_refused) {
            full = Some(simulation.used_milli);
        }
    });
    full.unwrap() as f64 / 1000.0 / f64::from(open.cpus)
}

/// Ties are broken by chance, each scheduler's its own: only what chance does not explain counts. `PACKING_SEEDS=N`
/// runs more seeds than a few.
#[test]
fn no_strategy_of_the_go_plugin_packs_more() {
    let seeds = std::env::var("PACKING_SEEDS").map_or(4, |seeds| seeds.parse().unwrap());
    let go = Accounting::over_reserve(1_000);
    for preset in [Preset::Telco, Preset::Hpc, Preset::CiInference] {
        for strategy in [
            Strategy::LeastAllocated,
            Strategy::MostAllocated,
            Strategy::BalancedAllocation,
            Strategy::LeastNumaNodes,
        ] {
            let packed = |accounting, seed| packed(preset, accounting, strategy, seed);
            let pairs = (0..seeds).map(|seed| (packed(Accounting::Exact, seed), packed(go, seed)));
            let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.unzip();
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            let more: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours - theirs).collect();
            let gain = mean(&more);
            let variance =
                more.iter().map(|more| (more - gain).powi(2)).sum::<f64>() / (more.len() - 1) as f64;
            let error = (variance / more.len() as f64).sqrt();
            println!(
                "packing: {preset:?}, {strategy:?}: ours {:.1} %, Go plugin {:.1} %, difference {:.1} +- {:.1}",
                mean(&ours) * 100.0,
                mean(&theirs) * 100.0,
                gain * 100.0,
                error * 100.0
            );
            assert!(gain >= -3.0 * error, "{preset:?} {strategy:?}: {gain} +- {error}");
        }
    }
}
