//! kube-scheduler with the plugins of scheduler-plugins, and their controller, under the names that the Go `deployer` gives them.
//!
//! In: [`Options`]. Out: their objects, one by one and all together. Never: a name that is changed in one object and not in those that
//! refer to it. Where this differs from the Go deployer, docs/compatibility.md has the reason.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, Namespace, PodSpec, PodTemplateSpec, Probe, ServiceAccount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::access::{Account, cluster_role, role};
use super::meta::{self, Level, labels, selector, within};
use super::network::{Openings, policy};
use super::schedulerconfig::{self, Election, KEY, Shape};
use super::{Error, openshift, pod, podgroups};
use crate::options::Options;
use crate::platform::Platform;
use objects::Object;

pub mod rules;

/// The usual namespace; on OpenShift [`OPENSHIFT_NAMESPACE`].
pub const NAMESPACE: &str = "tas-scheduler";
/// The usual namespace on OpenShift and HyperShift.
pub const OPENSHIFT_NAMESPACE: &str = "openshift-topology-aware-scheduler";
/// The name of all that is the scheduler's, and its profile's usual one.
pub const NAME: &str = "topology-aware-scheduler";
/// The name of all that is the controller's.
pub const CONTROLLER: &str = "topology-aware-controller";
/// The usual name of the lease.
const LEASE: &str = "nrtmatch-scheduler";
const CONFIG_MAP: &str = "scheduler-config";
/// Where the role is that lets one ask the API server who somebody is.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication-reader");
/// Health and metrics.
pub const PORT: i32 = 10259;

/// The namespace of both.
#[must_use]
pub fn namespace_name(options: &Options) -> &str {
    let usual = if options.platform.is_openshift() { OPENSHIFT_NAMESPACE } else { NAMESPACE };
    options.scheduler.namespace.as_deref().unwrap_or(usual)
}

/// The scheduler's account.
#[must_use]
pub fn account(options: &Options) -> Account<'_> {
    Account { namespace: namespace_name(options), name: NAME }
}

/// The controller's account.
#[must_use]
pub fn controller_account(options: &Options) -> Account<'_> {
    Account { namespace: namespace_name(options), name: CONTROLLER }
}

/// The lease by which one of several leads; one alone needs none.
#[must_use]
pub fn election(options: &Options) -> Election {
    let lease = &options.scheduler.lease;
    Election {
        held: options.scheduler.replicas > 1,
        namespace: lease.namespace.clone().unwrap_or_else(|| namespace_name(options).to_owned()),
        name: lease.name.clone().unwrap_or_else(|| LEASE.to_owned()),
    }
}

/// All objects, in the order in which they are made.
///
/// # Errors
/// When an option has a value that the configuration file cannot have.
pub fn objects(options: &Options) -> Result<Vec<Object>, Error> {
    let mut objects = vec![
        Object::new(&podgroups::definition())?,
        Object::new(&namespace(options))?,
        Object::new(&account(options).object())?,
        Object::new(&scheduler_role())?,
        Object::new(&scheduler_role_binding(options))?,
    ];
    let mut policies = Vec::new();
    if options.network_policies {
        for policy in network_policies(options) {
            policies.push(Object::new(&policy)?);
        }
    }
    let of_controller = policies.split_off(policies.len() / 2);
    objects.extend(policies);
    objects.push(Object::new(&lease_role(options))?);
    objects.push(Object::new(&lease_role_binding(options))?);
    objects.push(Object::new(&authentication_binding(options))?);
    objects.push(Object::new(&config_map(options)?)?);
    objects.push(Object::new(&scheduler_deployment(options)?)?);
    objects.push(Object::new(&controller_service_account(options))?);
    objects.push(Object::new(&controller_role())?);
    objects.push(Object::new(&controller_role_binding(options))?);
    objects.push(Object::new(&controller_authentication_binding(options))?);
    objects.extend(of_controller);
    objects.push(Object::new(&controller_deployment(options))?);
    Ok(objects)
}

/// Their namespace.
#[must_use]
pub fn namespace(options: &Options) -> Namespace {
    meta::namespace(namespace_name(options), Level::Restricted, options.platform)
}

/// The controller's service account.
#[must_use]
pub fn controller_service_account(options: &Options) -> ServiceAccount {
    controller_account(options).object()
}

/// What the scheduler may do in the cluster.
#[must_use]
pub fn scheduler_role() -> ClusterRole {
    cluster_role(NAME, rules::scheduler())
}

/// That it may do so.
#[must_use]
pub fn scheduler_role_binding(options: &Options) -> ClusterRoleBinding {
    account(options).with_cluster_role(NAME)
}

/// What the controller may do in the cluster.
#[must_use]
pub fn controller_role() -> ClusterRole {
    cluster_role(CONTROLLER, rules::controller())
}

/// That it may do so.
#[must_use]
pub fn controller_role_binding(options: &Options) -> ClusterRoleBinding {
    controller_account(options).with_cluster_role(CONTROLLER)
}

/// What the scheduler may do to its lease, where the lease is.
#[must_use]
pub fn lease_role(options: &Options) -> Role {
    let lease = election(options);
    role(&lease.namespace, &format!("{NAME}-leader-elect"), rules::lease(&lease.name))
}

/// That it may do so.
#[must_use]
pub fn lease_role_binding(options: &Options) -> RoleBinding {
    let name = format!("{NAME}-leader-elect");
    account(options).with_role(&election(options).namespace, &name, &name)
}

