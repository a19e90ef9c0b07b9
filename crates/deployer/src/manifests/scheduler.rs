//! Our scheduler.
//!
//! In: [`Options`]. Out: its objects, one by one and all together. Never: a permission that [`scheduler::rbac`] does
//! not list.
//!
//! The scheduler needs no access to nodes, so it runs without root in a `restricted` namespace. Even a single replica
//! elects a leader: during a rolling update there are two, and two schedulers that bind would conflict.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Container, PodSecurityContext, PodSpec, Probe, SeccompProfile, TopologySpreadConstraint,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use scheduler::config::DEFAULT_SCHEDULER_NAME;

use super::access::{ServiceAccountRef, cluster_role, role};
use super::meta::{self, PodSecurityLevel, labels, selector, within};
use super::network::{AllowedPorts, Servers, policy};
use super::schedulerconfig::{self, ConfigStyle, KEY, LeaderElection};
use super::{Error, monitoring, openshift, pod};
use crate::options::Options;
use objects::Object;

pub mod alerts;

/// The default namespace.
pub const NAMESPACE: &str = "tholepin-scheduler";
/// The name of all objects.
pub const NAME: &str = "tholepin-scheduler";
/// The name of the container.
pub const CONTAINER: &str = "scheduler";
/// The name of the port of metrics.
const METRICS: &str = "http";
/// The name of the group of alerts.
pub const GROUP: &str = "tholepin-scheduler.rules";
/// The port of metrics.
const PORT: u16 = 10251;

/// The service account; its namespace and name are those of most objects.
#[must_use]
pub fn account(options: &Options) -> ServiceAccountRef<'_> {
    ServiceAccountRef { namespace: options.scheduler.namespace.as_deref().unwrap_or(NAMESPACE), name: NAME }
}

fn election(options: &Options) -> LeaderElection {
    let namespace = account(options).namespace;
    LeaderElection::new(true, &options.scheduler.lease, namespace, DEFAULT_SCHEDULER_NAME)
}

/// All objects, in the order of installation.
///
/// # Errors
/// When the scheduler does not support an option.
pub fn objects(options: &Options) -> Result<Vec<Object>, Error> {
    let account = account(options);
    let ServiceAccountRef { namespace, name } = account;
    let level = PodSecurityLevel::Restricted;
    let own = meta::namespace(namespace, level, options.platform);
    let mut objects = vec![Object::new(&monitoring::readable(own, options))];
    if options.critical_quota {
        objects.push(Object::new(&meta::critical_quota(namespace)));
    }
    let lease = election(options);
    let lease_rules = scheduler::rbac::lease(&lease.name);
    objects.push(Object::new(&account.object()));
    objects.push(Object::new(&cluster_role(name, scheduler::rbac::cluster())));
    objects.push(Object::new(&account.with_cluster_role(name)));
    objects.push(Object::new(&role(&lease.namespace, name, lease_rules)));
    objects.push(Object::new(&account.with_role(&lease.namespace, name, name)));
    if options.network_policies {
        // Metrics from anywhere, egress to the API server. Probes come from the node, which no policy keeps out.
        let servers = vec![Servers::api(options)];
        let openings = AllowedPorts { ingress: Some(vec![PORT]), egress: Some(servers) };
        objects.push(Object::new(&policy(namespace, name, &pod_labels(), &openings)));
    }
    let config = config(options)?;
    objects.push(Object::new(&pod::config_map(namespace, name, KEY, &config)));
    // A single replica has no budget, which would block every drain of its node.
    if options.scheduler.replicas > 1 && options.scheduler.disruption_budget {
        objects.push(Object::new(&disruption_budget(account)));
    }
    let (pods, alerts) = (pod_labels(), alerts::alerts(&monitoring::job(account)));
    objects.extend(monitoring::of_pods(options, account, (&pods, METRICS), (GROUP, &alerts)));
    objects.push(Object::new(&deployment(options, &config)?));
    Ok(objects)
}

