use std::time::Instant;

use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use testkit::cluster::Cluster;
use testkit::env::rig;
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;

#[tokio::test]
async fn two_kubelets_on_different_machines_say_what_they_have() {
    let Ok(rig) = rig() else { return };
    let huge = Machine::new()
        .zones(2)
        .cpus_per_zone(8)
        .smt(true)
        .memory_mib_per_zone(8 << 10)
        .hugepages_per_zone(2048, 512)
        .hugepages_per_zone(1 << 20, 2)
        .zone(4, 0, 4 << 10);
    let a_whole_core = KubeletOptions { reserved_cpus: "0,8".to_owned(), ..KubeletOptions::default() };
    let began = Instant::now();
    let cluster =
        Cluster::builder().machines([Machine::new()]).node(huge, a_whole_core).start(&rig).await.unwrap();
    println!("cluster ready in {:?}", began.elapsed());
    let nodes: Api<Node> = Api::all(cluster.client().await.unwrap());
    for (name, wanted) in [
        ("node-0", [("cpu", "31"), ("memory", "130560Mi"), ("hugepages-2Mi", ""), ("hugepages-1Gi", "")]),
        (
            "node-1",
            [("cpu", "14"), ("memory", "13568Mi"), ("hugepages-2Mi", "2Gi"), ("hugepages-1Gi", "4Gi")],
        ),
    ] {
        let node = nodes.get(name).await.unwrap();
        let allocatable = node.status.unwrap().allocatable.unwrap();
        for (resource, amount) in wanted {
            let has = allocatable.get(resource).map_or("", |quantity| quantity.0.as_str());
            assert_eq!(has, amount, "{resource} of {name}");
        }
        assert_eq!(node.spec.unwrap_or_default().taints, None);
    }
}