/// That the scheduler may find out who asks it for metrics.
#[must_use]
pub fn authentication_binding(options: &Options) -> RoleBinding {
    let (namespace, role) = AUTHENTICATION;
    account(options).with_role(namespace, &format!("{NAME}-as-kube-scheduler"), role)
}

/// That the controller may find out who asks it for metrics.
#[must_use]
pub fn controller_authentication_binding(options: &Options) -> RoleBinding {
    let (namespace, role) = AUTHENTICATION;
    controller_account(options).with_role(namespace, &format!("{CONTROLLER}-as-kube-controller"), role)
}

/// Nothing but the API server: two for the scheduler, two for the controller.
#[must_use]
pub fn network_policies(options: &Options) -> [NetworkPolicy; 4] {
    let namespace = namespace_name(options);
    let nothing = Openings { ingress: Some(Vec::new()), egress: Some(Vec::new()) };
    let server = Openings { ingress: None, egress: Some(options.api_server_ports.clone()) };
    let of = |name: &str, suffix: &str, openings: &Openings| {
        let pods = if name == NAME { pod_labels() } else { controller_labels() };
        policy(namespace, &format!("{name}-{suffix}"), &pods, openings)
    };
    [
        of(NAME, "default-deny-all", &nothing),
        of(NAME, "egress-to-api-server", &server),
        of(CONTROLLER, "default-deny-all", &nothing),
        of(CONTROLLER, "egress-to-api-server", &server),
    ]
}

/// The scheduler's configuration file.
///
/// # Errors
/// When an option has a value that it cannot have.
pub fn config_map(options: &Options) -> Result<ConfigMap, Error> {
    Ok(pod::config_map(namespace_name(options), CONFIG_MAP, KEY, &config(options)?))
}

fn config(options: &Options) -> Result<String, Error> {
    let profile = options.scheduler.profile_name.as_deref().filter(|name| !name.is_empty());
    schedulerconfig::text(&options.scheduler, profile.unwrap_or(NAME), &election(options), Shape::Deployer)
}

/// The scheduler itself.
///
/// # Errors
/// When an option has a value that makes no sense.
pub fn scheduler_deployment(options: &Options) -> Result<Deployment, Error> {
    let probe = |path: &str| pod::probe(path, IntOrString::Int(PORT), Some("HTTPS"));
    let amounts = [("cpu", "200m"), ("memory", "500Mi")];
    let container = Container {
        name: NAME.to_owned(),
        image: Some(options.images.scheduler_plugin.clone()),
        image_pull_policy: pod::pull_policy(options),
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
        ..Container::default()
    };
    let spec = PodSpec {
        volumes: Some(vec![pod::config_directory(CONFIG_MAP, CONFIG_MAP, None)]),
        ..pod_spec(options, NAME, container)
    };
    let hash = BTreeMap::from([pod::config_hash(&config(options)?)]);
    Ok(deployment(options, NAME, super::replicas(options)?, pod_labels(), hash, spec))
}

/// The controller itself. One: several would work against each other, since they choose no leader.
#[must_use]
pub fn controller_deployment(options: &Options) -> Deployment {
    let container = Container {
        name: CONTROLLER.to_owned(),
        image: Some(options.images.scheduler_controller.clone()),
        image_pull_policy: pod::pull_policy(options),
        resources: pod::resources(&[("cpu", "100m")], &[]),
        security_context: Some(pod::restricted(options.platform)),
        ..Container::default()
    };
    let spec = pod_spec(options, CONTROLLER, container);
    deployment(options, CONTROLLER, 1, controller_labels(), BTreeMap::new(), spec)
}

fn pod_spec(options: &Options, account: &str, container: Container) -> PodSpec {
    let scheduler = &options.scheduler;
    // A hosted control plane has no nodes that one could run on.
    let control_plane = scheduler.control_plane_affinity && options.platform != Platform::HyperShift;
    let tolerations = if control_plane {
        pod::tolerate_control_plane(&scheduler.tolerations)
    } else {
        scheduler.tolerations.clone()
    };
    PodSpec {
        service_account_name: Some(account.to_owned()),
        containers: vec![container],
        image_pull_secrets: pod::pull_secrets(options),
        priority_class_name: scheduler.priority_class.clone().filter(|name| !name.is_empty()),
        tolerations: Some(tolerations).filter(|tolerations| !tolerations.is_empty()),
        node_selector: Some(scheduler.node_selector.clone()).filter(|labels| !labels.is_empty()),
        affinity: control_plane.then(|| pod::only_on(vec![pod::nodes_with(pod::CONTROL_PLANE, &[])])),
        ..PodSpec::default()
    }
}

fn deployment(
    options: &Options,
    name: &str,
    replicas: i32,
    pods: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    spec: PodSpec,
) -> Deployment {
    let mut annotations = annotations;
    if options.platform.is_openshift() {
        annotations.extend([openshift::required("restricted-v2")]);
    }
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pods.clone()),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            ..ObjectMeta::default()
        }),
        spec: Some(spec),
    };
    Deployment {
        metadata: ObjectMeta { labels: Some(pods.clone()), ..within(namespace_name(options), name) },
        spec: Some(DeploymentSpec {
            replicas: Some(replicas),
            selector: selector(&pods),
            template,
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

fn pod_labels() -> BTreeMap<String, String> {
    labels([("component", "scheduler")])
}

fn controller_labels() -> BTreeMap<String, String> {
    labels([("app", CONTROLLER)])
}
