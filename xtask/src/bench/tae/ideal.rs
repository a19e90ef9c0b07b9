//! The same arrivals under perfect knowledge and without latency, calculated by the simulator.
//!
//! Ties between nodes are broken by chance, so several runs are calculated, of which medians count. A real kubelet
//! needs some tenths of a second to end a pod, in which its place is taken: with the records of a run each pod keeps
//! its place as long as it did there, and what remains is due to the scheduler.

use sim::machine::Shape;
use sim::record::Summary;
use sim::workload::{ContainerResources, Workload};
use testkit::load::{Arrival, DEVICE, Record};
use topology::policy::CpuOption;
use topology::resource::ResourceName;

use super::{Args, Row, real, waves};
use crate::bench::rig::DEVICES;

/// Runs that differ in nothing but chance; odd, so that one is in the middle.
const RUNS: u64 = 21;

/// The machines of the simulator that are like the real ones, but for huge pages.
pub(super) fn sim_shape(args: &Args) -> anyhow::Result<Shape> {
    let mut shape = Shape::even(args.zones, args.cpus_per_zone)?;
    shape.rules.policy = args.policy.unwrap_or(shape.rules.policy);
    shape.rules.scope = args.scope;
    if args.mixed {
        shape.threads_per_core = 2;
        shape.reserved_cpus = 2;
        shape.options.cpus = [CpuOption::FullPcpusOnly].into_iter().collect();
        let device = ResourceName::new(DEVICE)?;
        for zone in &mut shape.zones {
            zone.devices.insert(device, DEVICES);
        }
    }
    Ok(shape)
}

/// A real arrival as one of the simulator, without its huge pages. A sidecar is a container before the main one, as the
/// kubelet admits them in that order.
fn simulated(plain: &sim::workload::Arrival, real: &Arrival) -> sim::workload::Arrival {
    let container = |cpus| (cpus > 0).then(|| ContainerResources::of_cpus(cpus));
    let devices = (real.devices > 0).then(|| (DEVICE.to_owned(), real.devices));
    let (first, second) = if real.sidecar_cpus > 0 { (real.sidecar_cpus, real.cpus) } else { (real.cpus, 0) };
    sim::workload::Arrival {
        cpus: first,
        devices: devices.into_iter().collect(),
        init: container(real.init_cpus).into_iter().collect(),
        beside: container(second).into_iter().collect(),
        ..plain.clone()
    }
}

/// The arrivals by wave, as the simulator has them. With `records`, by arrival, each pod keeps its place as long as it
/// did there.
pub(super) fn simulated_waves(args: &Args, records: Option<&[Record]>) -> anyhow::Result<Vec<Workload>> {
    let mut held = records.into_iter().flatten().map(Record::held_s);
    let mut as_simulated = |(plain, real): (&sim::workload::Arrival, Arrival)| {
        let arrival = simulated(plain, &real);
        match held.next().flatten() {
            Some(held_s) => sim::workload::Arrival { life_ms: Some((held_s * 1000.0) as u64), ..arrival },
            None => arrival,
        }
    };
    let waves = waves(args)?.into_iter().map(|plan| {
        let arrivals = plan.arrivals.iter().zip(real(&plan, args)).map(&mut as_simulated).collect();
        Workload { arrivals, ..plan }
    });
    Ok(waves.collect())
}

/// `records`: of a run with the same arrivals, by arrival. Of several waves, the slowest counts.
pub(super) fn ideal(args: &Args, records: Option<&[Record]>) -> anyhow::Result<Row> {
    let machines = sim_shape(args)?.machines(args.nodes)?;
    let waves = simulated_waves(args, records)?;
    let run = |seed| -> Vec<Summary> {
        waves.iter().map(|wave| sim::comparison::ideal(wave, &machines, seed)).collect()
    };
    let runs: Vec<Vec<Summary>> = (args.seed..args.seed + RUNS).map(run).collect();
    let sorted = |value: fn(&Summary) -> f64| {
        let slowest = |waves: &Vec<Summary>| waves.iter().map(value).fold(0.0, f64::max);
        let mut values: Vec<f64> = runs.iter().map(slowest).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (p50, p95) = (sorted(|run| run.p50_s), sorted(|run| run.p95_s));
    let middle = |values: &[f64]| values.get(values.len() / 2).copied();
    let first = || runs.iter().take(1).flatten();
    let name = if records.is_some() { "ideal, same ends" } else { "ideal" };
    Ok(Row {
        pods: first().map(|run| run.pods).sum(),
        running: first().map(|run| run.running).sum(),
        tae: first().map(|run| run.rejections.tae).sum(),
        smt: first().map(|run| run.rejections.smt).sum(),
        other: first().map(|run| run.rejections.unexpected + run.rejections.out_of).sum(),
        p50_s: middle(&p50),
        p95_s: middle(&p95),
        p95_range_s: p95.first().copied().zip(p95.last().copied()).map(<[f64; 2]>::from),
        ..Row::new(name, args)
    })
}
