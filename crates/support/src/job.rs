//! `make-job-foreach-ds`: a Job for each DaemonSet of exporters, which runs a script once on each of its nodes.
//!
//! In: DaemonSets, as listed by the NUMAResourcesOperator object or named by flag; a script. Out: Jobs as YAML, for
//! `kubectl create -f -`. Never: a Job without a deadline, or an incomplete list: nothing is printed unless all Jobs
//! can be made.
//!
//! The Job uses the image of the exporter, which is on the nodes already, and enters the root of the node with its
//! `chroot`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use api::numaresources::{NamespacedName, NumaResourcesOperator};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, HostPathVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements,
    SecurityContext, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::{Api, Client};
use runtime::client::brief;
use runtime::goflag::{Flag, Kind, Parsed};
use runtime::yaml;
use serde_json::Value;

use crate::call::{self, Call, KUBECONFIG};

/// Name of the only NUMAResourcesOperator object.
pub const OPERATOR: &str = "numaresourcesoperator";
/// Name of the exporters' container.
const CONTAINER: &str = "resource-topology-exporter";
/// Largest script; the script is part of an object, and objects are limited in size.
const MAX_SCRIPT_BYTES: u64 = 256 << 10;

const FLAGS: [Flag; 6] = [
    Flag { name: "name", kind: Kind::Text, default: "", help: "prefix of the Jobs' names" },
    Flag {
        name: "namespace",
        kind: Kind::Text,
        default: "",
        help: "namespace of the Jobs; default: that of each DaemonSet",
    },
    Flag { name: "serviceaccount", kind: Kind::Text, default: "", help: "service account of the Jobs" },
    Flag { name: "script", kind: Kind::Text, default: "", help: "file with the script to run on each node" },
    Flag {
        name: "daemonset",
        kind: Kind::Text,
        default: "",
        help: "DaemonSets as namespace/name, separated by commas; default: those of the NUMAResourcesOperator",
    },
    Flag { name: "timeout", kind: Kind::Duration, default: "10m0s", help: "deadline of the Jobs" },
];

/// The common settings of the Jobs.
#[derive(Clone, Debug)]
struct Task {
    name: String,
    namespace: Option<String>,
    account: String,
    script: String,
    timeout_s: i64,
}

/// Runs the tool.
///
/// # Errors
/// When a flag is missing, the script cannot be read, or a DaemonSet does not exist.
pub async fn run(call: &Call) -> anyhow::Result<ExitCode> {
    let flags = match call.flags(&[&FLAGS, &KUBECONFIG], false) {
        Ok(flags) => flags,
        Err(code) => return Ok(code),
    };
    let task = Task::of(&flags)?;
    let named = flags.text("daemonset").filter(|list| !list.is_empty());
    let client = call::client("make-job-foreach-ds", &flags).await?;
    let wanted = match named {
        Some(list) => list.split(',').map(parse).collect::<Result<_, _>>()?,
        None => listed(&client).await?,
    };
    let mut text = String::new();
    for NamespacedName { namespace, name } in wanted {
        let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
        let set = sets.get(&name).await;
        let set = set.map_err(|error| anyhow::anyhow!("DaemonSet {namespace}/{name}: {}", brief(&error)))?;
        let pods = scheduled(&set);
        call::log(&format!("DaemonSet: {namespace}/{name}: pods={pods}"));
        if pods == 0 {
            // A Job needs at least one pod.
            continue;
        }
        let job = task.job(&set).with_context(|| format!("DaemonSet {namespace}/{name}"))?;
        text = text + "---\n" + &runtime::yaml::write(&document(&job)?)?;
    }
    call::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn parse(text: &str) -> anyhow::Result<NamespacedName> {
    let (namespace, name) = text
        .trim()
        .split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
        .with_context(|| format!("-daemonset: {text:?} is not of the form namespace/name"))?;
    Ok(NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() })
}

async fn listed(client: &Client) -> anyhow::Result<Vec<NamespacedName>> {
    let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
    let operator = operators.get(OPERATOR).await;
    let operator = operator.map_err(|error| {
        anyhow::anyhow!(
            "NUMAResourcesOperator {OPERATOR}: {}; name DaemonSets with -daemonset instead",
            brief(&error)
        )
    })?;
    if operator.status.daemon_sets.is_empty() {
        bail!("NUMAResourcesOperator {OPERATOR}: no DaemonSet is ready");
    }
    Ok(operator.status.daemon_sets)
}

fn scheduled(set: &DaemonSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.current_number_scheduled)
}

/// The Job as JSON, without the empty status of its type.
fn document(job: &Job) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(job)?;
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    Ok(value)
}

