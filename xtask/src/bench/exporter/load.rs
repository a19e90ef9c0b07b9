//! The loads, and what is counted under them.
//!
//! In: a [`Field`]. Out: a [`Row`] for each exporter. All exporters have the same load at the same time.

use std::fs;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;
use sim::record::percentile;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::audit::Write;
use super::field::{Exporter, Field, PATIENCE};
use super::meter::Meter;
use super::{Case, Load, Row};

/// Time between pods in the case of churn.
const CHURN_STEP: Duration = Duration::from_millis(250);
/// How many of them live at the same time.
const CHURN_ALIVE: usize = 8;
/// An exporter that is slower than ours is measured at least this often, and else as long as ours.
const FEWEST: usize = 10;

/// Time between two samples of memory.
const SAMPLE: Duration = Duration::from_secs(1);

/// What an exporter and its kubelet cost while measured.
struct Meters {
    exporter: Meter,
    kubelet: Meter,
}

/// What they showed.
struct Cost {
    rss_kib: u64,
    cpu_percent: f64,
    kubelet_cpu_percent: f64,
}

/// A pod that came and went.
struct Visit {
    created: Timestamp,
    deleted: Timestamp,
    /// When the kubelet had written its state down.
    written: SystemTime,
    /// When the object showed it.
    shown: SystemTime,
}

/// Nothing happens.
pub(super) async fn idle(field: &Field, case: Case, time: Duration) -> anyhow::Result<Vec<Row>> {
    let costs = calm(field, time).await?;
    let rows =
        field.exporters.iter().zip(costs).map(|(exporter, cost)| row(case, exporter, cost, Load::default()));
    rows.collect()
}

/// Nothing happens; then pods come and go one after the other.
pub(super) async fn one_by_one(
    field: &Field,
    case: Case,
    time: Duration,
    count: usize,
) -> anyhow::Result<Vec<Row>> {
    let costs = calm(field, time).await?;
    let over = CancellationToken::new();
    let visits = field.exporters.iter().map(|exporter| {
        let over = over.clone();
        async move {
            let visits = visits(field, exporter, count, &over).await;
            over.cancel();
            visits
                .with_context(|| format!("{}'s log ends:\n{}", exporter.label, exporter.process.log_tail(15)))
        }
    });
    let visits = try_join_all(visits).await?;
    let mut rows = Vec::new();
    for ((exporter, cost), visits) in field.exporters.iter().zip(costs).zip(visits) {
        let writes = field.audit.writes(field.node(exporter).name())?;
        rows.push(row(case, exporter, cost, Load::of_visits(&visits, &writes))?);
    }
    Ok(rows)
}

