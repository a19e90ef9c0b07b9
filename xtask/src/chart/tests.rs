//! The chart against the deployer, object by object, and against Helm's own checks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use deployer::cli::render;
use deployer::manifests::parts_within;
use deployer::part::{MANAGED_BY, MANAGER, Part};
use serde_json::Value;

use super::*;
use crate::gotool::{HELM, output};

const NAMESPACE: &str = "numa";

/// Helm, built if the rig is required; otherwise a test without it is skipped.
pub(super) fn helm() -> Option<PathBuf> {
    let is_required = std::env::var_os(testkit::env::REQUIRE).is_some_and(|value| !value.is_empty());
    let place = HELM.place().unwrap();
    if is_required {
        return Some(HELM.program().unwrap());
    }
    if !place.exists() {
        eprintln!("SKIPPED: no helm; cargo xtask testenv builds it");
    }
    place.exists().then_some(place)
}

/// The chart in a folder.
pub(super) fn written(repository: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    tree(repository, None).unwrap().put(folder.path(), false, "").unwrap();
    folder
}

/// Helm with files of its own.
pub(super) fn command(helm: &Path, home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(helm);
    command.args(words).env("HOME", home).env_remove("KUBECONFIG");
    for (variable, folder) in
        [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
    {
        command.env(variable, home.join(folder));
    }
    command
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: render::Args,
}

/// Values, the version of Kubernetes, and the flags of `tholepin render` that say the same.
const SETS: [(&str, &str, &str); 15] = [
    ("", "v1.36.3", ""),
    ("{monitoring: true}", "v1.36.3", "--monitoring"),
    (
        "{monitoring: true, runbookUrl: 'https://a.example/alerts', scheduler: {deleteRejectedPods: true}}",
        "v1.36.3",
        "--monitoring --runbook-url https://a.example/alerts --sched-delete-rejected-pods",
    ),
    ("{monitoring: true, platform: openshift}", "v1.33.1", "--platform openshift:4.20 --monitoring"),
    (
        "{platform: openshift, criticalQuota: true, image: {pullSecrets: [a, b], pullPolicy: Always}}",
        "v1.33.1",
        "--platform openshift:4.20 --critical-quota --pull-secret a --pull-secret b --pull-policy always",
    ),
    (
        "{platform: hypershift, kubelet: {config: /etc/kubernetes/kubelet.conf}, exporter: {admissionPolicy: false}}",
        "v1.31.0",
        "--platform hypershift:4.18 --kubelet-config /etc/kubernetes/kubelet.conf --admission-policy=false",
    ),
    (
        "{image: {repository: registry.example:5000/numa/tholepin, tag: '1.2'}, architectures: [], networkPolicies: false}",
        "v1.31.4",
        "--platform kubernetes:1.31.4 --image registry.example:5000/numa/tholepin:1.2 --arch all --network-policies=false",
    ),
    (
        "{kubelet: {profile: microk8s, insecure: true}, apiServer: {ports: [8443], cidrs: [10.0.0.0/8, fd00::/8]}}",
        "v1.36.3",
        "--kubelet-profile microk8s --kubelet-insecure --api-server-port 8443 --api-server-cidr 10.0.0.0/8,fd00::/8",
    ),
    (
        "{kubelet: {root: /data/kubelet, rootMount: true}, exporter: {fingerprint: false, syncPeriod: 1m30s, verbosity: 4}}",
        "v1.32.0",
        "-P kubernetes:1.32.0 --kubelet-root /data/kubelet --kubelet-root-mount --updater-pfp-enable=false \
         --updater-sync-period 90s --updater-verbose 4",
    ),
    (
        "{kubelet: {config: restricted/pod}, exporter: {nodeSelector: {numa: 'yes', zone: a}, tolerations: [], \
         priorityClassName: '', metricsPort: 9100}}",
        "v1.36.3",
        "--kubelet-config restricted/pod --updater-node-selector numa=yes,zone=a --updater-toleration none \
         --updater-priority-class= --metrics-port 9100",
    ),
    (
        "{scheduler: {replicas: 3, schedulerName: numa, verbosity: 0, priorityClassName: high, \
         nodeSelector: {kubernetes.io/os: bsd}, tolerations: [{key: a, operator: Equal, value: b, effect: NoExecute}]}}",
        "v1.36.3",
        "--replicas 3 --sched-profile-name numa --sched-verbose 0 --sched-priority-class high \
         --sched-node-selector kubernetes.io/os=bsd --sched-toleration a=b:NoExecute",
    ),
    (
        "{scheduler: {replicas: 2, disruptionBudget: false, controlPlaneAffinity: false}, architectures: [s390x]}",
        "v1.36.3",
        "--replicas 2 --disruption-budget=false --sched-ctrlplane-affinity=false --arch s390x",
    ),
    (
        "{kubelet: {config: 'configz:10251', caConfigMap: kubelets}, exporter: {tolerations: [{operator: Exists}]}}",
        "v1.33.0",
        "--kubelet-config configz:10251 --kubelet-ca-config-map kubelets --updater-toleration all",
    ),
    (
        "{exporter: {enabled: false}, criticalQuota: true, scheduler: {controlPlaneAffinity: false}}",
        "v1.36.3",
        "scheduler-plugin --critical-quota --sched-ctrlplane-affinity=false",
    ),
    (
        "{scheduler: {enabled: false}, kubelet: {profile: kind, config: configz, rootMount: true}}",
        "v1.36.3",
        "topology-updater --kubelet-profile kind --kubelet-config configz --kubelet-root-mount",
    ),
];

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

fn by_name(objects: impl IntoIterator<Item = Value>) -> Objects {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all = Objects::new();
    for object in objects {
        let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        assert!(all.insert(name.clone(), object).is_none(), "{name} twice");
    }
    all
}

/// What `tholepin render --existing-namespace` prints with these flags. Where it names one component, the definition is
/// there too, as in the chart.
fn rendered(flags: &str) -> Objects {
    let words = ["render", "--existing-namespace", NAMESPACE].into_iter().chain(flags.split_whitespace());
    let args = Cli::try_parse_from(words).unwrap().args;
    let components = match args.target {
        None => Component::ALL.to_vec(),
        Some(render::RenderTarget::Exporter) => vec![Component::Api, Component::Exporter],
        Some(render::RenderTarget::Scheduler) => vec![Component::Api, Component::Scheduler],
        other => panic!("{other:?}"),
    };
    let parts = parts_within(&args.options().unwrap(), NAMESPACE, &components).unwrap();
    by_name(parts.iter().flat_map(Part::objects).map(|object| object.body().clone()))
}

/// What Helm makes of the chart, but for its two own marks: who manages objects, and that the definition stays.
fn templated(helm: &Path, home: &Path, chart: &Path, values: &str, version: &str) -> Result<Objects, String> {
    let file = home.join("values.yaml");
    std::fs::write(&file, values).unwrap();
    let chart = chart.to_str().unwrap();
    let mut command = command(helm, home, &["template", "numa-release", chart, "--namespace", NAMESPACE]);
    command.args(["--kube-version", version, "--values"]).arg(&file);
    let (text, _) = output(&mut command).map_err(|error| error.to_string())?;
    let objects: Vec<Value> = runtime::yaml::read_many("helm", &text, 100).unwrap();
    let mut objects = by_name(objects);
    for (name, object) in &mut objects {
        let labels = &mut object["metadata"]["labels"];
        assert_eq!(labels[MANAGED_BY], "Helm", "{name}");
        labels[MANAGED_BY] = MANAGER.into();
        let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        let kept = annotations.and_then(|annotations| annotations.remove("helm.sh/resource-policy"));
        assert_eq!(kept.is_some(), name.starts_with("CustomResourceDefinition "), "{name}");
    }
    Ok(objects)
}

#[track_caller]
fn compare(made: &Objects, wanted: &Objects, values: &str) {
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(made), names(wanted), "{values}");
    for (name, object) in wanted {
        let text = |object: &Value| runtime::yaml::write(object).unwrap();
        assert_eq!(text(&made[name]), text(object), "{values}: {name}");
    }
}