impl Task {
    fn of(flags: &Parsed) -> anyhow::Result<Self> {
        let given = |name: &'static str| flags.text(name).filter(|text| !text.is_empty());
        let needed = |name: &'static str| given(name).with_context(|| format!("-{name} is required"));
        let (name, account, file) = (needed("name")?, needed("serviceaccount")?, needed("script")?);
        let timeout =
            flags.duration("timeout").map_or(Some(600), |timeout| timeout.to_std().map(|t| t.as_secs()));
        let timeout_s =
            timeout.filter(|&seconds| seconds > 0).and_then(|seconds| i64::try_from(seconds).ok());
        Ok(Self {
            name: name.to_owned(),
            namespace: given("namespace").map(str::to_owned),
            account: account.to_owned(),
            script: script(Path::new(file))?,
            timeout_s: timeout_s.context("-timeout must be at least 1s")?,
        })
    }

    fn job(&self, set: &DaemonSet) -> anyhow::Result<Job> {
        let template = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let template = template.context("no pod template")?;
        let image = image(template)?;
        let labels = BTreeMap::from([("app".to_owned(), self.name.clone())]);
        let pods = Some(scheduled(set));
        let spec = self.pod(template, image, &labels);
        let metadata = ObjectMeta { labels: Some(labels), ..ObjectMeta::default() };
        Ok(Job {
            metadata: ObjectMeta {
                namespace: self.namespace.clone().or(set.metadata.namespace.clone()),
                generate_name: Some(format!("{}-", self.name)),
                ..ObjectMeta::default()
            },
            spec: Some(JobSpec {
                parallelism: pods,
                completions: pods,
                active_deadline_seconds: Some(self.timeout_s),
                template: PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) },
                ..JobSpec::default()
            }),
            status: None,
        })
    }

    fn pod(&self, exporter: &PodSpec, image: String, labels: &BTreeMap<String, String>) -> PodSpec {
        let amounts = [("cpu", "100m"), ("memory", "256Mi")];
        let amounts = amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
        // Found by PATH: images have `chroot` in different folders.
        let command = ["chroot", "/host", "/bin/sh", "-c", &self.script].map(str::to_owned);
        let container = Container {
            name: "chroot-task".to_owned(),
            image: Some(image),
            command: Some(command.into()),
            resources: Some(ResourceRequirements { requests: Some(amounts.into()), ..Default::default() }),
            security_context: Some(SecurityContext {
                privileged: Some(true),
                run_as_user: Some(0),
                ..SecurityContext::default()
            }),
            volume_mounts: Some(vec![VolumeMount {
                name: "host".to_owned(),
                mount_path: "/host".to_owned(),
                ..VolumeMount::default()
            }]),
            ..Container::default()
        };
        let root = HostPathVolumeSource { path: "/".to_owned(), type_: Some("Directory".to_owned()) };
        PodSpec {
            containers: vec![container],
            restart_policy: Some("Never".to_owned()),
            service_account_name: Some(self.account.clone()),
            security_context: Some(PodSecurityContext {
                run_as_user: Some(0),
                ..PodSecurityContext::default()
            }),
            node_selector: exporter.node_selector.clone(),
            affinity: exporter.affinity.clone().and_then(|affinity| {
                // Pod affinity of exporters does not apply to other pods.
                let node = affinity.node_affinity.clone();
                node.map(|node| k8s_openapi::api::core::v1::Affinity {
                    node_affinity: Some(node),
                    ..Default::default()
                })
            }),
            tolerations: exporter.tolerations.clone(),
            topology_spread_constraints: Some(vec![TopologySpreadConstraint {
                max_skew: 1,
                when_unsatisfiable: "DoNotSchedule".to_owned(),
                topology_key: "kubernetes.io/hostname".to_owned(),
                label_selector: Some(LabelSelector {
                    match_labels: Some(labels.clone()),
                    ..LabelSelector::default()
                }),
                // Pods of this Job only; those of an earlier one may still exist.
                match_label_keys: Some(vec!["batch.kubernetes.io/controller-uid".to_owned()]),
                node_taints_policy: Some("Honor".to_owned()),
                ..TopologySpreadConstraint::default()
            }]),
            volumes: Some(vec![Volume {
                name: "host".to_owned(),
                host_path: Some(root),
                ..Volume::default()
            }]),
            ..PodSpec::default()
        }
    }
}

fn script(file: &Path) -> anyhow::Result<String> {
    yaml::read_text(file, MAX_SCRIPT_BYTES).context("script")
}

