//! The stages in which a pool gets its exporters.
//!
//! In: a request, a pool of it. Out: a [`Stage`], and the MachineConfig. Never: a wait of one pool for another, or for
//! a cluster upgrade.
//!
//! A custom SELinux policy comes with a MachineConfig, which the nodes need first. Settings of kubelets, where those
//! are asked, come first too.

use std::collections::BTreeMap;

use api::numaresources::keys::LABEL_ROLE;
use deployer::manifests::openshift;
use deployer::platform::Platform;
use objects::Object;
use runtime::tls;

use super::{Request, config_name, set_name};
use crate::cluster_state::MachineConfigPool;
use crate::group::{Group, Pool, selects};
use crate::kubeletconfig::source;

/// The stage of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its exporters can run.
    Ready,
    /// Its exporters can run, while nodes still lose their former policy.
    Leaving,
    /// Its exporters wait until its nodes have the policy.
    Arriving,
    /// Its exporters wait for the kubelets' settings, so that they are not replaced a moment later.
    Asking,
    /// Its exporters cannot run, for this reason.
    Impossible(String),
}

impl Stage {
    /// Whether exporters stay as they are.
    pub(super) fn holds(&self) -> bool {
        matches!(self, Self::Arriving | Self::Asking | Self::Impossible(_))
    }
}

/// The stage of a pool.
pub(super) fn stage(request: &Request<'_>, group: &Group<'_>, pool: &Pool<'_>) -> Stage {
    if let Err(reason) = &pool.nodes {
        return Stage::Impossible(format!("{}: {reason}", title(request, pool)));
    }
    if let Some(error) = tls_error(request) {
        return Stage::Impossible(error);
    }
    if source::pool_settings(request.cluster, pool.name).pending {
        return Stage::Asking;
    }
    let Some(machine) = rolled_out(request, pool) else { return Stage::Ready };
    let there = machine.sources.contains(&config_name(pool.name));
    match (group.has_custom_policy(), there) {
        (true, true) | (false, false) => Stage::Ready,
        (false, true) => Stage::Leaving,
        (true, false) => match labels(pool.name, machine) {
            Ok(_) => Stage::Arriving,
            Err(reason) => Stage::Impossible(format!("{}: {reason}", title(request, pool))),
        },
    }
}

/// A pool's MachineConfig, and whether it stays as it is, existing or not; `None`: it should not exist.
pub(super) fn machine_config(
    request: &Request<'_>,
    group: &Group<'_>,
    pool: &Pool<'_>,
) -> Option<(Object, bool)> {
    let machine = pool.machine_config_pool.filter(|_| has_machine_configs(request))?;
    let labels = labels(pool.name, machine);
    let untouched = rolled_out(request, pool).is_none() || (labels.is_err() && group.has_custom_policy());
    if !untouched && !group.has_custom_policy() {
        return None;
    }
    let mut options = request.options();
    options.updater.name = Some(set_name(pool.name));
    options.updater.machine_config_labels = labels.unwrap_or_default();
    Some((openshift::machine_config(&options), untouched))
}

/// The names of paused pools.
pub(super) fn paused<'a>(request: &'a Request<'_>) -> Vec<&'a str> {
    let pools = request.groups.pools().map(|(_, pool)| pool);
    let paused = |pool: &&Pool<'_>| pool.machine_config_pool.is_some_and(|pool| pool.paused);
    let mut names: Vec<&str> = pools.filter(paused).map(|pool| pool.name).collect();
    names.sort_unstable();
    names
}

/// A pool that takes MachineConfigs and rolls them out: it is not paused and has a selector.
fn rolled_out<'a>(request: &Request<'_>, pool: &Pool<'a>) -> Option<&'a MachineConfigPool> {
    let usable = |pool: &&MachineConfigPool| !pool.paused && pool.machine_config_selector.is_some();
    pool.machine_config_pool.filter(|_| has_machine_configs(request)).filter(usable)
}

fn has_machine_configs(request: &Request<'_>) -> bool {
    request.cluster.environment.platform == Platform::OpenShift
}

/// The labels of a MachineConfig for a pool: those of its selector, or the role with its name.
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

/// Why our exporter would not start with the TLS profile; running exporters stay.
fn tls_error(request: &Request<'_>) -> Option<String> {
    let tls = request.cluster.tls.as_ref().filter(|_| request.image().own && !request.has_nfd())?;
    let error = tls::Policy::parse(&tls.min_version, &tls.cipher_suites).err()?;
    Some(format!("the cluster's TLS profile cannot be followed: {error}"))
}

fn title(request: &Request<'_>, pool: &Pool<'_>) -> String {
    let kind = match request.cluster.environment.platform {
        Platform::OpenShift => "MachineConfigPool",
        Platform::HyperShift => "NodePool",
        Platform::Kubernetes => "node group",
    };
    format!("{kind} {:?}", pool.name)
}
