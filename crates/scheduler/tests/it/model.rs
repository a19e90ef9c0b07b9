//! The model of admission against the real kubelet: for the same pods in the same order, both decide alike.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use testkit::cluster::Cluster;
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;
use topology::admit::{self, Scratch};
use topology::policy::{Manager, Policy, Rules, Scope};
use topology::resource::ResourceName;
use topology::zone::{Free, NodeTopology, Zone, ZoneId, ZoneResource};

use crate::cluster::{create, eventually, pods};

/// A pod: init containers, sidecars (with a `+`) and app containers, by their CPUs.
type Shape = (&'static [&'static str], &'static [&'static str]);

/// Pods created one after the other on a machine of two zones with 7 and 8 CPUs; `None` deletes all pods.
const STORY: [Option<Shape>; 18] = [
    Some((&[], &["4"])),
    Some((&[], &["4"])),
    // 3 left in zone 0, 4 in zone 1
    Some((&[], &["5"])),
    Some((&["3"], &["3"])),
    Some((&[], &["1", "3"])),
    Some((&[], &["1"])),
    None,
    // an init container's CPUs stay with the pod: what comes later must be in their zone
    Some((&["6", "6"], &["4", "4"])),
    Some((&["6"], &["4", "2"])),
    Some((&["4"], &["2"])),
    Some((&[], &["4"])),
    None,
    Some((&["+3"], &["4", "8"])),
    Some((&["+2", "5"], &["5"])),
    None,
    Some((&[], &["1500m"])),
    Some((&[], &["1", "1", "1"])),
    None,
];

fn container(name: String, cpus: &str, sidecar: bool) -> Container {
    let amounts: std::collections::BTreeMap<_, _> =
        [("cpu", cpus), ("memory", "16Mi")].map(|(k, v)| (k.to_owned(), Quantity(v.to_owned()))).into();
    Container {
        name,
        image: Some("pause".to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        restart_policy: sidecar.then(|| "Always".to_owned()),
        resources: Some(ResourceRequirements {
            requests: Some(amounts.clone()),
            limits: Some(amounts),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    }
}

fn pod(name: &str, node: &str, (init, apps): Shape) -> Pod {
    let mut pod = testkit::load::guaranteed_pod(name, "none", []);
    let spec = pod.spec.as_mut().unwrap();
    spec.node_name = Some(node.to_owned());
    let inits = init.iter().enumerate().map(|(at, cpus)| {
        let sidecar = cpus.starts_with('+');
        let mut container = container(format!("i{at}"), cpus.trim_start_matches('+'), sidecar);
        if !sidecar {
            container.command = Some(vec!["exit".to_owned(), "0".to_owned()]);
        }
        container
    });
    spec.init_containers = (!init.is_empty()).then(|| inits.collect());
    spec.containers =
        apps.iter().enumerate().map(|(at, cpus)| container(format!("c{at}"), cpus, false)).collect();
    pod
}

/// The free amounts of the machine. Memory is no limit: the zones have far more than the pods request.
fn machine() -> Free {
    let zone = |(id, cpus): (u32, i64)| Zone {
        id: ZoneId(id),
        distances: vec![],
        resources: [(ResourceName::CPU, cpus * 1000), (ResourceName::MEMORY, 1 << 40)]
            .map(|(name, n)| ZoneResource { name, capacity: n, allocatable: n, available: n })
            .to_vec(),
    };
    NodeTopology { zones: [(0, 7), (1, 8)].map(zone).to_vec(), ..NodeTopology::default() }.available()
}

/// Whether the kubelet admitted the pod.
async fn admitted(client: &Client, name: &str) -> bool {
    eventually(name, async || {
        let status = pods(client).get(name).await.unwrap().status?;
        match (status.reason.as_deref(), status.phase.as_deref()) {
            (Some("TopologyAffinityError"), _) => Some(false),
            (_, Some("Running")) => Some(true),
            _ => None,
        }
    })
    .await
}

async fn compare(scope: Scope) {
    let Ok(rig) = testkit::env::rig() else { return };
    let machine_shape = Machine::new().zones(2).cpus_per_zone(8);
    let options = KubeletOptions { scope, ..KubeletOptions::default() };
    let cluster = Cluster::builder().node(machine_shape, options).start(&rig).await.unwrap();
    let client = cluster.client().await.unwrap();
    let rules = Rules {
        policy: Policy::SingleNumaNode,
        scope,
        cpu_manager: Manager::Static,
        memory_manager: Manager::Static,
    };
    let mut free = machine();
    let mut names: Vec<String> = Vec::new();
    for (number, step) in STORY.iter().enumerate() {
        let Some(shape) = step else {
            for name in names.drain(..) {
                pods(&client).delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
                eventually("gone", async || {
                    pods(&client).get_opt(&name).await.unwrap().is_none().then_some(())
                })
                .await;
            }
            free = machine();
            continue;
        };
        let name = format!("p{number}");
        let pod = pod(&name, cluster.nodes()[0].name(), *shape);
        let mut needs = api::convert::pod_request(&pod).unwrap().needs();
        needs.qos = topology::request::Qos::Guaranteed;
        let predicted = admit::admit(rules, &free, &needs, &mut Scratch::default());
        create(&client, &pod).await;
        assert_eq!(admitted(&client, &name).await, predicted.is_ok(), "{name} {shape:?}: {predicted:?}");
        if let Ok(placement) = predicted {
            placement.charge(&mut free);
        }
        names.push(name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn container_scope_agrees_with_the_kubelet() {
    compare(Scope::Container).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_scope_agrees_with_the_kubelet() {
    compare(Scope::Pod).await;
}
