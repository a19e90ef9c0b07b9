//! Every policy and scope, on kubelets that have them, and machines that are not like the others.

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::DeleteParams;
use serde_json::{Map, Value, json};
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;
use topology::fingerprint::Fingerprint;
use topology::policy::{Policy, Scope};

use super::*;

/// A pod that is bound to the node, with a container for each list of resources; requests are limits.
fn pod(name: &str, node: &str, containers: &[&[(&str, &str)]]) -> Pod {
    let mut pod = load::guaranteed_pod(name, "nobody", []);
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    let first = spec.containers[0].clone();
    let container = |(number, wants): (usize, &&[(&str, &str)])| {
        let mut container = Container { name: format!("c{number}"), ..first.clone() };
        let resources = container.resources.get_or_insert_default();
        let amounts = wants.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())));
        resources.limits = Some(amounts.collect());
        resources.requests = resources.limits.clone();
        container
    };
    spec.containers = containers.iter().enumerate().map(container).collect();
    pod
}

async fn create(client: &Client, pod: &Pod) {
    Api::<Pod>::default_namespaced(client.clone()).create(&PostParams::default(), pod).await.unwrap();
}

async fn remove(client: &Client, name: &str) {
    let force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    Api::<Pod>::default_namespaced(client.clone()).delete(name, &force).await.unwrap();
}

async fn refused(client: &Client, name: &str) -> String {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    until("refused", async || pods.get(name).await.unwrap().status.unwrap_or_default().reason).await
}

fn attribute_of<'a>(nrt: &'a NodeResourceTopology, name: &str) -> &'a str {
    attribute::get(&nrt.attributes, name).unwrap_or_default()
}

