//! The whole loop: kubelet, exporter, NRT object, scheduler, and admission by the kubelet.

use api::nrt::NodeResourceTopology;
use clap::Parser as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use testkit::cluster::{Cluster, ClusterNode};
use testkit::controlplane::ControlPlaneOptions;
use testkit::env::Rig;
use testkit::machine::Machine;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::{Running, create, eventually, node_of, pod, pods, refusal};

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: exporter::Args,
}

#[derive(clap::Parser)]
struct Explain {
    #[command(flatten)]
    args: scheduler::explain::cli::Args,
}

pub(crate) fn export(cluster: &Cluster, node: &ClusterNode, token: &CancellationToken) {
    let kubelet = node.kubelet();
    let flags = [
        "exporter".to_owned(),
        "--metrics-port=0".to_owned(),
        format!("--hostname={}", node.name()),
        format!("--podresources-socket=unix://{}", node.podresources_socket().display()),
        format!("--sysfs={}", kubelet.machine().sys().display()),
        format!("--kubelet-state-dir={}", kubelet.root_dir().display()),
        format!("--kubelet-config-file={}", kubelet.config_file().display()),
        format!("--kubeconfig={}", cluster.control().kubeconfig().display()),
    ];
    tokio::spawn(exporter::run(Cli::parse_from(flags).args.settings().unwrap(), token.clone()));
}

/// A cluster of nodes with zones of 7 and 8 CPUs, each of which has reported. Its exporters run as long as the guard.
pub(crate) async fn exporting(rig: &Rig, nodes: usize) -> (Cluster, Client, DropGuard) {
    exporting_with(rig, nodes, ControlPlaneOptions::default()).await
}

pub(crate) async fn exporting_with(
    rig: &Rig,
    nodes: usize,
    control: ControlPlaneOptions,
) -> (Cluster, Client, DropGuard) {
    let machine = Machine::new().zones(2).cpus_per_zone(8);
    let machines = vec![machine; nodes];
    let builder = Cluster::builder().machines(machines).control(control);
    let cluster = builder.crds(api::crd::NRT_CRD_YAML).start(rig).await.unwrap();
    let client = cluster.client().await.unwrap();
    let token = CancellationToken::new();
    cluster.nodes().iter().for_each(|node| export(&cluster, node, &token));
    let reports: Api<NodeResourceTopology> = Api::all(client.clone());
    eventually("reports", async || {
        let count = reports.list(&ListParams::default()).await.ok()?.items.len();
        (count == nodes).then_some(())
    })
    .await;
    (cluster, client, token.drop_guard())
}

pub(crate) async fn phase(client: &Client, name: &str) -> Option<String> {
    let pod: Pod = pods(client).get(name).await.unwrap();
    let status = pod.status?;
    assert_ne!(status.reason.as_deref(), Some("TopologyAffinityError"), "{name}");
    status.phase
}

pub(crate) async fn runs(client: &Client, name: &str) -> Option<()> {
    (phase(client, name).await? == "Running").then_some(())
}

async fn notes(client: &Client, pod: &str, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let list = events.list(&ListParams::default()).await.unwrap();
    let about = |event: &Event| event.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(pod);
    list.items
        .into_iter()
        .filter(|event| about(event) && event.reason.as_deref() == Some(reason))
        .filter_map(|event| event.note)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_go_where_the_kubelet_takes_them() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (cluster, client, _guard) = exporting(&rig, 2).await;
    let scheduler = Running::start(cluster.control().kubeconfig(), &["--leader-elect=false"]);

    // Each node has zones of 7 and 8 CPUs. A scheduler that sees 15 per node would put 4 + 4 + 4 anywhere and lose 8s.
    for (name, cpus) in [("a", 4), ("b", 4), ("c", 8)] {
        create(&client, &pod(name, cpus)).await;
        eventually(name, async || runs(&client, name).await).await;
        let node = node_of(&client, name).await.unwrap();
        let expected = format!("Successfully assigned default/{name} to {node}");
        let seen = eventually("Scheduled", async || notes(&client, name, "Scheduled").await.pop()).await;
        assert_eq!(seen, expected);
    }
    for (name, cpus) in [("d", 7), ("e", 4)] {
        create(&client, &pod(name, cpus)).await;
        let either = async || runs(&client, name).await.or(refusal(&client, name).await.map(drop));
        eventually(name, either).await;
    }
    // 9 CPUs fit no zone anywhere, whatever the nodes' totals are.
    create(&client, &pod("huge", 9)).await;
    let message = eventually("huge", async || refusal(&client, "huge").await).await;
    assert!(message.starts_with("0/2 nodes are available: "), "{message}");
    assert!(
        message.contains("cannot align container \"main\": cpu: requested 9, most in one zone ")
            || message.contains("Insufficient cpu"),
        "{message}"
    );
    let note =
        eventually("FailedScheduling", async || notes(&client, "huge", "FailedScheduling").await.pop()).await;
    assert!(note.starts_with("0/2 nodes are available: "), "{note}");
    let kubeconfig = cluster.control().kubeconfig().display().to_string();
    let words = ["explain", "pod", "default/huge", "--kubeconfig", &kubeconfig];
    let explanation = scheduler::explain::cli::explain(&Explain::parse_from(words).args).await.unwrap();
    let told = explanation.message.clone().unwrap();
    assert!(note.starts_with(&told), "{note}, not {told}");
    assert!(explanation.nodes.iter().all(|node| !node.changes.is_empty()), "{explanation:?}");

    // A restarted scheduler continues from the existing objects.
    scheduler.stop().await;
    let again = Running::start(cluster.control().kubeconfig(), &["--leader-elect=false"]);
    create(&client, &pod("late", 2)).await;
    eventually("late", async || runs(&client, "late").await).await;
    again.stop().await;
}
