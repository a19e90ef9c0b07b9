//! All objects of a request.
//!
//! In: a request. Out: objects, each after those that it needs, DaemonSets last. Never: a name that depends on anything
//! but the pool.

use api::numaresources::keys::{CLUSTER, NRT_API};
use deployer::manifests::{access, meta, openshift, rte};
use deployer::options::{Options, SccVersion, Updater};
use exporter::rbac::{Needs, Rules};
use exporter::settings::{Mode, OwnerKind};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use objects::Object;

use super::stage::{MachineConfig, machine_config, stage};
use super::{Request, daemonset};
use crate::desired::{self, DesiredObject, Owner, owned};
use crate::rbac::EXPORTER_SERVICE;

/// The Secret with its certificate, which OpenShift makes.
pub(super) const CERTIFICATE: &str = "rte-metrics-service-cert";
/// The name of the exporters' port.
pub(super) const PORT: &str = "metrics-port";

/// All objects.
pub(super) fn objects(request: &Request<'_>) -> Vec<DesiredObject> {
    let owner = Owner::of(request.operator);
    let mut wanted = vec![definition(request)];
    for (group, pool) in request.groups.pools() {
        match machine_config(request, group, pool) {
            None => {}
            Some(MachineConfig::Wanted(object)) => wanted.push(owned(object, &owner)),
            Some(MachineConfig::Untouched(object)) => wanted.push(owned(object, &owner).held(true)),
        }
    }
    let shared = shared(request).into_iter();
    wanted.extend(shared.map(|object| owned(object, &owner)));
    for (group, pool) in request.groups.pools() {
        let Ok(nodes) = &pool.nodes else {
            wanted.push(owned(Object::bare(daemonset::key(request, pool.name)), &owner).held(true));
            continue;
        };
        let set = Object::new(&daemonset::daemon_set(request, group, pool, nodes));
        wanted.push(owned(set, &owner).held(stage(request, group, pool).holds()));
    }
    wanted
}

/// The definition that exporters publish with. Other programs may use it, so it has no owner; an annotation keeps it.
fn definition(request: &Request<'_>) -> DesiredObject {
    let annotations = request.operator.metadata.annotations.as_ref();
    let theirs = annotations.and_then(|all| all.get(NRT_API)).is_some_and(|value| value == CLUSTER);
    desired::shared(Object::new(&api::crd::nrt_crd())).held(theirs)
}

/// The objects that the exporters of all pools share.
fn shared(request: &Request<'_>) -> Vec<Object> {
    let options = &request.options();
    let account = rte::account(options);
    let rules = rules(request, options);
    let [deny_all, egress, metrics] = rte::network_policies(options);
    let mut objects = vec![
        Object::new(&rte::service_account(options)),
        Object::new(&access::role(account.namespace, account.name, rules.namespaced)),
        Object::new(&rte::pod_role_binding(options)),
        Object::new(&access::cluster_role(account.name, rules.cluster)),
        Object::new(&rte::object_role_binding(options)),
        Object::new(&egress),
        Object::new(&metrics),
        Object::new(&deny_all),
    ];
    if options.platform.is_openshift() {
        for (scc, selinux) in
            [(SccVersion::V1, openshift::RTE_PROCESS), (SccVersion::V2, openshift::DEVICE_PLUGIN)]
        {
            let mut options = options.clone();
            (options.updater.scc, options.updater.selinux_type) = (scc, Some(selinux.to_owned()));
            objects.push(openshift::rte_constraints(rte::account(&options), &options));
        }
    }
    // The Service comes before the DaemonSets: OpenShift makes the certificate of their metrics for it.
    objects.push(Object::new(&service(options)));
    objects
}

/// The rights of our exporter, and those that the Go exporter needs besides.
fn rules(request: &Request<'_>, options: &Options) -> Rules {
    let needs = Needs { mode: Some(Mode::Patch), owner: OwnerKind::Leave, conditions: true, configz: false };
    let mut rules = exporter::rbac::rules(needs, rte::account(options).namespace);
    if !request.image().own {
        rules.cluster.extend(rte::object_role(options).rules.unwrap_or_default());
        rules.namespaced.extend(rte::pod_role(options).rules.unwrap_or_default());
    }
    rules
}

fn service(options: &Options) -> Service {
    let mut metadata = meta::within(rte::account(options).namespace, EXPORTER_SERVICE);
    metadata.labels = Some(rte::pod_labels());
    if options.platform.is_openshift() {
        let annotation = [("service.beta.openshift.io/serving-cert-secret-name", CERTIFICATE)];
        metadata.annotations = Some(meta::labels(annotation));
    }
    let port = ServicePort {
        name: Some(PORT.to_owned()),
        port: options.updater.metrics_port.into(),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::String(PORT.to_owned())),
        ..ServicePort::default()
    };
    let spec =
        ServiceSpec { selector: Some(rte::pod_labels()), ports: Some(vec![port]), ..ServiceSpec::default() };
    Service { metadata, spec: Some(spec), status: None }
}

impl Request<'_> {
    /// The same as options of the deployer, whose manifests these are.
    pub(super) fn options(&self) -> Options {
        let environment = &self.cluster.environment;
        let mut options = Options {
            platform: environment.platform,
            version: environment.version.clone(),
            api_server_ports: environment.api_server_ports.clone(),
            ..Options::peers()
        };
        options.updater.kind = Updater::Rte;
        options.updater.namespace = Some(environment.namespace.clone());
        options
    }
}
