//! The sources of kubelets' settings, pool by pool, and the choice among several.
//!
//! In: [`ClusterState`], a pool. Out: [`PoolSettings`]. Never: other settings because a kubelet stopped answering or an
//! object became unreadable: then those that were written for the exporters before hold.

use std::collections::BTreeSet;

use api::numaresources::{NumaResourcesOperator, keys};
use deployer::platform::Platform;
use runtime::yaml::{self, Mode};
use serde_json::Value;
use topology::policy::{Policy, Scope};

use super::{Warning, data, payload, written};
use crate::cluster_state::{ClusterState, KubeletSettings};
use crate::group::selects;

/// The settings of a pool's kubelets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// The settings; `None`: they are unknown, or no object states any.
    pub settings: Option<KubeletSettings>,
    /// Whether kubelets are still to be asked.
    pub pending: bool,
    /// Warnings for people.
    pub warnings: Vec<Warning>,
}

/// An object that may hold a KubeletConfiguration.
struct Candidate<'a, R> {
    /// The rank among several: the greatest counts.
    rank: R,
    name: &'a str,
    payload: &'a Result<KubeletSettings, String>,
}

/// The settings of a pool's kubelets.
#[must_use]
pub fn pool_settings(cluster: &ClusterState, operator: &NumaResourcesOperator, pool: &str) -> PoolSettings {
    let mut found = match cluster.environment.platform {
        Platform::OpenShift => by_kubelet_configs(cluster, operator, pool),
        Platform::HyperShift => by_node_pool_configs(cluster, operator, pool),
        Platform::Kubernetes => by_kubelets(cluster, operator, pool),
    };
    found.warnings.extend(found.settings.as_ref().and_then(|settings| unknown_values(pool, settings)));
    found
}

/// HyperShift: warnings about ConfigMaps without a NodePool.
#[must_use]
pub fn orphaned(cluster: &ClusterState) -> Vec<Warning> {
    let orphaned = cluster.node_pool_configs.iter().filter(|(_, config)| config.node_pool.is_empty());
    orphaned
        .map(|(name, _)| Warning {
            reason: "NodePoolUnknown",
            message: format!(
                "ConfigMap {name:?} has no label {}, so it is for no NodePool",
                keys::LABEL_NODE_POOL
            ),
        })
        .collect()
}

/// OpenShift: each KubeletConfig that selects the pool becomes a MachineConfig, and the greatest counts.
fn by_kubelet_configs(cluster: &ClusterState, operator: &NumaResourcesOperator, pool: &str) -> PoolSettings {
    let labels = cluster.pools.get(pool).map(|pool| &pool.labels);
    let mut candidates = Vec::new();
    for (name, config) in &cluster.kubelet_configs {
        let label = |key: &str| labels?.get(key).map(String::as_str);
        let selected = config.pool_selector.is_some() && selects(config.pool_selector.as_ref(), label);
        if let (true, Some(payload)) = (selected, &config.payload) {
            candidates.push(Candidate { rank: &config.rank, name, payload });
        }
    }
    chosen(cluster, operator, pool, "KubeletConfig", candidates)
}

/// HyperShift: ConfigMaps have the name of their NodePool in a label. Of several the last by name counts.
fn by_node_pool_configs(
    cluster: &ClusterState,
    operator: &NumaResourcesOperator,
    pool: &str,
) -> PoolSettings {
    let mine = cluster.node_pool_configs.iter().filter(|(_, config)| config.node_pool == pool);
    let candidate = |(name, config)| {
        let config: &crate::cluster_state::NodePoolConfig = config;
        config.payload.as_ref().map(|payload| Candidate { rank: (), name, payload })
    };
    let candidates = mine.filter_map(|(name, config)| candidate((name.as_str(), config))).collect();
    chosen(cluster, operator, pool, "ConfigMap", candidates)
}

/// The candidate that counts. Without one the kubelets have their defaults, which are stated only beside exclusions.
fn chosen<R: Ord>(
    cluster: &ClusterState,
    operator: &NumaResourcesOperator,
    pool: &str,
    kind: &str,
    mut candidates: Vec<Candidate<'_, R>>,
) -> PoolSettings {
    candidates.sort_by(|a, b| (&a.rank, a.name).cmp(&(&b.rank, b.name)));
    let Some(last) = candidates.last() else {
        let warnings = vec![warning(
            "NoKubeletConfig",
            pool,
            format!("no {kind} with a KubeletConfiguration is for it, so its kubelets align nothing"),
        )];
        let settings = (!operator.spec.pod_excludes.is_empty()).then(KubeletSettings::default);
        return PoolSettings { settings, pending: false, warnings };
    };
    let mut warnings = Vec::new();
    if candidates.len() > 1 {
        let names: Vec<String> = candidates.iter().map(|candidate| format!("{:?}", candidate.name)).collect();
        let message =
            format!("{} {kind}s are for it: {}; {:?} counts", names.len(), names.join(", "), last.name);
        warnings.push(warning("ConflictingKubeletConfigs", pool, message));
    }
    let settings = match last.payload {
        Ok(settings) => Some(settings.clone()),
        Err(error) => {
            let message = format!("{kind} {:?}: {error}; its exporters keep their configuration", last.name);
            warnings.push(warning("InvalidKubeletConfig", pool, message));
            remembered(cluster, pool)
        }
    };
    PoolSettings { settings, pending: false, warnings }
}

