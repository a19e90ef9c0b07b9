//! What containers hold by ids, against the checkpoints of real kubelets and their podresources.

use k8s_openapi::api::core::v1::Container;
use kube::api::DeleteParams;
use testkit::machine::Machine;
use topology::cpuset::CpuSet;
use topology::placement::ContainerHash;
use topology::placement::holdings::{HashKey, Holdings};

use super::*;

/// A pod of two CPUs whose init container has four.
fn pod_with_init(name: &str) -> Pod {
    let mut pod = bound_pod(name, "node-0", 2);
    let spec = pod.spec.get_or_insert_default();
    let init = bound_pod(name, "node-0", 4).spec.unwrap_or_default().containers.remove(0);
    spec.init_containers = Some(vec![Container { name: "init".to_owned(), ..init }]);
    pod
}

fn holdings(nrt: &NodeResourceTopology) -> Holdings {
    let text = attribute::get(&nrt.attributes, api::keys::ATTRIBUTE_HOLDINGS).unwrap();
    Holdings::decode(text).unwrap()
}

/// CPUs that are free by id, over all zones.
fn free(nrt: &NodeResourceTopology) -> CpuSet {
    nrt.zones.iter().fold(CpuSet::new(), |all, zone| {
        let free = attribute::get(&zone.attributes, api::keys::ZONE_ATTRIBUTE_FREE_CPUS).unwrap();
        all.union(&CpuSet::parse(free).unwrap())
    })
}

/// What the CPU manager's own file says of a container.
fn written(cluster: &Cluster, uid: &str, container: &str) -> CpuSet {
    let path = cluster.nodes()[0].kubelet().root_dir().join("cpu_manager_state");
    let state: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    CpuSet::parse(state["entries"][uid][container].as_str().unwrap_or_default()).unwrap()
}

#[tokio::test]
async fn ids_are_those_of_the_kubelet() {
    let machine = Machine::new().zones(2).cpus_per_zone(8);
    let Some(cluster) = cluster(|builder| builder.machines([machine])).await else { return };
    let client = cluster.client().await.unwrap();
    let exporter = Exporter::start(&flags(&cluster, 0));
    let nrt = shows(&client, "cpu", "0 7/7/8 | 1 8/8/8").await;
    assert_eq!((free(&nrt).to_string().as_str(), holdings(&nrt).len()), ("1-15", 0));
    assert_eq!(attribute::get(&nrt.attributes, api::keys::ATTRIBUTE_RESERVED_CPUS), Some("0"));

    let pods = Api::<Pod>::default_namespaced(client.clone());
    let pod = pods.create(&PostParams::default(), &pod_with_init("p")).await.unwrap();
    let uid = pod.metadata.uid.unwrap();
    let app = pod.spec.unwrap_or_default().containers.remove(0).name;
    let nrt = shows(&client, "cpu", "0 5/7/8 | 1 8/8/8").await;
    let (of_init, of_app) = (written(&cluster, &uid, "init"), written(&cluster, &uid, &app));
    assert_eq!((of_init.len(), of_app.len()), (4, 2));
    let held = holdings(&nrt);
    let by_uid = |container: &str| ContainerHash::of_uid(&uid, container);
    let cpus = |held: &Holdings, hash| held.of(hash).map(|held| held.cpus.clone()).unwrap_or_default();
    assert_eq!(held.key(), HashKey::Uid);
    assert_eq!((cpus(&held, by_uid("init")), cpus(&held, by_uid(&app))), (of_init.clone(), of_app.clone()));
    assert!(held.are_of([by_uid("init"), by_uid(&app)]));
    let all = CpuSet::parse("1-15").unwrap();
    assert_eq!(
        free(&nrt),
        all.difference(&of_init.union(&of_app)),
        "CPUs of the init container are not free"
    );

    // Without the kubelet's root directory there is what podresources says, by name.
    drop(exporter);
    let mut narrow = flags(&cluster, 0);
    narrow.retain(|flag| !flag.starts_with("--kubelet-state-dir"));
    narrow.push("--kubelet-state-dir=".to_owned());
    let _exporter = Exporter::start(&narrow);
    let by_name = |held: &Holdings| held.key() == HashKey::Name;
    let nrt = until("an object by name", async || {
        raw(&client).get("node-0").await.ok().map(valid).filter(|nrt| by_name(&holdings(nrt)))
    });
    let nrt = nrt.await;
    let held = holdings(&nrt);
    assert_eq!(cpus(&held, ContainerHash::of("default", "p", &app)), of_app);
    assert_eq!((held.len(), free(&nrt)), (1, all.difference(&of_app)));

    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete("p", &now).await.unwrap();
    let nrt = shows(&client, "cpu", "0 7/7/8 | 1 8/8/8").await;
    assert_eq!((free(&nrt), holdings(&nrt).len()), (all, 0));
}
