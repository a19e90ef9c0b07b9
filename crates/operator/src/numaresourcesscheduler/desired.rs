//! The scheduler's objects, with the names of the Go operator.
//!
//! In: a [`Setup`]. Out: objects, owned by the NUMAResourcesScheduler, each after those that it needs. Never: a choice
//! that the setup does not state.

use std::collections::BTreeMap;

use api::numaresources::keys::SCHEDULER_LEASE;
use deployer::manifests::access::{ServiceAccountRef, cluster_role, role};
use deployer::manifests::controller::WORKLOAD;
use deployer::manifests::meta::{labels, selector, within};
use deployer::manifests::network::{AllowedPorts, Servers, policy};
use deployer::manifests::{plugin, pod};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Affinity, Container, NodeAffinity, PodSecurityContext, PodSpec, PreferredSchedulingTerm, Probe,
    ResourceRequirements, SeccompProfile, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use objects::Object;

use super::setup::Setup;
use crate::cluster_state::{ClusterState, TlsProfile};
use crate::desired::{DesiredObject, MANAGED_BY, MANAGER, container, owned};
use crate::rbac::{CLUSTER_SCHEDULER, SCHEDULER_ROLE, SCHEDULING};

/// The name of Deployment, account and container.
pub(super) const DEPLOYMENT: &str = SCHEDULING;
const CONFIG_MAP: &str = "topo-aware-scheduler-config";
/// The key of the ConfigMap, which is the file's name.
const KEY: &str = "config.yaml";
/// The volume of the configuration file, and its directory.
const CONFIG_DIRECTORY: (&str, &str) = ("etckubernetes", "/etc/kubernetes");
/// The volume of the scheduler's view of nodes' pods, and its directory.
const STATUS_DIRECTORY: (&str, &str) = ("runpfpstatus", "/run/pfpstatus");

impl Setup {
    /// All objects.
    pub(super) fn objects(&self, cluster: &ClusterState) -> Vec<DesiredObject> {
        let environment = &cluster.environment;
        let namespace = environment.namespace.as_str();
        let account = ServiceAccountRef { namespace, name: DEPLOYMENT };
        let nothing = AllowedPorts { ingress: Some(Vec::new()), egress: Some(Vec::new()) };
        let servers = Servers {
            ports: environment.api_server_ports.clone(),
            cidrs: environment.api_server_cidrs.clone(),
        };
        let server = AllowedPorts { ingress: None, egress: Some(vec![servers]) };
        let policy = |name: &str, openings| policy(namespace, name, &pod_labels(), openings);
        let objects = [
            Object::new(&account.object()),
            Object::new(&pod::config_map(namespace, CONFIG_MAP, KEY, &self.config)),
            Object::new(&cluster_role(CLUSTER_SCHEDULER, cluster_rules(self.own))),
            Object::new(&account.with_cluster_role(CLUSTER_SCHEDULER)),
            Object::new(&role(namespace, SCHEDULER_ROLE, lease_rules())),
            Object::new(&account.with_role(namespace, SCHEDULER_ROLE, SCHEDULER_ROLE)),
            Object::new(&policy("scheduler-default-deny-all", &nothing)),
            Object::new(&policy("scheduler-egress-to-api-server", &server)),
            Object::new(&self.deployment(cluster)),
        ];
        let held = |object: &Object| !self.own && is_kept_role(cluster, object);
        let owned = |object: Object| (held(&object), owned(object, &self.owner));
        objects.into_iter().map(owned).map(|(held, object)| object.held(held)).collect()
    }

    fn deployment(&self, cluster: &ClusterState) -> Deployment {
        let mut annotations = labels([WORKLOAD]);
        annotations.extend([pod::config_hash(&self.config)]);
        let pods = pod::Pods { labels: pod_labels(), annotations, spec: self.pod(cluster) };
        let mut metadata = within(&cluster.environment.namespace, DEPLOYMENT);
        metadata.labels = Some(pod_labels());
        pods.deployment(metadata, self.replicas, Some(self.strategy()))
    }

    /// A single replica takes no lease, so there must never be two: the old one ends before the new one starts.
    fn strategy(&self) -> DeploymentStrategy {
        let rolling_update = if self.replicas > 1 {
            let quarter = || Some(IntOrString::String("25%".to_owned()));
            RollingUpdateDeployment { max_surge: quarter(), max_unavailable: quarter() }
        } else {
            let (none, one) = (IntOrString::Int(0), IntOrString::Int(1));
            RollingUpdateDeployment { max_surge: Some(none), max_unavailable: Some(one) }
        };
        DeploymentStrategy { type_: Some("RollingUpdate".to_owned()), rolling_update: Some(rolling_update) }
    }

