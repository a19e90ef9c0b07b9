//! Our scheduler.
//!
//! In: [`Options`]. Out: its objects, one by one and all together. Never: a permission that [`scheduler::rbac`] does
//! not list.
//!
//! The scheduler needs no access to nodes, so it runs without root in a `restricted` namespace. Even a single replica
//! elects a leader: during a rolling update there are two, and two schedulers that bind would conflict.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Affinity, ConfigMap, Container, Namespace, NodeAffinity, PodSecurityContext, PodSpec, PodTemplateSpec,
    PreferredSchedulingTerm, Probe, SeccompProfile, ServiceAccount, TopologySpreadConstraint,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use scheduler::config::DEFAULT_SCHEDULER_NAME;

use super::access::{ServiceAccountRef, cluster_role, role};
use super::meta::{self, PodSecurityLevel, labels, selector, within};
use super::network::{AllowedPorts, policy};
use super::schedulerconfig::{self, ConfigStyle, KEY, LeaderElection};
use super::{Error, openshift, pod};
use crate::options::Options;
use objects::Object;

/// The default namespace.
pub const NAMESPACE: &str = "tholepin-scheduler";
/// The name of all objects.
pub const NAME: &str = "tholepin-scheduler";
/// The name of the container.
pub const CONTAINER: &str = "scheduler";
/// The port of metrics and health checks.
const PORT: u16 = 10251;

/// The service account; its namespace and name are those of most objects.
#[must_use]
pub fn account(options: &Options) -> ServiceAccountRef<'_> {
    ServiceAccountRef { namespace: options.scheduler.namespace.as_deref().unwrap_or(NAMESPACE), name: NAME }
}

/// The leader election.
#[must_use]
pub fn election(options: &Options) -> LeaderElection {
    let lease = &options.scheduler.lease;
    LeaderElection {
        enabled: true,
        namespace: lease.namespace.clone().unwrap_or_else(|| account(options).namespace.to_owned()),
        name: lease.name.clone().unwrap_or_else(|| DEFAULT_SCHEDULER_NAME.to_owned()),
    }
}

/// All objects, in the order of installation.
///
/// # Errors
/// When the scheduler does not support an option.
pub fn objects(options: &Options) -> Result<Vec<Object>, Error> {
    let mut objects = vec![Object::new(&namespace(options))?];
    if options.critical_quota {
        objects.push(Object::new(&meta::critical_quota(account(options).namespace))?);
    }
    objects.push(Object::new(&service_account(options))?);
    objects.push(Object::new(&watch_role(options))?);
    objects.push(Object::new(&watch_role_binding(options))?);
    objects.push(Object::new(&lease_role(options))?);
    objects.push(Object::new(&lease_role_binding(options))?);
    if options.network_policies {
        objects.push(Object::new(&network_policy(options))?);
    }
    objects.push(Object::new(&config_map(options)?)?);
    objects.extend(disruption_budget(options).map(|budget| Object::new(&budget)).transpose()?);
    objects.push(Object::new(&deployment(options)?)?);
    Ok(objects)
}

/// The Namespace.
#[must_use]
pub fn namespace(options: &Options) -> Namespace {
    meta::namespace(account(options).namespace, PodSecurityLevel::Restricted, options.platform)
}

/// The service account.
#[must_use]
pub fn service_account(options: &Options) -> ServiceAccount {
    account(options).object()
}

/// The ClusterRole.
#[must_use]
pub fn watch_role(options: &Options) -> ClusterRole {
    cluster_role(account(options).name, scheduler::rbac::cluster())
}

/// Binds the role to the service account.
#[must_use]
pub fn watch_role_binding(options: &Options) -> ClusterRoleBinding {
    let account = account(options);
    account.with_cluster_role(account.name)
}

/// The Role for the lease, in the namespace of the lease.
#[must_use]
pub fn lease_role(options: &Options) -> Role {
    let lease = election(options);
    role(&lease.namespace, account(options).name, scheduler::rbac::lease(&lease.name))
}

/// Binds the role to the service account.
#[must_use]
pub fn lease_role_binding(options: &Options) -> RoleBinding {
    let account = account(options);
    account.with_role(&election(options).namespace, account.name, account.name)
}

/// Allows metrics and health checks from anywhere, and egress to the API server.
#[must_use]
pub fn network_policy(options: &Options) -> NetworkPolicy {
    let account = account(options);
    let openings = AllowedPorts { ingress: Some(vec![PORT]), egress: Some(options.api_server_ports.clone()) };
    policy(account.namespace, account.name, &pod_labels(), &openings)
}

/// The ConfigMap with the configuration file.
///
/// # Errors
/// When the scheduler does not support an option.
pub fn config_map(options: &Options) -> Result<ConfigMap, Error> {
    let account = account(options);
    Ok(pod::config_map(account.namespace, account.name, KEY, &config(options)?))
}

fn config(options: &Options) -> Result<String, Error> {
    let profile = options.scheduler.profile_name.as_deref().filter(|name| !name.is_empty());
    let profile = profile.unwrap_or(DEFAULT_SCHEDULER_NAME);
    let text = schedulerconfig::text(&options.scheduler, profile, &election(options), ConfigStyle::Deployer)?;
    let refused = |reason: String| Error::Text("the scheduler's configuration".to_owned(), reason);
    let file = api::schedulerconfig::SchedulerConfig::parse(&text);
    let file = file.map_err(|error| refused(error.to_string()))?;
    // The scheduler would refuse to start with unsupported settings, so they are rejected here.
    scheduler::config::settings(&file, 0).map_err(|error| refused(error.to_string()))?;
    Ok(text)
}