fn settings(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Eight kubelets side by side.
#[tokio::test]
async fn every_policy_in_both_scopes() {
    let policies = [Policy::None, Policy::BestEffort, Policy::Restricted, Policy::SingleNumaNode];
    let both = policies.into_iter().flat_map(|p| [(p, Scope::Container), (p, Scope::Pod)]);
    let both: Vec<_> = both.collect();
    let cluster = cluster(|builder| {
        both.iter().fold(builder, |builder, (policy, scope)| {
            let machine = Machine::new().zones(2).cpus_per_zone(8);
            let base = KubeletOptions { static_memory: false, ..KubeletOptions::default() };
            builder.node(machine, KubeletOptions { policy: *policy, scope: *scope, ..base })
        })
    });
    let Some(cluster) = cluster.await else { return };
    let client = cluster.client().await.unwrap();
    let _exporters: Vec<_> =
        (0..both.len()).map(|number| Exporter::start(&flags(&cluster, number))).collect();
    let stories = both.iter().enumerate().map(|(n, (policy, scope))| story(&client, n, *policy, *scope));
    futures::future::join_all(stories).await;
}

/// What one of them is asked, and what its object says then.
async fn story(client: &Client, number: usize, policy: Policy, scope: Scope) {
    let node = format!("node-{number}");
    let cpus = |wanted: &'static str| node_shows(client, &node, "cpu", wanted);
    let name = |name: &str| format!("{name}-{number}");
    let nrt = cpus("0 7/7/8 | 1 8/8/8").await;
    let said = (attribute_of(&nrt, "topologyManagerPolicy"), attribute_of(&nrt, "topologyManagerScope"));
    assert_eq!(said, (policy.as_str(), scope.as_str()));
    let mut seen = states(client);
    let mut said = Vec::new();
    // As soon as the first is there, none is missed.
    while said.is_empty() {
        said.extend(state_of(&mut seen, &node).await);
    }

    // More than a zone has: over two zones, or not at all, and then without a trace.
    let wide = name("wide");
    create(client, &pod(&wide, &node, &[&[("cpu", "9"), ("memory", "64Mi")]])).await;
    if policy == Policy::SingleNumaNode {
        assert_eq!(refused(client, &wide).await, "TopologyAffinityError");
    } else {
        cpus("0 6/7/8 | 1 0/8/8").await;
    }
    remove(client, &wide).await;
    if policy != Policy::SingleNumaNode {
        cpus("0 7/7/8 | 1 8/8/8").await;
    }

    create(client, &pod(&name("one"), &node, &[&[("cpu", "4"), ("memory", "64Mi")]])).await;
    cpus("0 3/7/8 | 1 8/8/8").await;
    let three: &[(&str, &str)] = &[("cpu", "3"), ("memory", "64Mi")];
    create(client, &pod(&name("two"), &node, &[three, three])).await;
    let together = policy != Policy::None && scope == Scope::Pod;
    let nrt = cpus(if together { "0 3/7/8 | 1 2/8/8" } else { "0 0/7/8 | 1 5/8/8" }).await;
    let (one, two) = (name("one"), name("two"));
    let signed = Fingerprint::of_names([("default", one.as_str()), ("default", two.as_str())]);
    assert_eq!(fingerprint(&nrt), signed.to_string());

    // These take nothing: the next state that anybody sees is that of the pod after them.
    create(client, &pod(&name("best-effort"), &node, &[&[]])).await;
    create(client, &pod(&name("part"), &node, &[&[("cpu", "500m"), ("memory", "64Mi")]])).await;
    runs(client, &name("best-effort")).await;
    runs(client, &name("part")).await;
    create(client, &pod(&name("fence"), &node, &[&[("cpu", "1"), ("memory", "64Mi")]])).await;
    let last = cpus(if together { "0 2/7/8 | 1 2/8/8" } else { "0 0/7/8 | 1 4/8/8" }).await;
    let fence = name("fence");
    let signed = [&one, &two, &fence].map(|name| ("default", name.as_str()));
    assert_eq!(fingerprint(&last), Fingerprint::of_names(signed).to_string());
    let mut version = None;
    while version != last.metadata.resource_version {
        if let Some(state) = state_of(&mut seen, &node).await {
            version = state.metadata.resource_version.clone();
            said.push(state);
        }
    }
    let said: Vec<_> = said.iter().map(|state| show(state, "cpu")).collect();
    // Empty, one, two, fence; and with the wide one, empty again.
    let writes = if policy == Policy::SingleNumaNode { 4 } else { 6 };
    assert_eq!(said.len(), writes, "{policy:?} {scope:?}: {said:?}");
}

/// The next state of any node's object, if it is of this one.
async fn state_of(
    seen: &mut mpsc::UnboundedReceiver<(Instant, NodeResourceTopology)>,
    node: &str,
) -> Option<NodeResourceTopology> {
    let (_, state) = next(seen).await;
    (state.metadata.name.as_deref() == Some(node)).then_some(state)
}

/// Hugepages of two sizes beside memory, in one zone; and memory over two zones, which is where the kubelet has it.
#[tokio::test]
async fn memory_and_hugepages_are_where_the_memory_manager_has_them() {
    const GIB: u64 = 1 << 30;
    let machine = Machine::new().zones(2).cpus_per_zone(8).memory_mib_per_zone(16 << 10);
    let machine = machine.hugepages_per_zone(2048, 512).hugepages_per_zone(1 << 20, 2);
    let lenient = KubeletOptions { policy: Policy::BestEffort, ..KubeletOptions::default() };
    let nodes = [(machine.clone(), KubeletOptions::default()), (machine, lenient)];
    let cluster = cluster(|builder| nodes.into_iter().fold(builder, |builder, (m, o)| builder.node(m, o)));
    let Some(cluster) = cluster.await else { return };
    let client = cluster.client().await.unwrap();
    let _exporters = [0, 1].map(|number| Exporter::start(&flags(&cluster, number)));

    // 16 GiB, of which 3 are pages and 256 MiB are reserved.
    let (all, pages) = (16 * GIB - 3 * GIB - 256 * (1 << 20), GIB);
    let shown = |zone: u64, free: u64, all: u64| format!("{zone} {free}/{all}/{}", 16 * GIB);
    let both = |a: u64, b: u64| format!("{} | {}", shown(0, a, all), shown(1, b, all));
    let nrt = shows(&client, "memory", &both(all, all)).await;
    assert_eq!(show(&nrt, "hugepages-2Mi"), format!("0 {pages}/{pages}/{pages} | 1 {pages}/{pages}/{pages}"));
    let big = 2 * GIB;
    assert_eq!(show(&nrt, "hugepages-1Gi"), format!("0 {big}/{big}/{big} | 1 {big}/{big}/{big}"));

    let wants = [("cpu", "1"), ("memory", "1Gi"), ("hugepages-2Mi", "256Mi"), ("hugepages-1Gi", "1Gi")];
    create(&client, &pod("a", "node-0", &[&wants])).await;
    let nrt = shows(&client, "memory", &both(all - GIB, all)).await;
    let left = pages - 256 * (1 << 20);
    assert_eq!(show(&nrt, "hugepages-2Mi"), format!("0 {left}/{pages}/{pages} | 1 {pages}/{pages}/{pages}"));
    assert_eq!(show(&nrt, "hugepages-1Gi"), format!("0 {GIB}/{big}/{big} | 1 {big}/{big}/{big}"));
    // Pages that only zone 1 has left.
    create(&client, &pod("b", "node-0", &[&[("cpu", "1"), ("memory", "64Mi"), ("hugepages-1Gi", "2Gi")]]))
        .await;
    let nrt = shows(&client, "hugepages-1Gi", &format!("0 {GIB}/{big}/{big} | 1 0/{big}/{big}")).await;
    assert_eq!(show(&nrt, "cpu"), "0 6/7/8 | 1 7/8/8");
    // No zone has enough. Because both are in use already, the memory manager sees no group of them either: it has no
    // hint, which the topology manager takes for no wish, and only the allocation fails.
    let wants = [("cpu", "1"), ("memory", "64Mi"), ("hugepages-2Mi", "1200Mi")];
    create(&client, &pod("c", "node-0", &[&wants])).await;
    assert_eq!(refused(&client, "c").await, "UnexpectedAdmissionError");
    for name in ["a", "b"] {
        remove(&client, name).await;
    }
    let nrt = shows(&client, "memory", &both(all, all)).await;
    assert_eq!(show(&nrt, "hugepages-1Gi"), format!("0 {big}/{big}/{big} | 1 {big}/{big}/{big}"));
    // Nothing is held: now there is a group, and a hint that is refused.
    create(&client, &pod("d", "node-0", &[&wants])).await;
    assert_eq!(refused(&client, "d").await, "TopologyAffinityError");

    node_shows(&client, "node-1", "memory", &both(all, all)).await;
    create(&client, &pod("e", "node-1", &[&[("cpu", "1"), ("memory", "15Gi")]])).await;
    node_shows(&client, "node-1", "memory", &both(0, 2 * all - 15 * GIB)).await;
    let state = cluster.nodes()[1].kubelet().root_dir().join("memory_manager_state");
    let state: Value = serde_json::from_slice(&std::fs::read(state).unwrap()).unwrap();
    let free = |zone: &str| state["machineState"][zone]["memoryMap"]["memory"]["free"].as_u64();
    assert_eq!((free("0"), free("1")), (Some(0), Some(2 * all - 15 * GIB)));
}

/// Ids with gaps and no zone 0, a zone of memory only, CPUs that are switched off.
#[tokio::test]
async fn odd_machines_are_ordinary() {
    let machine = Machine::new().zones(2).cpus_per_zone(8).memory_mib_per_zone(16 << 10);
    let machine = machine.zone_ids([1, 5]).unwrap().zone(9, 0, 8 << 10).offline([2, 3, 15]);
    let Some(cluster) = cluster(|builder| builder.machines([machine])).await else { return };
    let client = cluster.client().await.unwrap();
    let _exporter = Exporter::start(&flags(&cluster, 0));
    let nrt = shows(&client, "cpu", "1 5/5/6 | 5 7/7/7 | 9 0/0/0").await;
    let free = ((16_u64 << 10) - 256) << 20;
    let (total, far, far_total) = (16_u64 << 30, ((8_u64 << 10) - 256) << 20, 8_u64 << 30);
    let memory =
        |a: u64, b: u64| format!("1 {a}/{free}/{total} | 5 {b}/{free}/{total} | 9 {far}/{far}/{far_total}");
    assert_eq!(show(&nrt, "memory"), memory(free, free));
    create(&client, &pod("a", "node-0", &[&[("cpu", "6"), ("memory", "1Gi")]])).await;
    let nrt = shows(&client, "cpu", "1 5/5/6 | 5 1/7/7 | 9 0/0/0").await;
    assert_eq!(show(&nrt, "memory"), memory(free, free - (1 << 30)));
    create(&client, &pod("b", "node-0", &[&[("cpu", "6"), ("memory", "1Gi")]])).await;
    assert_eq!(refused(&client, "b").await, "TopologyAffinityError");
    create(&client, &pod("c", "node-0", &[&[("cpu", "5"), ("memory", "1Gi")]])).await;
    let nrt = shows(&client, "cpu", "1 0/5/6 | 5 1/7/7 | 9 0/0/0").await;
    assert_eq!(fingerprint(&nrt), Fingerprint::of_names([("default", "a"), ("default", "c")]).to_string());
}

/// An administrator changes the kubelet's mind: the exporter goes on and says what the kubelet does now.
#[tokio::test]
async fn a_policy_may_change_while_the_exporter_runs() {
    let machine = Machine::new().zones(2).cpus_per_zone(8);
    let Some(cluster) = cluster(|builder| builder.machines([machine])).await else { return };
    let client = cluster.client().await.unwrap();
    let exporter = Exporter::start(&flags(&cluster, 0));
    let kubelet = cluster.nodes()[0].kubelet();
    let says = |nrt: &NodeResourceTopology| {
        ["topologyManagerPolicy", "topologyManagerScope", "cpuManagerPolicy"]
            .map(|name| attribute_of(nrt, name).to_owned())
            .join(" ")
    };
    let nrt = shows(&client, "cpu", "0 7/7/8 | 1 8/8/8").await;
    assert_eq!(says(&nrt), "single-numa-node container static");
    create(&client, &pod("a", "node-0", &[&[("cpu", "4"), ("memory", "64Mi")]])).await;
    shows(&client, "cpu", "0 3/7/8 | 1 8/8/8").await;
    runs(&client, "a").await;

    // With a pod that stays.
    kubelet.stop();
    let change = json!({ "topologyManagerPolicy": "restricted", "topologyManagerScope": "pod" });
    kubelet.configure(&settings(change)).unwrap();
    kubelet.restart().await.unwrap();
    let nrts = Api::<NodeResourceTopology>::all(client.clone());
    let changed = async || nrts.get("node-0").await.ok().filter(|nrt| says(nrt) == "restricted pod static");
    let nrt = until("the policy is said", changed).await;
    assert_eq!(show(&nrt, "cpu"), "0 3/7/8 | 1 8/8/8");

    // Another CPU manager starts only without the old one's state, on a node that was emptied.
    remove(&client, "a").await;
    shows(&client, "cpu", "0 7/7/8 | 1 8/8/8").await;
    for (manager, cpus) in [("none", "0 0/0/8 | 1 0/0/8"), ("static", "0 7/7/8 | 1 8/8/8")] {
        kubelet.stop();
        kubelet.configure(&settings(json!({ "cpuManagerPolicy": manager }))).unwrap();
        // With the policy `none` there may be no such file.
        let _ = std::fs::remove_file(kubelet.root_dir().join("cpu_manager_state"));
        kubelet.restart().await.unwrap();
        let nrt = shows(&client, "cpu", cpus).await;
        assert_eq!(says(&nrt), format!("restricted pod {manager}"));
    }
    create(&client, &pod("b", "node-0", &[&[("cpu", "8"), ("memory", "64Mi")]])).await;
    shows(&client, "cpu", "0 7/7/8 | 1 0/8/8").await;
    exporter.stop().await;
}
