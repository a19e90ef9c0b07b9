//! Objects of `resource.k8s.io` as the scheduler keeps them: small structs instead of whole objects.
//!
//! In: objects of the API. Out: the fields that DynamicResources reads, already parsed. Never: a verdict.
//!
//! Quantities that cannot be read, which no API server stores, count as 0.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as wire;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use topology::quantity::Quantity;
use topology::resource::ResourceName;

use super::extended::BY_CLASS;
use super::semver::Semver;
use crate::affinity::{Labels, NodeAffinity};

pub mod claim;

/// Amounts by name.
pub type Amounts = BTreeMap<String, Quantity>;

/// A device of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId {
    /// The driver.
    pub driver: Arc<str>,
    /// The pool.
    pub pool: Arc<str>,
    /// The device.
    pub device: Arc<str>,
}

/// A pool of devices: the driver, and the name.
pub type PoolId = (Arc<str>, Arc<str>);

/// A ResourceSlice.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceView {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// The pool.
    pub pool: PoolId,
    /// The generation of the pool.
    pub generation: i64,
    /// The number of slices of this generation.
    pub slices: i64,
    /// The nodes that reach the devices.
    pub place: SlicePlace,
    /// The devices.
    pub devices: Vec<Device>,
    /// Counters that devices of the pool share, by the name of their set, in order.
    pub counters: Vec<(String, Amounts)>,
}

/// Nodes of a slice.
#[derive(Clone, Debug, PartialEq)]
pub enum SlicePlace {
    /// Those of all devices.
    Same(Place),
    /// Each device says its own.
    PerDevice,
    /// A kind that is not known.
    Unknown,
}

/// Nodes that reach a device.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// The one with this name.
    Node(Arc<str>),
    /// All.
    Everywhere,
    /// Those that the selector selects.
    Selected(Box<NodeSelector>),
    /// None.
    Nowhere,
}

/// A selector of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSelector {
    /// The selector, to be written into allocations.
    pub wire: core::NodeSelector,
    affinity: NodeAffinity,
}

/// A device of a slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The name.
    pub name: Arc<str>,
    /// Attributes by domain.
    pub attributes: Attributes,
    /// Capacities, by the name that the driver gives.
    pub capacity: BTreeMap<String, Capacity>,
    /// Amounts of capacities by domain and id.
    pub capacity_values: BTreeMap<String, Amounts>,
    /// What the device takes of the pool's counters, by the name of their set.
    pub consumes: Vec<(String, Amounts)>,
    /// Taints that keep claims away.
    pub taints: Vec<wire::DeviceTaint>,
    /// The nodes that reach it, where the slice does not say.
    pub place: Place,
    /// Whether claims share it by its capacity.
    pub is_shareable: bool,
    /// Whether an allocation is for the chosen node alone.
    pub binds_to_node: bool,
    /// Conditions that must hold before a pod is bound.
    pub binding_conditions: Option<Vec<String>>,
    /// Conditions with which it never will be.
    pub binding_failure_conditions: Option<Vec<String>>,
}

/// Attributes of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes {
    by_domain: BTreeMap<String, BTreeMap<String, Attribute>>,
    /// Why one of them has no value.
    problem: Option<String>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `string`.
    Text(String),
    /// `version`, as text and as a version.
    Version(String, Option<Semver>),
    /// Another kind: lists are alpha in 1.36 (`DRAListTypeAttributes`).
    Unsupported,
}

/// A capacity of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// The amount.
    pub value: Quantity,
    /// How claims may share it.
    pub policy: Option<Policy>,
}

/// `requestPolicy` of a capacity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The amount for claims that request none.
    pub default: Option<Quantity>,
    /// The amounts between which requests may be: smallest, largest, step.
    pub range: Option<(Quantity, Option<Quantity>, Option<Quantity>)>,
    /// The amounts that may be requested, in order.
    pub values: Vec<Quantity>,
}

/// A DeviceClass.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassView {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// Selectors that a device must match.
    pub selectors: Vec<Option<Arc<super::selector::Selector>>>,
    /// Configuration for drivers, in order.
    pub config: Vec<wire::DeviceClassConfiguration>,
    /// `spec.extendedResourceName`: the extended resource that the devices serve.
    pub extended_resource: Option<Arc<str>>,
    /// `metadata.creationTimestamp`, seconds since the epoch.
    pub created_s: i64,
}

