//! What the Go scheduler plugin makes of an NRT object, and whether an exporter may publish it.
//!
//! In: an object as the API server has it, as JSON. Out: what the plugin would believe ([`Findings`]), or every rule
//! that is violated. Never: code of ours that reads or writes NRT objects, fingerprints or placements. This is the
//! second opinion.
//!
//! Rules: how the plugin reads policies, cells, fingerprints and placements; what it dies of; and what the exporters'
//! own end-to-end suites demand.

#[path = "validity/placement.rs"]
mod placement;
#[path = "validity/tests.rs"]
mod tests;
#[path = "validity/zones.rs"]
mod zones;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use topology::quantity::Quantity;
use xxhash_rust::xxh64::xxh64;

const FINGERPRINT: &str = "nodeTopologyPodsFingerprint";
const METHOD: &str = "nodeTopologyPodsFingerprintMethod";
const ANNOTATION: &str = "topology.node.k8s.io/fingerprint";
const POLICY: &str = "topologyManagerPolicy";
const SCOPE: &str = "topologyManagerScope";
const MAX_ZONES: &str = "topologyManagerMaxNUMANodes";
const POLICIES: [&str; 4] = ["none", "best-effort", "restricted", "single-numa-node"];
const SCOPES: [&str; 2] = ["container", "pod"];
const METHODS: [&str; 2] = ["all", "with-exclusive-resources"];

/// What is known about the node besides the object. Nothing of it has to be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected<'a> {
    /// The pods that the fingerprint covers, as (namespace, name).
    pub(crate) pods: Option<&'a [(&'a str, &'a str)]>,
    /// The containers whose places are published, as (namespace, pod, name).
    pub(crate) containers: Option<&'a [(&'a str, &'a str, &'a str)]>,
    /// The machine's kernel tells no distances.
    pub(crate) no_distances: bool,
}

/// What the plugin believes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Findings {
    /// Topology Manager policy.
    pub(crate) policy: String,
    /// Topology Manager scope.
    pub(crate) scope: String,
    /// The most zones the kubelet considers.
    pub(crate) max_zones: u32,
    /// NUMA cells by id.
    pub(crate) cells: BTreeMap<u32, Cell>,
    /// The pods' fingerprint; empty when there is none.
    pub(crate) fingerprint: String,
    /// Whether the fingerprint covers only pods with exclusive resources.
    pub(crate) only_exclusive: bool,
    /// The zone of each container, by the order of their hashes.
    pub(crate) placements: Option<Vec<u32>>,
}

/// A NUMA cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    /// What is available of each resource.
    pub(crate) available: BTreeMap<String, Quantity>,
    /// Distances by id.
    pub(crate) costs: BTreeMap<u32, i64>,
}

impl Findings {
    /// The zone of a container of these.
    pub(crate) fn zone_of(&self, container: (&str, &str, &str), of: &[(&str, &str, &str)]) -> Option<u32> {
        let hashes: BTreeSet<u64> = of.iter().map(|container| placement::key(*container)).collect();
        let at = hashes.iter().position(|hash| *hash == placement::key(container))?;
        self.placements.as_ref()?.get(at).copied()
    }
}

/// Reads an object as the plugin does. The error is a list of everything that is wrong with it.
pub(crate) fn check(object: &Value, known: &Expected) -> Result<Findings, Vec<String>> {
    let mut wrong = Wrong::default();
    let mut seen = Findings {
        policy: "none".to_owned(),
        scope: "container".to_owned(),
        max_zones: 8,
        ..Findings::default()
    };
    for (field, wanted) in [("apiVersion", "topology.node.k8s.io/v1alpha2"), ("kind", "NodeResourceTopology")]
    {
        let found = &object[field];
        wrong.when(!found.is_null() && found != wanted, || format!("{field} is {found}"));
    }
    let name = text(&object["metadata"]["name"]);
    wrong.when(name.is_empty(), || "the object has no name".to_owned());
    legacy_policy(object, &mut seen, &mut wrong);
    let attributes = attributes("the node", &object["attributes"], &mut wrong);
    manager(&attributes, object, &mut seen, &mut wrong);
    seen.cells = zones::cells(&object["zones"], known, &mut wrong);
    fingerprint(&attributes, object, known, &mut seen, &mut wrong);
    match placement::read(object, &attributes, known) {
        Ok(placements) => seen.placements = placements,
        Err(error) => wrong.0.push(format!("placements: {error}")),
    }
    if wrong.0.is_empty() { Ok(seen) } else { Err(wrong.0) }
}

/// Whether an unnamed field manager changed the fields of exporters: in these tests, the test itself.
pub(crate) fn is_by_hand(object: &Value) -> bool {
    let managers = object["metadata"]["managedFields"].as_array();
    managers.into_iter().flatten().any(|entry| {
        entry["manager"] == "unknown"
            && ["f:zones", "f:attributes", "f:topologyPolicies"]
                .iter()
                .any(|f| !entry["fieldsV1"][f].is_null())
    })
}

