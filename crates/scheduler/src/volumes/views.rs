//! Objects of storage as the scheduler keeps them: small structs instead of whole objects.
//!
//! In: objects of the API. Out: the fields that the volume plugins read, already parsed. Never: a verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{Selector, SelectorExt as _};
use topology::quantity::Quantity;

use super::migration::{self, InTreePlugin, Migrated};
use super::reference::ClaimKey;
use crate::affinity::{Labels, NodeAffinity};

/// Annotation of a claim and its volume that were bound completely.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of a claim with the node for which it is to be provisioned.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of a volume that a controller, and not its owner, has bound.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Old form of `storageClassName`.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotation of a CSINode with the in-tree plugins whose volumes drivers serve there.
const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";
/// The access mode of a claim that one pod has at a time.
const ONE_POD: &str = "ReadWriteOncePod";

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimView {
    /// Namespace and name.
    pub key: ClaimKey,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`, where it is a number.
    pub version: u64,
    /// The class; empty: none.
    pub class: Arc<str>,
    /// `spec.volumeName`.
    pub volume: Option<Arc<str>>,
    /// Whether it was bound to that volume completely.
    pub is_bound: bool,
    /// Whether its volume is lost.
    pub is_lost: bool,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// The node for which it is to be provisioned.
    pub selected_node: Option<Arc<str>>,
    /// The uid of its controller.
    pub controller: Option<Arc<str>>,
    /// What a volume must be for it.
    pub wants: Wants,
}

/// What a claim asks of a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Wants {
    /// The requested size; `None`: not stated.
    size: Option<Quantity>,
    modes: BTreeSet<String>,
    volume_mode: Arc<str>,
    attributes_class: Arc<str>,
    /// The inner one is `None` for a selector that cannot be read, which selects nothing.
    selector: Option<Option<Selector>>,
}

/// The claim that a volume names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRef {
    /// Namespace and name.
    pub key: ClaimKey,
    /// The uid; empty: any.
    pub uid: Arc<str>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeView {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.resourceVersion`, where it is a number.
    pub version: u64,
    /// The class; empty: none.
    pub class: Arc<str>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// The claim that it is for.
    pub claim: Option<ClaimRef>,
    /// The handle that a CSI driver has of it, with the driver.
    pub csi: Option<(Arc<str>, Arc<str>)>,
    /// The same volume for a CSI driver, if it is one of an in-tree plugin.
    pub migrated: Option<(Migrated, NodeAffinity)>,
    is_available: bool,
    is_leaving: bool,
    size: Quantity,
    modes: BTreeSet<String>,
    volume_mode: Arc<str>,
    attributes_class: Arc<str>,
    affinity: NodeAffinity,
}

/// A StorageClass.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassView {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `provisioner`.
    pub provisioner: Arc<str>,
    /// Whether claims wait for a pod.
    pub waits: bool,
    /// `allowedTopologies`: one of these has to hold, each with all of its labels; empty: any node.
    allowed: Vec<Vec<(String, Vec<String>)>>,
}

/// A CSINode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CsiNodeView {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// Limits of volumes by driver, where there is one.
    pub limits: BTreeMap<Arc<str>, i64>,
    /// In-tree plugins whose volumes drivers serve on the node.
    migrated: BTreeSet<String>,
}

/// A CSIDriver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverView {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `spec.storageCapacity`.
    pub tracks_capacity: bool,
}

/// A CSIStorageCapacity.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityView {
    namespace: Arc<str>,
    name: Arc<str>,
    /// `storageClassName`.
    pub class: Arc<str>,
    /// The largest volume, in bytes; `None`: not known.
    pub limit: Option<i64>,
    /// The nodes with access; `None`: none.
    nodes: Option<Selector>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentView {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `spec.nodeName`.
    pub node: Arc<str>,
    /// `spec.attacher`: a driver.
    pub driver: Arc<str>,
    /// `spec.source.persistentVolumeName`.
    pub volume: Option<Arc<str>>,
}

// === reading ===

fn text(value: Option<&String>) -> Arc<str> {
    value.map_or("", String::as_str).into()
}

fn stated(value: Option<&String>) -> Option<Arc<str>> {
    value.filter(|text| !text.is_empty()).map(|text| text.as_str().into())
}

fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    meta.annotations.as_ref()?.get(key)
}

fn class(meta: &ObjectMeta, stated: Option<&String>) -> Arc<str> {
    text(annotation(meta, OLD_CLASS).or(stated))
}

fn storage(amounts: Option<&BTreeMap<String, WireQuantity>>) -> Option<Quantity> {
    Quantity::parse(amounts?.get("storage")?.0.trim()).ok()
}

fn selector(wire: &LabelSelector) -> Option<Selector> {
    Selector::try_from(wire.clone()).ok()
}

fn volume_mode(stated: Option<&String>) -> Arc<str> {
    stated.map_or("Filesystem", String::as_str).into()
}

