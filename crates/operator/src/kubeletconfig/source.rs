//! Who knows what the kubelets of a pool were told, and who of several is right.
//!
//! In: [`World`], a pool. Out: [`Told`]. Never: another answer because somebody stopped answering, or wrote what cannot be read: then what
//! was written for the exporters before holds.

use std::collections::BTreeSet;

use api::numaresources::{NumaResourcesOperator, keys};
use deployer::platform::Platform;
use runtime::yaml::{self, Mode};
use serde_json::Value;
use topology::policy::{Policy, Scope};

use super::{Warning, data, payload, written};
use crate::group::selects;
use crate::world::{KubeletSettings, World};

/// What the kubelets of a pool were told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// That; `None`: it is not known, or nobody told them anything.
    pub settings: Option<KubeletSettings>,
    /// It is still to be heard.
    pub awaited: bool,
    /// What people should know.
    pub warnings: Vec<Warning>,
}

/// Something that may hold a KubeletConfiguration.
struct Candidate<'a, R> {
    /// Of several the greatest counts.
    rank: R,
    name: &'a str,
    payload: &'a Result<KubeletSettings, String>,
}

/// What the kubelets of a pool were told.
#[must_use]
pub fn told(world: &World, operator: &NumaResourcesOperator, pool: &str) -> Told {
    let mut told = match world.place.platform {
        Platform::OpenShift => by_kubelet_configs(world, operator, pool),
        Platform::HyperShift => by_node_pool_configs(world, operator, pool),
        _ => by_kubelets(world, operator, pool),
    };
    let odd = told.settings.as_ref().and_then(|settings| odd(pool, settings));
    told.warnings.extend(odd);
    told
}

/// HyperShift: ConfigMaps that are for no NodePool.
#[must_use]
pub fn lost(world: &World) -> Vec<Warning> {
    let lost = world.node_pool_configs.iter().filter(|(_, config)| config.node_pool.is_empty());
    lost.map(|(name, _)| Warning {
        reason: "NodePoolUnknown",
        message: format!(
            "ConfigMap {name:?} has no label {}, so it is for no NodePool",
            keys::LABEL_NODE_POOL
        ),
    })
    .collect()
}

/// OpenShift: the Machine Config Operator makes a MachineConfig of each KubeletConfig that selects the pool, and the greatest counts.
fn by_kubelet_configs(world: &World, operator: &NumaResourcesOperator, pool: &str) -> Told {
    let labels = world.pools.get(pool).map(|pool| &pool.labels);
    let mut candidates = Vec::new();
    for (name, config) in &world.kubelet_configs {
        let label = |key: &str| labels?.get(key).map(String::as_str);
        let selected = config.pool_selector.is_some() && selects(config.pool_selector.as_ref(), label);
        if let (true, Some(payload)) = (selected, &config.payload) {
            candidates.push(Candidate { rank: &config.rank, name, payload });
        }
    }
    chosen(world, operator, pool, "KubeletConfig", candidates)
}

/// HyperShift: ConfigMaps bear the name of their NodePool. There should be one; of several the last by name is taken.
fn by_node_pool_configs(world: &World, operator: &NumaResourcesOperator, pool: &str) -> Told {
    let mine = world.node_pool_configs.iter().filter(|(_, config)| config.node_pool == pool);
    let candidate = |(name, config)| {
        let config: &crate::world::NodePoolConfig = config;
        config.payload.as_ref().map(|payload| Candidate { rank: (), name, payload })
    };
    let candidates = mine.filter_map(|(name, config)| candidate((name.as_str(), config))).collect();
    chosen(world, operator, pool, "ConfigMap", candidates)
}

/// The one that counts; without any the kubelets have their defaults, which has to be said only if there is something else to say.
fn chosen<R: Ord>(
    world: &World,
    operator: &NumaResourcesOperator,
    pool: &str,
    kind: &str,
    mut candidates: Vec<Candidate<'_, R>>,
) -> Told {
    candidates.sort_by(|a, b| (&a.rank, a.name).cmp(&(&b.rank, b.name)));
    let Some(last) = candidates.last() else {
        let warnings = vec![warning(
            "NoKubeletConfig",
            pool,
            format!("no {kind} with a KubeletConfiguration is for it, so its kubelets align nothing"),
        )];
        let settings = (!operator.spec.pod_excludes.is_empty()).then(KubeletSettings::default);
        return Told { settings, awaited: false, warnings };
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
            let message = format!("{kind} {:?}: {error}; its exporters keep what they were told", last.name);
            warnings.push(warning("InvalidKubeletConfig", pool, message));
            remembered(world, pool)
        }
    };
    Told { settings, awaited: false, warnings }
}

