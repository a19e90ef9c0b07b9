//! Dumps in files.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::fixture::ClusterFixture;
use super::*;
use crate::validate::dump;
use crate::validate::evidence::ConfigSource;

/// Writes all that is to be seen of a cluster, in one of several layouts.
fn write(world: &ClusterFixture, layout: &str, folder: &Path) {
    let put = |path: &str, text: String| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let yaml = |value: &Value| runtime::yaml::write(value).unwrap();
    let objects: Vec<&Value> = world.objects.values().collect();
    match layout {
        "one list" => put("all.yaml", yaml(&json!({ "apiVersion": "v1", "kind": "List", "items": objects }))),
        "typed lists" => {
            let mut kinds: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
            for object in objects {
                let mut item = object.clone();
                item.as_object_mut().unwrap().remove("kind");
                kinds.entry(object["kind"].as_str().unwrap()).or_default().push(item);
            }
            for kind in ["Pod", "Event"] {
                kinds.entry(kind).or_default();
            }
            for (kind, items) in kinds {
                // As kubectl's --raw and `cluster-info dump` write them.
                put(
                    &format!("ns/{kind}s.json"),
                    json!({ "kind": format!("{kind}List"), "items": items }).to_string(),
                );
            }
        }
        "must-gather" => {
            for object in &objects {
                let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("none");
                let (kind, namespace, name) =
                    (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
                put(
                    &format!("quay-io/namespaces/{namespace}/{kind}/{name}.yaml"),
                    format!("---\n{}", yaml(object)),
                );
            }
            put("quay-io/version", "tool 1\n".to_owned());
            put("quay-io/namespaces/a/pods/b/b/logs/current.log", "not: [yaml".to_owned());
        }
        _ => {
            let documents: Vec<String> = objects.iter().map(|object| yaml(object)).collect();
            put("all.yml", documents.join("---\n"));
        }
    }
    put("version.json", json!({ "gitVersion": world.version }).to_string());
    for (node, configuration) in &world.configz {
        put(&format!("configz/{node}.json"), json!({ "kubeletconfig": configuration }).to_string());
    }
}

/// Whatever is wrong and however it is dumped, the same is found.
#[test]
fn a_dump_says_what_the_cluster_says() {
    let layouts = ["one list", "typed lists", "must-gather", "documents"];
    for (number, seed) in seeds::all().enumerate() {
        let mut world = ClusterFixture::healthy();
        (seed.plant)(&mut world);
        let folder = tempfile::tempdir().unwrap();
        write(&world, layouts[number % layouts.len()], folder.path());
        let (mut evidence, notes) = dump::read(folder.path()).unwrap();
        let live = world.evidence();
        evidence.now = live.now;
        let notes = notes
            .iter()
            .filter(|note| !note.contains("belongs to no node in the dump") || !live.nodes.is_empty());
        assert_eq!(notes.collect::<Vec<_>>(), <[&String; 0]>::default());
        let expected = report(&live).findings;
        let gaps: BTreeSet<Area> = evidence.gaps.keys().copied().collect();
        let needs = |id: &str| all().into_iter().find(|check| check.id == id).unwrap().needs;
        let expected: Vec<_> =
            expected.into_iter().filter(|f| !needs(f.id).iter().any(|area| gaps.contains(area))).collect();
        assert_eq!(report(&evidence).findings, expected, "{} {}", seed.id, seed.what);
    }
}

#[test]
fn what_is_not_in_a_dump_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = ClusterFixture::healthy();
    world.objects.retain(|key, _| key.starts_with("Node ") || key.starts_with("Pod "));
    world.configz.clear();
    write(&world, "one list", folder.path());
    fs::remove_file(folder.path().join("version.json")).unwrap();
    let (evidence, _) = dump::read(folder.path()).unwrap();
    let gaps: Vec<Area> = evidence.gaps.keys().copied().collect();
    assert_eq!(gaps, [Area::Version, Area::Definition, Area::Reports, Area::Workloads, Area::Leases]);
    let report = report(&evidence);
    assert_eq!(report.verdict(), Verdict::Incomplete);
    assert_eq!(
        report.not_checked.iter().filter(|undone| undone.object.is_some()).count(),
        2,
        "both kubelets"
    );
}

