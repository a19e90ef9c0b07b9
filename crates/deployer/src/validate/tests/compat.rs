//! The peers' words.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fixture::{ClusterFixture, pod};
use crate::validate::compat::{deployer, nrovalidate};
use nrovalidate::{Validator, selected};

/// The README's cluster: three nodes of 1.21.1, whose kubelets have a CPU manager and nothing else.
#[test]
fn six_errors_come_out_as_in_the_readme() {
    let mut world = ClusterFixture::healthy();
    world.version = "v1.21.1".to_owned();
    let configuration = json!({ "cpuManagerPolicy": "static", "cpuManagerReconcilePeriod": "10s", "reservedSystemCPUs": "0,16",
        "topologyManagerPolicy": "none", "topologyManagerScope": "container" });
    let template = world.get("Node node-0").clone();
    world.objects.retain(|key, _| !key.starts_with("Node "));
    world.configz.clear();
    for name in ["kind-worker2", "kind-worker", "kind-worker3"] {
        let mut node = template.clone();
        node["metadata"]["name"] = name.into();
        world.add(node);
        world.configz.insert(name.to_owned(), configuration.clone());
    }
    let mut expected = String::new();
    for (number, name) in ["kind-worker", "kind-worker2", "kind-worker3"].iter().enumerate() {
        expected += &format!(
            "ERROR#{:03}: Incorrect configuration of node \"{name}\" area \"kubelet\" component \"feature gates\" setting \"\": \
             expected \"present\" detected \"missing data\"\n\
             ERROR#{:03}: Incorrect configuration of node \"{name}\" area \"kubelet\" component \"topology manager\" setting \
             \"policy\": expected \"single-numa-node\" detected \"none\"\n",
            2 * number,
            2 * number + 1
        );
    }
    assert_eq!(deployer::text(&deployer::items(&world.evidence())), expected);
}

#[test]
fn nothing_wrong_is_said_as_in_the_readme() {
    let items = deployer::items(&ClusterFixture::healthy().evidence());
    assert_eq!(deployer::text(&items), "PASSED>>: the cluster configuration looks ok!\n");
    assert_eq!(deployer::json(&items), "{\"success\":true}\n");
}

/// Server version, changes of a good configuration, findings.
fn peers_cases() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    vec![
        ("v1.23.1", json!({}), vec![]),
        (
            "v1.23.1",
            json!({ "topologyManagerPolicy": "restricted" }),
            vec!["topology manager/policy=restricted"],
        ),
        ("v1.23.1", json!({ "topologyManagerPolicy": null }), vec!["topology manager/policy="]),
        ("v1.23.1", json!({ "cpuManagerReconcilePeriod": "30s" }), vec!["CPU manager/reconcile period=30s"]),
        ("v1.23.1", json!({ "featureGates": {} }), vec![]),
        (
            "v1.23.1",
            json!({ "cpuManagerPolicy": null, "cpuManagerReconcilePeriod": null, "reservedSystemCPUs": null }),
            vec![
                "CPU manager/policy=",
                "CPU manager/reconcile period=0s",
                "configuration/CPU=no reserved CPU cores",
            ],
        ),
        (
            "v1.23.1",
            json!({ "cpuManagerPolicy": null, "cpuManagerReconcilePeriod": null, "reservedSystemCPUs": null,
                "memoryManagerPolicy": null, "reservedMemory": null, "topologyManagerPolicy": null }),
            vec![
                "CPU manager/policy=",
                "CPU manager/reconcile period=0s",
                "configuration/CPU=no reserved CPU cores",
                "memory manager/policy=",
                "configuration/memory=no reserved memory blocks",
                "topology manager/policy=",
            ],
        ),
        (
            "v1.21.1",
            json!({ "featureGates": { "A": true } }),
            vec!["feature gates/KubeletPodResourcesGetAllocatable=disabled"],
        ),
        (
            "1.10",
            json!({ "featureGates": { "KubeletPodResourcesGetAllocatable": true } }),
            vec!["API Version/=1.10"],
        ),
        (
            "INVALID",
            json!({ "featureGates": { "KubeletPodResourcesGetAllocatable": true } }),
            vec!["API Version/=malformed version: INVALID"],
        ),
    ]
}

/// The peer's own unit tests: how many findings which configuration has, and which.
#[test]
fn the_peers_cases() {
    for (version, change, expected) in peers_cases() {
        let mut world = ClusterFixture::healthy();
        world.remove("Node node-1");
        world.configz.remove("node-1");
        world.version = version.to_owned();
        for (field, value) in change.as_object().unwrap() {
            world.configure("node-0", field, value.clone());
        }
        let items = deployer::items(&world.evidence());
        let found: Vec<String> = items
            .iter()
            .map(|item| format!("{}/{}={}", item.component, item.setting, item.detected))
            .collect();
        assert_eq!(found, expected, "{version} {change}");
    }
}

