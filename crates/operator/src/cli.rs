//! The command line of `tholepin operator`.
//!
//! In: a command line. Out: settings. Never: a rule of a controller.

pub mod render;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use api::goduration::{GoDuration, GoDurationError};
use clap::ArgAction;
use deployer::detect::PlatformSpec;
use runtime::{http, log};

use crate::environment::EnvironmentOptions;
use crate::process::{Controllers, Settings, UnknownPart};
use crate::watch::kubelets::Trust;

/// The folder with the certificate for metrics.
pub const CERTIFICATES: &str = "/certs";

/// An address to listen on; `None`: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub Option<SocketAddr>);

/// Keeps the cluster as NUMAResourcesOperator, NUMAResourcesScheduler and DeviceConfig objects describe it.
///
/// Several processes can run. The holder of the lease 0e2a6bd3.openshift-kni.io in the operator's namespace works; another
/// takes over in seconds. The controller of DeviceConfigs is independent: it has its own watches and its own lease,
/// deviceconfig.hardware.tholepin.dev.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The variables EXPORTER_IMAGE_RESTRICTION, SCHEDULER_IMAGE_VALIDATION and SCHEDULER_IMAGE_DIGESTS\n\
    choose the allowed images, as with the Go operator. Its flags: tholepin numaresources-operator --help\n\n\
    Examples:\n  tholepin operator --kubeconfig ~/.kube/config --namespace numaresources\n  \
    tholepin operator --platform openshift:4.20.1 -v 4\n  \
    tholepin operator --leader-elect=false --metrics-bind-address 127.0.0.1:8080 --health-probe-bind-address 0\n  \
    tholepin operator --controllers=deviceconfig\n  \
    tholepin operator --controllers=numaresources,deviceconfig --driver-patience 5m"
)]
pub struct Args {
    /// Kubeconfig [default: KUBECONFIG, then ~/.kube/config, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of the operator and of its operands [default: the pod's, else numaresources-operator]
    #[arg(long, value_name = "NAME", env = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Name of the operator's own pod, whose image exporters and schedulers get
    #[arg(long, value_name = "NAME", env = "PODNAME")]
    pub pod: Option<String>,
    /// Platform instead of the detected one: kubernetes, openshift or hypershift, with its version after a colon
    #[arg(short = 'P', long, value_name = "KIND[:VERSION]")]
    pub platform: Option<PlatformSpec>,
    /// Image of the exporters [default: the operator's own]
    #[arg(long, value_name = "IMAGE")]
    pub exporter_image: Option<String>,
    /// Whether to manage the scheduler; with false an existing one stays as it is
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub scheduler: bool,
    /// Controllers that run, separated by commas: numaresources, deviceconfig
    #[arg(long, value_name = "NAMES", default_value = "numaresources", value_parser = controllers)]
    pub controllers: Controllers,
    /// Time for a DeviceConfig's nodes to get ready before a condition reports a problem, such as 90s or 5m
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub driver_patience: Duration,
    /// Time for pods to be bound after a DeviceConfig's node is closed, before the use of its devices is checked
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub binding_patience: Duration,
    /// Copy the conditions of MachineConfigPools to the status of the NUMAResourcesOperator
    #[arg(long)]
    pub forward_pool_conditions: bool,
    /// Port of API servers in network policies; can be repeated [default: 6443 and 443]
    #[arg(long = "api-server-port", value_name = "PORT")]
    pub api_server_ports: Vec<u16>,
    /// Whether to work only while holding the lease
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_value_t = true, default_missing_value = "true")]
    #[arg(require_equals = true, action = ArgAction::Set)]
    pub leader_elect: bool,
    /// Address for metrics: :PORT, ADDRESS:PORT, or 0 for none
    #[arg(long, value_name = "ADDRESS", default_value = ":8080", value_parser = listen)]
    pub metrics_bind_address: Address,
    /// Address for health checks and the log level: :PORT, ADDRESS:PORT, or 0 for none
    #[arg(long, value_name = "ADDRESS", default_value = ":8081", value_parser = listen)]
    pub health_probe_bind_address: Address,
    /// Folder with tls.crt and tls.key for metrics
    #[arg(long, value_name = "DIR", default_value = CERTIFICATES)]
    pub certificates: PathBuf,
    /// File with the token for kubelets [default: the service account's]
    #[arg(long, value_name = "FILE")]
    pub kubelet_token: Option<PathBuf>,
    /// File with the authority of kubelets' certificates [default: the service account's]
    #[arg(long, value_name = "FILE", conflicts_with = "kubelet_insecure")]
    pub kubelet_authority: Option<PathBuf>,
    /// Do not check kubelets' certificates: any server at a node's address gets the token
    #[arg(long)]
    pub kubelet_insecure: bool,
    /// Verbosity as in klog: 2 is info, 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
    /// Format of log lines
    #[arg(long, value_parser = ["text", "json"], default_value = "text")]
    pub logging_format: String,
}

