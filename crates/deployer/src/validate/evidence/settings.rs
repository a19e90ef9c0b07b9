//! The configuration of one kubelet, as fields and as checked values.

use std::collections::BTreeMap;
use std::path::Path;

use api::goduration::GoDuration;
use node::kubelet::Configuration;
use serde_json::{Map, Value, json};
use topology::quantity::{Format, Quantity};

/// The source of a kubelet's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The kubelet's endpoint `/configz`, which includes defaults.
    Kubelet,
    /// An object such as a KubeletConfig; absent fields have the platform's defaults.
    Object(String),
}

/// A kubelet's configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The source.
    pub source: ConfigSource,
    /// The fields.
    fields: Map<String, Value>,
    /// Checked values, or the reason why no kubelet starts with them.
    pub checked: Result<Configuration, String>,
}

/// The fields that are kept.
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
    /// Reads the value of `kubeletconfig` in an answer of `/configz`, or a KubeletConfiguration. Errors mention `name`.
    pub(in crate::validate) fn new(source: ConfigSource, document: &Value, name: &str) -> Self {
        let kept =
            FIELDS.iter().filter_map(|field| Some(((*field).to_owned(), document.get(field)?.clone())));
        let fields: Map<String, Value> = kept.filter(|(_, value)| !value.is_null()).collect();
        let text = json!({ "kubeletconfig": fields }).to_string();
        let checked = Configuration::from_configz(&text, Path::new(name)).map_err(|error| error.to_string());
        Self { source, fields, checked }
    }

    /// The text of a field; empty if absent or not text.
    pub(in crate::validate) fn text(&self, field: &str) -> &str {
        self.fields.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// A map of texts, booleans or numbers; empty if absent.
    pub(in crate::validate) fn map(&self, field: &str) -> BTreeMap<String, String> {
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let entries = self.fields.get(field).and_then(Value::as_object).into_iter().flatten();
        entries.map(|(name, value)| (name.clone(), shown(value))).collect()
    }

    /// Whether a field is present.
    pub(in crate::validate) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Whether a field is a list with entries.
    pub(in crate::validate) fn lists(&self, field: &str) -> bool {
        self.fields.get(field).and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    }

    /// The value of a feature gate, if set.
    pub(in crate::validate) fn gate(&self, name: &str) -> Option<bool> {
        self.fields.get("featureGates")?.get(name)?.as_bool()
    }

    /// `cpuManagerReconcilePeriod`; the kubelet's default is 10 s.
    pub(in crate::validate) fn reconcile_period(&self) -> Option<GoDuration> {
        let text = self.text("cpuManagerReconcilePeriod");
        if text.is_empty() { Some(GoDuration(0)) } else { GoDuration::parse(text).ok() }
    }

    /// The sum of `kubeReserved` and `systemReserved` of a resource.
    pub(in crate::validate) fn reserved(&self, resource: &str) -> Option<Quantity> {
        let amounts = ["kubeReserved", "systemReserved"].map(|field| self.map(field).remove(resource));
        let mut sum = Quantity::from_i64(0, Format::BinarySI);
        for text in amounts.into_iter().flatten() {
            sum = sum.saturating_add(Quantity::parse(text.trim()).ok()?);
        }
        Some(sum)
    }

    /// The hard eviction threshold of memory in bytes, on a machine of `capacity` bytes; the kubelet's default if
    /// unset.
    pub(in crate::validate) fn eviction_bytes(&self, capacity: i64) -> Option<i64> {
        let thresholds = self.map("evictionHard");
        let text = match thresholds.get("memory.available") {
            Some(text) => text.trim(),
            None if thresholds.is_empty() => DEFAULT_EVICTION,
            None => return Some(0),
        };
        match text.strip_suffix('%') {
            // kubelet `evictionapi.GetThresholdQuantity`: a 32-bit float, truncated.
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

/// The kubelet's default of `evictionHard`.
const DEFAULT_EVICTION: &str = "100Mi";
