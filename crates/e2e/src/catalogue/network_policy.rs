//! Network policies of the stack: its pods reach the API server, metrics are reached, and nothing else is.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::ApiResource;
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::NAMESPACE;
use crate::dial::{self, Outcome};
use crate::fixture::{Fixture, PodRef};
use crate::need::Need::{Aligning, Exec, Operator, SchedulerObject};
use crate::placement;
use crate::pods::first_container;
use crate::spec::{Result, Skip, Spec};
use crate::undo::Target;

/// The port of the operator's metrics, and that of the exporters': the Go operator's, and ours.
const OPERATOR_METRICS: u16 = 8080;
const EXPORTER_METRICS: u16 = 2112;
/// The time between two tries of a way that a new policy closes. A policy has no status: it holds some time after it
/// was made, and a connection that fails is all that tells.
const TRY: Duration = Duration::from_millis(500);
/// A port of which no policy speaks.
const OTHER: u16 = 8081;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Party {
    Operator,
    Scheduler,
    Exporter,
    /// The cluster's, or a pod of the suite in its place.
    Prometheus,
}

pub(super) fn specs() -> Vec<Spec> {
    use Party::{Exporter, Operator as Manager, Prometheus, Scheduler};
    let to_server = [
        ("85771", "the operator reaches the API server", Manager),
        ("85772", "the scheduler reaches the API server", Scheduler),
        ("85773", "the exporters reach the API server", Exporter),
    ];
    let to_server = to_server.into_iter().map(|(id, title, from)| {
        Spec::new(id, 2, title, move |f| reaches_api_server(f, from))
            .needs((from == Scheduler).then_some(SchedulerObject))
    });
    let to_metrics = [
        ("85774", "Prometheus reaches the operator's metrics", Manager, OPERATOR_METRICS),
        ("85775", "Prometheus reaches the exporters' metrics", Exporter, EXPORTER_METRICS),
    ];
    let to_metrics = to_metrics
        .into_iter()
        .map(|(id, title, to, port)| Spec::new(id, 2, title, move |f| reaches_metrics(f, to, port)));
    let blocked = [
        ("85776", "the scheduler does not reach another port of the operator", Scheduler, Manager),
        ("85777", "the operator does not reach Prometheus", Manager, Prometheus),
        ("85778", "Prometheus does not reach another port of the operator", Prometheus, Manager),
    ];
    let blocked = blocked.into_iter().map(|(id, title, from, to)| {
        Spec::new(id, 2, title, move |f| is_blocked(f, from, to))
            .needs((from == Scheduler).then_some(SchedulerObject))
    });
    let all = to_server.chain(to_metrics).chain(blocked);
    all.map(|spec| spec.needs([Operator, Exec, Aligning(1)])).collect()
}

impl Party {
    /// The label of its pods.
    fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::Operator => ("app", "numaresources-operator"),
            Self::Scheduler => ("app", "secondary-scheduler"),
            Self::Exporter => ("name", "resource-topology"),
            Self::Prometheus => ("app.kubernetes.io/name", "prometheus"),
        }
    }

    /// A running pod of it, in any namespace.
    fn find(self, f: &Fixture) -> Option<Pod> {
        let (key, value) = self.label();
        let state = f.cluster().observer.now();
        let is_its = |pod: &&std::sync::Arc<Pod>| {
            let labels = pod.metadata.labels.as_ref();
            placement::runs(pod) && labels.and_then(|all| all.get(key)).is_some_and(|found| found == value)
        };
        state.pods.values().find(is_its).map(|pod| Pod::clone(pod))
    }

    /// A pod of it; a pod of the suite where the cluster has no Prometheus.
    async fn pod(self, f: &Fixture) -> Result<Pod> {
        match (self.find(f), self) {
            (Some(pod), _) => Ok(pod),
            (None, Self::Prometheus) => stand_in(f, "prometheus").await.map(|(_, pod)| pod),
            (None, _) => {
                let (key, value) = self.label();
                Err(Skip(format!("a running pod {key}={value}")).into())
            }
        }
    }
}