/// Pods come and go at a steady rate, several alive at a time.
pub(super) async fn churn(field: &Field, case: Case, time: Duration) -> anyhow::Result<Vec<Row>> {
    let mut meters = start(field)?;
    let (began, start) = (Timestamp::now(), Instant::now());
    let mut beat = tokio::time::interval(CHURN_STEP);
    let mut number = 0_usize;
    while start.elapsed() < time {
        beat.tick().await;
        for exporter in &field.exporters {
            let node = field.node(exporter).name();
            field.create(node, format!("churn-{node}-{number}")).await?;
            if let Some(old) = number.checked_sub(CHURN_ALIVE) {
                field.delete(&format!("churn-{node}-{old}")).await?;
            }
        }
        sample(field, &mut meters)?;
        number += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    let costs = costs(field, &meters)?;
    let mut rows = Vec::new();
    for (exporter, cost) in field.exporters.iter().zip(costs) {
        let mut writes = field.audit.writes(field.node(exporter).name())?;
        writes.retain(|write| write.at >= began);
        let load = Load {
            writes_per_second: Some(rounded(writes.len() as f64 / seconds)),
            pods_per_second: Some(rounded(number as f64 / seconds)),
            bytes_per_write: bytes_per_write(&writes),
            ..Load::default()
        };
        rows.push(row(case, exporter, cost, load)?);
    }
    Ok(rows)
}

/// Lets everything come to rest, then measures for as long what rest costs.
async fn calm(field: &Field, time: Duration) -> anyhow::Result<Vec<Cost>> {
    sleep(time).await;
    let mut meters = start(field)?;
    let end = Instant::now() + time;
    while Instant::now() < end {
        sleep(SAMPLE).await;
        sample(field, &mut meters)?;
    }
    costs(field, &meters)
}

fn start(field: &Field) -> anyhow::Result<Vec<Meters>> {
    let meters = field.exporters.iter().map(|exporter| {
        Ok(Meters {
            exporter: Meter::start(&exporter.process)?,
            kubelet: Meter::start(field.node(exporter).kubelet().process())?,
        })
    });
    meters.collect()
}

fn sample(field: &Field, meters: &mut [Meters]) -> anyhow::Result<()> {
    field
        .exporters
        .iter()
        .zip(meters)
        .try_for_each(|(exporter, meters)| meters.exporter.sample(&exporter.process))
}

fn costs(field: &Field, meters: &[Meters]) -> anyhow::Result<Vec<Cost>> {
    let costs = field.exporters.iter().zip(meters).map(|(exporter, meters)| {
        Ok(Cost {
            rss_kib: meters.exporter.most_kib(),
            cpu_percent: meters.exporter.percent(&exporter.process)?,
            kubelet_cpu_percent: meters.kubelet.percent(field.node(exporter).kubelet().process())?,
        })
    });
    costs.collect()
}

/// One pod after the other, until there were `count`, or another exporter is done.
async fn visits(
    field: &Field,
    exporter: &Exporter,
    count: usize,
    over: &CancellationToken,
) -> anyhow::Result<Vec<Visit>> {
    let node = field.node(exporter);
    let state = node.kubelet().root_dir().join("cpu_manager_state");
    let before = field.reports.wait(node.name(), PATIENCE, |_| true).await?.cpus;
    let mut visits = Vec::new();
    while visits.len() < count && !(over.is_cancelled() && visits.len() >= FEWEST.min(count)) {
        let name = format!("visit-{}-{}", node.name(), visits.len());
        let created = Timestamp::now();
        field.create(node.name(), name.clone()).await?;
        let shown = field.reports.wait(node.name(), PATIENCE, |cpus| cpus < before).await?.at;
        let written = fs::metadata(&state)?.modified()?;
        let deleted = Timestamp::now();
        field.delete(&name).await?;
        field.reports.wait(node.name(), PATIENCE, |cpus| cpus >= before).await?;
        visits.push(Visit { created, deleted, written, shown });
    }
    Ok(visits)
}

/// File times are those of the kernel's last tick, so one may be a little in the future.
fn since(written: SystemTime, shown: SystemTime) -> Duration {
    shown.duration_since(written).unwrap_or_default()
}

/// Durations in microseconds, in order.
struct Span(Vec<u64>);

impl Span {
    fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let mut all: Vec<u64> = durations.into_iter().map(micros).collect();
        all.sort_unstable();
        Self(all)
    }

    fn millis(&self, percent: usize) -> Option<f64> {
        (!self.0.is_empty()).then(|| rounded(percentile(&self.0, percent) as f64 / 1000.0))
    }
}

impl Load {
    fn of_visits(visits: &[Visit], writes: &[Write]) -> Self {
        let Some(first) = visits.first() else { return Self::default() };
        let writes: Vec<Write> = writes.iter().filter(|write| write.at >= first.created).cloned().collect();
        let during = |visit: &Visit| {
            let from = writes.partition_point(|write| write.at < visit.created);
            let to = writes.partition_point(|write| write.at < visit.deleted);
            writes.get(from..to).unwrap_or_default().to_vec()
        };
        let allocating: usize = visits.iter().map(|visit| during(visit).len()).sum();
        let shown = Span::of(visits.iter().map(|visit| since(visit.written, visit.shown)));
        // The last write of a visit is the one that was waited for.
        let asked =
            visits.iter().filter_map(|visit| Some((visit, SystemTime::from(during(visit).last()?.at))));
        let (asking, serving): (Vec<_>, Vec<_>) =
            asked.map(|(visit, asked)| (since(visit.written, asked), since(asked, visit.shown))).unzip();
        let each = |count: usize| Some(rounded(count as f64 / visits.len() as f64));
        Self {
            allocations: Some(visits.len()),
            p50_ms: shown.millis(50),
            p99_ms: shown.millis(99),
            exporter_p50_ms: Span::of(asking).millis(50),
            server_p50_ms: Span::of(serving).millis(50),
            writes_per_allocation: each(allocating),
            writes_per_release: each(writes.len() - allocating),
            bytes_per_write: bytes_per_write(&writes),
            ..Self::default()
        }
    }
}

fn bytes_per_write(writes: &[Write]) -> Option<f64> {
    let bytes: usize = writes.iter().map(|write| write.bytes).sum();
    (!writes.is_empty()).then(|| (bytes as f64 / writes.len() as f64).round())
}

fn row(case: Case, exporter: &Exporter, cost: Cost, load: Load) -> anyhow::Result<Row> {
    let memory = exporter.process.memory()?;
    let mib = |kib: u64| rounded(kib as f64 / 1024.0);
    Ok(Row {
        case,
        exporter: exporter.label,
        kubelet: "real",
        rss_mib: mib(cost.rss_kib),
        rss_after_mib: mib(memory.rss_kib),
        rss_peak_mib: mib(memory.peak_kib),
        cpu_percent: thousandths(cost.cpu_percent),
        kubelet_cpu_percent: thousandths(cost.kubelet_cpu_percent),
        load,
    })
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