fn affinity(required: Option<&wire::NodeSelector>) -> NodeAffinity {
    let required = required.cloned();
    required.map_or_else(NodeAffinity::default, |required| {
        NodeAffinity::of(&wire::NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(required),
            ..wire::NodeAffinity::default()
        })
    })
}

impl ClaimView {
    /// Reads a claim.
    #[must_use]
    pub fn read(claim: &wire::PersistentVolumeClaim) -> Self {
        let (meta, nothing) = (&claim.metadata, wire::PersistentVolumeClaimSpec::default());
        let spec = claim.spec.as_ref().unwrap_or(&nothing);
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        let controller = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let volume = stated(spec.volume_name.as_ref());
        Self {
            key: ClaimKey { namespace: text(meta.namespace.as_ref()), name: text(meta.name.as_ref()) },
            uid: text(meta.uid.as_ref()),
            version: version(meta),
            class: class(meta, spec.storage_class_name.as_ref()),
            is_bound: volume.is_some() && annotation(meta, BIND_COMPLETED).is_some(),
            volume,
            is_lost: phase == Some("Lost"),
            is_leaving: meta.deletion_timestamp.is_some(),
            selected_node: annotation(meta, SELECTED_NODE).map(|node| node.as_str().into()),
            controller: controller.map(|owner| owner.uid.as_str().into()),
            wants: Wants {
                size: storage(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref())),
                modes: spec.access_modes.iter().flatten().cloned().collect(),
                volume_mode: volume_mode(spec.volume_mode.as_ref()),
                attributes_class: text(spec.volume_attributes_class_name.as_ref()),
                selector: spec.selector.as_ref().map(selector),
            },
        }
    }

    /// Whether another version says the same.
    #[must_use]
    pub fn says(&self, other: &Self) -> bool {
        *self == Self { version: self.version, ..other.clone() }
    }

    /// Whether one pod has it at a time.
    #[must_use]
    pub fn is_for_one_pod(&self) -> bool {
        self.wants.modes.contains(ONE_POD)
    }

    /// The requested size in bytes; `None`: not stated.
    #[must_use]
    pub fn bytes(&self) -> Option<i64> {
        self.wants.size.map(|size| size.value())
    }

    /// The requested size, for comparisons.
    #[must_use]
    pub fn size(&self) -> Quantity {
        self.wants.size.unwrap_or_default()
    }

    /// The claim, for a volume that is to be its.
    #[must_use]
    pub fn reference(&self) -> ClaimRef {
        ClaimRef { key: self.key.clone(), uid: Arc::clone(&self.uid) }
    }
}

impl ClaimRef {
    /// Whether it means this claim.
    #[must_use]
    pub fn names(&self, claim: &ClaimView) -> bool {
        self.key == claim.key && (self.uid.is_empty() || self.uid == claim.uid)
    }
}

impl VolumeView {
    /// Reads a PersistentVolume.
    #[must_use]
    pub fn read(volume: &wire::PersistentVolume) -> Self {
        let (meta, nothing) = (&volume.metadata, wire::PersistentVolumeSpec::default());
        let spec = volume.spec.as_ref().unwrap_or(&nothing);
        let claim = spec.claim_ref.as_ref().map(|claim| ClaimRef {
            key: ClaimKey { namespace: text(claim.namespace.as_ref()), name: text(claim.name.as_ref()) },
            uid: text(claim.uid.as_ref()),
        });
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        let migrated = migration::persistent(volume).filter(|_| spec.csi.is_none());
        Self {
            name: text(meta.name.as_ref()),
            version: version(meta),
            class: class(meta, spec.storage_class_name.as_ref()),
            labels: meta.labels.clone().unwrap_or_default(),
            claim,
            csi: spec.csi.as_ref().map(|csi| (csi.driver.as_str().into(), csi.volume_handle.as_str().into())),
            migrated: migrated.map(|migrated| {
                let affinity = affinity(migrated.required.as_ref());
                (migrated, affinity)
            }),
            is_available: phase == Some("Available"),
            is_leaving: meta.deletion_timestamp.is_some(),
            size: storage(spec.capacity.as_ref()).unwrap_or_default(),
            modes: spec.access_modes.iter().flatten().cloned().collect(),
            volume_mode: volume_mode(spec.volume_mode.as_ref()),
            attributes_class: text(spec.volume_attributes_class_name.as_ref()),
            affinity: affinity(required),
        }
    }

    /// Whether another version says the same.
    #[must_use]
    pub fn says(&self, other: &Self) -> bool {
        *self == Self { version: self.version, ..other.clone() }
    }

    /// The size, for comparisons.
    #[must_use]
    pub fn size(&self) -> Quantity {
        self.size
    }

    /// Whether a node with these labels reaches the volume; `None`: it cannot be translated for the node's driver.
    #[must_use]
    pub fn reaches(&self, labels: &Labels, csi_node: Option<&CsiNodeView>) -> Option<bool> {
        match &self.migrated {
            Some((migrated, affinity)) if csi_node.is_some_and(|node| node.serves(migrated.plugin)) => {
                migrated.handle.as_ref().map(|_| affinity.allows("", labels))
            }
            _ => Some(self.is_near(labels)),
        }
    }

