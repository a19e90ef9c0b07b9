//! The stack on a cluster that has none: the operator's two objects.
//!
//! In: a cluster with the operator, the role of the nodes that exporters are for. Out: a NUMAResourcesOperator and a
//! NUMAResourcesScheduler with a label, both Available; later neither of them nor anything they control. Never: a
//! change of an object without that label.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use anyhow::{Context as _, bail, ensure};
use api::numaresources::{API_VERSION, keys, operator as nro, scheduler as nrs};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, Settings};
use crate::facts::Facts;
use crate::fixture::gone_already;
use crate::machines::{WORKER, pool_label, role};
use crate::object::{self, value};
use crate::observed::Observed;
use crate::operator::{AVAILABLE, ROLLOUT, node_of, of_set, selected, sets, workloads};
use crate::platform::Platform;
use crate::runner::Progress;
use crate::setup::Session;
use crate::undo::Target;

/// The label of the objects that [`make`] has made.
const LABEL: &str = "e2e.tholepin.dev/installation";
/// The kinds of both objects, exporters first.
const KINDS: [(&str, &str, &str); 2] =
    [(API_VERSION, nro::KIND, nro::PLURAL), (API_VERSION, nrs::KIND, nrs::PLURAL)];

/// An object that another controls, with its UID.
pub(crate) type Owned = (Target, String);

/// Makes the stack where there is none, and waits until it works. Clients: one for watches, one for requests.
///
/// # Errors
/// When there is no operator, or the stack does not work in time; it stays, so that its objects can say why.
pub async fn make(
    clients: (Client, Client),
    (settings, role): (&Settings, &str),
    token: &CancellationToken,
    progress: &dyn Progress,
) -> anyhow::Result<()> {
    let kinds = Facts::kinds(&clients.1).await?;
    require_operator(&kinds)?;
    let mut session = Session::open(clients, (settings, kinds), token).await?;
    let made = tokio::select! {
        made = session.install(role, progress) => made,
        () = token.cancelled() => Err(anyhow::anyhow!("interrupted while the stack was being made")),
    };
    match made {
        Ok(()) => {
            session.leave().await;
            Ok(())
        }
        Err(error) => Err(either(error, session.close(progress).await)),
    }
}

/// Removes what [`make`] has made, what an earlier run has left, and the suite's namespace.
///
/// # Errors
/// When something stays.
pub async fn remove(
    clients: (Client, Client),
    settings: &Settings,
    progress: &dyn Progress,
) -> anyhow::Result<()> {
    let kinds = Facts::kinds(&clients.1).await?;
    // An interruption has ended the specs, and asks for just this.
    let session = Session::open(clients, (settings, kinds), &CancellationToken::new()).await?;
    let removed = async {
        session.clean(progress).await?;
        for kind in KINDS {
            removed(&session.cluster, kind, progress).await?;
        }
        anyhow::Ok(())
    };
    match (removed.await, session.close(progress).await) {
        (Ok(()), closed) => closed,
        (Err(error), closed) => Err(either(error, closed)),
    }
}

/// An error, and the one of what came after it.
pub(crate) fn either(error: anyhow::Error, then: anyhow::Result<()>) -> anyhow::Error {
    match then {
        Ok(()) => error,
        Err(then) => anyhow::anyhow!("{error:#}; and then: {then:#}"),
    }
}

fn require_operator(kinds: &BTreeSet<String>) -> anyhow::Result<()> {
    for (api_version, kind, plural) in KINDS {
        let group = api_version.split('/').next().unwrap_or_default();
        ensure!(
            kinds.contains(&format!("{plural}.{group}")),
            "the cluster has no {kind} kind: no operator is installed"
        );
    }
    Ok(())
}