fn duration(text: &str) -> Result<Duration, String> {
    let read: GoDuration = text.parse().map_err(|error: GoDurationError| error.to_string())?;
    read.to_std().filter(|time| !time.is_zero()).ok_or_else(|| format!("{text:?} is no time above 0"))
}

fn controllers(text: &str) -> Result<Controllers, UnknownPart> {
    text.parse()
}

fn listen(text: &str) -> Result<Address, http::AddressError> {
    http::address(text).map(Address)
}

impl Args {
    /// The log format.
    #[must_use]
    pub fn log_format(&self) -> log::Format {
        if self.logging_format == "json" { log::Format::Json } else { log::Format::Text }
    }

    /// The settings, from these arguments and environment variables.
    #[must_use]
    pub fn settings(self, variable: &dyn Fn(&str) -> Option<String>) -> Settings {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Settings {
            environment: EnvironmentOptions {
                platform: self.platform.unwrap_or_default(),
                namespace: given(&self.namespace),
                pod: given(&self.pod),
                exporter_image: self.exporter_image,
                forward_pool_conditions: self.forward_pool_conditions,
                api_server_ports: self.api_server_ports,
                ..EnvironmentOptions::from_variables(variable)
            },
            kubelets: Trust::of(self.kubelet_token, self.kubelet_authority, self.kubelet_insecure),
            kubeconfig: self.kubeconfig,
            context: self.context,
            metrics: self.metrics_bind_address.0,
            health: self.health_probe_bind_address.0,
            certificates: self.certificates,
            leader_elect: self.leader_elect,
            scheduler: self.scheduler,
            controllers: self.controllers,
            driver_patience: self.driver_patience,
            binding_patience: self.binding_patience,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::process::Part;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn settings(line: &str) -> Result<Settings, String> {
        let words = std::iter::once("operator").chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(cli.args.settings(&|name| (name == "EXPORTER_IMAGE_RESTRICTION").then(|| "false".to_owned())))
    }

    #[test]
    fn flags_become_settings() {
        let settings = settings(
            "--namespace numa --pod p --platform openshift:4.20.1 --exporter-image e:1 --scheduler false \
             --forward-pool-conditions --api-server-port 8443 --api-server-port 443 --leader-elect=false \
             --metrics-bind-address 0 --health-probe-bind-address 127.0.0.1:9 --certificates /c --kubeconfig k \
             --controllers=deviceconfig --driver-patience 90s --binding-patience 300ms",
        )
        .unwrap();
        let EnvironmentOptions { platform, namespace, pod, exporter_image, .. } = &settings.environment;
        assert_eq!(platform.platform.unwrap().to_string(), "OpenShift");
        assert_eq!(platform.version.as_ref().unwrap().to_string(), "4.20.1");
        assert_eq!(
            (namespace.as_deref(), pod.as_deref(), exporter_image.as_deref()),
            (Some("numa"), Some("p"), Some("e:1"))
        );
        assert!(settings.environment.exporter_image_free && settings.environment.forward_pool_conditions);
        assert_eq!(settings.environment.api_server_ports, [8443, 443]);
        assert_eq!((settings.leader_elect, settings.scheduler), (false, false));
        assert_eq!((settings.metrics, settings.health), (None, "127.0.0.1:9".parse().ok()));
        assert!(
            settings.controllers.has(Part::DeviceConfig) && !settings.controllers.has(Part::NumaResources)
        );
        assert_eq!(settings.driver_patience, Duration::from_secs(90));
        assert_eq!(settings.binding_patience, Duration::from_millis(300));
    }

    #[test]
    fn defaults_are_those_of_the_go_operator() {
        let settings = settings("").unwrap();
        assert!(settings.leader_elect && settings.scheduler);
        assert_eq!(settings.controllers, Controllers::default());
        assert!(!settings.controllers.has(Part::DeviceConfig), "deviceconfig is off by default");
        let ports = [settings.metrics, settings.health].map(|address| address.map(|address| address.port()));
        assert_eq!(ports, [Some(8080), Some(8081)]);
        assert_eq!(settings.certificates, PathBuf::from("/certs"));
    }

    #[test]
    fn invalid_values_are_refused() {
        for (line, wanted) in [
            ("--metrics-bind-address 8080", "is no address to listen on"),
            ("--platform minikube", "none of Kubernetes, OpenShift, HyperShift"),
            ("--scheduler maybe", "invalid value 'maybe'"),
            ("--controllers=all", "numaresources, deviceconfig, or both"),
            ("--driver-patience 0", "no time above 0"),
            ("--binding-patience=-1s", "no time above 0"),
            ("--driver-patience soon", "expected numbers with units"),
        ] {
            let error = settings(line).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
