//! In-tree volumes whose work CSI drivers do.
//!
//! In: in-tree volume sources of pods and PersistentVolumes. Out: the driver, its handle of the volume, and the node
//! affinity in the driver's labels. Never: a volume of a plugin that is not migrated.
//!
//! Source: kube-scheduler 1.36 with csi-translation-lib, and the plugins of `isCSIMigrationOn`.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;

/// The label of a zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Its old name.
pub const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// The label of a region.
pub const REGION: &str = "topology.kubernetes.io/region";
/// Its old name.
pub const OLD_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// What separates zones in a label of several.
pub const SEPARATOR: &str = "__";

/// An in-tree plugin that is migrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InTreePlugin {
    /// AWS EBS.
    AwsEbs,
    /// GCE PD.
    GcePd,
    /// Azure Disk.
    AzureDisk,
    /// OpenStack Cinder.
    Cinder,
    /// Portworx.
    Portworx,
}

/// A PersistentVolume as a CSI driver sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Migrated {
    /// The in-tree plugin.
    pub plugin: InTreePlugin,
    /// The driver's handle of the volume; `None`: it has none, so the volume cannot be translated.
    pub handle: Option<Arc<str>>,
    /// The required node affinity in the driver's labels.
    pub required: Option<wire::NodeSelector>,
}

impl InTreePlugin {
    const ALL: [Self; 5] = [Self::AwsEbs, Self::GcePd, Self::AzureDisk, Self::Cinder, Self::Portworx];

    /// The plugin with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }

    /// The name in classes and in annotations of CSINodes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwsEbs => "kubernetes.io/aws-ebs",
            Self::GcePd => "kubernetes.io/gce-pd",
            Self::AzureDisk => "kubernetes.io/azure-disk",
            Self::Cinder => "kubernetes.io/cinder",
            Self::Portworx => "kubernetes.io/portworx-volume",
        }
    }

    /// The driver that does its work.
    #[must_use]
    pub const fn driver(self) -> &'static str {
        match self {
            Self::AwsEbs => "ebs.csi.aws.com",
            Self::GcePd => "pd.csi.storage.gke.io",
            Self::AzureDisk => "disk.csi.azure.com",
            Self::Cinder => "cinder.csi.openstack.org",
            Self::Portworx => "pxd.portworx.com",
        }
    }

    /// The driver's label of a zone, where the translation of node affinity uses it.
    const fn zone(self) -> Option<&'static str> {
        match self {
            Self::AwsEbs => Some("topology.ebs.csi.aws.com/zone"),
            Self::GcePd => Some("topology.gke.io/zone"),
            Self::Cinder => Some("topology.cinder.csi.openstack.org/zone"),
            Self::AzureDisk | Self::Portworx => None,
        }
    }
}

/// Whether the provisioner of a class is an in-tree plugin that could be migrated, but is not.
#[must_use]
pub fn stays_in_tree(provisioner: &str) -> bool {
    ["kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"].contains(&provisioner)
}

/// A volume that a pod names itself: its plugin, and the driver's handle.
pub(super) fn inline(volume: &wire::Volume) -> Option<(InTreePlugin, Option<Arc<str>>)> {
    if let Some(disk) = &volume.aws_elastic_block_store {
        return Some((InTreePlugin::AwsEbs, ebs_handle(&disk.volume_id)));
    }
    if let Some(disk) = &volume.gce_persistent_disk {
        return Some((InTreePlugin::GcePd, Some(gce_handle("zones", "UNSPECIFIED", &disk.pd_name))));
    }
    if let Some(disk) = &volume.azure_disk {
        return Some((InTreePlugin::AzureDisk, azure_handle(disk)));
    }
    if let Some(disk) = &volume.cinder {
        return Some((InTreePlugin::Cinder, Some(disk.volume_id.as_str().into())));
    }
    let disk = volume.portworx_volume.as_ref()?;
    Some((InTreePlugin::Portworx, Some(disk.volume_id.as_str().into())))
}

/// A PersistentVolume of a migrated plugin.
pub(super) fn persistent(volume: &wire::PersistentVolume) -> Option<Migrated> {
    let spec = volume.spec.as_ref()?;
    let (plugin, handle) = if let Some(disk) = &spec.aws_elastic_block_store {
        (InTreePlugin::AwsEbs, ebs_handle(&disk.volume_id))
    } else if let Some(disk) = &spec.gce_persistent_disk {
        (InTreePlugin::GcePd, gce_handle_of(volume, &disk.pd_name))
    } else if let Some(disk) = &spec.azure_disk {
        (InTreePlugin::AzureDisk, azure_handle(disk))
    } else if let Some(disk) = &spec.cinder {
        (InTreePlugin::Cinder, Some(disk.volume_id.as_str().into()))
    } else if let Some(disk) = &spec.portworx_volume {
        (InTreePlugin::Portworx, Some(disk.volume_id.as_str().into()))
    } else {
        return None;
    };
    let mut required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.clone());
    if let Some(zone) = plugin.zone() {
        translate_topology(volume, &mut required, zone);
    }
    Some(Migrated { plugin, handle, required })
}

