//! Flags of `tholepin scheduler`, and the settings they give together with the configuration file.
//!
//! In: a command line, a `KubeSchedulerConfiguration`. Out: [`Args`], settings of the core. Never: the API server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use api::goduration::GoDuration;
use api::schedulerconfig::{ExtensionPoint, NUMA_PLUGIN, Plugin, PluginSet, SchedulerConfig};
use runtime::delegated_auth::{Lookup, Remember, RequestHeader};
use runtime::{http, log, tls, yaml};

use crate::config;
use crate::core::Settings;

/// Flags of `tholepin scheduler`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:\n  tholepin scheduler --config /etc/kubernetes/config.yaml\n  \
    tholepin scheduler --kubeconfig ~/.kube/config --leader-elect=false -v 4")]
pub struct Args {
    /// File with a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1) [default: one profile,
    /// topo-aware-scheduler]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Whether to wait for the leader lease [default: true, or as in the configuration file]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub leader_elect: Option<bool>,
    /// Address of health checks and metrics
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10251")]
    pub http_bind_address: SocketAddr,
    /// Address of health checks alone, always in plain HTTP: :PORT, ADDRESS:PORT, or 0 for none
    #[arg(long, value_name = "ADDRESS", default_value = "0", value_parser = http::address)]
    pub health_probe_bind_address: http::Listen,
    /// Seed of the choice among equally good nodes [default: random]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Time after which one node is held for a pod that could fit there once others leave; 0s: no node is ever held
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    pub hold_node_after: GoDuration,
    /// Delete pods that kubelets reject, those of other schedulers too, if a controller makes others; their events stay
    #[arg(long)]
    pub delete_rejected_pods: bool,
    /// Verbosity as in klog: 2 is info, 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
    /// Format of log lines
    #[arg(long, value_parser = ["text", "json"], default_value = "text")]
    pub logging_format: String,
    /// Directory for status files: the pods behind each node's fingerprint, as reported and as known here
    #[arg(long, value_name = "DIR", env = "PFP_STATUS_DUMP", value_parser = path_or_nothing)]
    pub pods_fingerprint_status_dir: Option<PathBuf>,
    /// Whether this is kube-scheduler's command line: without a file, it serves default-scheduler as that does.
    #[arg(skip)]
    pub is_kube_scheduler: bool,
    /// File to write the effective configuration to, instead of running.
    #[arg(skip)]
    pub write_config_to: Option<PathBuf>,
    /// How long a pod that fits no node waits before it is tried again in any case; `None`: the default.
    #[arg(skip)]
    pub max_wait: Option<GoDuration>,
    /// Transport of health checks and metrics: plain HTTP for our own flags, TLS for kube-scheduler's.
    #[arg(skip)]
    pub serving: Serving,
    /// Whether kube-scheduler's feature gates enable GangScheduling in all profiles that do not disable it.
    #[arg(skip)]
    pub gang_scheduling: bool,
    /// Lease settings of kube-scheduler's flags, which override the file.
    #[arg(skip)]
    pub election: ElectionFlags,
}

/// Transport of health checks and metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Serving {
    /// Plain HTTP.
    #[default]
    Plain,
    /// HTTP over TLS, for whom the API server permits.
    Secure {
        /// Certificate and policy.
        tls: Box<tls::Settings>,
        /// Whom to ask.
        delegation: Box<Delegation>,
    },
    /// Not served.
    Disabled,
}

/// Flags about who may read what.
#[derive(Clone, Debug, PartialEq)]
pub struct Delegation {
    /// Kubeconfig of the API server that reviews tokens; `None`: that of the pod of this process, if it is in one.
    pub authentication_kubeconfig: Option<PathBuf>,
    /// The same of the one that reviews access.
    pub authorization_kubeconfig: Option<PathBuf>,
    /// File with the authorities of clients.
    pub client_ca: Option<PathBuf>,
    /// The front proxy.
    pub request_header: Option<RequestHeader>,
    /// What becomes of authorities that are not given.
    pub lookup: Lookup,
    /// How long answers are remembered.
    pub remember: Remember,
    /// Paths that everybody may read.
    pub always_allow_paths: Vec<String>,
}

/// Lease settings given as flags; `None`: as in the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectionFlags {
    /// Duration of the lease.
    pub lease_duration: Option<GoDuration>,
    /// Time after which a leader that cannot renew the lease gives up.
    pub renew_deadline: Option<GoDuration>,
    /// Time between two attempts to acquire or renew.
    pub retry_period: Option<GoDuration>,
    /// Name of the lease.
    pub resource_name: Option<String>,
    /// Namespace of the lease.
    pub resource_namespace: Option<String>,
}

/// A path; an empty one counts as none where it is used.
#[expect(clippy::unnecessary_wraps, reason = "the signature of clap's value parsers")]
fn path_or_nothing(text: &str) -> Result<PathBuf, Infallible> {
    Ok(PathBuf::from(text))
}

impl Args {
    /// The log format given by flag.
    #[must_use]
    pub fn log_format(&self) -> log::Format {
        if self.logging_format == "json" { log::Format::Json } else { log::Format::Text }
    }

