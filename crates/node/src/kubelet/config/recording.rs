//! A configuration as a file from which the same is read.
//!
//! In: a [`Configuration`]. Out: the fields of a KubeletConfiguration with its values. Never: a field that was not
//! read. Reserved amounts are one sum, in `systemReserved`.

use serde_json::{Map, Value, json};
use topology::policy::Manager;
use topology::quantity::Quantity;

use super::document::{API_VERSION, KIND};
use super::{Configuration, DEFAULT_MAX_PODS, EvictionMemory, ReservedCpus};

impl Configuration {
    /// The fields of a file that [`Configuration::read`] reads as this.
    #[must_use]
    pub fn recording(&self) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
        put("apiVersion", API_VERSION.into());
        put("kind", KIND.into());
        put("topologyManagerPolicy", self.rules.policy.as_str().into());
        put("topologyManagerScope", self.rules.scope.as_str().into());
        for (name, manager, off, on) in [
            ("cpuManagerPolicy", self.rules.cpu_manager, "none", "static"),
            ("memoryManagerPolicy", self.rules.memory_manager, "None", "Static"),
        ] {
            match manager {
                Manager::Unknown => {}
                Manager::Off => put(name, off.into()),
                Manager::Static => put(name, on.into()),
            }
        }
        for (name, options) in [
            ("topologyManagerPolicyOptions", &self.topology_manager_options),
            ("cpuManagerPolicyOptions", &self.cpu_manager_options),
        ] {
            if !options.is_empty() {
                put(name, json!(options));
            }
        }
        let amounts = self.reserved_amounts.iter();
        let mut system: Map<String, Value> =
            amounts.map(|(name, amount)| (name.to_string(), amount.to_string().into())).collect();
        match &self.reserved_cpus {
            ReservedCpus::Listed(cpus) => put("reservedSystemCPUs", cpus.to_string().into()),
            ReservedCpus::Amount(amount) if *amount == Quantity::ZERO => {}
            ReservedCpus::Amount(amount) => drop(system.insert("cpu".to_owned(), amount.to_string().into())),
        }
        if !system.is_empty() {
            put("systemReserved", system.into());
        }
        if self.eviction_memory != EvictionMemory::default() {
            let threshold = match self.eviction_memory {
                EvictionMemory::Amount(amount) => amount.to_string(),
                EvictionMemory::Percent(percent) => format!("{percent}%"),
            };
            put("evictionHard", json!({ "memory.available": threshold }));
        }
        if self.max_pods != DEFAULT_MAX_PODS {
            put("maxPods", self.max_pods.into());
        }
        if !self.feature_gates.is_empty() {
            put("featureGates", json!(self.feature_gates));
        }
        if !self.reserved_memory.is_empty() {
            let entries = self.reserved_memory.iter().map(|(zone, limits)| {
                let limits =
                    limits.iter().map(|(name, bytes)| (name.as_str().to_owned(), bytes.to_string().into()));
                json!({ "numaNode": zone.0, "limits": limits.collect::<Map<_, _>>() })
            });
            put("reservedMemory", entries.collect());
        }
        Value::Object(fields)
    }
}
