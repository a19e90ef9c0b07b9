//! All objects of a request.
//!
//! In: a request. Out: objects, each after those that it needs, DaemonSets last. Never: a name that depends on anything
//! but the pool.

use api::numaresources::keys::{CLUSTER, NRT_API};
use deployer::manifests::meta::within;
use deployer::manifests::{access, controller, openshift, rte};
use deployer::options::{Options, SccVersion, Updater};
use exporter::rbac::{Needs, Rules};
use exporter::settings::{Mode, OwnerKind};
use objects::Object;

use super::stage::{machine_config, stage};
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
        let config = machine_config(request, group, pool);
        wanted.extend(config.map(|(object, untouched)| owned(object, &owner).held(untouched)));
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
    let certificate = options.platform.is_openshift().then_some(CERTIFICATE);
    let (metadata, port) =
        (within(account.namespace, EXPORTER_SERVICE), (PORT, options.updater.metrics_port));
    let service = controller::metrics_service(metadata, rte::pod_labels(), port, certificate);
    objects.push(Object::new(&service));
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