impl Session {
    async fn install(&mut self, role: &str, progress: &dyn Progress) -> anyhow::Result<()> {
        self.clean(progress).await?;
        let cluster = &*self.cluster;
        let platform = Platform::of(&cluster.client, &cluster.facts.kinds).await?;
        let [exporters, schedulers] = KINDS;
        if is_absent(cluster, exporters, progress).await? {
            let groups = groups(platform, role, &cluster.observer.now())?;
            create(cluster, exporters, keys::OPERATOR, json!({ "nodeGroups": groups }), progress).await?;
        }
        if is_absent(cluster, schedulers, progress).await? {
            create(cluster, schedulers, keys::SCHEDULER, json!({}), progress).await?;
        }
        available(cluster, schedulers, keys::SCHEDULER).await?;
        let exporters = available(cluster, exporters, keys::OPERATOR).await?;
        // The operator may have made the kind of reports just now.
        Facts::require_reports(&Facts::kinds(&cluster.client).await?)?;
        cluster.observer.synced(cluster.settings.patience).await?;
        reported(cluster, &sets(&exporters)).await
    }
}

/// Whether the cluster has no object of a kind, be it made by whom it may.
async fn is_absent(
    cluster: &Cluster,
    kind: (&str, &str, &str),
    progress: &dyn Progress,
) -> anyhow::Result<bool> {
    let all = Target::new(kind, "", "").api(&cluster.client).list(&ListParams::default()).await?;
    let found = all.items.first();
    if let Some(found) = found {
        progress.step(&format!("{} {} is there already", kind.1, found.name_any()));
    }
    Ok(found.is_none())
}

async fn create(
    cluster: &Cluster,
    kind: (&str, &str, &str),
    name: &str,
    spec: Value,
    progress: &dyn Progress,
) -> anyhow::Result<()> {
    progress.step(&format!("making {} {name}: {spec}", kind.1));
    let object = json!({
        "apiVersion": kind.0, "kind": kind.1,
        "metadata": { "name": name, "labels": { LABEL: "" } }, "spec": spec,
    });
    let object: DynamicObject = serde_json::from_value(object)?;
    let made = Target::new(kind, "", name).api(&cluster.client).create(&PostParams::default(), &object).await;
    made.with_context(|| format!("creating {} {name}", kind.1))?;
    Ok(())
}

/// Waits until an object is Available, and returns it.
async fn available(cluster: &Cluster, kind: (&str, &str, &str), name: &str) -> anyhow::Result<Value> {
    let what = format!("{} {name} is Available", kind.1);
    let limit = (&*what, cluster.settings.patience * ROLLOUT);
    let target = Target::new(kind, "", name);
    let test = |found: Option<&_>| {
        let now = value(found.ok_or("it is not there")?);
        AVAILABLE.of(&now).map(|_| now)
    };
    Ok(object::until(cluster, &target, limit, test).await?)
}

/// Waits until each exporter of these DaemonSets reports about its node.
async fn reported(cluster: &Cluster, sets: &[Target]) -> anyhow::Result<()> {
    let what = "each exporter reports about its node";
    let reported = cluster.observer.until(what, cluster.settings.patience, |state| {
        let pods = sets.iter().flat_map(|set| of_set(state, set)).collect::<Vec<_>>();
        let silent = pods.iter().map(|pod| node_of(pod)).find(|node| !state.reports.contains_key(*node));
        match silent {
            Some(node) => Err(format!("node {node} has no report")),
            None if pods.is_empty() => Err("there is no exporter".to_owned()),
            None => Ok(()),
        }
    });
    Ok(reported.await?)
}

