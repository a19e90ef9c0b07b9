//! The settings of the operator's process, which are flags too.
//!
//! In: a command line. Out: [`Settings`]. Never: a rule of a controller.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use api::goduration::{GoDuration, GoDurationError};
use clap::ArgAction;
use runtime::http;
use strum::EnumString;

use crate::environment::EnvironmentOptions;
use crate::watch::kubelets::Trust;

/// The default folder with the certificate for metrics.
pub const CERTIFICATES: &str = "/certs";

/// Controllers that belong together and are independent of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Part {
    /// NUMAResourcesOperators and NUMAResourcesSchedulers.
    NumaResources,
    /// DeviceConfigs.
    DeviceConfig,
}

/// The settings of a process. The comments of its fields are the help of the flags.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Settings {
    /// Kubeconfig [default: KUBECONFIG, then ~/.kube/config, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Options of the environment
    #[command(flatten)]
    pub environment: EnvironmentOptions,
    /// Whether to manage the scheduler; with false an existing one stays as it is
    #[arg(long, value_name = "BOOL", env = "THOLEPIN_SCHEDULER", default_value_t = true, action = ArgAction::Set)]
    pub scheduler: bool,
    /// Controllers that run, separated by commas: numaresources, deviceconfig
    #[arg(long, value_name = "NAMES", default_value = "numaresources", value_parser = controllers)]
    pub controllers: BTreeSet<Part>,
    /// Time for a DeviceConfig's nodes to get ready before a condition reports a problem, such as 90s or 5m
    #[arg(long, value_name = "DURATION", env = "THOLEPIN_DRIVER_PATIENCE", default_value = "1m", value_parser = duration)]
    pub driver_patience: Duration,
    /// Time for pods to be bound after a DeviceConfig's node is closed, before the use of its devices is checked
    #[arg(long, value_name = "DURATION", env = "THOLEPIN_BINDING_PATIENCE", default_value = "1s", value_parser = duration)]
    pub binding_patience: Duration,
    /// Whether to work only while holding the lease
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_value_t = true, default_missing_value = "true")]
    #[arg(require_equals = true, env = "THOLEPIN_LEADER_ELECT", action = ArgAction::Set)]
    pub leader_elect: bool,
    /// Address for metrics: :PORT, ADDRESS:PORT, or 0 for none
    #[arg(long = "metrics-bind-address", value_name = "ADDRESS", default_value = ":8080")]
    #[arg(value_parser = http::address)]
    pub metrics: http::Listen,
    /// Address for health checks and the log level: :PORT, ADDRESS:PORT, or 0 for none
    #[arg(long = "health-probe-bind-address", value_name = "ADDRESS", default_value = ":8081")]
    #[arg(value_parser = http::address)]
    pub health: http::Listen,
    /// Folder with tls.crt and tls.key for metrics
    #[arg(long, value_name = "DIR", default_value = CERTIFICATES)]
    pub certificates: PathBuf,
    /// Credentials for kubelets
    #[command(flatten)]
    pub kubelets: Trust,
}

fn controllers(text: &str) -> Result<BTreeSet<Part>, String> {
    let unknown =
        |_| format!("{text:?} is no controller: numaresources, deviceconfig, or both separated by a comma");
    text.split(',').map(|name| name.trim().parse().map_err(unknown)).collect()
}

fn duration(text: &str) -> Result<Duration, String> {
    let read: GoDuration = text.parse().map_err(|error: GoDurationError| error.to_string())?;
    read.to_std().filter(|time| !time.is_zero()).ok_or_else(|| format!("{text:?} is no time above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        use Part::{DeviceConfig, NumaResources};
        for (text, wanted) in [
            ("numaresources", Some([NumaResources].as_slice())),
            ("deviceconfig", Some([DeviceConfig].as_slice())),
            ("deviceconfig, numaresources", Some([NumaResources, DeviceConfig].as_slice())),
            ("", None),
            ("numaresources,", None),
            ("DeviceConfig", None),
        ] {
            let wanted = wanted.map(|parts| parts.iter().copied().collect());
            assert_eq!(controllers(text).ok(), wanted, "{text}");
        }
        let error = controllers("all").unwrap_err();
        assert!(error.contains("\"all\"") && error.contains("deviceconfig"), "{error}");
    }
}