#[test]
fn kubelet_configurations_come_from_openshifts_objects_too() {
    let mut world = ClusterFixture::healthy();
    let mut configuration = world.configz["node-0"].clone();
    configuration["topologyManagerPolicy"] = "restricted".into();
    world.configz.clear();
    world.add(json!({ "kind": "MachineConfigPool", "metadata": { "name": "worker", "labels": { "kubelet": "numa" } },
        "spec": { "nodeSelector": { "matchLabels": { "node-role.kubernetes.io/worker": "" } } } }));
    world.add(json!({ "kind": "KubeletConfig", "metadata": { "name": "numa" },
        "spec": { "machineConfigPoolSelector": { "matchLabels": { "kubelet": "numa" } }, "kubeletConfig": configuration } }));
    let folder = tempfile::tempdir().unwrap();
    write(&world, "must-gather", folder.path());
    let (evidence, _) = dump::read(folder.path()).unwrap();
    let settings = evidence.nodes["node-1"].settings().unwrap();
    assert_eq!(settings.source, ConfigSource::Object("KubeletConfig numa".to_owned()));
    let found = report(&evidence);
    let finding = found.findings.iter().find(|f| f.id == "topology-manager-policy").unwrap();
    assert!(finding.fix.ends_with("of the node's pool"), "{}", finding.fix);
}

#[test]
fn hypershifts_config_maps_count_by_pool() {
    let mut world = ClusterFixture::healthy();
    world.configz.clear();
    world.get("Node node-0")["metadata"]["labels"]["hypershift.openshift.io/nodePool"] = "pool-a".into();
    let text = "kind: KubeletConfig\nspec:\n  kubeletConfig:\n    topologyManagerPolicy: restricted\n";
    world.add(json!({ "kind": "ConfigMap", "metadata": { "name": "pool-a-kc",
        "labels": { "hypershift.openshift.io/nodePool": "pool-a" } }, "data": { "config": text } }));
    let evidence = world.evidence();
    assert_eq!(evidence.nodes["node-0"].settings().unwrap().text("topologyManagerPolicy"), "restricted");
    assert!(evidence.nodes["node-1"].settings().is_none());
}

#[test]
fn of_two_states_of_an_object_the_newer_counts() {
    let folder = tempfile::tempdir().unwrap();
    let node = |version: &str, kubelet: &str| {
        let info = json!({ "kubeletVersion": kubelet, "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "" });
        json!({ "kind": "Node", "metadata": { "name": "n", "resourceVersion": version }, "status": { "nodeInfo": info } })
    };
    fs::write(folder.path().join("a.json"), node("20", "v2").to_string() + &node("9", "v1").to_string())
        .unwrap();
    let (evidence, _) = dump::read(folder.path()).unwrap();
    assert_eq!(evidence.nodes["n"].kubelet_version, "v2");
}

#[test]
fn folders_that_are_no_dumps_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = |folder: &Path| dump::read(folder).unwrap_err().to_string();
    assert!(error(folder.path()).contains("no Kubernetes object in any file"));
    assert!(error(&folder.path().join("missing")).contains("No such file"));
    fs::write(folder.path().join("a.yaml"), "a: [\n").unwrap();
    fs::write(folder.path().join("b.json"), [0xff, 0xfe]).unwrap();
    assert!(error(folder.path()).contains("no Kubernetes object in any file"));
    fs::write(folder.path().join("c.yaml"), "kind: Pod\nmetadata: {name: 1}\n").unwrap();
    let (evidence, notes) = dump::read(folder.path()).unwrap();
    assert_eq!(evidence.pods.len(), 0);
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[test]
fn garbage_ends_in_notes() {
    use proptest::prelude::*;
    let folder = tempfile::tempdir().unwrap();
    proptest!(ProptestConfig::with_cases(200), |(text in "[ -~\\n]{0,300}", kind in "(Node|Pod|Event|Lease|DaemonSet|NodeResourceTopology|CustomResourceDefinition|ConfigMap|KubeletConfig|MachineConfigPool)List")| {
        let item = json!({ "metadata": text, "spec": [text], "status": { "conditions": text }, "zones": text, "data": { "a": text } });
        fs::write(folder.path().join("a.yaml"), &text).unwrap();
        fs::write(folder.path().join("b.json"), json!({ "kind": kind, "items": [item, text, null, 7] }).to_string()).unwrap();
        let (evidence, _) = dump::read(folder.path()).unwrap();
        let _ = report(&evidence);
    });
}
