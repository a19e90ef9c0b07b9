//! The sources of kubelets' settings, pool by pool, and the choice among several.
//!
//! In: [`ClusterState`], a pool. Out: [`PoolSettings`]. Never: other settings because a kubelet stopped answering or an
//! object became unreadable: then those that were written for the exporters before hold.

use std::collections::BTreeSet;

use api::numaresources::{NumaResourcesOperator, keys};
use deployer::options::KubeletConfig;
use deployer::platform::Platform;
use runtime::yaml::{self, Mode};
use serde_json::Value;
use topology::policy::{Policy, Scope};

use super::{Warning, data, payload, written};
use crate::cluster_state::{ClusterState, KubeletSettings, Rank};
use crate::group::{Groups, selects};

/// A reason: no kubelet of a pool answered.
pub const SILENT: &str = "KubeletsSilent";
/// The ways to a kubelet whose certificate the cluster's authority did not sign.
const WAY_OUT: &str = "; name its authority in spec.kubelet.certificateAuthority, or leave out the check with spec.kubelet.insecure: true";

/// The settings of a pool's kubelets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// The settings; `None`: they are unknown, or no object states any.
    pub settings: Option<KubeletSettings>,
    /// Whether kubelets are still to be asked, and no settings were ever known. Exporters that wait for them are not
    /// replaced a moment after they were started.
    pub pending: bool,
    /// Warnings for people.
    pub warnings: Vec<Warning>,
}

impl PoolSettings {
    fn new(settings: Option<KubeletSettings>, warning: Option<Warning>) -> Self {
        Self { settings, pending: false, warnings: warning.into_iter().collect() }
    }
}

/// An object that may state the settings: its rank among several (the greatest counts), its name, its content.
type Candidate<'a> = (Option<&'a Rank>, &'a String, &'a Result<KubeletSettings, String>);

/// The settings of a pool's kubelets. Without a NUMAResourcesOperator there are none.
#[must_use]
pub fn pool_settings(cluster: &ClusterState, pool: &str) -> PoolSettings {
    let Some(operator) = cluster.operators.get(keys::OPERATOR) else { return PoolSettings::new(None, None) };
    let mut found = match cluster.environment.platform {
        Platform::OpenShift => {
            by_objects(cluster, operator, pool, "KubeletConfig", kubelet_configs(cluster, pool))
        }
        Platform::HyperShift => {
            by_objects(cluster, operator, pool, "ConfigMap", node_pool_configs(cluster, pool))
        }
        Platform::Kubernetes => by_kubelets(cluster, operator, pool),
    };
    found.warnings.extend(found.settings.as_ref().and_then(|settings| unknown_values(pool, settings)));
    found
}

/// HyperShift: warnings about ConfigMaps without a NodePool.
#[must_use]
pub fn orphaned(cluster: &ClusterState) -> Vec<Warning> {
    let orphaned = cluster.node_pool_configs.iter().filter(|(_, config)| config.node_pool.is_empty());
    let warning = |(name, _): (&String, _)| {
        let message =
            format!("ConfigMap {name:?} has no label {}, so it is for no NodePool", keys::LABEL_NODE_POOL);
        Warning { reason: "NodePoolUnknown", message }
    };
    orphaned.map(warning).collect()
}

/// OpenShift: each KubeletConfig that selects the pool becomes a MachineConfig, and the greatest counts.
fn kubelet_configs<'a>(cluster: &'a ClusterState, pool: &str) -> Vec<Candidate<'a>> {
    let label = |key: &str| cluster.pools.get(pool)?.labels.get(key).map(String::as_str);
    let selecting =
        cluster.kubelet_configs.iter().filter(|(_, one)| selects(one.pool_selector.as_ref(), label));
    selecting.filter_map(|(name, one)| Some((Some(&one.rank), name, one.payload.as_ref()?))).collect()
}

/// HyperShift: ConfigMaps have the name of their NodePool in a label. Of several the last by name counts.
fn node_pool_configs<'a>(cluster: &'a ClusterState, pool: &str) -> Vec<Candidate<'a>> {
    let own = cluster.node_pool_configs.iter().filter(|(_, one)| one.node_pool == pool);
    own.filter_map(|(name, one)| Some((None, name, one.payload.as_ref()?))).collect()
}

