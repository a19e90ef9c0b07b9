//! Amounts of resources, as specs write them.
//!
//! In: `4 6Gi hugepages-2Mi=32Mi dev1=2`: CPUs, memory, others by name. Out: amounts in base units, quantities for
//! pods. Never: a size that a cluster must have; [`Scale`] says how large a unit is here.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource;
use topology::quantity::Quantity;
use topology::resource::ResourceName;
use topology::zone::{Free, ZoneId};

/// Amounts by resource, in base units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<ResourceName, i64>);

/// How large the units of a spec's table are on this cluster, and how its devices are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// CPUs for one CPU of the table: the threads of a core where kubelets give whole cores only.
    pub cpus: i64,
    /// Names of the devices `dev1`, `dev2` and `dev3`.
    pub devices: [String; 3],
}

impl Amounts {
    /// Reads a table's entry.
    ///
    /// # Errors
    /// The word that is no amount.
    pub fn parse(text: &str, scale: &Scale) -> Result<Self, String> {
        let mut amounts = Self::default();
        let mut plain = [ResourceName::CPU, ResourceName::MEMORY].into_iter();
        for word in text.split_whitespace() {
            let (name, amount) = match word.split_once('=') {
                Some((name, amount)) => (scale.name(name)?, amount),
                None => (plain.next().ok_or_else(|| format!("{word:?} has no name"))?, word),
            };
            let quantity = Quantity::parse(amount).map_err(|error| format!("{word:?}: {error}"))?;
            let factor = if name == ResourceName::CPU { scale.cpus } else { 1 };
            amounts.0.insert(name, api::convert::amount(name, quantity) * factor);
        }
        Ok(amounts)
    }

    /// Amounts of whole units.
    #[must_use]
    pub fn of(amounts: impl IntoIterator<Item = (ResourceName, i64)>) -> Self {
        Self(amounts.into_iter().collect())
    }

    /// CPUs and bytes.
    #[must_use]
    pub fn cpu_and_memory(cpus: i64, bytes: i64) -> Self {
        Self::of([(ResourceName::CPU, cpus * ResourceName::CPU.base_units()), (ResourceName::MEMORY, bytes)])
    }

    /// The amounts that are free in a zone, without those that are 0.
    #[must_use]
    pub fn of_zone(free: &Free, zone: ZoneId) -> Self {
        let names = free.layout().resources().iter();
        Self(names.map(|name| (*name, free.amount(zone, *name))).filter(|(_, amount)| *amount > 0).collect())
    }

    /// The amount of a resource; 0 if there is none.
    #[must_use]
    pub fn get(&self, name: ResourceName) -> i64 {
        self.0.get(&name).copied().unwrap_or(0)
    }

    /// These amounts with another one of `name`.
    #[must_use]
    pub fn with(mut self, name: ResourceName, amount: i64) -> Self {
        self.0.insert(name, amount);
        self
    }