    /// Whether its own node affinity allows a node with these labels.
    #[must_use]
    pub fn is_near(&self, labels: &Labels) -> bool {
        self.affinity.allows("", labels)
    }

    /// Whether it is large enough and of the right kind for a claim, even if it is kept for another.
    #[must_use]
    pub fn suits(&self, claim: &ClaimView) -> bool {
        self.size >= claim.size()
            && self.volume_mode == claim.wants.volume_mode
            && self.attributes_class == claim.wants.attributes_class
            && !self.is_leaving
    }

    /// Whether it can become the volume of a claim that it does not name yet.
    #[must_use]
    pub fn is_free_for(&self, claim: &ClaimView) -> bool {
        let selects = |selector: &Option<Selector>| {
            selector.as_ref().is_some_and(|selector| selector.matches(&self.labels))
        };
        self.is_available
            && claim.wants.selector.as_ref().is_none_or(selects)
            && self.class == claim.class
            && self.modes.is_superset(&claim.wants.modes)
    }
}

impl ClassView {
    /// Reads a StorageClass.
    #[must_use]
    pub fn read(class: &storage::StorageClass) -> Self {
        let terms = class.allowed_topologies.iter().flatten().map(|term| {
            let labels = term.match_label_expressions.iter().flatten();
            labels.map(|label| (label.key.clone(), label.values.clone())).collect()
        });
        Self {
            name: text(class.metadata.name.as_ref()),
            provisioner: class.provisioner.as_str().into(),
            waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            allowed: terms.collect(),
        }
    }

    /// Whether volumes can be provisioned for a node with these labels.
    #[must_use]
    pub fn allows(&self, labels: &Labels) -> bool {
        let holds = |term: &Vec<(String, Vec<String>)>| {
            let has =
                |(key, values): &(String, Vec<String>)| labels.get(key).is_some_and(|v| values.contains(v));
            !term.is_empty() && term.iter().all(has)
        };
        self.allowed.is_empty() || self.allowed.iter().any(holds)
    }
}

impl CsiNodeView {
    /// Reads a CSINode.
    #[must_use]
    pub fn read(node: &storage::CSINode) -> Self {
        let limits = node.spec.drivers.iter().filter_map(|driver| {
            let limit = driver.allocatable.as_ref()?.count?;
            Some((Arc::from(driver.name.as_str()), i64::from(limit)))
        });
        let migrated = annotation(&node.metadata, MIGRATED_PLUGINS);
        Self {
            name: text(node.metadata.name.as_ref()),
            limits: limits.collect(),
            migrated: migrated.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect(),
        }
    }

    /// Whether a driver serves the volumes of an in-tree plugin on the node.
    #[must_use]
    pub fn serves(&self, plugin: InTreePlugin) -> bool {
        self.migrated.contains(plugin.name())
    }

    /// Whether pods may fit that did not before: a limit has risen or is gone, or other plugins are served.
    #[must_use]
    pub fn may_take_more_than(&self, before: &Self) -> bool {
        let rose = |(driver, limit): (&Arc<str>, &i64)| self.limits.get(driver).is_none_or(|now| now > limit);
        self.migrated != before.migrated || before.limits.iter().any(rose)
    }
}

impl DriverView {
    /// Reads a CSIDriver.
    #[must_use]
    pub fn read(driver: &storage::CSIDriver) -> Self {
        Self {
            name: text(driver.metadata.name.as_ref()),
            tracks_capacity: driver.spec.storage_capacity == Some(true),
        }
    }
}

impl CapacityView {
    /// Reads a CSIStorageCapacity.
    #[must_use]
    pub fn read(capacity: &storage::CSIStorageCapacity) -> Self {
        let limit = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
        let limit = limit.and_then(|limit| Quantity::parse(limit.0.trim()).ok());
        Self {
            namespace: text(capacity.metadata.namespace.as_ref()),
            name: text(capacity.metadata.name.as_ref()),
            class: capacity.storage_class_name.as_str().into(),
            limit: limit.map(|limit| limit.value()),
            nodes: capacity.node_topology.as_ref().and_then(selector),
        }
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> (Arc<str>, Arc<str>) {
        (Arc::clone(&self.namespace), Arc::clone(&self.name))
    }

    /// Whether a volume of this size can be made for a node with these labels.
    #[must_use]
    pub fn has(&self, bytes: i64, labels: &Labels) -> bool {
        self.limit.is_some_and(|limit| limit >= bytes)
            && self.nodes.as_ref().is_some_and(|nodes| nodes.matches(labels))
    }
}

impl AttachmentView {
    /// Reads a VolumeAttachment.
    #[must_use]
    pub fn read(attachment: &storage::VolumeAttachment) -> Self {
        let spec = &attachment.spec;
        Self {
            name: text(attachment.metadata.name.as_ref()),
            node: spec.node_name.as_str().into(),
            driver: spec.attacher.as_str().into(),
            volume: spec.source.persistent_volume_name.as_ref().map(|name| name.as_str().into()),
        }
    }
}