    /// Reads the configuration file, and merges in the flags, which take precedence. The result is the effective
    /// configuration, with its settings.
    ///
    /// # Errors
    /// When the file cannot be read or is invalid, or asks for an unsupported feature; the file is named. When two
    /// flags want one port.
    pub fn load(&self) -> anyhow::Result<(SchedulerConfig, Settings)> {
        let flag = match self.serving {
            Serving::Plain => "--http-bind-address",
            Serving::Secure { .. } | Serving::Disabled => "--secure-port",
        };
        let all = (self.serving != Serving::Disabled).then_some(self.http_bind_address);
        let health = ("--health-probe-bind-address", self.health_probe_bind_address);
        http::distinct((flag, all), health).map_err(anyhow::Error::msg)?;
        let seed = self.seed.unwrap_or_else(random_seed);
        let (mut file, mut settings) = match &self.config {
            Some(path) => self.read(path, seed)?,
            None if self.is_kube_scheduler => {
                let mut file = SchedulerConfig::default();
                self.open_gates(&mut file);
                let settings = config::settings(&file, seed)?;
                (file, settings)
            }
            None => (default_file(), config::default_settings(seed)),
        };
        self.election.apply(&mut file);
        if let Some(kubeconfig) = &self.kubeconfig {
            file.client_connection.kubeconfig = kubeconfig.display().to_string();
        }
        let election = &mut file.leader_election;
        election.leader_elect = self.leader_elect.unwrap_or(election.leader_elect);
        if let Some(wait) = self.max_wait {
            let wait = wait.to_std().context("--pod-max-in-unschedulable-pods-duration: it is negative")?;
            settings.max_wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        }
        settings.hold_after_ms = self.hold_after_ms()?;
        settings.deletes_rejected = self.delete_rejected_pods;
        Ok((file, settings))
    }

    fn read(&self, path: &Path, seed: u64) -> anyhow::Result<(SchedulerConfig, Settings)> {
        let name = || path.display().to_string();
        let text = yaml::read_text(path, yaml::CONFIG_LIMIT_BYTES)?;
        let mut file = SchedulerConfig::parse(&text).with_context(name)?;
        self.open_gates(&mut file);
        let settings = config::settings(&file, seed).with_context(name)?;
        Ok((file, settings))
    }

    fn open_gates(&self, file: &mut SchedulerConfig) {
        if self.gang_scheduling {
            config::enable_gangs(file);
        }
    }

    fn hold_after_ms(&self) -> anyhow::Result<Option<u64>> {
        let after = self.hold_node_after.to_std();
        let after =
            after.with_context(|| format!("--hold-node-after: {} is negative", self.hold_node_after))?;
        Ok((!after.is_zero()).then(|| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The kubeconfig: the flag's, else the file's; `None`: the usual places.
    #[must_use]
    pub fn kubeconfig(&self, file: &SchedulerConfig) -> Option<PathBuf> {
        let in_file = &file.client_connection.kubeconfig;
        self.kubeconfig.clone().or_else(|| (!in_file.is_empty()).then(|| PathBuf::from(in_file)))
    }
}

impl ElectionFlags {
    /// Writes the given flags over the file's settings.
    fn apply(&self, file: &mut SchedulerConfig) {
        let election = &mut file.leader_election;
        let durations = [
            (self.lease_duration, &mut election.lease_duration),
            (self.renew_deadline, &mut election.renew_deadline),
            (self.retry_period, &mut election.retry_period),
        ];
        for (flag, field) in durations {
            *field = flag.unwrap_or(*field);
        }
        let names = [
            (&self.resource_name, &mut election.resource_name),
            (&self.resource_namespace, &mut election.resource_namespace),
        ];
        for (flag, field) in names {
            if let Some(flag) = flag {
                field.clone_from(flag);
            }
        }
    }
}

/// The configuration without a file.
fn default_file() -> SchedulerConfig {
    let numa = Plugin { name: NUMA_PLUGIN.to_owned(), weight: None };
    let everywhere = PluginSet { enabled: vec![numa], disabled: Vec::new() };
    let mut file = SchedulerConfig::default();
    if let Some(profile) = file.profiles.first_mut() {
        config::DEFAULT_SCHEDULER_NAME.clone_into(&mut profile.scheduler_name);
        profile.plugins.0.insert(ExtensionPoint::MultiPoint, everywhere);
    }
    // The lease of the defaults is kube-scheduler's own; sharing it would leave one of the two without work for ever.
    config::DEFAULT_SCHEDULER_NAME.clone_into(&mut file.leader_election.resource_name);
    file
}

fn random_seed() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0) ^ u64::from(std::process::id())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn flags_are_checked_and_become_settings() {
        for (flags, wanted) in [
            (vec![], Some(Some(config::HOLD_AFTER_MS))),
            (vec!["--hold-node-after=90s"], Some(Some(90_000))),
            (vec!["--hold-node-after=0s"], Some(None)),
            (vec!["--hold-node-after=-1s"], None),
            (vec!["--health-probe-bind-address=:10251"], None),
            (vec!["--health-probe-bind-address=:8081"], Some(Some(config::HOLD_AFTER_MS))),
        ] {
            let args = Cli::parse_from(std::iter::once("scheduler").chain(flags.iter().copied())).args;
            let found = args.load().ok().map(|(_, settings)| settings.hold_after_ms);
            assert_eq!(found, wanted, "{flags:?}");
        }
    }
}