/// `aws://zone/vol-1` or `vol-1`.
fn ebs_handle(id: &str) -> Option<Arc<str>> {
    let Some(rest) = id.strip_prefix("aws://") else { return Some(id.into()) };
    let id = rest.split_once('/').map_or("", |(_, path)| path).trim_matches('/');
    (id.starts_with("vol-") && !id.contains('/')).then(|| id.into())
}

fn azure_handle(disk: &wire::AzureDiskVolumeSource) -> Option<Arc<str>> {
    let is_managed = disk.kind.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case("managed"));
    is_managed.then(|| disk.disk_uri.as_str().into())
}

fn gce_handle(level: &str, place: &str, name: &str) -> Arc<str> {
    format!("projects/UNSPECIFIED/{level}/{place}/disks/{name}").into()
}

/// Disks of several zones have the handle of their region.
fn gce_handle_of(volume: &wire::PersistentVolume, name: &str) -> Option<Arc<str>> {
    let label = |key: &str| volume.metadata.labels.as_ref()?.get(key).filter(|text| !text.is_empty());
    let Some(zones) = label(OLD_ZONE).or_else(|| label(ZONE)) else {
        return Some(gce_handle("zones", "UNSPECIFIED", name));
    };
    let zones: Vec<&str> = zones.split(SEPARATOR).collect();
    if let [zone] = zones.as_slice() {
        return Some(gce_handle("zones", zone, name));
    }
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [area, region, _] = parts.as_slice() else { return None };
        regions.insert(format!("{area}-{region}"));
    }
    let region = regions.pop_first().filter(|_| regions.is_empty())?;
    Some(gce_handle("regions", &region, name))
}

/// Puts the driver's label in the place of that of zones. Without any, the volume's own label of zones is added.
fn translate_topology(volume: &wire::PersistentVolume, required: &mut Option<wire::NodeSelector>, to: &str) {
    let labels = volume.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key));
    let mut terms = required.as_mut().map(|required| required.node_selector_terms.as_mut_slice());
    let asks = |terms: &Option<&mut [wire::NodeSelectorTerm]>, key: &str| {
        let all = terms.iter().flat_map(|terms| terms.iter());
        let mut all = all.flat_map(|term| term.match_expressions.iter().flatten());
        all.any(|expression| expression.key == key)
    };
    let is_old = if asks(&terms, ZONE) {
        false
    } else if asks(&terms, OLD_ZONE) {
        true
    } else {
        label(ZONE).is_none() && label(OLD_ZONE).is_some()
    };
    let (zone, region) = if is_old { (OLD_ZONE, OLD_REGION) } else { (ZONE, REGION) };
    if has_values(&terms, zone) {
        rename(&mut terms, zone, to);
    } else if let Some(zones) = label(zone) {
        let zones: BTreeSet<String> = zones
            .split(SEPARATOR)
            .map(str::trim)
            .filter(|zone| !zone.is_empty())
            .map(str::to_owned)
            .collect();
        if !zones.is_empty() {
            let required = required.get_or_insert_default();
            if required.node_selector_terms.is_empty() {
                required.node_selector_terms.push(wire::NodeSelectorTerm::default());
            }
            for term in &mut required.node_selector_terms {
                term.match_expressions.get_or_insert_default().push(wire::NodeSelectorRequirement {
                    key: to.to_owned(),
                    operator: "In".to_owned(),
                    values: Some(zones.iter().cloned().collect()),
                });
            }
        }
    }
    let mut terms = required.as_mut().map(|required| required.node_selector_terms.as_mut_slice());
    if is_old && has_values(&terms, region) {
        rename(&mut terms, region, REGION);
    }
}

/// Whether terms list values of a label.
fn has_values(terms: &Option<&mut [wire::NodeSelectorTerm]>, key: &str) -> bool {
    let all = terms.iter().flat_map(|terms| terms.iter());
    let mut all = all.flat_map(|term| term.match_expressions.iter().flatten());
    all.any(|listed| listed.key == key && listed.values.as_ref().is_some_and(|values| !values.is_empty()))
}

fn expressions(
    term: &mut wire::NodeSelectorTerm,
) -> impl Iterator<Item = &mut wire::NodeSelectorRequirement> {
    term.match_expressions.iter_mut().flatten()
}

fn rename(terms: &mut Option<&mut [wire::NodeSelectorTerm]>, from: &str, to: &str) {
    for expression in terms.iter_mut().flat_map(|terms| terms.iter_mut()).flat_map(expressions) {
        if expression.key == from {
            to.clone_into(&mut expression.key);
        }
    }
}