/// Kubernetes: a ConfigMap that the group names, else the kubelets themselves, if they agree.
fn by_kubelets(cluster: &ClusterState, operator: &NumaResourcesOperator, pool: &str) -> PoolSettings {
    let group = operator.spec.node_groups.iter().find(|group| group.pool_name.as_deref() == Some(pool));
    if let Some(name) = group.and_then(|group| group.kubelet_config_map.as_deref()) {
        return by_config_map(cluster, pool, name);
    }
    let Some(answers) = cluster.kubelets.get(pool) else {
        let settings = remembered(cluster, pool);
        return PoolSettings { pending: settings.is_none(), settings, warnings: Vec::new() };
    };
    let different: BTreeSet<&KubeletSettings> = answers.values().flatten().collect();
    let mut different = different.into_iter();
    match (different.next(), different.next()) {
        (Some(settings), None) => {
            PoolSettings { settings: Some(settings.clone()), ..PoolSettings::default() }
        }
        (Some(_), Some(_)) => {
            let each = |(node, answer): (&String, &Result<KubeletSettings, String>)| {
                Some(format!("{node} {}", described(answer.as_ref().ok()?)))
            };
            let each: Vec<String> = answers.iter().filter_map(each).collect();
            let message =
                format!("its kubelets differ ({}): each exporter reads its own node's", each.join(", "));
            PoolSettings {
                warnings: vec![warning("KubeletsDiffer", pool, message)],
                ..PoolSettings::default()
            }
        }
        (None, _) => {
            let why = answers.iter().find_map(|(node, answer)| {
                answer.as_ref().err().map(|error| format!("no kubelet said how it aligns ({node}: {error})"))
            });
            let warnings = why.map(|message| warning("KubeletsSilent", pool, message)).into_iter().collect();
            PoolSettings { settings: remembered(cluster, pool), pending: false, warnings }
        }
    }
}

/// Kubernetes: the user's ConfigMap.
fn by_config_map(cluster: &ClusterState, pool: &str, name: &str) -> PoolSettings {
    let read = data(cluster, name)
        .ok_or_else(|| format!("it is not in namespace {:?}", cluster.environment.namespace));
    match read.and_then(|data| payload::config_map(&data)) {
        Ok(settings) => PoolSettings { settings: Some(settings), ..PoolSettings::default() },
        Err(error) => {
            let message = format!("ConfigMap {name:?}: {error}; its exporters keep their configuration");
            let warnings = vec![warning("InvalidKubeletConfig", pool, message)];
            PoolSettings { settings: remembered(cluster, pool), pending: false, warnings }
        }
    }
}

/// The settings that were written for the exporters before.
fn remembered(cluster: &ClusterState, pool: &str) -> Option<KubeletSettings> {
    let file: Value = yaml::read_str(super::KEY, &written(cluster, pool)?, Mode::Lenient).ok()?;
    let kubelet = file.get("kubelet").filter(|kubelet| kubelet.is_object())?;
    let text = |field: &str| kubelet[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Some(KubeletSettings { policy: text("topologyManagerPolicy"), scope: text("topologyManagerScope") })
}

/// Warns of values that are unknown here. They are passed on: a newer kubelet may know them.
fn unknown_values(pool: &str, settings: &KubeletSettings) -> Option<Warning> {
    let unknown = |field: &str, text: &Option<String>, is_known: fn(&str) -> bool| {
        let text = text.as_ref().filter(|text| !is_known(text))?;
        Some(format!("{field} {text:?} is not known"))
    };
    let policy = unknown("topologyManagerPolicy", &settings.policy, |text| Policy::parse(text).is_some());
    let scope = unknown("topologyManagerScope", &settings.scope, |text| Scope::parse(text).is_some());
    let unknown: Vec<String> = policy.into_iter().chain(scope).collect();
    (!unknown.is_empty()).then(|| warning("UnknownTopologyManagerSetting", pool, unknown.join(", ")))
}

/// The settings as `policy/scope`.
fn described(settings: &KubeletSettings) -> String {
    let policy = settings.policy.as_deref().unwrap_or(Policy::default().as_str());
    format!("{policy}/{}", settings.scope.as_deref().unwrap_or(Scope::default().as_str()))
}

fn warning(reason: &'static str, pool: &str, message: String) -> Warning {
    Warning { reason, message: format!("pool {pool:?}: {message}") }
}