/// The node groups for nodes of a role, as each platform names them.
fn groups(platform: Platform, name: &str, state: &Observed) -> anyhow::Result<Vec<Value>> {
    let role = role(name);
    let has = |node: &Node, label: &str| node.labels().contains_key(label);
    let nodes: Vec<&Node> =
        state.nodes.values().map(|node| &**node).filter(|node| has(node, &role)).collect();
    match platform {
        Platform::OpenShift => {
            Ok(vec![json!({ "machineConfigPoolSelector": { "matchLabels": { pool_label(name): "" } } })])
        }
        Platform::HyperShift => {
            let pools = nodes.iter().filter_map(|node| node.labels().get(keys::LABEL_NODE_POOL));
            let pools: BTreeSet<&String> = pools.collect();
            ensure!(!pools.is_empty(), "no node of a NodePool has the label {role} (--node-role)");
            Ok(pools.into_iter().map(|pool| json!({ "poolName": pool })).collect())
        }
        Platform::Kubernetes if !nodes.is_empty() => {
            Ok(vec![json!({ "poolName": name, "nodeSelector": { "matchLabels": { role: "" } } })])
        }
        // Installers of plain Kubernetes label the control plane only.
        Platform::Kubernetes if name == WORKER => {
            let others = json!({ "key": crate::facts::CONTROL_PLANE, "operator": "DoesNotExist" });
            let is_other = |node: &Node| !has(node, crate::facts::CONTROL_PLANE);
            let has_others = state.nodes.values().any(|node| is_other(node));
            let selector = if has_others { json!({ "matchExpressions": [others] }) } else { json!({}) };
            Ok(vec![json!({ "poolName": name, "nodeSelector": selector })])
        }
        Platform::Kubernetes => bail!("no node has the label {role} (--node-role)"),
    }
}

/// Deletes the objects of a kind that [`make`] has made, and waits until nothing is left that belongs to them.
async fn removed(cluster: &Cluster, kind: (&str, &str, &str), progress: &dyn Progress) -> anyhow::Result<()> {
    let chosen = ListParams::default().labels(LABEL);
    let found = match Target::new(kind, "", "").api(&cluster.client).list(&chosen).await {
        Err(error) if runtime::client::is_not_found(&error) => return Ok(()),
        found => found?.items,
    };
    for found in found {
        let (name, uid) = (found.name_any(), found.uid().unwrap_or_default());
        progress.step(&format!("removing {} {name}", kind.1));
        let now = value(&found);
        let (mut parts, mut pods) = (BTreeMap::new(), Vec::new());
        for workload in workloads(&now) {
            parts.extend(owned(cluster, &uid, &workload.namespace).await?);
            let api = workload.api(&cluster.client);
            pods.extend(api.get_opt(&workload.name).await?.map(|found| (workload.namespace, value(&found))));
        }
        let target = Target::new(kind, "", &name);
        gone_already(target.api(&cluster.client).delete(&name, &DeleteParams::background()).await)?;
        let limit = cluster.settings.patience * ROLLOUT;
        object::gone(cluster, (&target, &uid), limit).await?;
        for (part, uid) in parts.values() {
            object::gone(cluster, (part, uid), limit).await?;
        }
        traceless(cluster, &uid, &pods).await?;
    }
    Ok(())
}

/// Waits until no pod of these workloads and no report of the object with this UID is left.
async fn traceless(cluster: &Cluster, uid: &str, workloads: &[(String, Value)]) -> anyhow::Result<()> {
    let limit = cluster.settings.patience * ROLLOUT;
    let left = |name: &dyn Display| Err(format!("{name} is there"));
    let test = |state: &Observed| {
        let pods = workloads.iter().flat_map(|(namespace, workload)| selected(state, namespace, workload));
        if let Some(pod) = pods.into_iter().next() {
            return left(&format_args!("pod {}", pod.name_any()));
        }
        let mut reports = state.reports.iter();
        let owned =
            reports.find(|(_, report)| report.owner_references().iter().any(|owner| owner.uid == uid));
        owned.map_or(Ok(()), |(node, _)| left(&format_args!("the report of node {node}")))
    };
    Ok(cluster.observer.until("the stack's pods and reports are gone", limit, test).await?)
}

