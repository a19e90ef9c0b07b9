//! All objects of a request.
//!
//! In: a request. Out: objects, each after those that it needs, DaemonSets last. Never: a name that depends on anything
//! but the pool.

use std::collections::BTreeSet;

use api::nrt;
use api::numaresources::keys::{CLUSTER, NRT_API};
use api::rbac::rule;
use deployer::manifests::access::ServiceAccountRef;
use deployer::manifests::meta::within;
use deployer::manifests::{access, controller, openshift, rte};
use deployer::options::{KubeletConfig, Options, SccVersion, Updater};
use deployer::platform::Platform;
use exporter::rbac::{Needs, Rules};
use exporter::settings::{Mode, OwnerKind};
use objects::Object;

use super::stage::{machine_config, stage};
use super::{Request, daemonset, nfd};
use crate::desired::{self, DesiredObject, Owner, owned};
use crate::kubeletconfig::Warning;
use crate::rbac::{EXPORTER_SERVICE, OWN_NODE};

/// The Secret with its certificate, which OpenShift makes.
pub(super) const CERTIFICATE: &str = "rte-metrics-service-cert";
/// The name of the exporters' port.
pub(super) const PORT: &str = "metrics-port";

/// A reason: no admission policy ties exporters to their nodes.
const UNTIED: &str = "ExportersNotTiedToNodes";

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
    let [deny_all, _, metrics] = rte::network_policies(options);
    let [_, egress, _] = rte::network_policies(&with_kubelets(request, options));
    let mut objects = vec![
        Object::new(&rte::service_account(options)),
        Object::new(&access::role(account.namespace, account.name, rules.namespaced)),
        Object::new(&rte::pod_role_binding(options)),
        Object::new(&access::cluster_role(account.name, rules.cluster)),
        Object::new(&rte::object_role_binding(options)),
    ];
    if ties_exporters(options) {
        objects.extend(own_node(account));
    }
    let has_metrics = has_metrics(request);
    objects.push(Object::new(&egress));
    objects.extend(has_metrics.then(|| Object::new(&metrics)));
    objects.push(Object::new(&deny_all));
    if options.platform.is_openshift() {
        let of_policy = Some((SccVersion::V1, openshift::RTE_PROCESS)).filter(|_| !request.has_nfd());
        for (scc, selinux) in of_policy.into_iter().chain([(SccVersion::V2, openshift::DEVICE_PLUGIN)]) {
            let mut options = options.clone();
            (options.updater.scc, options.updater.selinux_type) = (scc, Some(selinux.to_owned()));
            objects.push(openshift::rte_constraints(rte::account(&options), &options));
        }
    }
    // The Service comes before the DaemonSets: OpenShift makes the certificate of their metrics for it.
    let certificate = options.platform.is_openshift().then_some(CERTIFICATE);
    let (metadata, port) =
        (within(account.namespace, EXPORTER_SERVICE), (PORT, options.updater.metrics_port));
    let service = controller::service_of_pods(metadata, rte::pod_labels(), port, certificate);
    objects.extend(has_metrics.then(|| Object::new(&service)));
    objects
}

/// Whether metrics are at the port, and in the scheme, that readers are told: nfd-topology-updater has no TLS, which
/// OpenShift's readers demand, and other images have it at a port of their own.
fn has_metrics(request: &Request<'_>) -> bool {
    let openshift = request.cluster.environment.platform.is_openshift();
    !request.has_nfd() || (request.image().own && !openshift)
}

/// Whether tokens name their node: the admission policy would refuse every write of an older cluster's exporters.
fn ties_exporters(options: &Options) -> bool {
    options.kubernetes_at_least(32)
}

/// The admission policy that ties each exporter to the report of its own node. Its name has no namespace in it, so that
/// the operator's role can state it.
fn own_node(account: ServiceAccountRef<'_>) -> [Object; 2] {
    let (mut policy, mut binding) = exporter::policy::admission_policy(account.namespace, account.name);
    policy.metadata.name = Some(OWN_NODE.to_owned());
    binding.metadata.name = Some(OWN_NODE.to_owned());
    binding.spec.policy_name = OWN_NODE.to_owned();
    [Object::new(&policy), Object::new(&binding)]
}

/// A warning where the cluster is too old for that policy.
pub(super) fn untied(request: &Request<'_>) -> Option<Warning> {
    let options = request.options();
    let version = options.version.as_ref().filter(|_| !ties_exporters(&options))?;
    let (platform, account) = (options.platform, rte::account(&options));
    Some(Warning {
        reason: UNTIED,
        message: format!(
            "{platform} {version} is older than Kubernetes 1.32 (OpenShift 4.19): no admission policy ties an exporter to \
             its node, so the token of {}/{} on one node can write the reports of all nodes",
            account.namespace, account.name
        ),
    })
}

/// The rights of our exporter, and those that the Go exporter needs besides; or those of nfd-topology-updater.
///
/// Go exporters write with `update`. They run until their DaemonSet has rolled, and again after a return to the Go
/// operator; next to `patch` it gives nothing more.
fn rules(request: &Request<'_>, options: &Options) -> Rules {
    let configz = !kubelet_ports(request).is_empty();
    if request.has_nfd() {
        return nfd::rules(request.image().own, configz, options);
    }
    let needs = Needs { mode: Some(Mode::Patch), owner: OwnerKind::Leave, conditions: true, configz };
    let mut rules = exporter::rbac::rules(needs, rte::account(options).namespace);
    if request.image().own {
        rules.cluster.push(rule(nrt::GROUP, &[nrt::PLURAL], &["update"]));
        rules.namespaced.push(rule("", &["pods/status"], &["update"]));
    } else {
        rules.cluster.extend(rte::object_role(options).rules.unwrap_or_default());
        rules.namespaced.extend(rte::pod_role(options).rules.unwrap_or_default());
    }
    rules
}

/// The ports at which exporters ask their kubelets.
fn kubelet_ports(request: &Request<'_>) -> BTreeSet<u16> {
    let kubernetes = request.cluster.environment.platform == Platform::Kubernetes;
    let groups =
        request.groups.all.iter().filter(|_| kubernetes && (request.image().own || request.has_nfd()));
    groups
        .filter_map(|group| match group.kubelet.config {
            KubeletConfig::Configz { port } => Some(port),
            _ => None,
        })
        .collect()
}

/// The same options where exporters may reach their kubelets as they reach the API server.
fn with_kubelets(request: &Request<'_>, options: &Options) -> Options {
    let mut options = options.clone();
    options.api_server_ports.extend(kubelet_ports(request));
    options
}

impl Request<'_> {
    /// The same as options of the deployer, whose manifests these are.
    pub(super) fn options(&self) -> Options {
        let environment = &self.cluster.environment;
        let mut options = Options {
            platform: environment.platform,
            version: environment.version.clone(),
            api_server_ports: environment.api_server_ports.clone(),
            api_server_cidrs: environment.api_server_cidrs.clone(),
            ..Options::peers()
        };
        options.updater.kind = if self.has_nfd() { Updater::Nfd } else { Updater::Rte };
        options.updater.namespace = Some(environment.namespace.clone());
        options.updater.kubelet_root = environment.kubelet_root_mount;
        options
    }
}
