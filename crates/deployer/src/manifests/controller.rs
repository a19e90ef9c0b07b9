//! A controller manager as a Deployment, with its namespace, network policies and monitoring.
//!
//! In: [`Options`], the controllers ([`Program`]). Out: typed objects. Never: a permission or mount that the process
//! does not use.
//!
//! The process needs no access to nodes, so it runs without privileges. One replica is enough: its successor takes over
//! once the lease is released.

use std::collections::BTreeMap;

use api::rbac::rule_for;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::meta::{labels, within};
use super::{openshift, pod};

pub mod monitoring;
pub mod namespace;
pub mod network;

/// The name of the container.
pub const CONTAINER: &str = "manager";
/// The port of metrics.
pub const METRICS: u16 = 8080;
/// The mount path of the certificate for metrics.
const CERTIFICATES: &str = "/certs";
/// The annotation with which OpenShift creates a Secret with a certificate for a Service.
const SERVING: &str = "service.beta.openshift.io/serving-cert-secret-name";
/// The annotation with which a pod may use CPUs that are reserved for management.
pub const WORKLOAD: (&str, &str) =
    ("target.workload.openshift.io/management", r#"{"effect": "PreferredDuringScheduling"}"#);

/// The options of a controller manager.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The namespace.
    pub namespace: String,
    /// Options of all programs: platform, image, network policies, monitoring. Options of exporter and scheduler have
    /// no effect.
    pub common: crate::options::Options,
    /// Further flags of the process.
    pub flags: Vec<String>,
}

impl Options {
    /// The defaults, in this namespace.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        let common = crate::options::Options::default();
        Self { namespace: namespace.to_owned(), common, flags: Vec::new() }
    }
}

/// A controller manager: names, labels and arguments of one set of controllers.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name of Deployment and service account.
    pub name: &'static str,
    /// The label `app` of the pods.
    pub app: &'static str,
    /// The name of the Service for metrics.
    pub service: &'static str,
    /// The name of the Secret with the certificate for metrics, on OpenShift.
    pub certificate: &'static str,
    /// The arguments.
    pub args: &'static [&'static str],
}

impl Program {
    /// The labels of the pods.
    #[must_use]
    pub fn pod_labels(&self) -> BTreeMap<String, String> {
        labels([("app", self.app), ("control-plane", "controller-manager")])
    }
}

/// The name of the metrics port; on OpenShift it serves HTTPS.
#[must_use]
pub fn port_name(options: &Options) -> &'static str {
    if options.common.platform.is_openshift() { "https" } else { "http" }
}

/// The Service for metrics; OpenShift adds a certificate.
#[must_use]
pub fn service(options: &Options, program: &Program) -> Service {
    let certificate = options.common.platform.is_openshift().then_some(program.certificate);
    let (metadata, port) = (within(&options.namespace, program.service), (port_name(options), METRICS));
    service_of_pods(metadata, program.pod_labels(), port, certificate)
}

/// A Service for pods with these labels, at a port with this name and number. OpenShift puts its certificate into the
/// Secret `certificate`.
#[must_use]
pub fn service_of_pods(
    metadata: ObjectMeta,
    pod_labels: BTreeMap<String, String>,
    (name, number): (&str, u16),
    certificate: Option<&str>,
) -> Service {
    let annotations = certificate.map(|secret| labels([(SERVING, secret)]));
    let metadata = ObjectMeta { labels: Some(pod_labels.clone()), annotations, ..metadata };
    let port = ServicePort {
        name: Some(name.to_owned()),
        port: number.into(),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::String(name.to_owned())),
        ..ServicePort::default()
    };
    let spec = ServiceSpec { selector: Some(pod_labels), ports: Some(vec![port]), ..ServiceSpec::default() };
    Service { metadata, spec: Some(spec), status: None }
}

/// The Deployment of the process.
#[must_use]
pub fn deployment(options: &Options, program: &Program) -> Deployment {
    let mut annotations = labels([("kubectl.kubernetes.io/default-container", CONTAINER)]);
    if options.common.platform.is_openshift() {
        annotations.extend(labels([WORKLOAD]));
        annotations.extend([openshift::required("restricted-v2")]);
    }
    let pods = pod::Pods { labels: program.pod_labels(), annotations, spec: pod_spec(options, program) };
    let mut metadata = within(&options.namespace, program.name);
    metadata.labels = Some(program.pod_labels());
    pods.deployment(metadata, 1, None)
}

fn pod_spec(options: &Options, program: &Program) -> PodSpec {
    let common = &options.common;
    let mut container = container(options, program);
    let mut volumes = Vec::new();
    // Without OpenShift no Secret is created, and metrics are served without TLS.
    if common.platform.is_openshift() {
        container.volume_mounts = Some(vec![pod::mount_read_only("certs", CERTIFICATES)]);
        volumes.push(pod::secret_directory("certs", program.certificate, Some(true)));
    }
    PodSpec {
        priority_class_name: Some("system-cluster-critical".to_owned()),
        tolerations: Some(pod::tolerate_control_plane(&[])),
        node_selector: Some(labels([("kubernetes.io/os", "linux")])),
        affinity: pod::affinity(&common.architectures, true),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(10),
        ..pod::spec(program.name, vec![container], volumes, common)
    }
}

fn container(options: &Options, program: &Program) -> Container {
    let common = &options.common;
    Container {
        args: Some(program.args.iter().map(|word| (*word).to_owned()).chain(options.flags.clone()).collect()),
        env: Some(vec![
            pod::field("NAMESPACE", "metadata.namespace"),
            // The pod reads its own image, which is also that of its operands.
            pod::field("PODNAME", "metadata.name"),
        ]),
        ports: Some(vec![pod::port(port_name(options), METRICS), pod::health_port()]),
        security_context: Some(pod::restricted(common.platform)),
        readiness_probe: Some(Probe { period_seconds: Some(5), ..pod::health_probe("/readyz") }),
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(15),
            period_seconds: Some(20),
            timeout_seconds: Some(5),
            ..pod::health_probe("/healthz")
        }),
        // The process caches the labels of all nodes: at most 25 MiB with 500 nodes, 60 MiB with 5,000.
        resources: pod::resources(&[("cpu", "10m"), ("memory", "32Mi")], &[("memory", "256Mi")]),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..pod::container(CONTAINER, &common.images.tholepin, common)
    }
}

/// Permissions of every controller manager on OpenShift and HyperShift: to read platform, version and TLS profile.
#[must_use]
pub fn openshift_rules() -> Vec<PolicyRule> {
    let group = "config.openshift.io";
    vec![
        rule_for(group, &["infrastructures"], "cluster", &["get"]),
        rule_for(group, &["clusteroperators"], "openshift-apiserver", &["get"]),
        rule_for(group, &["apiservers"], "cluster", &["list", "watch"]),
    ]
}
