//! The configuration of one kubelet: as it stands, and as checked values.

use std::collections::BTreeMap;
use std::path::Path;

use api::goduration::GoDuration;
use node::kubelet::Configuration;
use serde_json::{Map, Value, json};
use topology::quantity::{Format, Quantity};

/// Who told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The kubelet itself, on `/configz`: all of it, with defaults.
    Kubelet,
    /// An object that the kubelet was configured from: what it does not mention is as the platform has it.
    Object(String),
}

/// A kubelet's configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who told.
    pub told: Told,
    /// Its fields.
    fields: Map<String, Value>,
    /// As checked values; or why no kubelet starts with it.
    pub checked: Result<Configuration, String>,
}

/// What is read of it; the rest is dropped.
const FIELDS: [&str; 15] = [
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "cpuManagerReconcilePeriod",
    "evictionHard",
    "featureGates",
    "kubeReserved",
    "memoryManagerPolicy",
    "reservedMemory",
    "reservedSystemCPUs",
    "systemReserved",
    "systemReservedCgroup",
    "topologyManagerPolicy",
    "topologyManagerPolicyOptions",
    "topologyManagerScope",
    "kubeReservedCgroup",
];

impl Settings {
    /// From the value of `kubeletconfig` in an answer of `/configz`, or of a KubeletConfiguration; `name` stands for it in
    /// errors.
    #[must_use]
    pub fn new(told: Told, document: &Value, name: &str) -> Self {
        let kept =
            FIELDS.iter().filter_map(|field| Some(((*field).to_owned(), document.get(field)?.clone())));
        let fields: Map<String, Value> = kept.filter(|(_, value)| !value.is_null()).collect();
        let text = json!({ "kubeletconfig": fields }).to_string();
        let checked = Configuration::from_configz(&text, Path::new(name)).map_err(|error| error.to_string());
        Self { told, fields, checked }
    }

    /// A field's text; empty when it is not there or no text.
    #[must_use]
    pub fn text(&self, field: &str) -> &str {
        self.fields.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// A field that is a map of texts, booleans or numbers; empty when it is not there.
    #[must_use]
    pub fn map(&self, field: &str) -> BTreeMap<String, String> {
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let entries = self.fields.get(field).and_then(Value::as_object).into_iter().flatten();
        entries.map(|(name, value)| (name.clone(), shown(value))).collect()
    }

    /// Whether a field is there at all.
    #[must_use]
    pub fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Whether a list has entries.
    #[must_use]
    pub fn lists(&self, field: &str) -> bool {
        self.fields.get(field).and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    }

    /// `featureGates`: whether this one is set, and to what.
    #[must_use]
    pub fn gate(&self, name: &str) -> Option<bool> {
        self.fields.get("featureGates")?.get(name)?.as_bool()
    }

    /// `cpuManagerReconcilePeriod`; the kubelet's default is 10 s.
    #[must_use]
    pub fn reconcile_period(&self) -> Option<GoDuration> {
        let text = self.text("cpuManagerReconcilePeriod");
        if text.is_empty() { Some(GoDuration(0)) } else { GoDuration::parse(text).ok() }
    }

    /// `kubeReserved` and `systemReserved` of a resource together.
    #[must_use]
    pub fn reserved(&self, resource: &str) -> Option<Quantity> {
        let amounts = ["kubeReserved", "systemReserved"].map(|field| self.map(field).remove(resource));
        let mut sum = Quantity::from_i64(0, Format::BinarySI);
        for text in amounts.into_iter().flatten() {
            sum = sum.saturating_add(Quantity::parse(text.trim()).ok()?);
        }
        Some(sum)
    }

    /// The hard eviction threshold of memory in bytes, on a machine of `capacity` bytes; the kubelet's own default where it
    /// is not said.
    #[must_use]
    pub fn eviction_bytes(&self, capacity: i64) -> Option<i64> {
        let thresholds = self.map("evictionHard");
        let text = match thresholds.get("memory.available") {
            Some(text) => text.trim(),
            None if thresholds.is_empty() => DEFAULT_EVICTION,
            None => return Some(0),
        };
        match text.strip_suffix('%') {
            // kubelet `evictionapi.GetThresholdQuantity`: a share in 32-bit floating point, cut off.
            Some(percent) => {
                let share = percent.parse::<f32>().ok()? / 100.0;
                #[expect(clippy::cast_possible_truncation, reason = "as the kubelet does")]
                let bytes = (f64::from(share) * capacity as f64) as i64;
                Some(bytes)
            }
            None => Some(Quantity::parse(text).ok()?.value()),
        }
    }
}

/// `evictionHard` of a kubelet that is told nothing.
const DEFAULT_EVICTION: &str = "100Mi";