#[test]
fn a_cluster_without_workers_is_said_so() {
    let mut world = ClusterFixture::healthy();
    world.objects.retain(|key, _| !key.starts_with("Node "));
    let items = deployer::items(&world.evidence());
    assert_eq!(
        deployer::json(&items),
        "{\"success\":false,\"errors\":[{\"node\":\"\",\"area\":\"cluster\",\"component\":\"\",\"setting\":\"\",\
         \"expected\":\"worker nodes\",\"detected\":\"none\"}]}\n"
    );
    assert_eq!(
        deployer::text(&items),
        "ERROR#000: Incorrect configuration of cluster: component \"\" setting \"\": expected \"worker nodes\" detected \"none\"\n"
    );
}

#[test]
fn validators_are_chosen_as_in_nrovalidate() {
    // U030.
    use Validator::{K8sCfg, Nrt, PodSt, SchedCache};
    let run = |list: &[Validator]| Ok(Some(list.iter().copied().collect()));
    for (text, what) in [
        ("all", run(&Validator::ALL)),
        ("nrt,ALL", run(&Validator::ALL)),
        ("K8SCFG, nrt", run(&[K8sCfg, Nrt])),
        ("podst,schedcache", run(&[PodSt, SchedCache])),
        ("help", Ok(None)),
        ("nrt,help", Ok(None)),
        ("", Ok(None)),
        ("nonsense", Err("failed to parse args: unknown validator: nonsense".to_owned())),
        (" all", run(&[]).and(Err("failed to parse args: unknown validator: all".to_owned()))),
    ] {
        assert_eq!(selected(text), what, "{text:?}");
    }
}

#[test]
fn nrovalidate_says_what_is_wrong_in_its_words() {
    let all: BTreeSet<Validator> = Validator::ALL.into();
    let items = |world: &ClusterFixture| nrovalidate::items(&world.evidence(), &all);
    let mut world = ClusterFixture::healthy();
    assert_eq!(nrovalidate::text(&items(&world), true), "PASSED>>: cluster configuration looks ok!\n");
    assert_eq!(nrovalidate::json(&items(&world)), "{\"succeeded\":true}\n");

    world.configure("node-1", "topologyManagerPolicy", "none");
    world.remove("NodeResourceTopology node-1");
    world.add(pod("shop", "slow", Some("node-0"), "x", "1", "Pending"));
    world.add(pod("shop", "done", Some("node-0"), "x", "1", "Succeeded"));
    let found = items(&world);
    assert_eq!(nrovalidate::text(&found, false), "FAILED>>: cluster configuration does NOT look ok!\n");
    assert_eq!(
        nrovalidate::text(&found, true),
        "FAILED>>: cluster configuration does NOT look ok!\n\
         ERROR#000: Incorrect configuration of node \"node-1\" area \"kubelet\" component \"topology manager\" setting \"policy\": \
         expected \"single-numa-node\" detected \"none\"\n\
         ERROR#001: Incorrect configuration of cluster: component \"NodeResourceTopology\" setting \"items\": expected \"2\" detected \"1\"\n\
         ERROR#002: Incorrect configuration of node \"node-0\" area \"kubelet\" component \"pod\" setting \"shop/slow\": expected \"Running\" \
         detected \"Pending\"\n\
         ERROR#003: Incorrect configuration of cluster: component \"scheduler\" setting \"cache\": expected \"clean\" detected \"unsync\"\n"
    );
}

#[test]
fn nrovalidate_knows_what_is_missing() {
    // U030.
    let nrt: BTreeSet<Validator> = [Validator::Nrt].into();
    let mut world = ClusterFixture::healthy();
    world.objects.retain(|key, _| !key.starts_with("NodeResourceTopology "));
    assert!(
        nrovalidate::json(&nrovalidate::items(&world.evidence(), &nrt))
            .contains("\"setting\":\"items\",\"expected\":\"\\u003e 0\",\"detected\":\"0\"")
    );
    world.objects.retain(|key, _| !key.starts_with("CustomResourceDefinition "));
    assert!(
        nrovalidate::json(&nrovalidate::items(&world.evidence(), &nrt))
            .contains("\"setting\":\"installed\",\"expected\":\"true\",\"detected\":\"false\"")
    );
    let k8scfg: BTreeSet<Validator> = [Validator::K8sCfg].into();
    world.configz.clear();
    let text = nrovalidate::text(&nrovalidate::items(&world.evidence(), &k8scfg), true);
    assert!(
        text.contains(
            "component \"configuration\" setting \"\": expected \"any value\" detected \"no configuration\""
        ),
        "{text}"
    );
}