    /// The resources and amounts, in name order.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceName, i64)> + '_ {
        self.0.iter().map(|(name, amount)| (*name, *amount))
    }

    /// The larger amount of each resource.
    #[must_use]
    pub fn max(mut self, other: &Self) -> Self {
        for (name, amount) in other.iter() {
            let own = self.0.entry(name).or_default();
            *own = (*own).max(amount);
        }
        self
    }

    /// The smaller amount of each resource that both have.
    #[must_use]
    pub fn min(self, other: &Self) -> Self {
        Self(self.0.into_iter().map(|(name, amount)| (name, amount.min(other.get(name)))).collect())
    }

    /// A part of CPUs and memory: whole multiples of `cpus` CPUs and of a MiB, rounded down, at least one of each.
    #[must_use]
    pub fn part(&self, parts: i64, of: i64, cpus: i64) -> Self {
        let step =
            |name: ResourceName| if name == ResourceName::CPU { cpus * name.base_units() } else { 1 << 20 };
        let names = [ResourceName::CPU, ResourceName::MEMORY];
        Self::of(names.map(|name| (name, (self.get(name) * parts / of / step(name)).max(1) * step(name))))
    }

    /// With CPUs rounded up to a multiple of so many: a zone gives away whole cores only.
    #[must_use]
    pub fn whole_cores(mut self, threads: i64) -> Self {
        let core = ResourceName::CPU.base_units() * threads.max(1);
        if let Some(cpus) = self.0.get_mut(&ResourceName::CPU) {
            *cpus = (*cpus + core - 1) / core * core;
        }
        self
    }

    /// The sum for each resource.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (name, amount) in other.iter() {
            let own = self.0.entry(name).or_default();
            *own = own.saturating_add(amount);
        }
        self
    }

    /// What is left, for each resource of `self`; never below 0.
    #[must_use]
    pub fn minus(mut self, other: &Self) -> Self {
        for (name, own) in &mut self.0 {
            *own = own.saturating_sub(other.get(*name)).max(0);
        }
        self
    }

    /// Only the resources that `keep` wants.
    #[must_use]
    pub fn only(mut self, keep: impl Fn(ResourceName) -> bool) -> Self {
        self.0.retain(|name, _| keep(*name));
        self
    }

    /// The first resource of which a table has less, with what is there.
    #[must_use]
    pub fn more_than(&self, there: &Self) -> Option<(ResourceName, i64)> {
        self.iter().find(|(name, amount)| *amount > there.get(*name)).map(|(name, _)| (name, there.get(name)))
    }

    /// As requests and limits of a container, without amounts of 0.
    #[must_use]
    pub fn quantities(&self) -> BTreeMap<String, resource::Quantity> {
        let wanted = self.iter().filter(|(_, amount)| *amount > 0);
        let quantity = |name, amount| resource::Quantity(api::convert::quantity(name, amount).to_string());
        wanted.map(|(name, amount)| (name.as_str().to_owned(), quantity(name, amount))).collect()
    }
}

impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, amount)) in self.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{name}={}", api::convert::quantity(name, amount))?;
        }
        Ok(())
    }
}

impl Scale {
    fn name(&self, text: &str) -> Result<ResourceName, String> {
        let device = text.strip_prefix("dev").and_then(|number| number.parse::<usize>().ok());
        let name = match device.and_then(|number| self.devices.get(number.checked_sub(1)?)) {
            Some(name) => name,
            None => text,
        };
        ResourceName::new(name).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_amounts_in_the_units_of_the_cluster() {
        let scale = Scale { cpus: 2, devices: ["x.dev/a", "x.dev/b", "x.dev/c"].map(str::to_owned) };
        for (text, wanted) in [
            ("", "Ok(\"\")"),
            ("4 6Gi", "Ok(\"cpu=8 memory=6442450944\")"),
            ("500m", "Ok(\"cpu=1\")"),
            ("cpu=1 hugepages-2Mi=32Mi dev3=2", "Ok(\"cpu=2 hugepages-2Mi=33554432 x.dev/c=2\")"),
            ("1 2 3", "Err(\"\\\"3\\\" has no name\")"),
            ("many", "Err(\"\\\"many\\\": "),
        ] {
            let read = Amounts::parse(text, &scale).map(|amounts| amounts.to_string());
            assert!(format!("{read:?}").starts_with(wanted), "{text}: {read:?}");
        }
    }

    #[test]
    fn amounts_are_compared_by_resource() {
        let scale = Scale { cpus: 1, devices: Default::default() };
        let read = |text| Amounts::parse(text, &scale).unwrap();
        assert_eq!(read("4 6Gi").minus(&read("1 7Gi")).to_string(), "cpu=3 memory=0");
        assert_eq!(read("4 6Gi").more_than(&read("5 2Gi")).map(|(name, _)| name), Some(ResourceName::MEMORY));
        assert_eq!(read("4 6Gi").more_than(&read("4 6Gi")), None);
        assert_eq!(read("4 1Gi").max(&read("2 2Gi")).to_string(), "cpu=4 memory=2147483648");
        assert_eq!(read("cpu=0 memory=1").quantities().len(), 1);
    }

    #[test]
    fn cores_are_whole() {
        let scale = Scale { cpus: 1, devices: Default::default() };
        for (load, threads, wanted) in [
            ("memory=1", 2, "memory=1"),
            ("0", 1, "cpu=0"),
            ("100m", 1, "cpu=1"),
            ("1", 2, "cpu=2"),
            ("2500m", 2, "cpu=4"),
        ] {
            let whole = Amounts::parse(load, &scale).unwrap().whole_cores(threads);
            assert_eq!(whole.to_string(), wanted, "{load} {threads}");
        }
    }
}
