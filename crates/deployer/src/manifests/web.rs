//! The view of the cluster, `tholepin web`, for everybody who may read it.
//!
//! In: [`Options`], a namespace. Out: its objects. Never: a permission that [`view::rbac`] does not list, or a
//! certificate; the Secret [`CERTIFICATE`] has it.
//!
//! The server reads tokens and asks the API server about their users, so its Service may stand behind an Ingress that
//! speaks TLS to it. Without a certificate it has one of its own, which suffices for `kubectl port-forward`.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe};

use super::access::{ServiceAccountRef, cluster_role};
use super::controller::service_of_pods;
use super::meta::{self, PodSecurityLevel, labels, within};
use super::network::{AllowedPorts, Servers, policy};
use super::{openshift, pod};
use crate::options::Options;
use objects::Object;

/// The default namespace, and the name of all objects.
pub const NAME: &str = "tholepin-web";
/// The ClusterRole of readers.
pub const READER: &str = "tholepin-web-reader";
/// The Secret with `tls.crt` and `tls.key`.
pub const CERTIFICATE: &str = "tholepin-web-tls";
/// The port, and its name.
const PORT: (&str, u16) = ("https", 8443);
/// The directory of the certificate.
const CERTIFICATES: &str = "/etc/tholepin-web";

/// All objects, in the order of installation.
#[must_use]
pub fn objects(options: &Options, namespace: &str) -> Vec<Object> {
    let account = ServiceAccountRef { namespace, name: NAME };
    let rules = [view::rbac::server(), view::rbac::reviews()].concat();
    let mut objects = vec![
        Object::new(&meta::namespace(namespace, PodSecurityLevel::Restricted, options.platform)),
        Object::new(&account.object()),
        Object::new(&cluster_role(NAME, rules)),
        Object::new(&account.with_cluster_role(NAME)),
        Object::new(&cluster_role(READER, view::rbac::reader())),
    ];
    if options.network_policies {
        let openings =
            AllowedPorts { ingress: Some(vec![PORT.1]), egress: Some(vec![Servers::api(options)]) };
        objects.push(Object::new(&policy(namespace, NAME, &pod_labels(), &openings)));
    }
    let certificate = options.platform.is_openshift().then_some(CERTIFICATE);
    objects.push(Object::new(&service_of_pods(within(namespace, NAME), pod_labels(), PORT, certificate)));
    objects.push(Object::new(&deployment(options, namespace)));
    objects
}

fn deployment(options: &Options, namespace: &str) -> Deployment {
    let mut annotations = BTreeMap::new();
    if options.platform.is_openshift() {
        annotations.extend([openshift::required("restricted-v2")]);
    }
    let pods = pod::Pods { labels: pod_labels(), annotations, spec: pod_spec(options) };
    pods.deployment(within(namespace, NAME), 1, None)
}

fn pod_spec(options: &Options) -> PodSpec {
    let container = Container {
        args: Some(flags()),
        ports: Some(vec![pod::port(PORT.0, PORT.1), pod::health_port()]),
        volume_mounts: Some(vec![pod::mount_read_only("certificate", CERTIFICATES)]),
        security_context: Some(pod::restricted(options.platform)),
        readiness_probe: Some(Probe { period_seconds: Some(5), ..pod::health_probe("/readyz") }),
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(15),
            timeout_seconds: Some(5),
            ..pod::health_probe("/livez")
        }),
        // No limit: memory grows with the cluster, to 61 MiB with 5,000 nodes and 163 MiB with 30,000 pods there.
        resources: pod::resources(&[("cpu", "50m"), ("memory", "64Mi")], &[]),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..pod::container("web", &options.images.tholepin, options)
    };
    let volumes = vec![pod::secret_directory("certificate", CERTIFICATE, Some(true))];
    PodSpec {
        node_selector: Some(labels([("kubernetes.io/os", "linux")])),
        affinity: pod::affinity(&options.architectures, false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(10),
        ..pod::spec(NAME, vec![container], volumes, options)
    }
}

/// The arguments of the image's entry point.
#[must_use]
pub fn flags() -> Vec<String> {
    vec![
        "web".to_owned(),
        format!("--bind-address=:{}", PORT.1),
        pod::health_flag(),
        format!("--tls-cert-file={CERTIFICATES}/tls.crt"),
        format!("--tls-private-key-file={CERTIFICATES}/tls.key"),
    ]
}

fn pod_labels() -> BTreeMap<String, String> {
    labels([("app.kubernetes.io/name", NAME)])
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct WebCli {
        #[command(flatten)]
        args: view::web::Args,
    }

    #[test]
    fn the_page_takes_its_flags() {
        let args = WebCli::try_parse_from(flags()).unwrap_or_else(|error| panic!("{error}")).args;
        assert_eq!(args.bind_address.port(), PORT.1);
        assert_eq!(args.health_probe_bind_address.unwrap().port(), pod::HEALTH);
        assert!(args.tls_cert_file.unwrap().starts_with(CERTIFICATES));
    }
}