    fn pod(&self, cluster: &ClusterState) -> PodSpec {
        let control_plane = pod::nodes_with(pod::CONTROL_PLANE, &[]);
        let preferred = vec![PreferredSchedulingTerm { preference: control_plane, weight: 1 }];
        let affinity = NodeAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(preferred),
            ..NodeAffinity::default()
        };
        let (mounts, volumes) = self.mounts().into_iter().unzip();
        let seccomp = SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None };
        PodSpec {
            service_account_name: Some(DEPLOYMENT.to_owned()),
            priority_class_name: Some("system-node-critical".to_owned()),
            containers: vec![self.container(cluster, mounts)],
            volumes: Some(volumes),
            tolerations: Some(pod::tolerate_control_plane(&[])),
            affinity: Some(Affinity { node_affinity: Some(affinity), ..Affinity::default() }),
            topology_spread_constraints: Some(vec![spread()]),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                seccomp_profile: Some(seccomp),
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        }
    }

    fn container(&self, cluster: &ClusterState, mounts: Vec<VolumeMount>) -> Container {
        let probe = |path| match self.own {
            true => pod::health_probe(path),
            false => pod::probe(path, IntOrString::Int(plugin::PORT), Some("HTTPS")),
        };
        // kube-scheduler has only `/healthz` before 1.31.
        let ready = if self.own { "/readyz" } else { "/healthz" };
        let variable = || vec![pod::variable("PFP_STATUS_DUMP", STATUS_DIRECTORY.1)];
        Container {
            command: Some(vec!["/bin/kube-scheduler".to_owned()]),
            args: Some(self.flags(cluster.tls.as_ref())),
            ports: self.own.then(|| vec![pod::health_port()]),
            env: self.dumps.then(variable),
            volume_mounts: Some(mounts),
            resources: self.resources(),
            security_context: Some(pod::restricted(cluster.environment.platform)),
            // The probe fails when the scheduler lost its lease without noticing.
            liveness_probe: Some(Probe {
                initial_delay_seconds: Some(15),
                timeout_seconds: Some(5),
                ..probe("/healthz")
            }),
            readiness_probe: Some(Probe { period_seconds: Some(5), ..probe(ready) }),
            ..container(DEPLOYMENT, &self.image)
        }
    }

    fn flags(&self, tls: Option<&TlsProfile>) -> Vec<String> {
        let mut flags =
            vec![format!("--config={}/{KEY}", CONFIG_DIRECTORY.1), format!("-v={}", self.verbosity)];
        if let Some(TlsProfile { min_version, cipher_suites }) = tls {
            flags.push(format!("--tls-min-version={min_version}"));
            flags.push(format!("--tls-cipher-suites={cipher_suites}"));
        }
        if self.own {
            flags.push(pod::health_flag());
            // It may not read the authorities; readers of metrics have tokens.
            flags.push("--authentication-skip-lookup=true".to_owned());
        }
        flags
    }

    /// The configuration file, and the directory for dumps if there are any.
    fn mounts(&self) -> Vec<(VolumeMount, Volume)> {
        let ((config, config_path), (status, status_path)) = (CONFIG_DIRECTORY, STATUS_DIRECTORY);
        let config =
            (pod::mount_read_only(config, config_path), pod::config_directory(config, CONFIG_MAP, None));
        let dumps = || (pod::mount(status, status_path), pod::memory_directory(status, "64Mi"));
        std::iter::once(config).chain(self.dumps.then(dumps)).collect()
    }

    fn resources(&self) -> Option<ResourceRequirements> {
        if self.guaranteed {
            let amounts = [("cpu", "600m"), ("memory", "1200Mi")];
            return pod::resources(&amounts, &amounts);
        }
        pod::resources(&[("cpu", "150m"), ("memory", "500Mi")], &[])
    }
}

/// At most one replica of a revision on a node.
fn spread() -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "kubernetes.io/hostname".to_owned(),
        when_unsatisfiable: "DoNotSchedule".to_owned(),
        label_selector: Some(selector(&pod_labels())),
        match_label_keys: Some(vec!["pod-template-hash".to_owned()]),
        ..TopologySpreadConstraint::default()
    }
}

fn pod_labels() -> BTreeMap<String, String> {
    labels([("app", DEPLOYMENT)])
}

/// The scheduler's rules in the cluster, without a limit to names on `create`, which no request could meet; `own`: of
/// our scheduler, else of kube-scheduler with the Go plugin.
#[must_use]
pub(crate) fn cluster_rules(own: bool) -> Vec<PolicyRule> {
    if !own {
        return plugin::rules::with_zones();
    }
    [scheduler::rbac::cluster(), scheduler::rbac::reviews()].concat()
}

/// Whether this is the ClusterRole that the Go operator made, or its binding. They stay for its scheduler: this
/// operator may lack the rights to grant its own.
fn is_kept_role(cluster: &ClusterState, object: &Object) -> bool {
    let live = cluster.observed.get(object.key());
    object.name() == CLUSTER_SCHEDULER
        && ["ClusterRole", "ClusterRoleBinding"].contains(&object.kind().kind.as_str())
        && live.is_some_and(|live| live["metadata"]["labels"][MANAGED_BY] != MANAGER)
}

/// The rules in the operator's namespace: its lease. The Go operator adds Endpoints, which were leases before; no
/// scheduler with the plugin's current arguments uses them.
#[must_use]
pub(crate) fn lease_rules() -> Vec<PolicyRule> {
    scheduler::rbac::lease(SCHEDULER_LEASE)
}
