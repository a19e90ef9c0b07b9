//! `tholepin operator`.
//!
//! In: a command line. Out: settings. Never: a rule.

pub mod render;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use api::goduration::{GoDuration, GoDurationError};
use clap::ArgAction;
use deployer::detect::PlatformSpec;
use runtime::{http, log};

use crate::place::Told;
use crate::process::{Controllers, Settings, UnknownPart};
use crate::watch::kubelets::Trust;

/// Where the certificate for metrics is.
pub const CERTIFICATES: &str = "/certs";

/// Where to listen, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub Option<SocketAddr>);

/// Keeps the cluster as NUMAResourcesOperator, NUMAResourcesScheduler and DeviceConfig objects ask for.
///
/// Several can run: who holds the lease 0e2a6bd3.openshift-kni.io in the operator's namespace works, the others take over in seconds.
/// Controllers are independent of each other: each has its own watches, and that of DeviceConfigs the lease
/// deviceconfig.hardware.tholepin.dev.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The variables EXPORTER_IMAGE_RESTRICTION, SCHEDULER_IMAGE_VALIDATION and SCHEDULER_IMAGE_DIGESTS say which images of others are allowed,\n\
    as with the Go operator. With its flags: tholepin numaresources-operator --help\n\n\
    Examples:\n  tholepin operator --kubeconfig ~/.kube/config --namespace numaresources\n  \
    tholepin operator --platform openshift:4.20.1 -v 4\n  \
    tholepin operator --leader-elect=false --metrics-bind-address 127.0.0.1:8080 --health-probe-bind-address 0\n  \
    tholepin operator --controllers=deviceconfig\n  \
    tholepin operator --controllers=numaresources,deviceconfig --driver-patience 5m"
)]
pub struct Args {
    /// Kubeconfig; without it KUBECONFIG, ~/.kube/config, then the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The operator's namespace, where its operands run too [default: that of the pod, else numaresources-operator]
    #[arg(long, value_name = "NAME", env = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The pod this runs in: exporters and schedulers get its image
    #[arg(long, value_name = "NAME", env = "PODNAME")]
    pub pod: Option<String>,
    /// Believe this instead of asking the cluster: kubernetes, openshift or hypershift, with its version after a colon
    #[arg(short = 'P', long, value_name = "KIND[:VERSION]")]
    pub platform: Option<PlatformSpec>,
    /// Image of the exporters [default: our own]
    #[arg(long, value_name = "IMAGE")]
    pub exporter_image: Option<String>,
    /// Whether to look after the scheduler; without it one that is there stays as it is
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub scheduler: bool,
    /// Which controllers run, separated by commas: numaresources, deviceconfig
    #[arg(long, value_name = "NAMES", default_value = "numaresources", value_parser = controllers)]
    pub controllers: Controllers,
    /// How long nodes of a DeviceConfig may be on their way before that is told as a problem, such as 90s or 5m
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub driver_patience: Duration,
    /// How long a pod may be on its way to a node of a DeviceConfig: so long the node is closed before it is looked whether its devices are in use
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub binding_patience: Duration,
    /// Copy the conditions of MachineConfigPools to the status
    #[arg(long)]
    pub forward_pool_conditions: bool,
    /// Port of the API server that network policies open; can be repeated [default: 6443 and 443]
    #[arg(long = "api-server-port", value_name = "PORT")]
    pub api_server_ports: Vec<u16>,
    /// Whether to work only while holding the lease
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_value_t = true, default_missing_value = "true", require_equals = true, action = ArgAction::Set)]
    pub leader_elect: bool,
    /// Where metrics are served: :PORT, ADDRESS:PORT, or 0 for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = ":8080", value_parser = listen)]
    pub metrics_bind_address: Address,
    /// Where health checks and the log level are served
    #[arg(long, value_name = "ADDRESS", default_value = ":8081", value_parser = listen)]
    pub health_probe_bind_address: Address,
    /// Folder with tls.crt and tls.key for metrics
    #[arg(long, value_name = "DIR", default_value = CERTIFICATES)]
    pub certificates: PathBuf,
    /// File with the token for kubelets' ports [default: the service account's]
    #[arg(long, value_name = "FILE")]
    pub kubelet_token: Option<PathBuf>,
    /// File with the authority of kubelets' certificates [default: the service account's]
    #[arg(long, value_name = "FILE", conflicts_with = "kubelet_insecure")]
    pub kubelet_authority: Option<PathBuf>,
    /// Do not check kubelets' certificates: whoever answers at a node's address gets the token
    #[arg(long)]
    pub kubelet_insecure: bool,
    /// Verbosity as in klog: 2 is info, 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
    /// How a log line looks
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
    /// The log format asked for.
    #[must_use]
    pub fn log_format(&self) -> log::Format {
        if self.logging_format == "json" { log::Format::Json } else { log::Format::Text }
    }

    /// What it comes to, with the rest of the environment.
    #[must_use]
    pub fn settings(self, variable: &dyn Fn(&str) -> Option<String>) -> Settings {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Settings {
            told: Told {
                given: self.platform.unwrap_or_default(),
                namespace: given(&self.namespace),
                pod: given(&self.pod),
                exporter_image: self.exporter_image,
                forward_pool_conditions: self.forward_pool_conditions,
                api_server_ports: self.api_server_ports,
                ..Told::by_environment(variable)
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
        let Told { given, namespace, pod, exporter_image, .. } = &settings.told;
        assert_eq!(given.platform.unwrap().to_string(), "OpenShift");
        assert_eq!(given.version.as_ref().unwrap().to_string(), "4.20.1");
        assert_eq!(
            (namespace.as_deref(), pod.as_deref(), exporter_image.as_deref()),
            (Some("numa"), Some("p"), Some("e:1"))
        );
        assert!(settings.told.exporter_image_free && settings.told.forward_pool_conditions);
        assert_eq!(settings.told.api_server_ports, [8443, 443]);
        assert_eq!((settings.leader_elect, settings.scheduler), (false, false));
        assert_eq!((settings.metrics, settings.health), (None, "127.0.0.1:9".parse().ok()));
        assert!(
            settings.controllers.has(Part::DeviceConfig) && !settings.controllers.has(Part::NumaResources)
        );
        assert_eq!(settings.driver_patience, Duration::from_secs(90));
        assert_eq!(settings.binding_patience, Duration::from_millis(300));
    }

    #[test]
    fn without_flags_it_is_as_the_peer_has_it() {
        let settings = settings("").unwrap();
        assert!(settings.leader_elect && settings.scheduler);
        assert_eq!(settings.controllers, Controllers::default());
        assert!(
            !settings.controllers.has(Part::DeviceConfig),
            "whoever has not asked for it does not get it"
        );
        let ports = [settings.metrics, settings.health].map(|address| address.map(|address| address.port()));
        assert_eq!(ports, [Some(8080), Some(8081)]);
        assert_eq!(settings.certificates, PathBuf::from("/certs"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
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
