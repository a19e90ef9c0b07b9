//! Explanations of whole clusters, as objects in JSON.

use clap::Parser as _;
use serde_json::json;

use super::*;
use crate::config;

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: cli::Args,
}

const NOW_MS: u64 = 1_000_000_000;

fn node(name: &str, cpus: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
        "status": {"allocatable": {"cpu": cpus.to_string(), "memory": "64Gi", "pods": "110", "v.io/nic": "4"}},
    })
}

/// A report with these amounts of CPUs and NICs, allocatable and available, by zone.
fn report(node: &str, scope: &str, zones: &[[i64; 4]]) -> Value {
    let amount = |name: &str, allocatable: i64, available: i64| {
        let (allocatable, available) = (allocatable.to_string(), available.to_string());
        json!({"name": name, "capacity": allocatable, "allocatable": allocatable, "available": available})
    };
    let zones = zones.iter().enumerate().map(|(id, [cpus, free_cpus, nics, free_nics])| {
        let memory =
            json!({"name": "memory", "capacity": "32Gi", "allocatable": "32Gi", "available": "32Gi"});
        let resources = [amount("cpu", *cpus, *free_cpus), amount("v.io/nic", *nics, *free_nics), memory];
        json!({"name": format!("node-{id}"), "type": "Node", "resources": resources})
    });
    json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": scope},
        ],
        "zones": zones.collect::<Vec<_>>(),
    })
}

fn pod(name: &str, node: Option<&str>, containers: &[(&str, i64, i64)]) -> Value {
    let container = |(name, cpus, nics): &(&str, i64, i64)| {
        let mut amounts = json!({"cpu": cpus.to_string(), "memory": "1Gi"});
        if *nics > 0 {
            amounts["v.io/nic"] = nics.to_string().into();
        }
        json!({"name": name, "image": "i", "resources": {"requests": amounts, "limits": amounts}})
    };
    let containers: Vec<Value> = containers.iter().map(container).collect();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
        "spec": {"schedulerName": "topo-aware-scheduler", "containers": containers},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
        pod["status"] =
            json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "qosClass": "Guaranteed"});
    }
    pod
}

#[test]
fn each_node_says_why_and_what_would_help() {
    let objects = [
        node("a-short", 16),
        report("a-short", "container", &[[8, 4, 0, 0], [8, 5, 2, 2]]),
        pod("small", Some("a-short"), &[("c", 3, 0)]),
        pod("other", Some("a-short"), &[("c", 4, 0)]),
        node("b-apart", 16),
        report("b-apart", "container", &[[8, 8, 0, 0], [8, 2, 2, 2]]),
        node("c-scope", 16),
        report("c-scope", "pod", &[[8, 8, 2, 2], [8, 8, 2, 2]]),
        node("d-full", 4),
        node("e-fits", 16),
        report("e-fits", "container", &[[8, 8, 2, 2], [8, 8, 2, 2]]),
    ];
    let asked = pod("asked", None, &[("main", 6, 1), ("side", 3, 0)]);
    let explanation = of_objects(config::default_settings(0), objects, asked, NOW_MS).unwrap();
    assert_eq!(
        print::text(&explanation, false),
        r#"Pod ns/asked fits 1 of 5 nodes for topo-aware-scheduler; it would be on e-fits.

 NODE     FITS  WHY                                                                           WOULD FIT WITH
 e-fits   yes   score 498
 a-short  no    cannot align container "main": cpu: requested 6, most in one zone 5 (zone 1)  cpu 5 instead of 6 in container "main"
 b-apart  no    cannot align container "main": no zone has all resources at once              cpu 2 instead of 6 in container "main"
 c-scope  no    cannot align pod: cpu: requested 9, most in one zone 8 (zone 0)               cpu 5 instead of 6 in container "main"
 d-full   no    Insufficient cpu                                                              cpu 1 instead of 6 in container "main"
"#
    );
}

