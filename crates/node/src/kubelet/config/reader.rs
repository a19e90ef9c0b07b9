//! Converts the fields of a configuration to checked values.
//!
//! In: a document. Out: a [`Configuration`], or the first field with a value that no kubelet accepts. Never: a check
//! that needs the machine, or a rule about two settings together: the kubelet's flags may have changed one of them.

use std::collections::BTreeMap;

use topology::cpuset::CpuSet;
use topology::gobool;
use topology::policy::{
    CpuOption, DEFAULT_MAX_NUMA_NODES, MAX_ALLOWABLE_NUMA_NODES, Manager, PREFER_CLOSEST_NUMA_NODES, Policy,
    Rules, Scope,
};
use topology::quantity::{Format, Quantity};
use topology::resource::{ResourceKind, ResourceName};
use topology::zone::ZoneId;

use super::document::Document;
use super::{Configuration, DEFAULT_MAX_PODS, DEFAULTS, Error, EvictionMemory, ReservedCpus};
use crate::json::Field;

/// Reads values from a document and checks them.
struct Reader<'a> {
    document: &'a Document,
}

/// Reads and checks every field.
pub(super) fn configuration(document: &Document) -> Result<Configuration, Error> {
    Reader { document }.configuration()
}

impl Reader<'_> {
    fn configuration(&self) -> Result<Configuration, Error> {
        let rules = self.rules()?;
        let cpu_manager_options = self.options("cpuManagerPolicyOptions")?;
        if rules.cpu_manager == Manager::Static {
            self.check_cpu_options(&cpu_manager_options)?;
        }
        let topology_manager_options = self.options("topologyManagerPolicyOptions")?;
        Ok(Configuration {
            rules,
            max_allowable_numa_nodes: self.max_numa_nodes(rules.policy, &topology_manager_options)?,
            cpu_manager_options,
            topology_manager_options,
            reserved_cpus: self.reserved_cpus()?,
            reserved_memory: self.reserved_memory()?,
            reserved_amounts: self.reserved_amounts()?,
            eviction_memory: self.eviction_memory()?,
            max_pods: self.max_pods()?,
            feature_gates: self.feature_gates()?,
        })
    }

    fn rules(&self) -> Result<Rules, Error> {
        // `Manager::parse` accepts the spellings of both managers; a kubelet accepts only its own.
        let manager =
            |names: [&'static str; 2]| move |text: &str| names.contains(&text).then(|| Manager::parse(text));
        Ok(Rules {
            policy: self.choice(
                "topologyManagerPolicy",
                "none, best-effort, restricted, single-numa-node",
                Policy::parse,
            )?,
            scope: self.choice("topologyManagerScope", "container, pod", Scope::parse)?,
            cpu_manager: self.choice("cpuManagerPolicy", "none, static", manager(["none", "static"]))?,
            memory_manager: self.choice(
                "memoryManagerPolicy",
                "None, Static",
                manager(["None", "Static"]),
            )?,
        })
    }

    /// The text of a field in [`DEFAULTS`].
    fn choice<T>(
        &self,
        name: &str,
        allowed: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let default = DEFAULTS.iter().find(|(field, _)| *field == name).map_or("", |(_, default)| default);
        let text = self.document.field(name, Field::text)?;
        let text = Some(text).filter(|text| !text.is_empty()).unwrap_or(default);
        parse(text).ok_or_else(|| self.bad(name, text, allowed))
    }

    /// Options, or reserved amounts: texts by name.
    fn options(&self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        self.document.field(name, |map| {
            map.fields()?.into_iter().map(|(name, at)| Ok((name.to_owned(), at.text()?.to_owned()))).collect()
        })
    }

    fn check_cpu_options(&self, options: &BTreeMap<String, String>) -> Result<(), Error> {
        for (name, value) in options {
            if CpuOption::parse(name).is_some() && gobool::parse(value).is_none() {
                return Err(self.bad(&format!("cpuManagerPolicyOptions.{name}"), value, "true, false"));
            }
        }
        Ok(())
    }

    /// `topologymanager.NewPolicyOptions`; with the policy `none` the kubelet ignores the options.
    fn max_numa_nodes(&self, policy: Policy, options: &BTreeMap<String, String>) -> Result<u32, Error> {
        let field = |name| format!("topologyManagerPolicyOptions.{name}");
        let closest = options.get(PREFER_CLOSEST_NUMA_NODES).filter(|value| gobool::parse(value).is_none());
        let max = options.get(MAX_ALLOWABLE_NUMA_NODES);
        // Go's `Atoi` accepts signs and leading zeros, as Rust does.
        let number = max.map(|text| text.parse().ok().filter(|max| *max >= DEFAULT_MAX_NUMA_NODES));
        if policy == Policy::None {
            return Ok(number.flatten().unwrap_or(DEFAULT_MAX_NUMA_NODES));
        }
        if let Some(value) = closest {
            return Err(self.bad(&field(PREFER_CLOSEST_NUMA_NODES), value, "true, false"));
        }
        match (max, number.unwrap_or(Some(DEFAULT_MAX_NUMA_NODES))) {
            (_, Some(number)) => Ok(number),
            (text, None) => {
                let text = text.map(String::as_str).unwrap_or_default();
                Err(self.bad(&field(MAX_ALLOWABLE_NUMA_NODES), text, "whole numbers from 8"))
            }
        }
    }

    fn reserved_cpus(&self) -> Result<ReservedCpus, Error> {
        const NAME: &str = "reservedSystemCPUs";
        let text = self.document.field(NAME, Field::text)?;
        let listed = CpuSet::parse(text).ok().filter(|_| text.trim() == text);
        let listed = listed.ok_or_else(|| self.bad(NAME, text, "lists of CPUs such as 0-3,8"))?;
        let mut sum = Quantity::from_i64(0, Format::DecimalSI);
        for name in ["kubeReserved", "systemReserved"] {
            // Read even when the list overrides them: the kubelet refuses a wrong type in any case.
            let amounts = self.options(name)?;
            if let (Some(text), true) = (amounts.get("cpu"), listed.is_empty()) {
                let amount = Quantity::parse(text).ok().filter(|amount| amount.sign() >= 0);
                let bad = || self.bad(&format!("{name}.cpu"), text, "quantities from 0 such as 2 or 500m");
                sum = sum.saturating_add(amount.ok_or_else(bad)?);
            }
        }
        Ok(if listed.is_empty() { ReservedCpus::Amount(sum) } else { ReservedCpus::Listed(listed) })
    }

    /// Amounts other than CPUs in `kubeReserved` and `systemReserved`. Names that the kubelet does not know are its
    /// error, not ours.
    fn reserved_amounts(&self) -> Result<BTreeMap<ResourceName, Quantity>, Error> {
        let mut sums = BTreeMap::new();
        for field in ["kubeReserved", "systemReserved"] {
            for (name, text) in self.options(field)?.into_iter().filter(|(name, _)| name != "cpu") {
                let amount = Quantity::parse(&text).ok().filter(|amount| amount.sign() >= 0);
                let bad = || self.bad(&format!("{field}.{name}"), &text, "quantities from 0 such as 512Mi");
                let amount = amount.ok_or_else(bad)?;
                if let Ok(name) = ResourceName::new(&name) {
                    let sum = sums.entry(name).or_insert(Quantity::ZERO);
                    *sum = sum.saturating_add(amount);
                }
            }
        }
        Ok(sums)
    }

    /// A map without the signal means no threshold; no map means the kubelet's default.
    fn eviction_memory(&self) -> Result<EvictionMemory, Error> {
        const NAME: &str = "evictionHard";
        let thresholds = self.options(NAME)?;
        let Some(text) = thresholds.get("memory.available") else {
            let unset = thresholds.is_empty();
            return Ok(if unset {
                EvictionMemory::default()
            } else {
                EvictionMemory::Amount(Quantity::ZERO)
            });
        };
        let read = match text.strip_suffix('%') {
            Some(percent) => {
                percent.parse().ok().filter(|p| (0.0..=100.0).contains(p)).map(EvictionMemory::Percent)
            }
            None => Quantity::parse(text).ok().filter(|q| q.sign() >= 0).map(EvictionMemory::Amount),
        };
        let allowed = "amounts such as 100Mi and percentages such as 5%";
        read.ok_or_else(|| self.bad(&format!("{NAME}.memory.available"), text, allowed))
    }

    fn max_pods(&self) -> Result<u32, Error> {
        let max = self.document.field("maxPods", Field::signed)?;
        match u32::try_from(max) {
            Ok(0) => Ok(DEFAULT_MAX_PODS),
            Ok(max) => Ok(max),
            Err(_) => Err(self.bad_raw("maxPods", max, "whole numbers from 0")),
        }
    }

    fn feature_gates(&self) -> Result<BTreeMap<String, bool>, Error> {
        self.document.field("featureGates", |map| {
            map.fields()?.into_iter().map(|(name, at)| Ok((name.to_owned(), at.truth()?))).collect()
        })
    }

    /// `validateReservedMemoryConfiguration` and the memory manager's `convertReserved`.
    fn reserved_memory(&self) -> Result<BTreeMap<ZoneId, BTreeMap<ResourceName, u64>>, Error> {
        const NAME: &str = "reservedMemory";
        let entries = self.document.field(NAME, |list| {
            list.list(|entry| {
                let amount = |(name, at): (&str, Field)| Ok((name.to_owned(), at.text_or_number()?));
                let limits =
                    entry.get("limits", |limits| limits.fields()?.into_iter().map(amount).collect())?;
                Ok((entry.get("numaNode", Field::signed)?, limits))
            })
        })?;
        let mut reserved = BTreeMap::<ZoneId, BTreeMap<_, _>>::new();
        for (index, (zone, limits)) in entries.into_iter().enumerate() {
            let limits: Vec<(String, String)> = limits;
            let at = format!("{NAME}[{index}]");
            // The kubelet's type is int32.
            let id = i32::try_from(zone).ok().and_then(|zone| u32::try_from(zone).ok());
            let id = id.ok_or_else(|| self.bad_raw(&format!("{at}.numaNode"), zone, "NUMA node ids"))?;
            for (name, text) in limits {
                let field = format!("{at}.limits.{name}");
                let resource =
                    ResourceName::new(&name).ok().filter(|name| name.kind() == ResourceKind::Memory);
                let allowed = "limits of memory and hugepages-<size>";
                let resource = resource.ok_or_else(|| self.bad(&field, &text, allowed))?;
                let bytes =
                    bytes(&text).ok_or_else(|| self.bad(&field, &text, "whole numbers of bytes above 0"))?;
                if reserved.entry(ZoneId(id)).or_default().insert(resource, bytes).is_some() {
                    return Err(self.bad(&field, &text, "one limit of a resource for each NUMA node"));
                }
            }
        }
        Ok(reserved)
    }

    fn bad(&self, field: &str, value: &str, allowed: &'static str) -> Error {
        self.bad_raw(field, format!("{:?}", value.chars().take(60).collect::<String>()), allowed)
    }

    fn bad_raw(&self, field: &str, value: impl ToString, allowed: &'static str) -> Error {
        let path = self.document.origin(field).to_owned();
        Error::Value { path, field: field.to_owned(), value: value.to_string(), allowed }
    }
}

/// A quantity of whole bytes above zero.
fn bytes(text: &str) -> Option<u64> {
    let amount = Quantity::parse(text).ok()?;
    let bytes = amount.value();
    let whole = Quantity::from_i64(bytes, Format::BinarySI) == amount;
    u64::try_from(bytes).ok().filter(|bytes| whole && *bytes > 0)
}
