//! What pods get is in the object at once, and what they let go is out of it soon.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use testkit::machine::Machine;
use topology::fingerprint::Fingerprint;

use super::*;

/// The zones and settings of a node with sparse ids, hugepages and memory without CPUs; a pod that is admitted, one
/// that is refused, one that is deleted and one that is deleted by force. All with no more rights than are documented.
#[tokio::test]
async fn the_object_follows_the_pods() {
    let machine = Machine::new().zones(2).cpus_per_zone(8).memory_mib_per_zone(8 << 10);
    let machine = machine.hugepages_per_zone(2048, 512).zone_ids([0, 3]).unwrap().zone(7, 0, 4 << 10);
    let Some(cluster) = cluster(|builder| builder.machines([machine])).await else { return };
    let client = cluster.client().await.unwrap();
    let mut flags = flags(&cluster, 0);
    flags.push(format!("--kubeconfig={}", restricted(&cluster, &client).await.display()));
    let exporter = Exporter::start(&flags);

    let nrt = shows(&client, "cpu", "0 7/7/8 | 3 8/8/8 | 7 0/0/0").await;
    assert_eq!(
        show(&nrt, "memory"),
        "0 7247757312/7247757312/8589934592 | 3 7247757312/7247757312/8589934592 | 7 4026531840/4026531840/4294967296"
    );
    assert_eq!(
        show(&nrt, "hugepages-2Mi"),
        "0 1073741824/1073741824/1073741824 | 3 1073741824/1073741824/1073741824 | 7 -"
    );
    assert_eq!(
        nrt.zones[1].costs.iter().map(|cost| cost.name.as_str()).collect::<Vec<_>>(),
        ["node-0", "node-3", "node-7"]
    );
    let attributes: Vec<_> = nrt.attributes.iter().map(|a| format!("{}={}", a.name, a.value)).collect();
    let node = Api::<Node>::all(client.clone()).get("node-0").await.unwrap();
    let version = node.status.clone().unwrap_or_default().node_info.unwrap_or_default().kubelet_version;
    assert_eq!(
        attributes,
        [
            "nodeTopologyPodsFingerprint=pfp0v001ef46db3751d8e999",
            "nodeTopologyPodsFingerprintMethod=with-exclusive-resources",
            "topology.node.k8s.io/numaplacement-metadata=npv0v001::ve=leb89::cc=0::nn=3::bn=0",
            "topologyManagerScope=container",
            "topologyManagerPolicy=single-numa-node",
            "cpuManagerPolicy=static",
            "memoryManagerPolicy=Static",
            "reservedSystemCPUs=0",
            "reservedMemory=0:memory=256Mi;3:memory=256Mi;7:memory=256Mi",
            "threadsPerCore=1",
            "threadSiblings=0-15",
            "containerHoldings=v1 uid ef46db3751d8e999",
            &format!("kubeletVersion={version}"),
        ]
    );
    let owners = nrt.owner_references();
    assert_eq!(owners.iter().map(|owner| owner.uid.clone()).collect::<Vec<_>>(), [node.uid().unwrap()]);

    place(&client, "a", "node-0", 4).await;
    let nrt = shows(&client, "cpu", "0 3/7/8 | 3 8/8/8 | 7 0/0/0").await;
    assert_eq!(fingerprint(&nrt), Fingerprint::of_names([("default", "a")]).to_string());
    assert_eq!(nrt.annotations()["topology.node.k8s.io/fingerprint"], fingerprint(&nrt));
    let nrt = shows(&client, "memory", "0 7180648448/7247757312/8589934592 | 3 7247757312/7247757312/8589934592 | 7 4026531840/4026531840/4294967296").await;

    place(&client, "too-wide", "node-0", 10).await;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let phase =
        async |name: &str| pods.get(name).await.unwrap().status.unwrap_or_default().phase.unwrap_or_default();
    until("refused", async || (phase("too-wide").await == "Failed").then_some(())).await;
    place(&client, "b", "node-0", 8).await;
    let then = shows(&client, "cpu", "0 3/7/8 | 3 0/8/8 | 7 0/0/0").await;
    assert_eq!(then.metadata.uid, nrt.metadata.uid);
    assert_eq!(fingerprint(&then), Fingerprint::of_names([("default", "a"), ("default", "b")]).to_string());

    pods.delete("a", &DeleteParams::default()).await.unwrap();
    shows(&client, "cpu", "0 7/7/8 | 3 0/8/8 | 7 0/0/0").await;
    pods.delete("b", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
        .await
        .unwrap();
    let nrt = shows(&client, "cpu", "0 7/7/8 | 3 8/8/8 | 7 0/0/0").await;
    assert_eq!(fingerprint(&nrt), "pfp0v001ef46db3751d8e999");
    exporter.stop().await;
}

/// A kubeconfig with the permissions that the exporter documents, and no others.
async fn restricted(cluster: &Cluster, client: &Client) -> PathBuf {
    use exporter::rbac::Needs;
    use exporter::settings::{Mode, OwnerKind};
    use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleRef, Subject};
    let needs = Needs { mode: Some(Mode::Patch), owner: OwnerKind::Node, conditions: false, configz: false };
    let rules = exporter::rbac::rules(needs, "default").cluster;
    let mut role = ClusterRole { rules: Some(rules), ..ClusterRole::default() };
    role.metadata.name = Some("exporter".to_owned());
    let group = "rbac.authorization.k8s.io".to_owned();
    let subject = Subject {
        api_group: Some(group.clone()),
        kind: "User".to_owned(),
        name: "exporter".to_owned(),
        namespace: None,
    };
    let role_ref =
        RoleRef { api_group: Some(group), kind: "ClusterRole".to_owned(), name: "exporter".to_owned() };
    let mut binding =
        ClusterRoleBinding { role_ref, subjects: Some(vec![subject]), ..ClusterRoleBinding::default() };
    binding.metadata.name = Some("exporter".to_owned());
    Api::all(client.clone()).create(&PostParams::default(), &role).await.unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &binding).await.unwrap();
    cluster.control().kubeconfig_for("exporter", "exporters").unwrap()
}