/// Allows one of several replicas to be evicted. A single replica has no budget, which would block every drain of its
/// node.
#[must_use]
pub fn disruption_budget(options: &Options) -> Option<PodDisruptionBudget> {
    if options.scheduler.replicas < 2 || !options.scheduler.disruption_budget {
        return None;
    }
    let account = account(options);
    let spec = PodDisruptionBudgetSpec {
        selector: Some(selector(&pod_labels())),
        max_unavailable: Some(IntOrString::Int(1)),
        // Pods that are not ready can always be evicted.
        unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
        min_available: None,
    };
    let metadata = within(account.namespace, account.name);
    Some(PodDisruptionBudget { metadata, spec: Some(spec), status: None })
}

/// The Deployment.
///
/// # Errors
/// When the scheduler does not support an option.
pub fn deployment(options: &Options) -> Result<Deployment, Error> {
    let account = account(options);
    let mut annotations = BTreeMap::from([pod::config_hash(&config(options)?)]);
    if options.platform.is_openshift() {
        annotations.extend([openshift::required("restricted-v2")]);
    }
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod_labels()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(pod_spec(options)),
    };
    // The new pod is ready before the old one is deleted.
    let rolling_update = RollingUpdateDeployment {
        max_surge: Some(IntOrString::Int(1)),
        max_unavailable: Some(IntOrString::Int(0)),
    };
    Ok(Deployment {
        metadata: within(account.namespace, account.name),
        spec: Some(DeploymentSpec {
            replicas: Some(super::replicas(options)?),
            selector: selector(&pod_labels()),
            template,
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(rolling_update),
            }),
            ..DeploymentSpec::default()
        }),
        status: None,
    })
}

fn pod_spec(options: &Options) -> PodSpec {
    let scheduler = &options.scheduler;
    let probe = |path: &str| pod::probe(path, IntOrString::String("http".to_owned()), None);
    let container = Container {
        name: CONTAINER.to_owned(),
        image: Some(options.images.tholepin.clone()),
        image_pull_policy: pod::pull_policy(options),
        args: Some(flags(options)),
        ports: Some(vec![pod::port("http", PORT)]),
        volume_mounts: Some(vec![pod::mount_read_only("config", "/etc/kubernetes")]),
        security_context: Some(pod::restricted(options.platform)),
        readiness_probe: Some(Probe { period_seconds: Some(5), ..probe("/readyz") }),
        // Fails if the scheduler does not notice the loss of its lease.
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(15),
            timeout_seconds: Some(5),
            ..probe("/healthz")
        }),
        // No limits: memory grows with the cluster, and throttling would delay pods.
        resources: pod::resources(&[("cpu", "100m"), ("memory", "64Mi")], &[]),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    };
    let control_plane = scheduler.control_plane_affinity;
    let tolerations = if control_plane {
        pod::tolerate_control_plane(&scheduler.tolerations)
    } else {
        scheduler.tolerations.clone()
    };
    let mut node_selector = labels([("kubernetes.io/os", "linux")]);
    node_selector.extend(scheduler.node_selector.clone());
    let class = scheduler.priority_class.clone().unwrap_or_else(|| "system-cluster-critical".to_owned());
    PodSpec {
        service_account_name: Some(account(options).name.to_owned()),
        containers: vec![container],
        volumes: Some(vec![pod::config_directory("config", account(options).name, None)]),
        image_pull_secrets: pod::pull_secrets(options),
        priority_class_name: Some(class).filter(|name| !name.is_empty()),
        tolerations: Some(tolerations).filter(|tolerations| !tolerations.is_empty()),
        node_selector: Some(node_selector),
        affinity: affinity(options),
        topology_spread_constraints: (scheduler.replicas > 1).then(|| vec![spread()]),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(15),
        ..PodSpec::default()
    }
}

/// The arguments of the image's entry point.
#[must_use]
pub fn flags(options: &Options) -> Vec<String> {
    vec![
        "scheduler".to_owned(),
        format!("--config=/etc/kubernetes/{KEY}"),
        format!("--http-bind-address=0.0.0.0:{PORT}"),
        format!("--v={}", options.scheduler.verbosity.clamp(0, 255)),
    ]
}

/// Requires the image's architectures and prefers control plane nodes, which hosted control planes do not have.
fn affinity(options: &Options) -> Option<Affinity> {
    let mut affinity = NodeAffinity::default();
    if !options.architectures.is_empty() {
        let terms = vec![pod::nodes_with("kubernetes.io/arch", &options.architectures)];
        affinity = pod::only_on(terms).node_affinity.unwrap_or_default();
    }
    if options.scheduler.control_plane_affinity {
        let preference = pod::nodes_with(pod::CONTROL_PLANE, &[]);
        affinity.preferred_during_scheduling_ignored_during_execution =
            Some(vec![PreferredSchedulingTerm { preference, weight: 100 }]);
    }
    let said = affinity != NodeAffinity::default();
    said.then(|| Affinity { node_affinity: Some(affinity), ..Affinity::default() })
}

/// Spreads replicas over nodes where possible.
fn spread() -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "kubernetes.io/hostname".to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(selector(&pod_labels())),
        ..TopologySpreadConstraint::default()
    }
}

fn pod_labels() -> BTreeMap<String, String> {
    labels([("app.kubernetes.io/name", NAME)])
}
