//! The kubelets of each distribution, played: a real kubelet whose files are where the distribution has them, and our
//! exporter as a process with the arguments, variables and mounts of the DaemonSet that the operator makes.
//!
//! Mounts are played by putting the directory of the node in place of the mount path in each argument.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use api::numaresources::{NumaResourcesOperator, keys};
use deployer::platform::Platform;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::DeleteParams;
use objects::Object;
use operator::cluster_state::{
    ClusterState, Environment, Image, KubeletConfig, KubeletSettings, MachineConfigPool, NodePoolConfig,
};
use operator::desired::Desired;
use operator::{kubeletconfig, numaresourcesoperator};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::account::Account;
use testkit::cluster::{Cluster, ClusterNode};
use testkit::controlplane::ControlPlaneOptions;
use testkit::machine::Machine;
use testkit::process_group::Spec;
use testkit::{env, net, port};

use super::rig::{IMAGE, NAMESPACE, apply, tholepin, until};
use super::seen::Seen;

/// The policy of the kubelet, and the scope.
const POLICY: &str = "single-numa-node";
const USUAL: &str = "/var/lib/kubelet";
const MICROK8S: &str = "/var/snap/microk8s/common/var/lib/kubelet";

/// A node as it is somewhere: what the request says of it, its kubelet's root directory, and a file that has its
/// configuration. Without one only the kubelet knows it, or objects of the platform.
struct Layout {
    platform: Platform,
    stated: Value,
    root: &'static str,
    file: Option<&'static str>,
}

fn layouts() -> Vec<Layout> {
    let on = |stated, root, file| Layout { platform: Platform::Kubernetes, stated, root, file };
    let file = Some("/var/lib/kubelet/config.yaml");
    let mut all = vec![
        on(Value::Null, USUAL, file),
        on(json!({ "distribution": "kubeadm" }), USUAL, file),
        on(json!({ "distribution": "kind" }), USUAL, file),
        on(json!({ "distribution": "microk8s" }), MICROK8S, None),
        on(json!({ "root": "/data/kubelet" }), "/data/kubelet", Some("/data/kubelet/config.yaml")),
        on(
            json!({ "distribution": "eks", "config": "/etc/kubernetes/kubelet/config.json" }),
            USUAL,
            Some("/etc/kubernetes/kubelet/config.json"),
        ),
        on(json!({ "config": "single-numa-node/container" }), USUAL, None),
    ];
    for platform in [Platform::OpenShift, Platform::HyperShift] {
        all.push(Layout { platform, stated: Value::Null, root: USUAL, file: None });
    }
    for name in ["k3s", "rke2", "talos", "eks", "gke", "aks", "openshift"] {
        all.push(on(json!({ "distribution": name }), USUAL, None));
    }
    all
}

#[test]
fn exporters_report_the_policy_of_each_distributions_kubelets() {
    let Ok(rig) = env::rig() else { return };
    let Some(program) = tholepin() else { return };
    net::private(async |network| {
        let control = ControlPlaneOptions { network: Some(network), ..ControlPlaneOptions::default() };
        let cluster =
            Cluster::builder().control(control).machines([Machine::new().zones(2).cpus_per_zone(4)]);
        let cluster = cluster.crds(api::crd::NRT_CRD_YAML).start(&rig).await.unwrap();
        let account = Account::create(cluster.control(), NAMESPACE, "rte").await.unwrap();
        let pod = account.pod("exporter", "node-0").await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let played = Played {
            seen: Seen { admin: cluster.client().await.unwrap(), log: None },
            kubeconfig: account.kubeconfig(Some(&pod)).await.unwrap(),
            token: dir.path().join("token"),
            program,
            cluster: &cluster,
            account: &account,
        };
        std::fs::write(&played.token, account.token(Some(&pod)).await.unwrap()).unwrap();
        for layout in layouts() {
            played.play(&layout).await;
        }
    })
    .unwrap();
}

/// The parts that all layouts share.
struct Played<'a> {
    seen: Seen,
    kubeconfig: PathBuf,
    token: PathBuf,
    program: PathBuf,
    cluster: &'a Cluster,
    account: &'a Account<'a>,
}

