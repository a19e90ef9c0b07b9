//! How far a pool has got towards having its exporters: their SELinux policy, if they have one of their own, comes with a MachineConfig, and
//! the nodes need it first. Where kubelets are asked what they were told, the answer comes first too.
//!
//! In: a request, a pool of it. Out: a [`Stage`], and the MachineConfig. Never: a wait of one pool for another, or for what exporters do not
//! need: a cluster's upgrade concerns none of them.

use std::collections::BTreeMap;

use api::numaresources::keys::LABEL_ROLE;
use deployer::manifests::openshift;
use deployer::platform::Platform;
use objects::Object;
use runtime::tls;

use super::{Request, set_name};
use crate::group::{Group, Pool, selects};
use crate::kubeletconfig;
use crate::world::MachineConfigPool;

/// How far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its exporters can run.
    Ready,
    /// They can, while nodes still lose the policy that they had.
    Leaving,
    /// They cannot before its nodes have the policy.
    Arriving,
    /// Its kubelets are still asked what they were told. Exporters that did not wait would be replaced a moment later.
    Asking,
    /// They cannot, for this reason.
    Impossible(String),
}

/// What becomes of a pool's MachineConfig.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MachineConfig {
    /// There is to be none.
    No,
    /// There is to be this one.
    Yes(Object),
    /// Nothing may be done about this one, whether it is there or not.
    Untouched(Object),
}

impl Stage {
    /// Whether exporters are to stay as they are.
    pub(super) fn holds(&self) -> bool {
        matches!(self, Self::Arriving | Self::Asking | Self::Impossible(_))
    }
}

/// How far a pool has got.
pub(super) fn stage(request: &Request<'_>, group: &Group<'_>, pool: &Pool<'_>) -> Stage {
    if let Err(reason) = &pool.nodes {
        return Stage::Impossible(format!("{}: {reason}", title(request, pool)));
    }
    if let Some(error) = tls_error(request) {
        return Stage::Impossible(error);
    }
    if kubeletconfig::is_awaited(request.world, pool.name) {
        return Stage::Asking;
    }
    let Some(machine) = rolled_out(request, pool) else { return Stage::Ready };
    let there = machine.sources.contains(&config_name(pool));
    match (group.has_custom_policy(), there) {
        (true, true) | (false, false) => Stage::Ready,
        (false, true) => Stage::Leaving,
        (true, false) => match labels(pool.name, machine) {
            Ok(_) => Stage::Arriving,
            Err(reason) => Stage::Impossible(format!("{}: {reason}", title(request, pool))),
        },
    }
}

/// What becomes of a pool's MachineConfig; `None`: there are no MachineConfigs.
///
/// # Errors
/// Never in practice.
pub(super) fn machine_config(
    request: &Request<'_>,
    group: &Group<'_>,
    pool: &Pool<'_>,
) -> Result<Option<MachineConfig>, deployer::manifests::Error> {
    let Some(machine) = pool.machine_config_pool.filter(|_| has_machine_configs(request)) else {
        return Ok(None);
    };
    let labels = labels(pool.name, machine);
    let untouched = rolled_out(request, pool).is_none() || (labels.is_err() && group.has_custom_policy());
    if !untouched && !group.has_custom_policy() {
        return Ok(Some(MachineConfig::No));
    }
    let mut options = request.options();
    options.updater.name = Some(set_name(pool.name));
    options.updater.machine_config_labels = labels.unwrap_or_default();
    let object = openshift::machine_config(&options)?;
    Ok(Some(if untouched { MachineConfig::Untouched(object) } else { MachineConfig::Yes(object) }))
}

/// Pools that roll nothing out, by name.
pub(super) fn paused<'a>(request: &'a Request<'_>) -> Vec<&'a str> {
    let pools = request.groups.pools().map(|(_, pool)| pool);
    let paused = |pool: &&Pool<'_>| pool.machine_config_pool.is_some_and(|pool| pool.paused);
    let mut names: Vec<&str> = pools.filter(paused).map(|pool| pool.name).collect();
    names.sort_unstable();
    names
}

/// What a pool says that takes MachineConfigs and rolls them out. A paused one does not; one without a selector takes none.
fn rolled_out<'a>(request: &Request<'_>, pool: &Pool<'a>) -> Option<&'a MachineConfigPool> {
    let usable = |pool: &&MachineConfigPool| !pool.paused && pool.machine_config_selector.is_some();
    pool.machine_config_pool.filter(|_| has_machine_configs(request)).filter(usable)
}

fn has_machine_configs(request: &Request<'_>) -> bool {
    request.world.place.platform == Platform::OpenShift
}

/// The labels with which a pool takes a MachineConfig: those its selector states, or the role that is its name.
fn labels(name: &str, machine: &MachineConfigPool) -> Result<BTreeMap<String, String>, String> {
    let selector = machine.machine_config_selector.as_ref();
    let stated = selector.and_then(|selector| selector.match_labels.clone()).unwrap_or_default();
    let labels =
        if stated.is_empty() { BTreeMap::from([(LABEL_ROLE.to_owned(), name.to_owned())]) } else { stated };
    if selects(selector, |key| labels.get(key).map(String::as_str)) {
        return Ok(labels);
    }
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = labels.join(",");
    Err(format!(
        "labels does not match the machine config pool: its machineConfigSelector does not select {labels}"
    ))
}

/// The name of a pool's MachineConfig; [`openshift::machine_config`] gives it.
pub(super) fn config_name(pool: &Pool<'_>) -> String {
    format!("51-{}", set_name(pool.name))
}

/// Our exporter ends at once with a TLS policy that leaves it nothing; better the ones that run stay.
fn tls_error(request: &Request<'_>) -> Option<String> {
    let tls = request.world.tls.as_ref().filter(|_| request.image().own)?;
    let error = tls::Policy::parse(&tls.min_version, &tls.cipher_suites).err()?;
    Some(format!("the cluster's TLS profile cannot be followed: {error}"))
}

fn title(request: &Request<'_>, pool: &Pool<'_>) -> String {
    let kind = match request.world.place.platform {
        Platform::OpenShift => "MachineConfigPool",
        Platform::HyperShift => "NodePool",
        Platform::Kubernetes => "node group",
    };
    format!("{kind} {:?}", pool.name)
}