/// The settings of the candidate that counts. Without one the kubelets have their defaults, which are stated only
/// beside exclusions.
fn by_objects(
    cluster: &ClusterState,
    operator: &NumaResourcesOperator,
    pool: &str,
    kind: &str,
    mut candidates: Vec<Candidate<'_>>,
) -> PoolSettings {
    candidates.sort();
    let Some(&(_, last, payload)) = candidates.last() else {
        let message =
            format!("no {kind} with a KubeletConfiguration is for it, so its kubelets align nothing");
        let settings = (!operator.spec.pod_excludes.is_empty()).then(KubeletSettings::default);
        return PoolSettings::new(settings, Some(warning("NoKubeletConfig", pool, message)));
    };
    let conflict = (candidates.len() > 1).then(|| {
        let names: Vec<String> = candidates.iter().map(|(_, name, _)| format!("{name:?}")).collect();
        let message = format!("{} {kind}s are for it: {}; {last:?} counts", names.len(), names.join(", "));
        warning("ConflictingKubeletConfigs", pool, message)
    });
    let read = payload.clone().map_err(|error| format!("{kind} {last:?}: {error}"));
    let mut found = read_or_remembered(cluster, pool, read);
    found.warnings.splice(..0, conflict);
    found
}

/// Settings that were read; where they could not be read, those that were written for the exporters before.
fn read_or_remembered(
    cluster: &ClusterState,
    pool: &str,
    read: Result<KubeletSettings, String>,
) -> PoolSettings {
    match read {
        Ok(settings) => PoolSettings::new(Some(settings), None),
        Err(error) => {
            let message = format!("{error}; its exporters keep their configuration");
            PoolSettings::new(remembered(cluster, pool), Some(warning("InvalidKubeletConfig", pool, message)))
        }
    }
}

/// Kubernetes: a ConfigMap that the group names, else the kubelets themselves, if they agree.
fn by_kubelets(cluster: &ClusterState, operator: &NumaResourcesOperator, pool: &str) -> PoolSettings {
    let group = operator.spec.node_groups.iter().find(|group| group.pool_name.as_deref() == Some(pool));
    if let Some(name) = group.and_then(|group| group.kubelet_config_map.as_deref()) {
        let missing = || format!("it is not in namespace {:?}", cluster.environment.namespace);
        let read = data(cluster, name).ok_or_else(missing).and_then(|data| payload::config_map(&data));
        return read_or_remembered(
            cluster,
            pool,
            read.map_err(|error| format!("ConfigMap {name:?}: {error}")),
        );
    }
    let kubelet = Groups::new(cluster, operator).ok().and_then(|groups| groups.kubelet(pool).cloned());
    if let Some(KubeletConfig::Stated { policy, scope }) = kubelet.map(|kubelet| kubelet.config) {
        let [policy, scope] = [policy.as_str(), scope.as_str()].map(|text| Some(text.to_owned()));
        return PoolSettings::new(Some(KubeletSettings { policy, scope }), None);
    }
    let Some(answers) = cluster.kubelets.get(pool) else {
        let settings = remembered(cluster, pool);
        return PoolSettings { pending: settings.is_none(), settings, warnings: Vec::new() };
    };
    let different: BTreeSet<&KubeletSettings> = answers.values().flatten().collect();
    let mut different = different.into_iter();
    match (different.next(), different.next()) {
        (Some(settings), None) => PoolSettings::new(Some(settings.clone()), None),
        (Some(_), Some(_)) => {
            let answers = answers.iter().filter_map(|(node, answer)| Some((node, answer.as_ref().ok()?)));
            let each: Vec<String> =
                answers.map(|(node, settings)| format!("{node} {}", described(settings))).collect();
            let message =
                format!("its kubelets differ ({}): each exporter reads its own node's", each.join(", "));
            PoolSettings::new(None, Some(warning("KubeletsDiffer", pool, message)))
        }
        (None, _) => {
            let failed = answers.iter().find_map(|(node, answer)| Some((node, answer.as_ref().err()?)));
            let message = |(node, error): (&String, &String)| {
                let way_out = if error.contains("certificate") { WAY_OUT } else { "" };
                format!("no kubelet said how it aligns ({node}: {error}){way_out}")
            };
            let warning = failed.map(message).map(|message| warning(SILENT, pool, message));
            PoolSettings::new(remembered(cluster, pool), warning)
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