#[test]
fn the_chart_makes_what_render_prints() {
    let Some(helm) = helm() else { return };
    let (chart, home) = (written("tholepin"), tempfile::tempdir().unwrap());
    for (values, version, flags) in SETS {
        let made = templated(&helm, home.path(), chart.path(), values, version).unwrap();
        compare(&made, &rendered(flags), values);
    }
}

#[test]
fn the_exporters_file_is_taken_as_it_is() {
    let Some(helm) = helm() else { return };
    let (chart, home) = (written("tholepin"), tempfile::tempdir().unwrap());
    let text = "topologyManagerPolicy: restricted\n# {{ not an action }}\n\n";
    let values = serde_json::json!({ "exporter": { "config": text } }).to_string();
    let file = home.path().join("exporter.yaml");
    std::fs::write(&file, text).unwrap();
    let wanted = rendered(&format!("--updater-config-file {}", file.display()));
    let made = templated(&helm, home.path(), chart.path(), &values, "v1.36.3").unwrap();
    compare(&made, &wanted, &values);
}

#[test]
fn helm_finds_no_fault_and_refuses_wrong_values() {
    let Some(helm) = helm() else { return };
    let (chart, home) = (written("tholepin"), tempfile::tempdir().unwrap());
    let (said, _) =
        output(&mut command(&helm, home.path(), &["lint", "--strict", chart.path().to_str().unwrap()]))
            .unwrap();
    assert!(said.contains("0 chart(s) failed"), "{said}");
    for (values, version, wanted) in [
        ("{exporter: {verbose: 1}}", "v1.36.3", "'verbose' not allowed"),
        ("{image: {digest: 'sha256:1'}}", "v1.36.3", "/image/digest"),
        ("{exporter: {metricsPort: 8081}}", "v1.36.3", "/exporter/metricsPort"),
        ("{scheduler: {schedulerName: 'true'}}", "v1.36.3", "/scheduler/schedulerName"),
        ("{kubelet: {config: some/pod}}", "v1.36.3", "/kubelet/config"),
        ("{kubelet: {insecure: true, caConfigMap: a}}", "v1.36.3", "exclude each other"),
        ("{kubelet: {profile: eks}}", "v1.32.9", "configz is not allowed"),
        ("", "v1.29.0", "requires kubeVersion: >=1.30.0-0"),
    ] {
        let made = templated(&helm, home.path(), chart.path(), values, version);
        let error = made.err().unwrap_or_default();
        assert!(error.contains(wanted), "{values}: {error:?}");
    }
}