/// The JSON that scripts rely on. LeastAllocated: 25 for CPUs and 96 for memory; 0 for CPUs where no zone has enough.
/// The objects are as a must-gather has them: a folder for each kind, a file for each.
#[tokio::test]
async fn a_must_gather_is_explained_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = |path: String, object: &Value| {
        let path = folder.path().join("must-gather/registry-sha256-0").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, runtime::yaml::write(object).unwrap()).unwrap();
    };
    for (name, zones) in [("fits", [[8, 8, 0, 0], [8, 8, 0, 0]]), ("short", [[8, 4, 0, 0], [8, 5, 0, 0]])] {
        let (node, report) = (node(name, 16), report(name, "container", &zones));
        file(format!("cluster-scoped-resources/core/nodes/{name}.yaml"), &node);
        let reports = "cluster-scoped-resources/topology.node.k8s.io/noderesourcetopologies";
        file(format!("{reports}/{name}.yaml"), &report);
    }
    for (at, cpus) in [4, 3].into_iter().enumerate() {
        let name = format!("there-{at}");
        let pod = pod(&name, Some("short"), &[("c", cpus, 0)]);
        file(format!("namespaces/ns/pods/{name}/{name}.yaml"), &pod);
    }
    std::fs::write(folder.path().join("must-gather/event-filter.html"), "<html>").unwrap();
    let asked = folder.path().join("asked.yaml");
    let object = pod("asked", None, &[("main", 6, 0)]);
    std::fs::write(&asked, runtime::yaml::write(&object).unwrap()).unwrap();
    let folder = folder.path().join("must-gather").display().to_string();
    let asked = asked.display().to_string();
    let args = Cli::parse_from(["explain", "--cluster", &folder, "--pod", &asked, "-o", "json"]).args;
    let text = args.output.format.write(&cli::explain(&args).await.unwrap(), |_| panic!("a table")).unwrap();

    let told: Value = serde_json::from_str(&text).unwrap();
    let resources = |free: [&str; 2]| {
        let amounts = |allocatable: &str, free: &str| json!({"allocatable": allocatable, "free": free});
        let zones = free.iter().enumerate().map(|(zone, free)| {
            let resources = json!({
                "cpu": amounts("8", free), "memory": amounts("32Gi", "32Gi"), "v.io/nic": amounts("0", "0"),
            });
            json!({"zone": zone, "resources": resources})
        });
        Value::from(zones.collect::<Vec<_>>())
    };
    let [fits, short] = &*told["nodes"].as_array().unwrap().clone() else { panic!("{told:#}") };
    assert_eq!((&told["pod"], &told["chosen"]), (&"ns/asked".into(), &"fits".into()));
    assert_eq!(
        (&fits["node"], &fits["fits"], &fits["code"]),
        (&"fits".into(), &true.into(), &"Success".into())
    );
    assert_eq!((&fits["reasons"], &fits["scores"]["NodeResourceTopologyMatch"]), (&json!([]), &60.into()));
    assert_eq!(short["fits"], false);
    assert_eq!(short["code"], "Unschedulable");
    let reason = "cannot align container \"main\": cpu: requested 6, most in one zone 5 (zone 1)";
    assert_eq!(short["reasons"], json!([reason]));
    assert_eq!(short["scores"], json!({"NodeResourceTopologyMatch": 48}));
    assert_eq!(short["changes"][0]["text"], "cpu 5 instead of 6 in container \"main\"");
    assert_eq!((&fits["zones"], &short["zones"]), (&resources(["8", "8"]), &resources(["4", "5"])));
}

