//! A binding that was decided and not sent is withdrawn once its kubelet may reject the pod.

use hollow::node_group::NodeGroup;
use scheduler::core::{Binding, Decision, Event};
use scheduler::pod::PodView;
use serde_json::{Value, json};

use crate::core_cluster::{CoreCluster, pod_of, read};

fn amounts(cpus: u32) -> Value {
    json!({ "cpu": cpus.to_string(), "memory": "64Mi" })
}

/// The binding of a pod that comes; `None`: it gets no node.
fn decide(cluster: &mut CoreCluster, pod: &Value) -> Option<Binding> {
    cluster.tell(Event::Pod(PodView::read(&read(pod).unwrap())));
    let Some(Decision::Bind(binding)) = cluster.next() else { return None };
    Some(binding)
}

/// A node with zones of 7 and 8 CPUs. The pod that is decided first moves to the lower zone, if the one that leaves is
/// gone before; the second one then no longer fits (`a_pod_on_its_way_may_be_rejected_once_another_leaves`).
fn two_on_their_way(is_blind: bool) -> (CoreCluster, [Binding; 2]) {
    let group = NodeGroup { machine: "2x8".to_owned(), ..NodeGroup::default() };
    let mut cluster = CoreCluster::new(&group, 1, is_blind).unwrap();
    let leaves = pod_of("leaves", 0, &[amounts(4)]);
    cluster.run(0, leaves).unwrap();
    cluster.report(0).unwrap();
    let mut second = pod_of("second", 0, &[amounts(3)]);
    let requests = json!({ "requests": amounts(2), "limits": amounts(2) });
    second["spec"]["initContainers"] =
        json!([{ "name": "init", "image": "registry.example/app:1", "resources": requests }]);
    let bindings = [pod_of("first", 0, &[amounts(5)]), second].map(|pod| decide(&mut cluster, &pod).unwrap());
    let mut leaving = cluster.core.pods().find(|pod| &*pod.name == "leaves").unwrap().clone();
    leaving.progress.deleting = true;
    cluster.tell(Event::Pod(leaving));
    (cluster, bindings)
}

#[test]
fn a_binding_is_withdrawn_once_its_pod_may_be_rejected() {
    let (mut cluster, [first, second]) = two_on_their_way(false);
    let decision = cluster.next();
    assert!(matches!(decision, Some(Decision::Withdraw(id)) if id == second.id), "{decision:?}");
    assert!(cluster.next().is_none(), "the other pod fits whatever comes first");
    let pods = |cluster: &CoreCluster| cluster.core.nodes().map(|node| node.pods).sum::<i64>();
    assert_eq!(pods(&cluster), 3);
    cluster.tell(Event::BindFailed(second.id));
    assert_eq!(pods(&cluster), 2, "{} and the one that leaves", first.pod.name);
}

#[test]
fn a_binding_stays_where_zones_do_not_count() {
    let (mut cluster, _) = two_on_their_way(true);
    assert!(cluster.next().is_none());
}
