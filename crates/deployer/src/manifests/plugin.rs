//! kube-scheduler with the plugins of scheduler-plugins, and their controller, under the names that the Go `deployer`
//! gives them.
//!
//! In: [`Options`]. Out: their objects, one by one and all together. Never: a name that differs from a reference to it.
//! docs/compatibility-deployer.md has the differences from the Go deployer.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::access::{ServiceAccountRef, cluster_role, role};
use super::meta::{self, PodSecurityLevel, labels, within};
use super::network::{Servers, only_api_server};
use super::schedulerconfig::{self, ConfigStyle, KEY, LeaderElection};
use super::{Error, openshift, pod, podgroups};
use crate::options::Options;
use crate::platform::Platform;
use objects::Object;

pub mod rules;

/// The default namespace; on OpenShift [`OPENSHIFT_NAMESPACE`].
pub const NAMESPACE: &str = "tas-scheduler";
/// The default namespace on OpenShift and HyperShift.
pub const OPENSHIFT_NAMESPACE: &str = "openshift-topology-aware-scheduler";
/// The name of the scheduler's objects, and the default name of its profile.
pub const NAME: &str = "topology-aware-scheduler";
/// The name of the controller's objects.
pub const CONTROLLER: &str = "topology-aware-controller";
/// The default name of the lease.
pub(crate) const LEASE: &str = "nrtmatch-scheduler";
const CONFIG_MAP: &str = "scheduler-config";
/// Namespace and name of the Role that permits to read the API server's authentication settings. Both programs
/// authenticate readers of their metrics with them.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication-reader");
/// The port of health checks and metrics.
pub const PORT: i32 = 10259;

/// The scheduler's service account.
#[must_use]
pub fn account(options: &Options) -> ServiceAccountRef<'_> {
    let usual = if options.platform.is_openshift() { OPENSHIFT_NAMESPACE } else { NAMESPACE };
    ServiceAccountRef { namespace: options.scheduler.namespace.as_deref().unwrap_or(usual), name: NAME }
}

/// All objects, in the order of installation.
///
/// # Errors
/// When the configuration file cannot express an option.
pub fn objects(options: &Options) -> Result<Vec<Object>, Error> {
    let account = account(options);
    let namespace = account.namespace;
    let level = PodSecurityLevel::Restricted;
    let mut objects = vec![
        podgroups::definition(),
        Object::new(&meta::namespace(namespace, level, options.platform)),
        Object::new(&account.object()),
        Object::new(&cluster_role(NAME, rules::scheduler())),
        Object::new(&account.with_cluster_role(NAME)),
    ];
    let policies = |name: &str, pods: BTreeMap<String, String>| -> Vec<Object> {
        let wanted = options
            .network_policies
            .then(|| only_api_server(namespace, name, &pods, vec![Servers::api(options)]));
        wanted.iter().flatten().map(Object::new).collect()
    };
    objects.extend(policies(NAME, pod_labels()));
    // A single replica needs no leader.
    let (many, lease) = (options.scheduler.replicas > 1, &options.scheduler.lease);
    let election = LeaderElection::new(many, lease, namespace, LEASE);
    let lease_role = format!("{NAME}-leader-elect");
    let (authentication, reader) = AUTHENTICATION;
    let style = ConfigStyle::Deployer;
    let config = schedulerconfig::text(&options.scheduler, NAME, &election, style)?;
    objects.extend([
        Object::new(&role(&election.namespace, &lease_role, rules::lease(&election.name))),
        Object::new(&account.with_role(&election.namespace, &lease_role, &lease_role)),
        Object::new(&account.with_role(authentication, &format!("{NAME}-as-kube-scheduler"), reader)),
        Object::new(&pod::config_map(namespace, CONFIG_MAP, KEY, &config)),
        Object::new(&scheduler_deployment(options, &config)?),
    ]);
    let account = ServiceAccountRef { name: CONTROLLER, ..account };
    objects.extend([
        Object::new(&account.object()),
        Object::new(&cluster_role(CONTROLLER, rules::controller())),
        Object::new(&account.with_cluster_role(CONTROLLER)),
        Object::new(&account.with_role(authentication, &format!("{CONTROLLER}-as-kube-controller"), reader)),
    ]);
    objects.extend(policies(CONTROLLER, controller_labels()));
    objects.push(Object::new(&controller_deployment(options)));
    Ok(objects)
}

fn scheduler_deployment(options: &Options, config: &str) -> Result<Deployment, Error> {
    let probe = |path: &str| pod::probe(path, IntOrString::Int(PORT), Some("HTTPS"));
    let amounts = [("cpu", "200m"), ("memory", "500Mi")];
    let container = Container {
        args: Some(vec![
            "/bin/kube-scheduler".to_owned(),
            format!("--config=/etc/kubernetes/{KEY}"),
            format!("-v={}", options.scheduler.verbosity),
        ]),
        liveness_probe: Some(Probe { initial_delay_seconds: Some(15), ..probe("/healthz") }),
        readiness_probe: Some(probe("/healthz")),
        resources: pod::resources(&amounts, &amounts),
        volume_mounts: Some(vec![pod::mount_read_only(CONFIG_MAP, "/etc/kubernetes")]),
        security_context: Some(pod::restricted(options.platform)),
        ..pod::container(NAME, &options.images.scheduler_plugin, options)
    };
    let volume = pod::config_directory(CONFIG_MAP, CONFIG_MAP, None);
    let spec = pod_spec(options, NAME, container, vec![volume]);
    let hash = BTreeMap::from([pod::config_hash(config)]);
    let pods = pod::Pods { labels: pod_labels(), annotations: hash, spec };
    Ok(deployment(options, NAME, super::replicas(options)?, pods))
}

/// Always one replica: several would conflict, because they elect no leader.
fn controller_deployment(options: &Options) -> Deployment {
    let container = Container {
        resources: pod::resources(&[("cpu", "100m")], &[]),
        security_context: Some(pod::restricted(options.platform)),
        ..pod::container(CONTROLLER, &options.images.scheduler_controller, options)
    };
    let spec = pod_spec(options, CONTROLLER, container, Vec::new());
    let pods = pod::Pods { labels: controller_labels(), annotations: BTreeMap::new(), spec };
    deployment(options, CONTROLLER, 1, pods)
}

fn pod_spec(options: &Options, account: &str, container: Container, volumes: Vec<Volume>) -> PodSpec {
    let scheduler = &options.scheduler;
    // A hosted control plane has no nodes for pods.
    let control_plane = scheduler.control_plane_affinity && options.platform != Platform::HyperShift;
    PodSpec {
        priority_class_name: pod::priority_class(&scheduler.priority_class, ""),
        tolerations: pod::tolerations(control_plane, &scheduler.tolerations),
        node_selector: Some(scheduler.node_selector.clone()).filter(|labels| !labels.is_empty()),
        affinity: control_plane.then(|| pod::only_on(vec![pod::nodes_with(pod::CONTROL_PLANE, &[])])),
        ..pod::spec(account, vec![container], volumes, options)
    }
}

fn deployment(options: &Options, name: &str, replicas: i32, mut pods: pod::Pods) -> Deployment {
    if options.platform.is_openshift() {
        pods.annotations.extend([openshift::required("restricted-v2")]);
    }
    let labels = Some(pods.labels.clone());
    let metadata = ObjectMeta { labels, ..within(account(options).namespace, name) };
    pods.deployment(metadata, replicas, None)
}

fn pod_labels() -> BTreeMap<String, String> {
    labels([("component", "scheduler")])
}

fn controller_labels() -> BTreeMap<String, String> {
    labels([("app", CONTROLLER)])
}