/// What keeps a pod from being tried comes before all nodes, in the words of its event. A dump need not have claims.
#[test]
fn what_holds_a_pod_back_is_told_first() {
    let with = |path: &str, value: Value| {
        let mut pod = pod("asked", None, &[("c", 4, 0)]);
        *pod.pointer_mut(path).unwrap() = value;
        pod
    };
    let gated = || {
        let mut spec = pod("asked", None, &[("c", 4, 0)])["spec"].clone();
        spec["schedulingGates"] = json!([{"name": "a"}, {"name": "b"}]);
        with("/spec", spec)
    };
    let claiming = || {
        let mut spec = pod("asked", None, &[("c", 4, 0)])["spec"].clone();
        spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
        with("/spec", spec)
    };
    let other_claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "ns", "name": "other", "uid": "other"}, "spec": {}, "status": {"phase": "Bound"},
    });
    let mut unread = pod("asked", None, &[("c", 4, 0)]);
    unread["metadata"]["annotations"] = json!({"tholepin.dev/alignment": "bogus"});
    for (asked, more, code, message) in [
        (gated(), None, "Success", Some("waiting for scheduling gates: [a b]")),
        (claiming(), None, "Success", None),
        (
            claiming(),
            Some(other_claim),
            "UnschedulableAndUnresolvable",
            Some("0/1 nodes are available: persistentvolumeclaim \"data\" not found."),
        ),
        (
            unread,
            None,
            "UnschedulableAndUnresolvable",
            Some("0/1 nodes are available: the scheduler does not yet support "),
        ),
    ] {
        let cluster = [node("n", 16), report("n", "container", &[[8, 8, 0, 0], [8, 8, 0, 0]])];
        let objects = cluster.into_iter().chain(more);
        let told = of_objects(config::default_settings(0), objects, asked, NOW_MS).unwrap();
        assert_eq!(told.nodes[0].code, code, "{told:?}");
        assert_eq!(told.chosen.is_none(), message.is_some(), "{told:?}");
        assert!(told.message.unwrap_or_default().starts_with(message.unwrap_or_default()), "{message:?}");
    }
}

/// A waiting pod goes to the node that is nominated for it, also if another one has a higher score.
#[test]
fn a_nominated_node_is_chosen() {
    for nominated in ["a", "b"] {
        let mut snapshot = Snapshot::default();
        let mut asked = pod("asked", None, &[("c", 4, 0)]);
        asked["status"] =
            json!({"phase": "Pending", "qosClass": "Guaranteed", "nominatedNodeName": nominated});
        let zones = [[8, 8, 0, 0], [8, 8, 0, 0]];
        for object in [
            node("a", 16),
            report("a", "pod", &zones),
            node("b", 12),
            report("b", "pod", &zones),
            asked.clone(),
        ] {
            snapshot.take(object);
        }
        let target = TargetPod::of_cluster(asked).unwrap();
        let (told, _) = answer(config::default_settings(0), snapshot, target, NOW_MS).unwrap();
        assert_eq!(told.chosen.as_deref(), Some(nominated));
    }
}

#[test]
fn the_smallest_change_is_found() {
    let mut burstable = pod("asked", None, &[("c", 6, 0)]);
    burstable["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "8".into();
    let cases = [
        // No smaller request and no departure helps, and the scope does.
        (
            40,
            ("pod", [[20, 20, 0, 0], [20, 20, 0, 0]]),
            pod("asked", None, &[("main", 20, 0), ("side", 20, 0)]),
            "topologyManagerScope container",
        ),
        // Between what a zone has left and the half.
        (
            200,
            ("container", [[120, 120, 0, 0], [5, 5, 0, 0]]),
            pod("asked", None, &[("main", 100, 0), ("side", 50, 0)]),
            "cpu 70 instead of 100 in container \"main\"",
        ),
        // The zones of a Burstable pod's CPUs do not matter, also with less of them.
        (16, ("container", [[8, 2, 0, 0], [8, 2, 0, 0]]), burstable, "cpu 4 instead of 6 in container \"c\""),
    ];
    for (cpus, (scope, zones), asked, wanted) in cases {
        let objects = [node("n", cpus), report("n", scope, &zones)];
        let pods = [pod("g1", Some("n"), &[("c", 6, 0)]), pod("g2", Some("n"), &[("c", 6, 0)])];
        let objects = objects.into_iter().chain(pods.into_iter().filter(|_| cpus == 16));
        let told = of_objects(config::default_settings(0), objects, asked, NOW_MS).unwrap();
        assert_eq!(told.nodes[0].changes.first().map(|change| &*change.text), Some(wanted), "{told:?}");
    }
}

/// A manifest may be one of the cluster, whose class the API server has stated.
#[test]
fn the_stated_class_of_a_manifest_counts() {
    let mut asked = pod("asked", None, &[("c", 30, 0)]);
    let fits = |asked: &Value| {
        let objects = [node("n", 40), report("n", "container", &[[20, 20, 0, 0], [20, 20, 0, 0]])];
        of_objects(config::default_settings(0), objects, asked.clone(), NOW_MS).unwrap().chosen.is_some()
    };
    assert!(!fits(&asked));
    asked["status"] = json!({"phase": "Failed", "qosClass": "Burstable"});
    assert!(fits(&asked));
}
