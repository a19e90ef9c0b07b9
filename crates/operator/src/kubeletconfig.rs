//! The controller of the exporters' configuration, one ConfigMap per pool.
//!
//! In: [`ClusterState`]. Out: the exporters' configuration in ConfigMaps; warnings. Never: a guess of kubelets'
//! settings ([`source`] finds them), or a change because a kubelet does not answer.

use std::collections::BTreeMap;

use api::numaresources::UpdaterType;
use api::numaresources::keys::{LABEL_OPERATOR, LABEL_POOL, OPERATOR};
use api::numaresources::operator::PodExclude;
use deployer::manifests::pod;
use k8s_openapi::api::core::v1::ConfigMap;
use objects::{Object, ObjectKey};
use runtime::yaml;
use serde_json::{Value, json};

use crate::cluster_state::{ClusterState, KubeletSettings};
use crate::desired::{Desired, Owner, owned};
use crate::numaresourcesoperator::{self, Case, set_name};
use crate::reconcile::rules::Rules;
use payload::texts;

pub mod payload;
pub mod source;
#[cfg(test)]
mod tests;

/// The key of the ConfigMaps, which is the name of the file.
pub const KEY: &str = "config.yaml";

/// The rules of this controller. The status of the NUMAResourcesOperator reports its failures.
pub const RULES: Rules = Rules {
    works_for: numaresourcesoperator::RULES.works_for,
    subject: numaresourcesoperator::RULES.subject,
    is_paused: numaresourcesoperator::RULES.is_paused,
    desired,
    status: |_, _, _| Vec::new(),
    warnings,
    reports_errors_of: &[],
};

/// A warning for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// One word, for events.
    pub reason: &'static str,
    /// One line.
    pub message: String,
}

/// The text of the exporters' configuration file for a pool, under the key [`KEY`] of its ConfigMap. `None`: the
/// kubelets' settings are unknown and no pod is excluded, or nfd-topology-updater runs, so there is no ConfigMap.
///
/// The controller of the exporters calls this too, so pods are replaced once per change.
#[must_use]
pub fn config(cluster: &ClusterState, pool: &str) -> Option<String> {
    let operator =
        cluster.operators.get(OPERATOR).filter(|one| one.spec.updater_type != Some(UpdaterType::Nfd))?;
    let settings = source::pool_settings(cluster, pool).settings;
    text(settings.as_ref(), &operator.spec.pod_excludes)
}

/// The desired ConfigMaps.
#[must_use]
pub fn desired(cluster: &ClusterState) -> Desired {
    let request = match Case::of(cluster) {
        Case::Absent => return Desired::Nothing,
        Case::Frozen | Case::Refused(_) => return Desired::Keep,
        Case::Wanted(request) => request,
    };
    let owner = Owner::of(request.operator);
    let map = |pool: &str| {
        let text = config(cluster, pool)?;
        Some(owned(Object::new(&config_map(cluster, pool, &text)), &owner))
    };
    Desired::Objects(request.groups.pools().filter_map(|(_, pool)| map(pool.name)).collect())
}

/// All warnings, each once.
#[must_use]
pub fn warnings(cluster: &ClusterState) -> Vec<Warning> {
    let Case::Wanted(request) = Case::of(cluster) else { return Vec::new() };
    let mut warnings = source::orphaned(cluster);
    for (_, pool) in request.groups.pools() {
        warnings.extend(source::pool_settings(cluster, pool.name).warnings);
    }
    warnings.extend(request.operator.spec.pod_excludes.iter().enumerate().filter_map(pointless));
    warnings.sort();
    warnings.dedup();
    warnings
}

fn config_map(cluster: &ClusterState, pool: &str, text: &str) -> ConfigMap {
    let mut map = pod::config_map(&cluster.environment.namespace, &set_name(pool), KEY, text);
    let labels = [(LABEL_OPERATOR, OPERATOR), (LABEL_POOL, pool)];
    map.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    map
}

/// The text of the file.
fn text(settings: Option<&KubeletSettings>, excludes: &[PodExclude]) -> Option<String> {
    if settings.is_none() && excludes.is_empty() {
        return None;
    }
    let mut file = json!({});
    if let Some(KubeletSettings { policy, scope }) = settings {
        // A section without policy or scope states the kubelet's default.
        let stated = [("topologyManagerPolicy", policy), ("topologyManagerScope", scope)];
        let stated =
            stated.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text.clone()?.into())));
        file["kubelet"] = Value::Object(stated.collect());
    }
    if !excludes.is_empty() {
        let exclude =
            |one: &PodExclude| json!({ "namePattern": one.name, "namespacePattern": one.namespace });
        file["podExclude"] = excludes.iter().map(exclude).collect();
    }
    // Maps of texts always have a YAML form.
    yaml::write(&file).ok()
}

/// Warns of an exclusion that excludes no pod.
fn pointless((index, exclude): (usize, &PodExclude)) -> Option<Warning> {
    let flaw = |(field, pattern): (&str, &str)| {
        if pattern.is_empty() {
            Some(format!("{field} is empty"))
        } else if !runtime::glob::is_valid(pattern) {
            Some(format!("{field} {pattern:?} is no shell pattern"))
        } else {
            None
        }
    };
    let flaws: Vec<String> = [("namespace", exclude.namespace.as_str()), ("name", &exclude.name)]
        .into_iter()
        .filter_map(flaw)
        .collect();
    (!flaws.is_empty()).then(|| Warning {
        reason: "InvalidPodExclude",
        message: format!("spec.podExcludes[{index}] excludes no pod: {}", flaws.join(", ")),
    })
}

/// The configuration that was written for a pool before.
fn written(cluster: &ClusterState, pool: &str) -> Option<String> {
    data(cluster, &set_name(pool))?.remove(KEY)
}

/// The data of a ConfigMap in the operator's namespace.
pub(crate) fn data(cluster: &ClusterState, name: &str) -> Option<BTreeMap<String, String>> {
    let key = ObjectKey::of::<ConfigMap>(Some(&cluster.environment.namespace), name);
    cluster.observed.get(&key).map(|map| texts(&map["data"]))
}