/// Kubernetes: a ConfigMap that the group names, else the kubelets themselves, if they agree.
fn by_kubelets(world: &World, operator: &NumaResourcesOperator, pool: &str) -> Told {
    let group = operator.spec.node_groups.iter().find(|group| group.pool_name.as_deref() == Some(pool));
    if let Some(name) = group.and_then(|group| group.kubelet_config_map.as_deref()) {
        return by_config_map(world, pool, name);
    }
    let Some(kubelets) = world.kubelets.get(pool) else {
        let settings = remembered(world, pool);
        return Told { awaited: settings.is_none(), settings, warnings: Vec::new() };
    };
    let answers: BTreeSet<&KubeletSettings> = kubelets.answers.values().flatten().collect();
    let mut answers = answers.into_iter();
    match (answers.next(), answers.next()) {
        (Some(settings), None) => Told { settings: Some(settings.clone()), ..Told::default() },
        (Some(_), Some(_)) => {
            let each = |(node, answer): (&String, &Result<KubeletSettings, String>)| {
                Some(format!("{node} {}", described(answer.as_ref().ok()?)))
            };
            let each: Vec<String> = kubelets.answers.iter().filter_map(each).collect();
            let message =
                format!("its kubelets differ ({}): each exporter reads its own node's", each.join(", "));
            Told { warnings: vec![warning("KubeletsDiffer", pool, message)], ..Told::default() }
        }
        (None, _) => {
            let why = kubelets.answers.iter().find_map(|(node, answer)| {
                answer.as_ref().err().map(|error| format!("no kubelet said how it aligns ({node}: {error})"))
            });
            let warnings = why.map(|message| warning("KubeletsSilent", pool, message)).into_iter().collect();
            Told { settings: remembered(world, pool), awaited: false, warnings }
        }
    }
}

/// Kubernetes: what a ConfigMap of the user's says.
fn by_config_map(world: &World, pool: &str, name: &str) -> Told {
    let read = data(world, name).ok_or_else(|| format!("it is not in namespace {:?}", world.place.namespace));
    match read.and_then(|data| payload::config_map(&data)) {
        Ok(settings) => Told { settings: Some(settings), ..Told::default() },
        Err(error) => {
            let message = format!("ConfigMap {name:?}: {error}; its exporters keep what they were told");
            let warnings = vec![warning("InvalidKubeletConfig", pool, message)];
            Told { settings: remembered(world, pool), awaited: false, warnings }
        }
    }
}

/// What the exporters were told before.
fn remembered(world: &World, pool: &str) -> Option<KubeletSettings> {
    let file: Value = yaml::read_str(super::KEY, &written(world, pool)?, Mode::Lenient).ok()?;
    let kubelet = file.get("kubelet").filter(|kubelet| kubelet.is_object())?;
    let text = |field: &str| kubelet[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Some(KubeletSettings { policy: text("topologyManagerPolicy"), scope: text("topologyManagerScope") })
}

/// Values that no kubelet knows. They are passed on: a newer kubelet may.
fn odd(pool: &str, settings: &KubeletSettings) -> Option<Warning> {
    let odd = |field: &str, text: &Option<String>, known: bool| {
        text.as_ref().filter(|_| !known).map(|text| format!("{field} {text:?} is not known"))
    };
    let policy = odd("topologyManagerPolicy", &settings.policy, settings.known_policy().is_some());
    let scope = odd("topologyManagerScope", &settings.scope, settings.known_scope().is_some());
    let odd: Vec<String> = [policy, scope].into_iter().flatten().collect();
    (!odd.is_empty()).then(|| warning("UnknownTopologyManagerSetting", pool, odd.join(", ")))
}

/// The settings in two words.
fn described(settings: &KubeletSettings) -> String {
    let policy = settings.policy.as_deref().unwrap_or(Policy::default().as_str());
    format!("{policy}/{}", settings.scope.as_deref().unwrap_or(Scope::default().as_str()))
}

fn warning(reason: &'static str, pool: &str, message: String) -> Warning {
    Warning { reason, message: format!("pool {pool:?}: {message}") }
}