fn image(template: &PodSpec) -> anyhow::Result<String> {
    let named = template.containers.iter().find(|container| container.name == CONTAINER);
    let only = || template.containers.first().filter(|_| template.containers.len() == 1);
    let container = named.or_else(only).with_context(|| format!("no container {CONTAINER}"))?;
    container.image.clone().with_context(|| format!("container {} has no image", container.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(containers: &[&str]) -> DaemonSet {
        let containers: Vec<Value> =
            containers.iter().map(|name| json!({ "name": name, "image": format!("image-{name}") })).collect();
        serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": "set" },
            "spec": { "selector": {}, "template": { "spec": {
                "containers": containers,
                "nodeSelector": { "pool": "numa" },
                "tolerations": [{ "key": "numa", "operator": "Exists" }],
                "affinity": { "podAntiAffinity": {} },
            } } },
            "status": { "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 2 },
        }))
        .unwrap()
    }

    fn task() -> Task {
        Task {
            name: "fix".to_owned(),
            namespace: None,
            account: "sa".to_owned(),
            script: "echo 1\necho 2\n".to_owned(),
            timeout_s: 600,
        }
    }

    #[test]
    fn a_job_has_a_pod_for_each_node() {
        let job = document(&task().job(&set(&[CONTAINER, "shared-pool-container"])).unwrap()).unwrap();
        let at = |path: &str| job.pointer(path).cloned().unwrap_or_default();
        for (path, wanted) in [
            ("/apiVersion", json!("batch/v1")),
            ("/kind", json!("Job")),
            ("/metadata", json!({ "namespace": "ns", "generateName": "fix-" })),
            ("/spec/parallelism", json!(3)),
            ("/spec/completions", json!(3)),
            ("/spec/activeDeadlineSeconds", json!(600)),
            ("/spec/template/spec/containers/0/image", json!("image-resource-topology-exporter")),
            (
                "/spec/template/spec/containers/0/command",
                json!(["chroot", "/host", "/bin/sh", "-c", "echo 1\necho 2\n"]),
            ),
            (
                "/spec/template/spec/containers/0/resources/requests",
                json!({ "cpu": "100m", "memory": "256Mi" }),
            ),
            ("/spec/template/spec/nodeSelector", json!({ "pool": "numa" })),
            ("/spec/template/spec/tolerations/0/key", json!("numa")),
            ("/spec/template/spec/affinity", Value::Null),
            ("/spec/template/spec/serviceAccountName", json!("sa")),
            ("/spec/template/spec/topologySpreadConstraints/0/topologyKey", json!("kubernetes.io/hostname")),
            ("/status", Value::Null),
        ] {
            assert_eq!(at(path), wanted, "{path}");
        }
        let elsewhere = Task { namespace: Some("other".to_owned()), ..task() };
        assert_eq!(elsewhere.job(&set(&["x"])).unwrap().metadata.namespace.as_deref(), Some("other"));
        // What is printed is read back as the same object.
        let text = runtime::yaml::write(&job).unwrap();
        assert_eq!(runtime::yaml::read_str::<Value>("x", &text, runtime::yaml::Mode::Strict).unwrap(), job);
    }

    #[test]
    fn the_image_is_the_exporters() {
        for (containers, wanted) in [
            (&[CONTAINER][..], Some("image-resource-topology-exporter")),
            (&["other"], Some("image-other")),
            (&["one", "two"], None),
            (&[], None),
        ] {
            let job = task().job(&set(containers)).ok();
            let image = job.and_then(|job| job.spec?.template.spec?.containers.first()?.image.clone());
            assert_eq!(image.as_deref(), wanted, "{containers:?}");
        }
    }

    #[test]
    fn flags_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("script");
        std::fs::write(&file, "true").unwrap();
        let file = file.display().to_string();
        let check = |words: &[&str], error: &str| {
            let call = Call {
                program: "x".to_owned(),
                arguments: words.iter().map(|word| (*word).to_owned()).collect(),
            };
            let task = Task::of(&call.flags(&[&FLAGS], false).unwrap());
            let message = task.map_or_else(|error| format!("{error:#}"), |_| String::new());
            assert!(
                message.contains(error) && message.is_empty() == error.is_empty(),
                "{words:?}: {message}"
            );
        };
        let good = ["-name=a", "-serviceaccount=b", "-script", file.as_str()];
        check(&good, "");
        check(&good[1..], "-name is required");
        check(&["-name=a", "-script", &file], "-serviceaccount is required");
        check(&good[..2], "-script is required");
        check(&["-name=a", "-serviceaccount=b", "-script=/missing"], "script: /missing");
        check(&[&good[..], &["-timeout=0"]].concat(), "-timeout must be");
        for (text, good) in [("a/b", true), ("a", false), ("/b", false), ("a/", false), ("a/b/c", false)] {
            assert_eq!(parse(text).is_ok(), good, "{text}");
        }
    }
}