/// What is wrong.
#[derive(Debug, Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn when(&mut self, is: bool, what: impl FnOnce() -> String) {
        if is {
            self.0.push(what());
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A list that may be absent, but nothing else than a list.
fn list<'a>(what: &str, value: &'a Value, wrong: &mut Wrong) -> &'a [Value] {
    wrong.when(!value.is_null() && !value.is_array(), || format!("{what} is not a list: {value}"));
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Names and values in their order. The plugin takes the last valid value of a name, other readers the first.
fn attributes<'a>(whose: &str, value: &'a Value, wrong: &mut Wrong) -> Vec<(&'a str, &'a str)> {
    let mut names = BTreeSet::new();
    let mut found = Vec::new();
    for attribute in list(&format!("the attributes of {whose}"), value, wrong) {
        let (name, value) = (&attribute["name"], &attribute["value"]);
        wrong.when(!name.is_string() || !value.is_string() || name == "", || {
            format!("{whose} has an attribute that is not a name and a text: {attribute}")
        });
        wrong.when(!names.insert(text(name)), || format!("{whose} has two attributes {name}"));
        found.push((text(name), text(value)));
    }
    found
}

fn get<'a>(attributes: &[(&'a str, &'a str)], name: &str) -> Option<&'a str> {
    attributes.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
}

/// The deprecated list, of which the first entry counts.
fn legacy_policy(object: &Value, seen: &mut Findings, wrong: &mut Wrong) {
    let policies = list("topologyPolicies", &object["topologyPolicies"], wrong);
    wrong.when(policies.len() > 1, || format!("topologyPolicies has {} entries", policies.len()));
    let (policy, scope) = match policies.first().map(text) {
        Some("SingleNUMANodePodLevel") => ("single-numa-node", "pod"),
        Some("SingleNUMANodeContainerLevel") => ("single-numa-node", "container"),
        Some("RestrictedPodLevel") => ("restricted", "pod"),
        Some("RestrictedContainerLevel") => ("restricted", "container"),
        Some("BestEffortPodLevel") => ("best-effort", "pod"),
        Some("BestEffortContainerLevel") => ("best-effort", "container"),
        _ => return,
    };
    (seen.policy, seen.scope) = (policy.to_owned(), scope.to_owned());
}

/// What the attributes say about the Topology Manager; it wins over the deprecated list, which must not contradict.
fn manager(attributes: &[(&str, &str)], object: &Value, seen: &mut Findings, wrong: &mut Wrong) {
    let before = (seen.policy.clone(), seen.scope.clone());
    for (name, value) in attributes {
        match *name {
            POLICY if POLICIES.contains(value) => seen.policy = (*value).to_owned(),
            SCOPE if SCOPES.contains(value) => seen.scope = (*value).to_owned(),
            MAX_ZONES => match value.parse::<i64>() {
                Ok(most @ 2..=1024) => seen.max_zones = most as u32,
                _ => wrong.0.push(format!("{MAX_ZONES} is {value:?}")),
            },
            POLICY | SCOPE => wrong.0.push(format!("{name} is {value:?}")),
            _ => {}
        }
    }
    for name in [POLICY, SCOPE] {
        wrong.when(get(attributes, name).is_none(), || format!("{name} is missing"));
    }
    let policies = object["topologyPolicies"].as_array().map_or(&[][..], Vec::as_slice);
    let after = (seen.policy.clone(), seen.scope.clone());
    let contradicts = match policies.first().map(text) {
        None => false,
        Some("None") => after.0 != "none",
        Some(_) => before != after,
    };
    wrong.when(contradicts, || format!("topologyPolicies {policies:?} contradicts {after:?}"));
}

/// The fingerprint: the attribute, or the annotation, which then always covers all pods.
fn fingerprint(
    attributes: &[(&str, &str)],
    object: &Value,
    known: &Expected,
    seen: &mut Findings,
    wrong: &mut Wrong,
) {
    let attribute = get(attributes, FINGERPRINT);
    let annotation = object["metadata"]["annotations"][ANNOTATION].as_str();
    seen.fingerprint = attribute.or(annotation).unwrap_or_default().to_owned();
    let method = get(attributes, METHOD);
    seen.only_exclusive = attribute.is_some() && method == Some(METHODS[1]);
    wrong.when(method.is_some_and(|method| !METHODS.contains(&method)), || format!("{METHOD} is {method:?}"));
    wrong.when(method.is_some() && attribute.is_none(), || format!("{METHOD} without {FINGERPRINT}"));
    wrong.when(annotation.is_some() && annotation != attribute, || {
        format!("{ANNOTATION} is {annotation:?}, {FINGERPRINT} is {attribute:?}")
    });
    let digits = seen.fingerprint.strip_prefix("pfp0v001").unwrap_or_default();
    let well_formed = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    wrong.when((attribute.is_some() || annotation.is_some()) && !well_formed, || {
        format!("{:?} is not a fingerprint", seen.fingerprint)
    });
    if let Some(pods) = known.pods {
        let mut hashes: Vec<_> = pods
            .iter()
            .map(|(namespace, name)| xxh64(name.as_bytes(), xxh64(namespace.as_bytes(), 0)))
            .collect();
        hashes.sort_unstable();
        let bytes: Vec<u8> = hashes.into_iter().flat_map(u64::to_le_bytes).collect();
        let expected = format!("pfp0v001{:016x}", xxh64(&bytes, 0));
        wrong.when(seen.fingerprint != expected, || {
            format!("the fingerprint is {:?}, that of the pods is {expected:?}", seen.fingerprint)
        });
    }
}
