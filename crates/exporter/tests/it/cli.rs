//! The command lines of the peers' own manifests, with nothing changed but where things are, publish the same object.

use std::collections::BTreeMap;

use exporter::compat::{Environment, Peer, Plan, Start};
use testkit::machine::Machine;

use super::*;

impl Exporter {
    /// Runs what a command line came to.
    fn of(plan: Plan) -> Self {
        let token = CancellationToken::new();
        Self { task: tokio::spawn(exporter::run(plan.settings, token.clone())), token }
    }
}

fn plan(peer: Peer, arguments: Vec<String>, variables: &[(&str, &str)]) -> Plan {
    let variables: BTreeMap<_, _> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let env = Environment { variables, ..Environment::real() };
    let plan = match peer.start(peer.program(), arguments, &env) {
        Start::Run(plan) => Ok(*plan),
        Start::End(ending) => Err(ending),
    };
    plan.unwrap()
}

#[tokio::test]
async fn manifests_of_the_peers_work() {
    let Some(cluster) = cluster(|builder| builder.machines([Machine::new().zones(2).cpus_per_zone(8)])).await
    else {
        return;
    };
    let client = cluster.client().await.unwrap();
    let node = &cluster.nodes()[0];
    let root = node.kubelet().root_dir().display().to_string();
    let config = node.kubelet().config_file().display().to_string();
    let sysfs = node.kubelet().machine().sys().display().to_string();
    let socket = format!("unix://{}", node.podresources_socket().display());
    let kubeconfig = format!("--kubeconfig={}", cluster.control().kubeconfig().display());
    place(&client, "a", node.name(), 2).await;
    runs(&client, "a").await;

    // As the deployer renders RTE on Kubernetes.
    let arguments = vec![
        "--sleep-interval=10s".to_owned(),
        format!("--sysfs={sysfs}"),
        format!("--podresources-socket={socket}"),
        "-v=1".to_owned(),
        "--pods-fingerprint=true".to_owned(),
        format!("--kubelet-config-file={config}"),
        kubeconfig.clone(),
        "--podreadiness=false".to_owned(),
    ];
    let variables = [("NODE_NAME", node.name()), ("METRICS_PORT", "2112")];
    let rte = plan(Peer::Rte, arguments, &variables);
    assert_eq!(
        rte.settings.sources.kubelet_root.as_ref().map(|path| path.display().to_string()),
        Some(root.clone())
    );
    let exporter = Exporter::of(rte);
    let nrt = until("RTE's object", async || published(&client).await).await;
    let first = show(&nrt, "cpu");
    assert!(fingerprint(&nrt).starts_with("pfp0v001"));
    assert_eq!(attribute::get(&nrt.attributes, "topologyManagerPolicy"), Some("single-numa-node"));
    exporter.stop().await;
    let api = Api::<NodeResourceTopology>::all(client.clone());
    api.delete(node.name(), &kube::api::DeleteParams::default()).await.unwrap();

    // As the deployer renders NFD.
    let arguments = vec![
        format!("--kubelet-config-uri=file://{config}"),
        format!("--podresources-socket={socket}"),
        "--sleep-interval=10s".to_owned(),
        "-v=1".to_owned(),
        "--pods-fingerprint=true".to_owned(),
        "--kubelet-state-dir=".to_owned(),
        kubeconfig,
        "-port=0".to_owned(),
    ];
    let mut nfd = plan(Peer::Nfd, arguments, &[("NODE_NAME", node.name())]);
    // In its image sysfs has a fixed place, which is no machine of ours.
    nfd.settings.sources.sysfs = sysfs.into();
    let exporter = Exporter::of(nfd);
    let nrt = until("NFD's object", async || published(&client).await).await;
    assert_eq!(show(&nrt, "cpu"), first);
    assert_eq!(attribute::get(&nrt.attributes, "topologyManagerPolicy"), Some("single-numa-node"));
    exporter.stop().await;
}

/// The object, once it shows the pod's CPUs as taken.
async fn published(client: &Client) -> Option<NodeResourceTopology> {
    let api = Api::<NodeResourceTopology>::all(client.clone());
    let nrt = api.get_opt("node-0").await.unwrap()?;
    let short = |zone: &api::nrt::Zone| {
        zone.resources.iter().any(|r| r.name == "cpu" && r.available != r.allocatable)
    };
    nrt.zones.iter().any(short).then_some(nrt)
}
