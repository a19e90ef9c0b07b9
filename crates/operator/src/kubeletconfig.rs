//! The controller that distils the kubelets' configuration, pool by pool, for the exporters.
//!
//! In: [`World`]. Out: the exporters' configuration, and the ConfigMaps it is in; what people should know about it. Never: a guess at what
//! a kubelet was told ([`source`] says who knows), nor a change because somebody does not answer.

use std::collections::BTreeMap;

use api::numaresources::keys::{LABEL_OPERATOR, LABEL_POOL, OPERATOR};
use api::numaresources::operator::PodExclude;
use deployer::manifests::pod;
use k8s_openapi::api::core::v1::ConfigMap;
use objects::{Object, ObjectKind};
use runtime::yaml;
use serde::Serialize;

use crate::desired::{Desired, owned};
use crate::numaresourcesoperator::{self, Case, set_name};
use crate::reconcile::rules::Rules;
use crate::world::{KubeletSettings, World};
use objects::ObjectKey;

pub mod payload;
pub mod source;
#[cfg(test)]
mod tests;

/// The key of the ConfigMaps, and so the name of the file.
pub const KEY: &str = "config.yaml";

/// The rules of this controller. Its failures stand in the status of the NUMAResourcesOperator.
pub const RULES: Rules = Rules {
    works_for: numaresourcesoperator::RULES.works_for,
    metadata: numaresourcesoperator::RULES.metadata,
    desired,
    status: |_, _, _| Vec::new(),
    warnings,
    reports_errors_of: &[],
};

/// Something people should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// As a word, for an event.
    pub reason: &'static str,
    /// One line.
    pub message: String,
}

/// The exporters' configuration file; its keys are written in this order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kubelet: Option<Kubelet<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pod_exclude: Vec<Exclude>,
}

/// What the kubelets were told. A section without policy or scope says that they have the kubelet's default.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kubelet<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    topology_manager_policy: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topology_manager_scope: Option<&'a str>,
}

/// Pods that are not counted.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Exclude {
    name_pattern: String,
    namespace_pattern: String,
}

/// The text of an exporter's configuration file for a pool, and so of the key [`KEY`] of its ConfigMap; `None`: nothing is known of the
/// pool's kubelets and nothing is excluded, so there is no ConfigMap.
///
/// Both this controller and that of the exporters, whose pods have to be replaced when it changes, ask here; so the pods are
/// replaced once.
#[must_use]
pub fn config(world: &World, pool: &str) -> Option<String> {
    let operator = world.operators.get(OPERATOR)?;
    text(source::told(world, operator, pool).settings.as_ref(), &operator.spec.pod_excludes)
}

/// Whether it is still to be heard what a pool's kubelets were told, and nothing was heard before. Exporters that wait for it are not
/// replaced a moment after they were started.
#[must_use]
pub fn is_awaited(world: &World, pool: &str) -> bool {
    let operator = world.operators.get(OPERATOR);
    operator.is_some_and(|operator| source::told(world, operator, pool).awaited)
}

/// The ConfigMaps.
#[must_use]
pub fn desired(world: &World) -> Desired {
    let request = match Case::of(world) {
        Case::Nobody => return Desired::Nothing,
        Case::Frozen | Case::Refused(_) => return Desired::Keep,
        Case::Wanted(request) => request,
    };
    let owner = request.owner();
    let map = |pool: &str| {
        let text = config(world, pool)?;
        // A ConfigMap always is an object; were it not, it would be missed and not written wrongly.
        let object = Object::new(&config_map(world, pool, &text)).ok()?;
        Some(owned(object, &owner))
    };
    Desired::Objects(request.groups.pools().filter_map(|(_, pool)| map(pool.name)).collect())
}

/// What people should know, each once.
#[must_use]
pub fn warnings(world: &World) -> Vec<Warning> {
    let Case::Wanted(request) = Case::of(world) else { return Vec::new() };
    let mut warnings = source::lost(world);
    for (_, pool) in request.groups.pools() {
        warnings.extend(source::told(world, request.operator, pool.name).warnings);
    }
    warnings.extend(request.operator.spec.pod_excludes.iter().enumerate().filter_map(pointless));
    warnings.sort();
    warnings.dedup();
    warnings
}

fn config_map(world: &World, pool: &str, text: &str) -> ConfigMap {
    let mut map = pod::config_map(&world.place.namespace, &set_name(pool), KEY, text);
    let labels = [(LABEL_OPERATOR, OPERATOR), (LABEL_POOL, pool)];
    map.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    map
}

/// The file.
fn text(settings: Option<&KubeletSettings>, excludes: &[PodExclude]) -> Option<String> {
    if settings.is_none() && excludes.is_empty() {
        return None;
    }
    let kubelet = settings.map(|settings| Kubelet {
        topology_manager_policy: settings.policy.as_deref(),
        topology_manager_scope: settings.scope.as_deref(),
    });
    let exclude = |exclude: &'_ PodExclude| Exclude {
        name_pattern: exclude.name.clone(),
        namespace_pattern: exclude.namespace.clone(),
    };
    // It has a YAML form: maps of texts.
    yaml::write(&File { kubelet, pod_exclude: excludes.iter().map(exclude).collect() }).ok()
}

/// An exclusion that excludes nothing.
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

/// What was written for a pool before.
fn written(world: &World, pool: &str) -> Option<String> {
    data(world, &set_name(pool))?.remove(KEY)
}

/// The data of a ConfigMap in the operator's namespace.
fn data(world: &World, name: &str) -> Option<BTreeMap<String, String>> {
    let key = ObjectKey {
        kind: ObjectKind::of::<ConfigMap>(),
        namespace: Some(world.place.namespace.clone()),
        name: name.to_owned(),
    };
    let texts = world.live.get(&key)?["data"].as_object();
    let text = |(key, value): (&String, &serde_json::Value)| Some((key.clone(), value.as_str()?.to_owned()));
    Some(texts.into_iter().flatten().filter_map(text).collect())
}
