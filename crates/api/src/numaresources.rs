//! NUMAResourcesOperator and NUMAResourcesScheduler (`nodetopology.openshift.io`): what users ask of the operator, and what it answers.
//!
//! In: objects as users and the Go operator write them, in both versions. Out: typed values. Never: a default that is not in the object
//! ([`NodeGroupConfig::normalized`] and [`scheduler::Spec::normalized`] fill them in where they are used), or a judgement of what
//! is asked.
//!
//! Both versions have the same fields, so that none is lost whichever version an object is read and written in.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

use crate::goduration::GoDuration;

pub mod keys;
pub mod operator;
pub mod scheduler;

pub use operator::NumaResourcesOperator;
pub use scheduler::NumaResourcesScheduler;

/// The API group.
pub const GROUP: &str = "nodetopology.openshift.io";
/// The version objects are stored in.
pub const VERSION: &str = "v1";
/// The deprecated version, served for those who still speak it.
pub const OLD_VERSION: &str = "v1alpha1";

/// How much a program tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogLevel {
    /// As `Normal`.
    #[serde(rename = "")]
    Unset,
    /// What operators of a cluster want to know.
    #[default]
    Normal,
    /// What helps to find a mistake.
    Debug,
    /// Each step.
    Trace,
    /// Everything.
    TraceAll,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Switch {
    /// Off.
    Disabled,
    /// On.
    Enabled,
}

/// Which pods the fingerprint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodsFingerprinting {
    /// No fingerprint.
    Disabled,
    /// All pods.
    Enabled,
    /// Pods with CPUs, memory or devices of their own.
    EnabledExclusiveResources,
}

/// What makes the exporter look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InfoRefreshMode {
    /// A timer.
    Periodic,
    /// Changes on the node.
    Events,
    /// Both.
    PeriodicAndEvents,
}

/// How the exporters of a node group work. What is absent has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroupConfig {
    /// Which pods the fingerprint covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_fingerprinting: Option<PodsFingerprinting>,
    /// What makes the exporter look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_refresh_mode: Option<InfoRefreshMode>,
    /// Time between looks of the timer; zero: no timer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_refresh_period: Option<GoDuration>,
    /// Whether publishing is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_refresh_pause: Option<Switch>,
    /// Taints the exporters live with.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub tolerations: Vec<Toleration>,
}

/// Nodes whose exporters are set up alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroup {
    /// OpenShift: the MachineConfigPools of the group, by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// The MachineConfigPool (OpenShift) or NodePool (HyperShift); elsewhere the name of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_name: Option<String>,
    /// Kubernetes: the nodes of the group, by their labels. It stands beside `poolName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Kubernetes: a ConfigMap in the operator's namespace with the group's KubeletConfiguration in its key `config` or `kubelet`;
    /// absent: the kubelets are asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_config_map: Option<String>,
    /// How its exporters work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<NodeGroupConfig>,
    /// Switches for this group ([`keys`]); at most [`Self::MAX_ANNOTATIONS`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
    /// The old version's switch; `config.podsFingerprinting` counts where both are there. Deprecated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_pods_fingerprinting: Option<bool>,
}

/// Pods that no exporter counts. Both patterns are shell globs, and both have to match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespacedName {
    /// Pattern of the namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Pattern of the name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// An object that belongs to what is reported on, for tools that collect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectReference {
    /// API group; may be empty.
    pub group: String,
    /// The resource's name in paths.
    pub resource: String,
    /// Namespace, if there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name; may be empty, for all.
    pub name: String,
}

impl LogLevel {
    /// Verbosity as klog has it.
    #[must_use]
    pub fn verbosity(self) -> i32 {
        match self {
            Self::Unset | Self::Normal => 2,
            Self::Debug => 4,
            Self::Trace => 6,
            Self::TraceAll => 8,
        }
    }
}

impl NodeGroup {
    /// The most annotations a group may have.
    pub const MAX_ANNOTATIONS: usize = 8;

    /// How its exporters work, with nothing left open.
    #[must_use]
    pub fn normalized_config(&self) -> NodeGroupConfig {
        let mut config = self.config.clone().unwrap_or_default();
        let old =
            |disabled| if disabled { PodsFingerprinting::Disabled } else { PodsFingerprinting::Enabled };
        config.pods_fingerprinting = config.pods_fingerprinting.or(self.disable_pods_fingerprinting.map(old));
        config.normalized()
    }
}

impl NodeGroupConfig {
    /// The same with defaults for what is absent: fingerprints of pods with exclusive resources, a look at each change and every
    /// ten seconds.
    #[must_use]
    pub fn normalized(self) -> Self {
        let fingerprinting = PodsFingerprinting::EnabledExclusiveResources;
        Self {
            pods_fingerprinting: self.pods_fingerprinting.or(Some(fingerprinting)),
            info_refresh_mode: self.info_refresh_mode.or(Some(InfoRefreshMode::PeriodicAndEvents)),
            info_refresh_period: self.info_refresh_period.or(Some(GoDuration(10_000_000_000))),
            info_refresh_pause: self.info_refresh_pause.or(Some(Switch::Disabled)),
            tolerations: self.tolerations,
        }
    }
}

/// Go writes a list or map that was never set as `null`.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// What the API server calls a kind of this group; both are cluster-scoped and have a status.
macro_rules! resource {
    ($type:ty, $kind:expr, $plural:expr) => {
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = k8s_openapi::ClusterResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                GROUP.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                VERSION.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(NumaResourcesOperator, operator::KIND, operator::PLURAL);
resource!(NumaResourcesScheduler, scheduler::KIND, scheduler::PLURAL);