impl Played<'_> {
    /// Runs the exporter once; its report has the policy of the kubelet.
    async fn play(&self, layout: &Layout) {
        let name = format!("{} {}", layout.platform, layout.stated);
        let (objects, config) = wanted(layout);
        let role: ClusterRole = find(&objects, "ClusterRole");
        let access: Vec<Object> =
            objects.iter().filter(|one| one.kind().kind.contains("Role")).cloned().collect();
        apply(&self.seen.admin, &access, true).await;
        self.account.wait_until_allowed(&role.rules.unwrap_or_default(), &[]).await.unwrap();
        let node = tempfile::tempdir().unwrap();
        furnish(node.path(), &self.cluster.nodes()[0], layout);
        let set: DaemonSet = find(&objects, "DaemonSet");
        let pod = set.spec.unwrap().template.spec.unwrap();
        let process = self.cluster.spawn(self.process(&pod, node.path(), config.as_deref())).unwrap();
        until("an end after the first report", async || process.exit().is_some()).await;
        let exit = process.exit().unwrap();
        assert!(exit.success(), "{name}: {exit}: {}", process.log_tail(20));
        let report = self.seen.get("NodeResourceTopology", "node-0").await.unwrap();
        let attributes = report["attributes"].as_array().unwrap();
        let policy = attributes.iter().find(|one| one["name"] == "topologyManagerPolicy");
        assert_eq!(
            policy.map(|policy| &policy["value"]),
            Some(&json!(POLICY)),
            "{name}: {config:?} {report}"
        );
        // Where the configuration is read, it is known whole.
        let whole =
            attributes.iter().any(|one| one["name"] == "cpuManagerPolicy" && one["value"] == "static");
        let only_policy =
            layout.platform.is_openshift() || layout.stated["config"] == "single-numa-node/container";
        assert_eq!(whole, !only_policy, "{name}: {report}");
        let reports = self.seen.api("NodeResourceTopology");
        reports.delete("node-0", &DeleteParams::default()).await.unwrap();
    }

    /// The container as a process; the paths of its mounts become those of the node, which `node` has.
    fn process(&self, pod: &PodSpec, node: &Path, config: Option<&str>) -> Spec {
        let container = &pod.containers[0];
        let mut paths = self.mounts(pod, node, config);
        // A path may begin with another.
        paths.sort_by_key(|(at, _)| std::cmp::Reverse(at.len()));
        let address = self.cluster.nodes()[0].kubelet().host().address().unwrap().to_string();
        let local = |text: &str| {
            let text = text.replace("$(NODE_IP)", &address);
            let found = paths.iter().find(|(at, _)| text.contains(at.as_str()));
            found.map_or(text.clone(), |(at, path)| text.replace(at, &path.display().to_string()))
        };
        let mut spec = Spec::new("exporter", &self.program).arg("resource-topology-exporter");
        spec = spec.args(container.args.iter().flatten().map(|arg| local(arg)));
        spec = spec
            .arg("--oneshot")
            .arg(format!("--config={}/config.yaml", local("/etc/resource-topology-exporter")));
        if container.args.iter().flatten().any(|arg| arg.starts_with("--kubelet-config-uri=")) {
            // The service account's directory, which every pod has.
            spec = spec.arg(format!("--kubelet-config-token={}", self.token.display()));
            spec = spec.arg(format!("--kubelet-config-ca={}", self.cluster.control().ca_file().display()));
        }
        for (name, value) in variables(container, &address) {
            let value =
                if name == "METRICS_PORT" { port::free().unwrap().to_string() } else { local(&value) };
            spec = spec.env(name, value);
        }
        spec.env("KUBECONFIG", self.kubeconfig.display().to_string()).env("HOME", node.display().to_string())
    }

    /// The mount paths, each with its file or directory. What has to be there is there.
    fn mounts(&self, pod: &PodSpec, node: &Path, config: Option<&str>) -> Vec<(String, PathBuf)> {
        let volumes: BTreeMap<_, _> = pod.volumes.iter().flatten().map(|one| (&one.name, one)).collect();
        let mounts = pod.containers[0].volume_mounts.iter().flatten();
        mounts
            .map(|mount| {
                let volume = volumes[&mount.name];
                let path = match &volume.host_path {
                    Some(host) if host.path == "/sys" => self.cluster.nodes()[0].kubelet().machine().sys(),
                    Some(host) => {
                        let path = node.join(host.path.trim_start_matches('/'));
                        let found = match host.type_.as_deref() {
                            Some("File") => path.is_file(),
                            Some("Directory") => path.is_dir(),
                            _ => true,
                        };
                        assert!(found, "{} is not on this node", host.path);
                        path
                    }
                    // The exporter reads its configuration from few directories, of which this is one.
                    None if mount.mount_path.contains("resource-topology-exporter") => node.join(".rte"),
                    None => node.join("volumes").join(&mount.name),
                };
                if !path.is_file() {
                    std::fs::create_dir_all(&path).unwrap();
                }
                if let Some(config) = config.filter(|_| path.ends_with(".rte")) {
                    std::fs::write(path.join("config.yaml"), config).unwrap();
                }
                (mount.mount_path.trim_end_matches('/').to_owned(), path)
            })
            .collect()
    }
}

