//! One look at the node.
//!
//! In: the kubelet's podresources service and configuration, sysfs. Out: the content of the NRT object, or an error when
//! any input is missing or odd: half a truth is not published. Never: the Kubernetes API.
//!
//! What hardly ever changes (sysfs, configuration, what could be handed out) is read at the first scan and again after
//! [`Scanner::forget`], so that a scan is one call of a service that the kubelet limits to 100 calls a second for everybody.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use node::kubelet::{self, RulesError};
use node::podresources::{self, Allocatable, Client, PodResources};
use node::sysfs::{self, Machine, Sysfs};
use topology::fingerprint::PodHash;
use topology::policy::Rules;
use tracing::{debug, info, warn};

use crate::belief::Listed;
use crate::metrics::Metrics;
use crate::object::Content;
use crate::settings::{Accounting, KubeletConfigAt, PodResourcesAt, Sources};
use crate::zones::{Remark, zones};

/// Deadline of one call of the kubelet; the peer's.
const KUBELET_DEADLINE: Duration = Duration::from_secs(10);

/// Looks, and remembers what hardly ever changes.
#[derive(Debug)]
pub struct Scanner {
    podresources: Client,
    sysfs: Sysfs,
    sources: Sources,
    accounting: Accounting,
    metrics: Metrics,
    facts: Option<Facts>,
    allocatable: Option<Allocatable>,
    remarks: BTreeSet<Remark>,
}

/// The result of a look.
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    /// What the object should say.
    pub content: Content,
    /// The pods it is about.
    pub listed: Listed,
    /// How many contradictions were found; they are logged when they are new.
    pub remarks: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Facts {
    machine: Machine,
    rules: Rules,
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
    /// The kubelet's configuration.
    #[error("{0}; with --topology-manager-policy and --topology-manager-scope the file is not needed")]
    Rules(#[from] RulesError),
}

impl Error {
    /// The input's name in metrics.
    #[must_use]
    pub fn input(&self) -> &'static str {
        match self {
            Self::PodResources(_) => "podresources",
            Self::Sysfs(_) => "sysfs",
            Self::Rules(_) => "kubelet_config",
        }
    }
}

impl Scanner {
    /// Nothing is read yet.
    ///
    /// # Errors
    /// When the address of podresources is none.
    pub fn new(sources: &Sources, accounting: &Accounting, metrics: Metrics) -> Result<Self, Error> {
        let PodResourcesAt::Socket(socket) = &sources.podresources else {
            return Err(podresources::Error::Address("fake://".to_owned()).into());
        };
        Ok(Self {
            podresources: Client::new(socket, KUBELET_DEADLINE)?,
            sysfs: Sysfs::new(&sources.sysfs),
            sources: sources.clone(),
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
    pub async fn scan(&mut self) -> Result<Scan, Error> {
        let facts = match self.facts.take() {
            Some(facts) => facts,
            None => self.facts()?,
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
        let (zones, remarks) = zones(&facts.machine, allocatable, &pods);
        for remark in remarks.difference(&self.remarks) {
            warn!(%remark, "the kubelet and the kernel do not agree");
        }
        self.remarks = remarks;
        Ok(Scan {
            listed: listed(&pods),
            content: Content::new(zones, facts.rules, &pods, self.accounting.fingerprint.unwrap_or_default()),
            remarks: self.remarks.len(),
        })
    }

    fn facts(&self) -> Result<Facts, Error> {
        let machine = self.sysfs.machine()?;
        let rules = self.rules()?;
        debug!(zones = machine.zones.len(), cpus = %machine.cpus, ?rules, "read the machine and the kubelet's rules");
        Ok(Facts { machine, rules })
    }

    /// The file's rules under the overrides. With both given, a file that cannot be read leaves the managers unknown.
    fn rules(&self) -> Result<Rules, Error> {
        let Sources { policy, scope, .. } = self.sources;
        let path = match &self.sources.kubelet_config {
            KubeletConfigAt::File { path, .. } => path.as_path(),
            KubeletConfigAt::Configz { .. } => Path::new(""),
        };
        let from_file = match kubelet::read_rules(path) {
            Err(error) if policy.is_some() && scope.is_some() => {
                info!(%error, "the CPU and memory manager policies are not known");
                Rules::default()
            }
            result => result?,
        };
        Ok(Rules {
            policy: policy.unwrap_or(from_file.policy),
            scope: scope.unwrap_or(from_file.scope),
            ..from_file
        })
    }
}

fn listed(pods: &[PodResources]) -> Listed {
    let hash = |pod: &PodResources| PodHash::of(&pod.namespace, &pod.name);
    let holders = pods.iter().filter(|pod| pod.holds_something_local()).map(hash).collect();
    Listed { pods: pods.iter().map(hash).collect(), holders }
}
