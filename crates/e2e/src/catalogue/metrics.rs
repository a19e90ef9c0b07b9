//! Metrics of operator and exporters, from their ports through the API server.

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Pod;
use runtime::client::{brief, get_text, percent_encode};
use tokio::time::Instant;

use crate::fixture::Fixture;
use crate::need::Need::{Aligning, Operator, Scheduler, SchedulerObject};
use crate::operator::{node_of, of_set};
use crate::spec::{Result, Spec};

/// The operator's port.
const OPERATOR: u16 = 8080;
/// The exporters' port.
pub(super) const EXPORTER: u16 = 2112;
/// The largest answer.
const METRICS_BYTES: usize = 4 << 20;
/// The time between two looks: metrics have no watch, a scrape is all that tells.
const LOOK: Duration = Duration::from_millis(200);
/// Counters of a controller's work: controller-runtime's, and ours.
const WORK: [&str; 2] = ["workqueue_adds_total", "tholepin_operator_reconciles_total"];

pub(super) fn specs() -> Vec<Spec> {
    vec![
        Spec::new("85769", 2, "the operator's metrics count the work of both its controllers", of_operator)
            .needs([Operator, SchedulerObject]),
        Spec::new("85770", 2, "an exporter's metrics count what it writes, and what it waits", of_exporter)
            .needs([Operator, Scheduler, Aligning(1)]),
    ]
}

async fn of_operator(f: Fixture) -> Result {
    let manager = f.manager().await?;
    let pod = f.pods_of(&manager).await?.into_iter().next().context("the operator has no pod")?;
    let work = |controller: &'static str| {
        move |line: &Line<'_>| {
            WORK.contains(&line.name)
                && line.labels.contains(&format!("\"{controller}\""))
                && line.value > 0.0
        }
    };
    for controller in ["numaresourcesoperator", "numaresourcesscheduler"] {
        f.measured(&pod, OPERATOR, &format!("the work of {controller}"), work(controller)).await?;
    }
    Ok(())
}

/// A pod comes, so the exporter of its node has something to write.
async fn of_exporter(f: Fixture) -> Result {
    let target = f.target()?.name.clone();
    let amounts = f.amounts("1 100Mi")?;
    f.require_zones(&amounts)?;
    let before = f.before(&target)?.clone();
    let pod = f.create(f.pod("p").among(&[&target]).guaranteed(&amounts)).await?;
    f.runs_on(&pod, &target).await?;
    f.accounted(&target, &before, &[pod]).await?;
    let state = f.cluster().observer.now();
    let sets = f.exporter_sets().await?;
    let mut exporters = sets.iter().flat_map(|set| of_set(&state, set));
    let exporter = exporters.find(|pod| node_of(pod) == target);
    let exporter = exporter.with_context(|| format!("node {target} has no exporter"))?;
    for (name, least) in
        [("rte_noderesourcetopology_writes_total", 1.0), ("rte_wakeup_delay_milliseconds", 0.0)]
    {
        let is_there =
            |line: &Line<'_>| line.name == name && line.labels.contains(&*target) && line.value >= least;
        f.measured(&exporter, EXPORTER, name, is_there).await?;
    }
    Ok(())
}

/// A sample in the text format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    /// As they are, without braces.
    labels: &'a str,
    pub(super) value: f64,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (series, rest) = match text.split_once('}') {
            Some(both) => both,
            None => text.split_once(' ')?,
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let value = rest.split_whitespace().next()?.parse().ok()?;
        (!name.starts_with('#')).then_some(Self { name, labels, value })
    }
}

impl Fixture {
    /// Waits until a pod's metrics have a line, and returns its value.
    pub(super) async fn measured(
        &self,
        pod: &Pod,
        port: u16,
        what: &str,
        is_there: impl Fn(&Line<'_>) -> bool,
    ) -> Result<f64> {
        let ends = Instant::now() + self.cluster().settings.patience;
        let name = pod.metadata.name.clone().unwrap_or_default();
        loop {
            let text = self.metrics(pod, port).await?;
            if let Some(line) = text.lines().filter_map(Line::parse).find(|line| is_there(line)) {
                return Ok(line.value);
            }
            if Instant::now() > ends {
                bail!("pod {name}: its {} lines at port {port} do not have {what}", text.lines().count());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The metrics at a pod's port, with TLS or without.
    async fn metrics(&self, pod: &Pod, port: u16) -> Result<String> {
        let text = |text: &Option<String>| percent_encode(text.as_deref().unwrap_or_default());
        let (namespace, name) = (text(&pod.metadata.namespace), text(&pod.metadata.name));
        let mut errors = Vec::new();
        for scheme in ["", "https:"] {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{scheme}{name}:{port}/proxy/metrics");
            match get_text(&self.cluster().client, &path, METRICS_BYTES).await {
                Ok(text) => return Ok(text),
                Err(error) => errors.push(brief(&error)),
            }
        }
        bail!("pod {name}: port {port}: {}", errors.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn samples_have_a_name_labels_and_a_value() {
        let line = |name, labels, value| Some(Line { name, labels, value });
        let table = [
            (r#"a_total{x="1",y="2"} 3"#, line("a_total", r#"x="1",y="2""#, 3.0)),
            ("b 0.5 1700000000", line("b", "", 0.5)),
            ("# TYPE a counter", None),
            ("# HELP a b", None),
            ("", None),
            ("c{} x", None),
        ];
        for (text, wanted) in table {
            assert_eq!(Line::parse(text), wanted, "{text}");
        }
    }
}
