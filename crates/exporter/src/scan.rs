//! One scan of the node.
//!
//! In: the kubelet's podresources service and configuration, sysfs. Out: the content of the NRT object, or an error
//! when any input is missing or invalid: partial results are not published. Never: the Kubernetes API.
//!
//! Inputs that hardly ever change (sysfs, configuration, allocatable resources) are read at the first scan and again
//! after [`Scanner::forget`]. So a scan is one call to a service that the kubelet limits to 100 calls a second for all
//! clients.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use node::kubelet::state::assignments::Assignments;
use node::podresources::{self, Allocatable, Client, PodResources};
use node::sysfs::{self, Layout, Machine, Sysfs};
use runtime::token_bucket::TokenBucket;
use topology::cpuset::CpuSet;
use tracing::{debug, warn};

use crate::configuration::{self, KubeletSettings, Reader};
use crate::holdings::agree;
use crate::metrics::Metrics;
use crate::report::{NodeSnapshot, Report, TooManyZones, report};
use crate::settings::{Accounting, Sources};
use crate::zones::Remark;

/// Deadline of one call to the kubelet; the same as in RTE.
pub(crate) const KUBELET_DEADLINE: Duration = Duration::from_secs(10);

/// Most calls for one list of pods: the kubelet is changing what it hands out while it is asked.
const LISTS: usize = 3;

/// Remarks that are logged at once, and the time after which one more is: a kubelet may contradict the kernel in
/// thousands of ways, or in another way at each scan.
const REMARKS: (u32, Duration) = (20, Duration::from_secs(60));

/// Scans the node, and caches the inputs that hardly ever change.
#[derive(Debug)]
pub struct Scanner {
    podresources: Client,
    sysfs: Sysfs,
    kubelet_root: Option<PathBuf>,
    configuration: Reader,
    accounting: Accounting,
    metrics: Metrics,
    inputs: Option<CachedInputs>,
    allocatable: Option<Allocatable>,
    remarks: BTreeSet<Remark>,
    lines: TokenBucket,
}

/// Inputs that hardly ever change.
#[derive(Clone, Debug, PartialEq)]
struct CachedInputs {
    machine: Machine,
    layout: Layout,
    sockets: BTreeMap<u32, CpuSet>,
    core_kinds: BTreeMap<String, CpuSet>,
    kubelet: KubeletSettings,
}

/// The input that made a scan fail.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The podresources service of the kubelet.
    #[error(transparent)]
    PodResources(#[from] podresources::Error),
    /// The kernel's description of the machine.
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
    /// Whether only a restart of the container helps, which mounts the files anew.
    #[must_use]
    pub fn needs_new_mount(&self) -> bool {
        matches!(self, Self::Configuration(configuration::Error::Replaced(_)))
    }

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
    /// A scanner without cached inputs.
    ///
    /// # Errors
    /// When the path of the podresources socket is not a valid address.
    pub fn new(sources: &Sources, accounting: &Accounting, metrics: Metrics) -> Result<Self, Error> {
        Ok(Self {
            podresources: Client::at(&sources.podresources, KUBELET_DEADLINE)?,
            sysfs: Sysfs::new(&sources.sysfs),
            kubelet_root: sources.kubelet_root.clone(),
            configuration: Reader::new(sources),
            accounting: accounting.clone(),
            metrics,
            inputs: None,
            allocatable: None,
            remarks: BTreeSet::new(),
            lines: TokenBucket::new(REMARKS.0, REMARKS.1, Instant::now()),
        })
    }

    /// Makes the next scan read everything again.
    pub fn forget(&mut self) {
        self.inputs = None;
        self.allocatable = None;
    }

    /// Makes the next scan ask again for the allocatable resources: devices may have come or gone.
    pub fn forget_allocatable(&mut self) {
        self.allocatable = None;
    }

    /// Reads the inputs and computes the report.
    ///
    /// # Errors
    /// When an input cannot be read or is invalid.
    pub async fn scan(&mut self) -> Result<Report, Error> {
        let inputs = match self.inputs.take() {
            Some(inputs) => inputs,
            None => self.inputs().await?,
        };
        let inputs = self.inputs.insert(inputs);
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
        let (pods, checkpoints) = listed(client, self.kubelet_root.as_deref()).await.map_err(counted)?;
        let CachedInputs { machine, layout, sockets, core_kinds, kubelet } = inputs;
        let checkpoints = checkpoints.as_ref();
        let snapshot =
            NodeSnapshot { machine, layout, sockets, core_kinds, kubelet, allocatable, checkpoints };
        let report = report(snapshot, pods, &self.accounting)?;
        log_remarks(report.remarks.difference(&self.remarks), &mut self.lines, Instant::now());
        self.remarks.clone_from(&report.remarks);
        Ok(report)
    }

    fn optional<T: Default>(&self, read: Result<T, sysfs::Error>) -> T {
        read.unwrap_or_else(|error| {
            debug!(error = runtime::client::chain(&error), "optional attribute unavailable");
            T::default()
        })
    }

    async fn inputs(&mut self) -> Result<CachedInputs, Error> {
        let machine = self.sysfs.machine()?;
        // Only optional attributes need these; zones do not.
        let layout = self.optional(self.sysfs.layout());
        let sockets = self.optional(self.sysfs.sockets());
        let core_kinds = self.optional(self.sysfs.core_kinds());
        let kubelet = self.configuration.read().await?;
        let (zones, cpus) = (machine.zones.len(), &machine.cpus);
        debug!(zones, %cpus, rules = ?kubelet.rules, "read the machine and the kubelet's rules");
        Ok(CachedInputs { machine, layout, sockets, core_kinds, kubelet })
    }
}

/// The listed pods, and what the checkpoints of the same moment say, where they are visible. They are of the same
/// moment if they are equal before and after the list, and have what it has.
async fn listed(
    client: &Client,
    kubelet_root: Option<&Path>,
) -> Result<(Vec<PodResources>, Option<Assignments>), podresources::Error> {
    let Some(root) = kubelet_root else { return Ok((client.list().await?, None)) };
    let mut before = checkpoints(root);
    for _ in 1..LISTS {
        let pods = client.list().await?;
        let after = checkpoints(root);
        match after {
            Some(after) if before.as_ref() == Some(&after) && agree(&after, &pods) => {
                return Ok((pods, Some(after)));
            }
            Some(after) => before = Some(after),
            None => return Ok((pods, None)),
        }
    }
    Ok((client.list().await?, None))
}

/// What the checkpoints say; `None`, with a line in the log, if they cannot be read.
fn checkpoints(root: &Path) -> Option<Assignments> {
    let read = Assignments::read(root);
    let told = read.inspect_err(|error| {
        debug!(error = runtime::client::chain(error), "checkpoints of the kubelet's managers not used");
    });
    told.ok()
}

/// Logs remarks as far as the limit allows; the number of those logged.
fn log_remarks<'a>(
    remarks: impl Iterator<Item = &'a Remark>,
    lines: &mut TokenBucket,
    now: Instant,
) -> usize {
    let (mut told, mut hidden) = (0_usize, 0_usize);
    for remark in remarks {
        if lines.available_at() > now {
            hidden += 1;
            continue;
        }
        lines.take(now);
        told += 1;
        warn!(%remark, "the kubelet and the kernel disagree");
    }
    if hidden > 0 {
        debug!(hidden, "further contradictions are not logged; the metric of remarks counts all");
    }
    told
}

#[cfg(test)]
mod tests;