/// The variables of a container of the pod `exporter`.
fn variables(container: &Container, address: &str) -> Vec<(String, String)> {
    let value = |variable: &EnvVar| {
        let field = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
        match field.map(|field| field.field_path.as_str()) {
            None => variable.value.clone().unwrap_or_default(),
            Some("spec.nodeName") => "node-0".to_owned(),
            Some("metadata.namespace") => NAMESPACE.to_owned(),
            Some("metadata.name") => "exporter".to_owned(),
            Some("status.hostIP") => address.to_owned(),
            Some(other) => panic!("{other}"),
        }
    };
    container.env.iter().flatten().map(|variable| (variable.name.clone(), value(variable))).collect()
}

/// Puts the files of a kubelet below `node` where the layout has them; its own configuration file only there.
fn furnish(node: &Path, machine: &ClusterNode, layout: &Layout) {
    let place = |path: &str| node.join(path.trim_start_matches('/'));
    let kubelet = machine.kubelet();
    std::fs::create_dir_all(place(layout.root)).unwrap();
    for entry in std::fs::read_dir(kubelet.root_dir()).unwrap() {
        let entry = entry.unwrap();
        if entry.path() != kubelet.config_file() {
            symlink(entry.path(), place(layout.root).join(entry.file_name())).unwrap();
        }
    }
    if let Some(file) = layout.file {
        std::fs::create_dir_all(place(file).parent().unwrap()).unwrap();
        symlink(kubelet.config_file(), place(file)).unwrap();
    }
}

/// The objects that the operator makes there, and the configuration of the exporters.
fn wanted(layout: &Layout) -> (Vec<Object>, Option<String>) {
    let image = Image { name: IMAGE.to_owned(), pull_policy: String::new() };
    let version = if layout.platform.is_openshift() { "4.20.1" } else { "v1.36.3" };
    let mut cluster = ClusterState::new(Environment {
        platform: layout.platform,
        version: version.parse().ok(),
        namespace: NAMESPACE.to_owned(),
        own: image.clone(),
        image,
        ..Environment::default()
    });
    let mut group = json!({ "poolName": "workers" });
    let payload = Some(Ok(KubeletSettings { policy: Some(POLICY.to_owned()), scope: None }));
    match layout.platform {
        Platform::Kubernetes => {
            group["nodeSelector"] = json!({});
            // Its kubelets did not answer the operator, so each exporter has to find out by itself.
            cluster.kubelets.insert("workers".to_owned(), BTreeMap::new());
        }
        Platform::OpenShift => {
            let labels = BTreeMap::from([("pools.example.com/workers".to_owned(), String::new())]);
            let selector = LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() };
            let node_selector = Some(selector.clone());
            let pool = MachineConfigPool { labels, node_selector, ..MachineConfigPool::default() };
            cluster.pools.insert("workers".to_owned(), pool);
            let config = KubeletConfig { pool_selector: Some(selector), payload, ..KubeletConfig::default() };
            cluster.kubelet_configs.insert("config".to_owned(), config);
        }
        Platform::HyperShift => {
            let config = NodePoolConfig { node_pool: "workers".to_owned(), payload };
            cluster.node_pool_configs.insert("config".to_owned(), config);
        }
    }
    let object = json!({
        "metadata": { "name": keys::OPERATOR, "uid": "u", "generation": 1 },
        "spec": { "kubelet": layout.stated, "nodeGroups": [group] },
    });
    let operator: NumaResourcesOperator = serde_json::from_value(object).unwrap();
    cluster.operators.insert(keys::OPERATOR.to_owned(), operator);
    let Desired::Objects(desired) = numaresourcesoperator::desired(&cluster) else {
        panic!("{}: nothing is wanted", layout.stated);
    };
    let without_owner = |object: &Object| {
        object.clone().edited(|body| {
            body["metadata"].as_object_mut().map(|metadata| metadata.remove("ownerReferences"));
        })
    };
    let objects = desired.into_iter().map(|one| without_owner(&one.object)).collect();
    (objects, kubeletconfig::config(&cluster, "workers"))
}

fn find<T: DeserializeOwned>(objects: &[Object], kind: &str) -> T {
    let found = objects.iter().find(|object| object.kind().kind == kind).unwrap();
    serde_json::from_value(found.body().clone()).unwrap()
}