/// A pod of the suite that can be told to dial: ours, since an image that only waits may have no programs.
async fn stand_in(f: &Fixture, name: &str) -> Result<(PodRef, Pod)> {
    let image = f.cluster().settings.images.tholepin.clone();
    let plan = f.pod(name).best_effort().on(&f.target()?.name).spec(|spec| {
        for container in &mut spec.containers {
            container.image = Some(image.clone());
            container.command = Some(["/tholepin", "pause"].map(str::to_owned).into());
        }
    });
    let made = f.create(plan).await?;
    let pod = f.running(&made).await?;
    Ok((made, Pod::clone(&pod)))
}

async fn dial(f: &Fixture, from: &Pod, to: SocketAddr) -> Result<Outcome> {
    let container = first_container(from).context("a pod without a container")?;
    dial::from(&f.cluster().client, container, to).await
}

/// Where a pod is reached.
fn address(pod: &Pod, port: u16) -> Result<SocketAddr> {
    let ip = pod
        .status
        .as_ref()
        .and_then(|status| status.pod_ip.as_deref())
        .context("a pod without an address")?;
    Ok(SocketAddr::new(ip.parse::<IpAddr>()?, port))
}

/// The API server, as pods reach it.
async fn api_server(f: &Fixture) -> Result<SocketAddr> {
    let services = Api::<Service>::namespaced(f.cluster().client.clone(), "default");
    let spec = services.get("kubernetes").await?.spec.context("service kubernetes has no spec")?;
    let port = spec.ports.iter().flatten().next().context("service kubernetes has no port")?.port;
    let ip = spec.cluster_ip.context("service kubernetes has no address")?;
    Ok(SocketAddr::new(ip.parse()?, u16::try_from(port)?))
}

async fn reaches_api_server(f: Fixture, from: Party) -> Result {
    let (pod, server) = (from.pod(&f).await?, api_server(&f).await?);
    let outcome = dial(&f, &pod, server).await?;
    ensure!(outcome == Outcome::Open, "{from:?} to the API server at {server}: {outcome}");
    Ok(())
}

async fn reaches_metrics(f: Fixture, to: Party, port: u16) -> Result {
    let from = Party::Prometheus.pod(&f).await?;
    let to = address(&to.pod(&f).await?, port)?;
    let outcome = dial(&f, &from, to).await?;
    ensure!(outcome == Outcome::Open, "Prometheus to {to}: {outcome}");
    Ok(())
}

/// Nothing need listen: a way that is open is answered with a refusal, and one that is closed is not. Where the way is
/// open, a policy of the suite's own tells whether the cluster has policies in force at all.
async fn is_blocked(f: Fixture, from: Party, to: Party) -> Result {
    let (from_pod, to_pod) = (from.pod(&f).await?, to.pod(&f).await?);
    let to_address = address(&to_pod, OTHER)?;
    let outcome = dial(&f, &from_pod, to_address).await?;
    if !matches!(outcome, Outcome::Closed(_)) {
        require_policies(&f).await?;
    }
    ensure!(matches!(outcome, Outcome::Closed(_)), "{from:?} to {to_address} of {to:?}: {outcome}");
    Ok(())
}

/// Skips the spec unless the network holds back what a policy forbids.
async fn require_policies(f: &Fixture) -> Result {
    let (_, pod) = stand_in(f, "held-back").await?;
    let server = api_server(f).await?;
    let outcome = dial(f, &pod, server).await?;
    ensure!(outcome == Outcome::Open, "a pod of the suite to the API server at {server}: {outcome}");
    let target = Target::of(&ApiResource::erase::<NetworkPolicy>(&()), NAMESPACE, "nothing-out");
    let spec = json!({ "podSelector": { "matchLabels": f.labels() }, "policyTypes": ["Egress"] });
    f.make(&target, json!({ "metadata": { "labels": {} }, "spec": spec })).await?;
    let ends = Instant::now() + f.cluster().settings.patience / 4;
    while Instant::now() < ends {
        if matches!(dial(f, &pod, server).await?, Outcome::Closed(_)) {
            return Ok(());
        }
        tokio::time::sleep(TRY).await;
    }
    Err(Skip("a network that enforces network policies".to_owned()).into())
}
