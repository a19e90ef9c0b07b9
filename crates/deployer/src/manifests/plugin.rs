//! kube-scheduler with the plugins of scheduler-plugins, and their controller, under the names that the Go `deployer`
//! gives them.
//!
//! In: [`Options`]. Out: their objects, one by one and all together. Never: a name that differs from a reference to it.
//! docs/compatibility-deployer.md has the differences from the Go deployer.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, Namespace, PodSpec, PodTemplateSpec, Probe, ServiceAccount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::access::{ServiceAccountRef, cluster_role, role};
use super::meta::{self, PodSecurityLevel, labels, selector, within};
use super::network::{AllowedPorts, policy};
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
const LEASE: &str = "nrtmatch-scheduler";
const CONFIG_MAP: &str = "scheduler-config";
/// Namespace and name of the Role that permits to read the API server's authentication settings.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication-reader");
/// The port of health checks and metrics.
pub const PORT: i32 = 10259;

/// The namespace of scheduler and controller.
#[must_use]
pub fn namespace_name(options: &Options) -> &str {
    let usual = if options.platform.is_openshift() { OPENSHIFT_NAMESPACE } else { NAMESPACE };
    options.scheduler.namespace.as_deref().unwrap_or(usual)
}

/// The scheduler's service account.
#[must_use]
pub fn account(options: &Options) -> ServiceAccountRef<'_> {
    ServiceAccountRef { namespace: namespace_name(options), name: NAME }
}

/// The controller's service account.
#[must_use]
pub fn controller_account(options: &Options) -> ServiceAccountRef<'_> {
    ServiceAccountRef { namespace: namespace_name(options), name: CONTROLLER }
}

/// The leader election; a single replica needs none.
#[must_use]
pub fn election(options: &Options) -> LeaderElection {
    let lease = &options.scheduler.lease;
    LeaderElection {
        enabled: options.scheduler.replicas > 1,
        namespace: lease.namespace.clone().unwrap_or_else(|| namespace_name(options).to_owned()),
        name: lease.name.clone().unwrap_or_else(|| LEASE.to_owned()),
    }
}

/// All objects, in the order of installation.
///
/// # Errors
/// When the configuration file cannot express an option.
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

/// The Namespace.
#[must_use]
pub fn namespace(options: &Options) -> Namespace {
    meta::namespace(namespace_name(options), PodSecurityLevel::Restricted, options.platform)
}

/// The controller's service account.
#[must_use]
pub fn controller_service_account(options: &Options) -> ServiceAccount {
    controller_account(options).object()
}

/// The scheduler's ClusterRole.
#[must_use]
pub fn scheduler_role() -> ClusterRole {
    cluster_role(NAME, rules::scheduler())
}

/// Binds the role to the service account.
#[must_use]
pub fn scheduler_role_binding(options: &Options) -> ClusterRoleBinding {
    account(options).with_cluster_role(NAME)
}

/// The controller's ClusterRole.
#[must_use]
pub fn controller_role() -> ClusterRole {
    cluster_role(CONTROLLER, rules::controller())
}

/// Binds the role to the service account.
#[must_use]
pub fn controller_role_binding(options: &Options) -> ClusterRoleBinding {
    controller_account(options).with_cluster_role(CONTROLLER)
}

/// The scheduler's Role for its lease, in the namespace of the lease.
#[must_use]
pub fn lease_role(options: &Options) -> Role {
    let lease = election(options);
    role(&lease.namespace, &format!("{NAME}-leader-elect"), rules::lease(&lease.name))
}

/// Binds the role to the service account.
#[must_use]
pub fn lease_role_binding(options: &Options) -> RoleBinding {
    let name = format!("{NAME}-leader-elect");
    account(options).with_role(&election(options).namespace, &name, &name)
}

/// Lets the scheduler authenticate readers of its metrics.
#[must_use]
pub fn authentication_binding(options: &Options) -> RoleBinding {
    let (namespace, role) = AUTHENTICATION;
    account(options).with_role(namespace, &format!("{NAME}-as-kube-scheduler"), role)
}

/// Lets the controller authenticate readers of its metrics.
#[must_use]
pub fn controller_authentication_binding(options: &Options) -> RoleBinding {
    let (namespace, role) = AUTHENTICATION;
    controller_account(options).with_role(namespace, &format!("{CONTROLLER}-as-kube-controller"), role)
}

/// Restricts the pods to the API server: two policies for the scheduler, two for the controller.
#[must_use]
pub fn network_policies(options: &Options) -> [NetworkPolicy; 4] {
    let namespace = namespace_name(options);
    let nothing = AllowedPorts { ingress: Some(Vec::new()), egress: Some(Vec::new()) };
    let server = AllowedPorts { ingress: None, egress: Some(options.api_server_ports.clone()) };
    let of = |name: &str, suffix: &str, openings: &AllowedPorts| {
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

/// The ConfigMap with the scheduler's configuration.
///
/// # Errors
/// When the configuration file cannot express an option.
pub fn config_map(options: &Options) -> Result<ConfigMap, Error> {
    Ok(pod::config_map(namespace_name(options), CONFIG_MAP, KEY, &config(options)?))
}

fn config(options: &Options) -> Result<String, Error> {
    let profile = options.scheduler.profile_name.as_deref().filter(|name| !name.is_empty());
    schedulerconfig::text(
        &options.scheduler,
        profile.unwrap_or(NAME),
        &election(options),
        ConfigStyle::Deployer,
    )
}

/// The scheduler's Deployment.
///
/// # Errors
/// When an option has a value that is not allowed.
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

/// The controller's Deployment. Always one replica: several would conflict, because they elect no leader.
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
    // A hosted control plane has no nodes for pods.
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