pub(super) fn quantity(wire: &WireQuantity) -> Quantity {
    Quantity::parse(&wire.0).unwrap_or_default()
}

pub(super) fn amounts<'a>(wire: impl IntoIterator<Item = (&'a String, &'a WireQuantity)>) -> Amounts {
    wire.into_iter().map(|(name, amount)| (name.clone(), quantity(amount))).collect()
}

pub(super) fn selectors(
    wire: Option<&Vec<wire::DeviceSelector>>,
) -> Vec<Option<Arc<super::selector::Selector>>> {
    let read = |selector: &wire::DeviceSelector| {
        selector.cel.as_ref().map(|cel| Arc::new(super::selector::Selector::new(&cel.expression)))
    };
    wire.into_iter().flatten().map(read).collect()
}

fn counters<'a>(wire: impl IntoIterator<Item = (&'a String, &'a wire::Counter)>) -> Amounts {
    amounts(wire.into_iter().map(|(name, counter)| (name, &counter.value)))
}

impl SliceView {
    /// Reads a slice.
    #[must_use]
    pub fn read(slice: &wire::ResourceSlice) -> Self {
        let spec = &slice.spec;
        let is_all = spec.all_nodes == Some(true);
        let place = Place::of(spec.node_name.as_deref(), is_all, spec.node_selector.as_ref());
        let shared = spec.shared_counters.iter().flatten();
        Self {
            name: slice.metadata.name.as_deref().unwrap_or_default().into(),
            pool: (spec.driver.as_str().into(), spec.pool.name.as_str().into()),
            generation: spec.pool.generation,
            slices: spec.pool.resource_slice_count,
            place: match place {
                Place::Nowhere if spec.per_device_node_selection == Some(true) => SlicePlace::PerDevice,
                Place::Nowhere => SlicePlace::Unknown,
                place => SlicePlace::Same(place),
            },
            devices: spec.devices.iter().flatten().map(|device| Device::read(&spec.driver, device)).collect(),
            counters: shared.map(|set| (set.name.clone(), counters(&set.counters))).collect(),
        }
    }

    /// A device of the slice.
    #[must_use]
    pub fn id(&self, device: &Device) -> DeviceId {
        DeviceId {
            driver: Arc::clone(&self.pool.0),
            pool: Arc::clone(&self.pool.1),
            device: Arc::clone(&device.name),
        }
    }

    /// The nodes that reach a device of the slice.
    #[must_use]
    pub fn place_of<'a>(&'a self, device: &'a Device) -> &'a Place {
        match &self.place {
            SlicePlace::Same(place) => place,
            SlicePlace::PerDevice | SlicePlace::Unknown => &device.place,
        }
    }
}

impl Place {
    fn of(node: Option<&str>, is_all: bool, selector: Option<&core::NodeSelector>) -> Self {
        match (node.filter(|node| !node.is_empty()), selector) {
            (Some(node), _) => Self::Node(node.into()),
            (None, _) if is_all => Self::Everywhere,
            (None, Some(selector)) => Self::Selected(Box::new(NodeSelector::read(selector))),
            (None, None) => Self::Nowhere,
        }
    }

    /// Whether a node with this name and these labels is among them.
    #[must_use]
    pub fn has(&self, node: &str, labels: &Labels) -> bool {
        match self {
            Self::Node(name) => **name == *node,
            Self::Everywhere => true,
            Self::Selected(selector) => selector.selects(node, labels),
            Self::Nowhere => false,
        }
    }
}

impl NodeSelector {
    /// Reads a selector.
    #[must_use]
    pub fn read(wire: &core::NodeSelector) -> Self {
        let affinity = core::NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(wire.clone()),
            ..core::NodeAffinity::default()
        };
        Self { wire: wire.clone(), affinity: NodeAffinity::of(&affinity) }
    }

    /// Whether it selects a node with this name and these labels.
    #[must_use]
    pub fn selects(&self, node: &str, labels: &Labels) -> bool {
        self.affinity.allows(node, labels)
    }
}

