//! The command line of `tholepin operator`.
//!
//! In: a command line. Out: settings. Never: a rule of a controller.

pub mod render;

use runtime::log;

use crate::process::Settings;

/// Keeps the cluster as NUMAResourcesOperator, NUMAResourcesScheduler and DeviceConfig objects describe it.
///
/// Several processes can run. The holder of the lease 0e2a6bd3.openshift-kni.io in the operator's namespace works;
/// another takes over in seconds. The controller of DeviceConfigs is independent: it has its own watches and its own
/// lease, deviceconfig.hardware.tholepin.dev.
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
    /// The settings of the process
    #[command(flatten)]
    pub settings: Settings,
    /// Verbosity as in klog: 2 is info, 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", env = "THOLEPIN_V", default_value_t = 2)]
    pub verbosity: u8,
    /// Format of log lines
    #[arg(long, value_parser = ["text", "json"], env = "THOLEPIN_LOGGING_FORMAT", default_value = "text")]
    pub logging_format: String,
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
        let environment = self.settings.environment.with_variables(variable);
        Settings { environment, ..self.settings }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::environment::EnvironmentOptions;
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
             --forward-pool-conditions --api-server-port 8443 --api-server-port 443 --api-server-cidr 192.0.2.1/32 \
             --kubelet-root-mount --leader-elect=false \
             --metrics-bind-address 0 --health-probe-bind-address 127.0.0.1:9 --certificates /c --kubeconfig k \
             --controllers=deviceconfig --driver-patience 90s --binding-patience 300ms",
        )
        .unwrap();
        let EnvironmentOptions { platform, namespace, pod, exporter_image, .. } = &settings.environment;
        let platform = platform.as_ref().unwrap();
        assert_eq!(platform.platform.unwrap().to_string(), "OpenShift");
        assert_eq!(platform.version.as_ref().unwrap().to_string(), "4.20.1");
        assert_eq!(
            (namespace.as_deref(), pod.as_deref(), exporter_image.as_deref()),
            (Some("numa"), Some("p"), Some("e:1"))
        );
        assert!(settings.environment.exporter_image_free && settings.environment.forward_pool_conditions);
        assert_eq!(settings.environment.api_server_ports, [8443, 443]);
        assert_eq!(settings.environment.api_server_cidrs, ["192.0.2.1/32"]);
        assert!(settings.environment.kubelet_root_mount);
        assert_eq!((settings.leader_elect, settings.scheduler), (false, false));
        assert_eq!((settings.metrics, settings.health), (None, "127.0.0.1:9".parse().ok()));
        assert!(settings.controllers == BTreeSet::from([Part::DeviceConfig]));
        assert_eq!(settings.driver_patience, Duration::from_secs(90));
        assert_eq!(settings.binding_patience, Duration::from_millis(300));
    }

    #[test]
    fn defaults_are_those_of_the_go_operator() {
        let settings = settings("").unwrap();
        assert!(settings.leader_elect && settings.scheduler);
        assert_eq!(
            settings.controllers,
            BTreeSet::from([Part::NumaResources]),
            "deviceconfig is off by default"
        );
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