/// Everything that an object controls, by kind and name.
///
/// # Errors
/// When something cannot be listed.
pub(crate) async fn owned(
    cluster: &Cluster,
    uid: &str,
    namespace: &str,
) -> anyhow::Result<BTreeMap<(String, String), Owned>> {
    let namespaced = [
        ApiResource::erase::<DaemonSet>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<ServiceAccount>(&()),
        ApiResource::erase::<Role>(&()),
        ApiResource::erase::<RoleBinding>(&()),
        ApiResource::erase::<NetworkPolicy>(&()),
    ];
    let of_cluster = [
        ApiResource::erase::<ClusterRole>(&()),
        ApiResource::erase::<ClusterRoleBinding>(&()),
        ApiResource::erase::<ValidatingAdmissionPolicy>(&()),
        ApiResource::erase::<ValidatingAdmissionPolicyBinding>(&()),
    ];
    let namespaced = namespaced.into_iter().map(|kind| (kind, namespace));
    let mut owned = BTreeMap::new();
    for (kind, namespace) in namespaced.chain(of_cluster.into_iter().map(|kind| (kind, ""))) {
        let all = Target::of(&kind, namespace, "").api(&cluster.client);
        for object in all.list(&ListParams::default()).await? {
            let is_own = object.owner_references().iter().any(|owner| owner.uid == uid);
            let (Some(name), Some(own), true) = (object.metadata.name, object.metadata.uid, is_own) else {
                continue;
            };
            let target = Target::of(&kind, namespace, &name);
            owned.insert((kind.kind.clone(), name), (target, own));
        }
    }
    Ok(owned)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn state(nodes: &[(&str, &[(&str, &str)])]) -> Observed {
        let mut state = Observed::default();
        for (name, labels) in nodes {
            let mut node = Node::default();
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            node.metadata.labels = Some(labels.collect());
            state.nodes.insert((*name).to_owned(), Arc::new(node));
        }
        state
    }

    #[test]
    fn node_groups_are_those_of_the_role_on_each_platform() {
        const ROLE: &str = "node-role.kubernetes.io/worker";
        const MASTER: &str = "node-role.kubernetes.io/control-plane";
        let labelled = state(&[
            ("a", &[(ROLE, ""), (keys::LABEL_NODE_POOL, "x")]),
            ("b", &[(ROLE, ""), (keys::LABEL_NODE_POOL, "y")]),
            ("c", &[(keys::LABEL_NODE_POOL, "z")]),
        ]);
        let plain = state(&[("a", &[(MASTER, "")]), ("b", &[])]);
        let single = state(&[("a", &[(MASTER, "")])]);
        let of = |platform, role: &str, state: &Observed| groups(platform, role, state).ok();
        let selector =
            |selector: Value| Some(vec![json!({ "poolName": "worker", "nodeSelector": selector })]);
        let others = json!({ "matchExpressions": [{ "key": MASTER, "operator": "DoesNotExist" }] });
        let pools = json!({ "pools.operator.machineconfiguration.openshift.io/infra": "" });
        let pools = json!({ "machineConfigPoolSelector": { "matchLabels": pools } });
        for (platform, role, state, wanted) in [
            (Platform::OpenShift, "infra", &plain, Some(vec![pools])),
            (
                Platform::HyperShift,
                "worker",
                &labelled,
                Some(vec![json!({ "poolName": "x" }), json!({ "poolName": "y" })]),
            ),
            (Platform::HyperShift, "worker", &plain, None),
            (Platform::Kubernetes, "worker", &labelled, selector(json!({ "matchLabels": { ROLE: "" } }))),
            (Platform::Kubernetes, "worker", &plain, selector(others)),
            (Platform::Kubernetes, "worker", &single, selector(json!({}))),
            (Platform::Kubernetes, "infra", &plain, None),
        ] {
            assert_eq!(of(platform, role, state), wanted, "{platform} {role}");
        }
    }

    #[test]
    fn a_cluster_without_the_operator_is_refused() {
        let kinds = |plurals: &[&str]| {
            plurals
                .iter()
                .map(|plural| format!("{plural}.nodetopology.openshift.io"))
                .collect::<BTreeSet<_>>()
        };
        assert!(require_operator(&kinds(&[nro::PLURAL, nrs::PLURAL])).is_ok());
        let missing = require_operator(&kinds(&[nro::PLURAL])).unwrap_err().to_string();
        assert!(missing.contains(nrs::KIND), "{missing}");
    }
}