fn config(options: &Options) -> Result<String, Error> {
    let style = ConfigStyle::Deployer;
    let text = schedulerconfig::text(&options.scheduler, DEFAULT_SCHEDULER_NAME, &election(options), style)?;
    let refused = |reason: String| Error::Text("the scheduler's configuration".to_owned(), reason);
    let file = api::schedulerconfig::SchedulerConfig::parse(&text);
    let file = file.map_err(|error| refused(error.to_string()))?;
    // The scheduler would refuse to start with unsupported settings, so they are rejected here.
    scheduler::config::settings(&file, 0).map_err(|error| refused(error.to_string()))?;
    Ok(text)
}

/// Allows one of several replicas to be evicted.
fn disruption_budget(account: ServiceAccountRef<'_>) -> PodDisruptionBudget {
    let spec = PodDisruptionBudgetSpec {
        selector: Some(selector(&pod_labels())),
        max_unavailable: Some(IntOrString::Int(1)),
        // Pods that are not ready can always be evicted.
        unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
        min_available: None,
    };
    let metadata = within(account.namespace, account.name);
    PodDisruptionBudget { metadata, spec: Some(spec), status: None }
}

fn deployment(options: &Options, config: &str) -> Result<Deployment, Error> {
    let ServiceAccountRef { namespace, name } = account(options);
    let mut annotations = BTreeMap::from([pod::config_hash(config)]);
    if options.platform.is_openshift() {
        annotations.extend([openshift::required("restricted-v2")]);
    }
    // The new pod is ready before the old one is deleted.
    let rolling_update = RollingUpdateDeployment {
        max_surge: Some(IntOrString::Int(1)),
        max_unavailable: Some(IntOrString::Int(0)),
    };
    let (type_, rolling_update) = (Some("RollingUpdate".to_owned()), Some(rolling_update));
    let pods = pod::Pods { labels: pod_labels(), annotations, spec: pod_spec(options) };
    let strategy = DeploymentStrategy { type_, rolling_update };
    Ok(pods.deployment(within(namespace, name), super::replicas(options)?, Some(strategy)))
}

fn pod_spec(options: &Options) -> PodSpec {
    let scheduler = &options.scheduler;
    let container = Container {
        args: Some(flags(options)),
        ports: Some(vec![pod::port(METRICS, PORT), pod::health_port()]),
        volume_mounts: Some(vec![pod::mount_read_only("config", "/etc/kubernetes")]),
        security_context: Some(pod::restricted(options.platform)),
        readiness_probe: Some(Probe { period_seconds: Some(5), ..pod::health_probe("/readyz") }),
        // Fails if the scheduler does not notice the loss of its lease.
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(15),
            timeout_seconds: Some(5),
            ..pod::health_probe("/healthz")
        }),
        // No limits: memory grows with the cluster, and throttling would delay pods.
        resources: pod::resources(&[("cpu", "100m"), ("memory", "64Mi")], &[]),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..pod::container(CONTAINER, &options.images.tholepin, options)
    };
    let mut node_selector = labels([("kubernetes.io/os", "linux")]);
    node_selector.extend(scheduler.node_selector.clone());
    PodSpec {
        priority_class_name: pod::priority_class(&scheduler.priority_class, "system-cluster-critical"),
        tolerations: pod::tolerations(scheduler.control_plane_affinity, &scheduler.tolerations),
        node_selector: Some(node_selector),
        // Hosted control planes have no nodes of their own, so this is a preference.
        affinity: pod::affinity(&options.architectures, scheduler.control_plane_affinity),
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
        ..pod::spec(NAME, vec![container], vec![pod::config_directory("config", NAME, None)], options)
    }
}

/// The arguments of the image's entry point.
#[must_use]
pub fn flags(options: &Options) -> Vec<String> {
    let mut flags = vec![
        "scheduler".to_owned(),
        format!("--config=/etc/kubernetes/{KEY}"),
        format!("--http-bind-address=0.0.0.0:{PORT}"),
        pod::health_flag(),
        format!("--v={}", options.scheduler.verbosity.clamp(0, 255)),
    ];
    if options.scheduler.delete_rejected_pods {
        flags.push("--delete-rejected-pods".to_owned());
    }
    flags
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
