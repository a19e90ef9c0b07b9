//! One look at the node.
//!
//! In: the kubelet's podresources service and configuration, sysfs. Out: the content of the NRT object, or an error when
//! any input is missing or odd: half a truth is not published. Never: the Kubernetes API.
//!
//! What hardly ever changes (sysfs, configuration, what could be handed out) is read at the first scan and again after
//! [`Scanner::forget`], so that a scan is one call of a service that the kubelet limits to 100 calls a second for everybody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use node::podresources::{self, Allocatable, Client};
use node::sysfs::{self, Layout, Machine, Sysfs};
use topology::cpuset::CpuSet;
use tracing::{debug, warn};

use crate::configuration::{self, Known, Reader};
use crate::metrics::Metrics;
use crate::report::{Report, Seen, TooManyZones, report};
use crate::settings::{Accounting, Sources};
use crate::zones::Remark;

/// Deadline of one call of the kubelet; the peer's.
const KUBELET_DEADLINE: Duration = Duration::from_secs(10);

/// Looks, and remembers what hardly ever changes.
#[derive(Debug)]
pub struct Scanner {
    podresources: Client,
    sysfs: Sysfs,
    configuration: Reader,
    accounting: Accounting,
    metrics: Metrics,
    facts: Option<Facts>,
    allocatable: Option<Allocatable>,
    remarks: BTreeSet<Remark>,
}

/// What hardly ever changes.
#[derive(Clone, Debug, PartialEq)]
struct Facts {
    machine: Machine,
    layout: Layout,
    core_kinds: BTreeMap<String, CpuSet>,
    kubelet: Known,
}

/// Which input kept a scan from having a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubelet's service.
    #[error(transparent)]
    PodResources(#[from] podresources::Error),
    /// The machine.
    #[error(transparent)]
    Sysfs(#[from] sysfs::Error),
    /// More zones than a kubelet can align on.
    #[error(transparent)]
    TooManyZones(#[from] TooManyZones),
    /// The kubelet's configuration.
    #[error(transparent)]
    Configuration(#[from] configuration::Error),
}

impl Error {
    /// The input's name in metrics.
    #[must_use]
    pub fn input(&self) -> &'static str {
        match self {
            Self::PodResources(_) => "podresources",
            Self::Sysfs(_) | Self::TooManyZones(_) => "sysfs",
            Self::Configuration(_) => "kubelet_config",
        }
    }
}

impl Scanner {
    /// Nothing is read yet.
    ///
    /// # Errors
    /// When the address of podresources is none.
    pub fn new(sources: &Sources, accounting: &Accounting, metrics: Metrics) -> Result<Self, Error> {
        Ok(Self {
            podresources: Client::at(&sources.podresources, KUBELET_DEADLINE)?,
            sysfs: Sysfs::new(&sources.sysfs),
            configuration: Reader::new(sources),
            accounting: accounting.clone(),
            metrics,
            facts: None,
            allocatable: None,
            remarks: BTreeSet::new(),
        })
    }

    /// Makes the next scan read everything again.
    pub fn forget(&mut self) {
        self.facts = None;
        self.allocatable = None;
    }

    /// Makes the next scan ask again what could be handed out: devices may have come or gone.
    pub fn forget_allocatable(&mut self) {
        self.allocatable = None;
    }

    /// Looks.
    ///
    /// # Errors
    /// When an input cannot be read or makes no sense.
    pub async fn scan(&mut self) -> Result<Report, Error> {
        let facts = match self.facts.take() {
            Some(facts) => facts,
            None => self.facts().await?,
        };
        let facts = self.facts.insert(facts);
        let client = &self.podresources;
        let counted = |error: podresources::Error| {
            if let Some(call) = error.call() {
                self.metrics.call_failed(call);
            }
            error
        };
        let allocatable = match self.allocatable.take() {
            Some(allocatable) => allocatable,
            None => client.allocatable().await.map_err(counted)?,
        };
        let allocatable = self.allocatable.insert(allocatable);
        let pods = client.list().await.map_err(counted)?;
        let Facts { machine, layout, core_kinds, kubelet } = facts;
        let seen = Seen { machine, layout, core_kinds, kubelet, allocatable };
        let report = report(seen, pods, &self.accounting)?;
        for remark in report.remarks.difference(&self.remarks) {
            warn!(%remark, "the kubelet and the kernel do not agree");
        }
        self.remarks.clone_from(&report.remarks);
        Ok(report)
    }

    fn or_nothing<T: Default>(&self, read: Result<T, sysfs::Error>) -> T {
        read.unwrap_or_else(|error| {
            debug!(error = runtime::client::chain(&error), "an attribute less");
            T::default()
        })
    }

    async fn facts(&mut self) -> Result<Facts, Error> {
        let machine = self.sysfs.machine()?;
        // Attributes tell of these, zones do not need them.
        let layout = self.or_nothing(self.sysfs.layout());
        let core_kinds = self.or_nothing(self.sysfs.core_kinds());
        let kubelet = self.configuration.read().await?;
        debug!(zones = machine.zones.len(), cpus = %machine.cpus, rules = ?kubelet.rules, "read the machine and the kubelet's rules");
        Ok(Facts { machine, layout, core_kinds, kubelet })
    }
}

#[cfg(test)]
mod tests;