/// Each allocation becomes visible by itself and whole: by the kubelet's state files, and by pods' cgroups where the
/// root directory is not mounted. (How soon is measured by `cargo xtask bench exporter`.)
#[tokio::test]
async fn every_allocation_becomes_visible_whole() {
    const BATCH: usize = 20;
    let machine = Machine::new().zones(2).cpus_per_zone(16);
    let Some(cluster) = cluster(|builder| builder.machines([machine])).await else { return };
    let client = cluster.client().await.unwrap();
    let wide = flags(&cluster, 0);
    let narrow = [wide.clone(), vec!["--kubelet-state-dir=".to_owned()]].concat();
    let mut seen = states(&client);
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let mut deleted = None;
    for (round, flags) in [wide, narrow].iter().enumerate() {
        let _cgroups = (round == 1).then(|| cluster.nodes()[0].kubelet().show_cgroups().unwrap());
        let exporter = Exporter::start(flags);
        // The first list is published as it is, so no pod may be admitted beside it.
        while next(&mut seen).await.1.metadata.uid == deleted {}
        let names: Vec<_> = (0..BATCH).map(|n| format!("p{round}-{n}")).collect();
        let mut placed = Vec::new();
        for name in &names {
            place(&client, name, "node-0", 1).await;
            placed.push(name.as_str());
            let wanted = Fingerprint::of_names(placed.iter().map(|name| ("default", *name))).to_string();
            loop {
                let (_, nrt) = next(&mut seen).await;
                // Each pod has a CPU and 64 MiB: readers must not see one without the other.
                assert_eq!(taken(&nrt, "cpu") * (64 << 20), taken(&nrt, "memory"), "{nrt:?}");
                if fingerprint(&nrt) == wanted {
                    assert_eq!(taken(&nrt, "cpu"), placed.len() as i64);
                    break;
                }
            }
            runs(&client, name).await;
        }
        let force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        for name in &names {
            pods.delete(name, &force).await.unwrap();
        }
        let last = loop {
            let (_, nrt) = next(&mut seen).await;
            if fingerprint(&nrt) == "pfp0v001ef46db3751d8e999" {
                break nrt;
            }
        };
        exporter.stop().await;
        raw(&client).delete("node-0", &DeleteParams::default()).await.unwrap();
        deleted = last.metadata.uid;
    }
}

/// How much of a resource pods hold, over all zones.
fn taken(nrt: &NodeResourceTopology, resource: &str) -> i64 {
    let amounts =
        nrt.zones.iter().flat_map(|zone| &zone.resources).filter(|amounts| amounts.name == resource);
    amounts.map(|r| r.allocatable.parse().unwrap().value() - r.available.parse().unwrap().value()).sum()
}