#[test]
fn the_image_is_named_by_its_digest_where_there_is_one() {
    let Some(helm) = helm() else { return };
    let home = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let digest = format!("sha256:{}", "a".repeat(64));
    tree("registry.example/tholepin", Some(&digest)).unwrap().put(folder.path(), false, "").unwrap();
    let made = templated(&helm, home.path(), folder.path(), "", "v1.36.3").unwrap();
    compare(&made, &rendered(&format!("--image registry.example/tholepin@{digest}")), &digest);
}

#[test]
fn every_value_has_a_description_and_a_default_that_is_allowed() {
    let chart = tree(values::REPOSITORY, None).unwrap();
    let schema: Value = serde_json::from_str(chart.get("values.schema.json").unwrap()).unwrap();
    let file = chart.get("values.yaml").unwrap();
    let described = |properties: &Value| {
        for (name, value) in properties.as_object().unwrap() {
            if value["properties"].is_null() && name != "global" {
                let text = value["description"].as_str().unwrap();
                assert!(!text.contains("[default") && text.len() > 10, "{name}: {text}");
                assert!(file.contains(&format!("{name}:")), "{name}");
            }
        }
    };
    described(&schema["properties"]);
    let sections = schema["properties"].as_object().unwrap().values();
    sections.filter(|value| !value["properties"].is_null()).for_each(|value| described(&value["properties"]));
}