impl Device {
    fn read(driver: &str, device: &wire::Device) -> Self {
        let mut capacity_values: BTreeMap<String, Amounts> = BTreeMap::new();
        for (name, capacity) in device.capacity.iter().flatten() {
            let (domain, id) = name.split_once('/').unwrap_or((driver, name));
            capacity_values
                .entry(domain.to_owned())
                .or_default()
                .insert(id.to_owned(), quantity(&capacity.value));
        }
        let consumes = device.consumes_counters.iter().flatten();
        let capacity = device.capacity.iter().flatten();
        Self {
            name: device.name.as_str().into(),
            attributes: Attributes::read(driver, device.attributes.iter().flatten()),
            capacity: capacity.map(|(name, capacity)| (name.clone(), Capacity::read(capacity))).collect(),
            capacity_values,
            consumes: consumes.map(|it| (it.counter_set.clone(), counters(&it.counters))).collect(),
            taints: device.taints.clone().unwrap_or_default(),
            place: Place::of(
                device.node_name.as_deref(),
                device.all_nodes == Some(true),
                device.node_selector.as_ref(),
            ),
            is_shareable: device.allow_multiple_allocations == Some(true),
            binds_to_node: device.binds_to_node == Some(true),
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
        }
    }
}

impl Attributes {
    fn read<'a>(driver: &str, wire: impl Iterator<Item = (&'a String, &'a wire::DeviceAttribute)>) -> Self {
        let mut attributes = Self::default();
        // A name with a domain counts where both are there.
        let (qualified, plain): (Vec<_>, Vec<_>) = wire.partition(|(name, _)| name.contains('/'));
        for (name, value) in plain.into_iter().chain(qualified) {
            let (domain, id) = name.split_once('/').unwrap_or((driver, name));
            let value = Attribute::read(value);
            let problem = match &value {
                Attribute::Unsupported => Some("unsupported attribute value"),
                Attribute::Version(_, None) => Some("parse semantic version: invalid version"),
                _ => None,
            };
            if attributes.problem.is_none() {
                attributes.problem = problem.map(|problem| format!("attribute {name}: {problem}"));
            }
            attributes.by_domain.entry(domain.to_owned()).or_default().insert(id.to_owned(), value);
        }
        attributes
    }

    /// Whether all have values.
    ///
    /// # Errors
    /// The first that has none.
    pub fn check(&self) -> Result<(), String> {
        self.problem.clone().map_or(Ok(()), Err)
    }

    /// The attributes of a domain.
    #[must_use]
    pub fn domain(&self, domain: &str) -> Option<&BTreeMap<String, Attribute>> {
        self.by_domain.get(domain)
    }

    /// The domains, in order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.by_domain.keys().map(String::as_str)
    }

    /// The attribute with this domain and id, as `domain/id`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        let (domain, id) = name.split_once('/')?;
        self.by_domain.get(domain)?.get(id)
    }
}

impl Attribute {
    fn read(wire: &wire::DeviceAttribute) -> Self {
        match (wire.int, wire.bool, &wire.string, &wire.version) {
            (Some(value), _, _, _) => Self::Int(value),
            (_, Some(value), _, _) => Self::Bool(value),
            (_, _, Some(value), _) => Self::Text(value.clone()),
            (_, _, _, Some(value)) => Self::Version(value.clone(), Semver::parse(value)),
            _ => Self::Unsupported,
        }
    }
}

impl Capacity {
    fn read(wire: &wire::DeviceCapacity) -> Self {
        let policy = wire.request_policy.as_ref().map(|policy| Policy {
            default: policy.default.as_ref().map(quantity),
            range: policy.valid_range.as_ref().map(|range| {
                (quantity(&range.min), range.max.as_ref().map(quantity), range.step.as_ref().map(quantity))
            }),
            values: policy.valid_values.iter().flatten().map(quantity).collect(),
        });
        Self { value: quantity(&wire.value), policy }
    }
}

impl ClassView {
    /// Reads a class. The names of its extended resources are known from now on, as those of nodes are: pods that ask
    /// for them are not limited. A process that knows too many names leaves them out.
    #[must_use]
    pub fn read(class: &wire::DeviceClass) -> Self {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let by_class = format!("{BY_CLASS}{name}");
        let names = class.spec.extended_resource_name.as_deref().into_iter().chain([by_class.as_str()]);
        names.for_each(|name| drop(ResourceName::new(name)));
        Self {
            name: name.into(),
            selectors: selectors(class.spec.selectors.as_ref()),
            config: class.spec.config.clone().unwrap_or_default(),
            extended_resource: class.spec.extended_resource_name.as_deref().map(Arc::from),
            created_s: class.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        }
    }
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}
