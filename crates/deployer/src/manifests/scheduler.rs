//! Our scheduler.
//!
//! In: [`Options`]. Out: its objects, one by one and all together. Never: a right that [`scheduler::rbac`] does not list.
//!
//! It needs nothing of a node, so it runs as nobody and its namespace is `restricted`. There is always a leader, also of one: while a
//! Deployment is brought up to date there are two for a moment, and two that bind would collide.

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

use super::access::{Account, cluster_role, role};
use super::meta::{self, Level, labels, selector, within};
use super::network::{Openings, policy};
use super::schedulerconfig::{self, Election, KEY, Shape};
use super::{Error, openshift, pod};
use crate::options::Options;
use objects::Object;

/// The usual namespace.
pub const NAMESPACE: &str = "tholepin-scheduler";
/// The name of all its objects.
pub const NAME: &str = "tholepin-scheduler";
/// The name of the container.
pub const CONTAINER: &str = "scheduler";
/// Metrics and health.
const PORT: u16 = 10251;

/// Where its objects are.
#[must_use]
pub fn account(options: &Options) -> Account<'_> {
    Account { namespace: options.scheduler.namespace.as_deref().unwrap_or(NAMESPACE), name: NAME }
}

/// The lease by which one of them leads.
#[must_use]
pub fn election(options: &Options) -> Election {
    let lease = &options.scheduler.lease;
    Election {
        held: true,
        namespace: lease.namespace.clone().unwrap_or_else(|| account(options).namespace.to_owned()),
        name: lease.name.clone().unwrap_or_else(|| DEFAULT_SCHEDULER_NAME.to_owned()),
    }
}

/// All of its objects, in the order in which they are made.
///
/// # Errors
/// When an option asks for what it cannot do.
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

/// Its namespace.
#[must_use]
pub fn namespace(options: &Options) -> Namespace {
    meta::namespace(account(options).namespace, Level::Restricted, options.platform)
}

/// Its service account.
#[must_use]
pub fn service_account(options: &Options) -> ServiceAccount {
    account(options).object()
}

/// What it may do in the cluster.
#[must_use]
pub fn watch_role(options: &Options) -> ClusterRole {
    cluster_role(account(options).name, scheduler::rbac::cluster())
}

/// That it may do so.
#[must_use]
pub fn watch_role_binding(options: &Options) -> ClusterRoleBinding {
    let account = account(options);
    account.with_cluster_role(account.name)
}

/// What it may do to its lease, where the lease is.
#[must_use]
pub fn lease_role(options: &Options) -> Role {
    let lease = election(options);
    role(&lease.namespace, account(options).name, scheduler::rbac::lease(&lease.name))
}

/// That it may do so.
#[must_use]
pub fn lease_role_binding(options: &Options) -> RoleBinding {
    let account = account(options);
    account.with_role(&election(options).namespace, account.name, account.name)
}

/// Metrics and health to anybody; it talks to the API server only.
#[must_use]
pub fn network_policy(options: &Options) -> NetworkPolicy {
    let account = account(options);
    let openings = Openings { ingress: Some(vec![PORT]), egress: Some(options.api_server_ports.clone()) };
    policy(account.namespace, account.name, &pod_labels(), &openings)
}

/// Its configuration file.
///
/// # Errors
/// When an option asks for what it cannot do.
pub fn config_map(options: &Options) -> Result<ConfigMap, Error> {
    let account = account(options);
    Ok(pod::config_map(account.namespace, account.name, KEY, &config(options)?))
}

fn config(options: &Options) -> Result<String, Error> {
    let profile = options.scheduler.profile_name.as_deref().filter(|name| !name.is_empty());
    let profile = profile.unwrap_or(DEFAULT_SCHEDULER_NAME);
    let text = schedulerconfig::text(&options.scheduler, profile, &election(options), Shape::Deployer)?;
    let refused = |reason: String| Error::Text("the scheduler's configuration".to_owned(), reason);
    let file = api::schedulerconfig::SchedulerConfig::parse(&text);
    let file = file.map_err(|error| refused(error.to_string()))?;
    // It would refuse to start with what it cannot do yet; better to say so now.
    scheduler::config::settings(&file, 0).map_err(|error| refused(error.to_string()))?;
    Ok(text)
}

/// Keeps all but one of several. One alone has none: it would stop every drain of its node.
#[must_use]
pub fn disruption_budget(options: &Options) -> Option<PodDisruptionBudget> {
    if options.scheduler.replicas < 2 || !options.scheduler.disruption_budget {
        return None;
    }
    let account = account(options);
    let spec = PodDisruptionBudgetSpec {
        selector: Some(selector(&pod_labels())),
        max_unavailable: Some(IntOrString::Int(1)),
        // One that is not ready anyway does not count.
        unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
        min_available: None,
    };
    let metadata = within(account.namespace, account.name);
    Some(PodDisruptionBudget { metadata, spec: Some(spec), status: None })
}

/// The scheduler itself.
///
/// # Errors
/// When an option asks for what it cannot do.
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
    // The next one is ready before the last one goes.
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
        // Fails when it has not noticed that it lost its lease.
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(15),
            timeout_seconds: Some(5),
            ..probe("/healthz")
        }),
        // It grows with the cluster, and pods wait for it: no limits.
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

/// Its arguments: what follows the image's entry point.
#[must_use]
pub fn flags(options: &Options) -> Vec<String> {
    vec![
        "scheduler".to_owned(),
        format!("--config=/etc/kubernetes/{KEY}"),
        format!("--http-bind-address=0.0.0.0:{PORT}"),
        format!("--v={}", options.scheduler.verbosity.clamp(0, 255)),
    ]
}

/// Processors it is built for; and better on the control plane, where there is one that can be used: hosted ones have no nodes.
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

/// Several on several nodes, as far as that goes.
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
