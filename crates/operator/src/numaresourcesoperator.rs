//! The controller of the exporters and of the API that they publish with.
//!
//! In: [`ClusterState`]. Out: objects, status. Never: a call, or a memory: the same cluster state gives the same
//! objects.
//!
//! Each pool of each node group gets a DaemonSet. What keeps one pool from having its exporters (`stage`) keeps no
//! other.

use api::numaresources::keys::OPERATOR;
use api::numaresources::operator::{KIND, Status};
use api::numaresources::{NumaResourcesOperator, UpdaterType};
use runtime::events::Subject;

use crate::cluster_state::{ClusterState, Image};
use crate::condition::{INTERNAL_ERROR, State};
use crate::desired::{Controller, Desired};
use crate::group::Groups;
use crate::reconcile::Outcome;
use crate::reconcile::rules::{Rules, StatusUpdate, is_paused};

mod args;
mod daemonset;
mod desired;
pub(crate) mod nfd;
mod stage;
mod status;

/// A reason: the node groups are invalid.
pub const INVALID_GROUPS: &str = "ValidationErrorUnderNodeGroups";
/// A reason: `spec.imageSpec` is not allowed.
pub const CUSTOM_IMAGE: &str = "CustomUserImage";
/// A reason: the object has another name than the accepted one.
pub const INCORRECT_NAME: &str = "IncorrectNUMAResourcesOperatorResourceName";
/// A reason: MachineConfigPools roll out what exporters need, or no longer need.
pub const POOL_UPDATING: &str = "MachineConfigPoolIsUpdating";
/// A reason: exporters are started or replaced.
pub const DAEMON_SET_UPDATING: &str = "DaemonSetIsUpdating";
/// A condition: some of the pools are paused.
pub const POOL_PAUSED: &str = "MachineConfigPoolPaused";
/// A condition: the kubelets' settings of every pool are known, and align pods. Otherwise exporters run too, but the
/// scheduler has no settings to follow.
pub const KUBELETS_CONFIGURED: &str = "KubeletsConfigured";
/// A condition: some of the pools have no node, so no exporter either.
pub const POOL_EMPTY: &str = "NodeGroupEmpty";
/// A condition: nodes that a group's pool selects are in a pool without a group, so they have no exporter.
pub const PASSED_OVER: &str = "NodesWithoutExporter";

/// The rules of this controller. Its status includes failures of the exporters' configuration.
pub const RULES: Rules = Rules {
    works_for: (KIND, OPERATOR),
    subject: |cluster| cluster.operators.get(OPERATOR).map(Subject::of),
    is_paused: |cluster| cluster.operators.get(OPERATOR).is_some_and(is_paused),
    desired,
    status: |cluster, done, now| {
        StatusUpdate::all(&cluster.operators, |one| &one.status, status(cluster, done, now))
    },
    warnings: |cluster| match Case::of(cluster) {
        Case::Wanted(request) => desired::untied(&request).into_iter().collect(),
        _ => Vec::new(),
    },
    reports_errors_of: &[Controller::KubeletConfig],
};

/// The request of the NUMAResourcesOperator.
pub(crate) enum Case<'a> {
    /// There is no NUMAResourcesOperator.
    Absent,
    /// Everything stays as it is: the object is paused, unreadable, or being deleted together with what it owns.
    Frozen,
    /// The request is invalid.
    Refused(State),
    /// Exporters.
    Wanted(Request<'a>),
}

/// A valid request for exporters.
pub(crate) struct Request<'a> {
    cluster: &'a ClusterState,
    pub(crate) operator: &'a NumaResourcesOperator,
    pub(crate) groups: Groups<'a>,
}

/// The exporters' image.
struct Choice {
    image: Image,
    /// Whether it contains our exporter. Other images get what the Go exporter needs.
    own: bool,
}

/// The desired objects.
#[must_use]
pub fn desired(cluster: &ClusterState) -> Desired {
    match Case::of(cluster) {
        Case::Absent => Desired::Nothing,
        Case::Frozen | Case::Refused(_) => Desired::Keep,
        Case::Wanted(request) => Desired::Objects(desired::objects(&request)),
    }
}

/// The status of each NUMAResourcesOperator, by name, after a reconcile with this outcome. `now` becomes the transition
/// time of conditions that changed.
#[must_use]
pub fn status(cluster: &ClusterState, done: &Outcome, now: jiff::Timestamp) -> Vec<(String, Status)> {
    let status = |(name, operator): (&String, &NumaResourcesOperator)| {
        let status = if name == OPERATOR {
            status::of(cluster, operator, Case::of(cluster), done, now)?
        } else {
            let message = format!(
                "incorrect NUMAResourcesOperator resource name: {name}; the only one that counts is {OPERATOR}"
            );
            status::without_objects(operator, &State::degraded(INCORRECT_NAME, message), now)
        };
        Some((name.clone(), status))
    };
    cluster.operators.iter().filter_map(status).collect()
}

impl<'a> Case<'a> {
    /// The case in a cluster state.
    pub(crate) fn of(cluster: &'a ClusterState) -> Self {
        let Some(operator) = cluster.operators.get(OPERATOR) else {
            let unreadable = cluster.unreadable.contains_key(&(KIND, OPERATOR.to_owned()));
            return if unreadable { Self::Frozen } else { Self::Absent };
        };
        if is_paused(operator) || operator.metadata.deletion_timestamp.is_some() {
            return Self::Frozen;
        }
        let image = &operator.spec.image_spec;
        if !image.is_empty() && cluster.environment.exporter_image_restricted {
            let message = format!("custom operand image is not supported: {image}");
            return Self::Refused(State::degraded(CUSTOM_IMAGE, message));
        }
        match Groups::new(cluster, operator) {
            Ok(groups) => Self::Wanted(Request { cluster, operator, groups }),
            Err(mistakes) => Self::Refused(State::degraded(INVALID_GROUPS, mistakes)),
        }
    }
}

impl Request<'_> {
    fn image(&self) -> Choice {
        let environment = &self.cluster.environment;
        let image = environment.exporter_image(&self.operator.spec.image_spec);
        Choice { own: environment.is_own(&image), image }
    }

    /// Whether nfd-topology-updater runs in the place of the exporter.
    fn has_nfd(&self) -> bool {
        self.operator.spec.updater_type == Some(UpdaterType::Nfd)
    }
}

/// The name of a pool's DaemonSet and of its configuration.
#[must_use]
pub fn set_name(pool: &str) -> String {
    format!("{OPERATOR}-{pool}")
}

/// The name of a pool's MachineConfig, as [`deployer::manifests::openshift::machine_config`] sets it.
#[must_use]
pub fn config_name(pool: &str) -> String {
    format!("51-{}", set_name(pool))
}

#[cfg(test)]
mod tests;
