//! Flags of `tholepin extender`.
//!
//! In: a command line, a `KubeSchedulerConfiguration`. Out: settings of the core and of the listener. Never: a listener
//! that strangers reach and that binds pods for whom it does not know.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::bail;
use runtime::{log, tls};

use crate::config;
use crate::core::{Profile, Settings};

/// Answer another scheduler's questions about NUMA zones, by kube-scheduler's extender protocol: filter, prioritize,
/// preempt, bind. For clusters that keep their scheduler; tholepin scheduler needs none of this.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin extender\n  \
    tholepin extender --bind-address 0.0.0.0:8888 --tls-cert-file tls.crt --tls-private-key-file tls.key \\\n    \
    --client-ca-file ca.crt\n\n\
    In the other scheduler's configuration:\n  \
    extenders:\n  - urlPrefix: http://127.0.0.1:8888\n    filterVerb: filter\n    prioritizeVerb: prioritize\n    \
    preemptVerb: preempt\n    bindVerb: bind\n    weight: 1\n    nodeCacheCapable: true\n    enableHTTPS: false")]
pub struct Args {
    /// File with a KubeSchedulerConfiguration, of whose first profile the arguments of NodeResourceTopologyMatch count
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address of the questions; beyond this machine with TLS and client certificates alone
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8888")]
    pub bind_address: SocketAddr,
    /// Certificate of the listener (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Authorities that sign the certificates of schedulers (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub client_ca_file: Option<PathBuf>,
    /// Address of health checks and metrics
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10253")]
    pub http_bind_address: SocketAddr,
    /// Verbosity as in klog: 2 is info, 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
    /// Format of log lines
    #[arg(long, value_parser = ["text", "json"], default_value = "text")]
    pub logging_format: String,
}

impl Args {
    /// The log format given by flag.
    #[must_use]
    pub fn log_format(&self) -> log::Format {
        if self.logging_format == "json" { log::Format::Json } else { log::Format::Text }
    }

    /// The settings of the core: one profile, whose name no pod has.
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let settings = config::read(self.config.as_deref(), 0)?;
        let with_zones = |profile: &&Profile| profile.numa.is_some();
        let Some(profile) = settings.profiles.iter().find(with_zones).or(settings.profiles.first()) else {
            bail!("the configuration has no profile");
        };
        // The other scheduler names the plugin nowhere: without it in the file, its defaults count.
        let numa = profile.numa.clone().or_else(|| config::default_settings(0).profiles.pop()?.numa);
        let profile = Profile { name: "".into(), numa, ..profile.clone() };
        Ok(Settings { profiles: vec![profile], hold_after_ms: None, ..settings })
    }

    /// TLS of the listener; `None`: plain HTTP on this machine.
    pub(super) fn tls(&self) -> anyhow::Result<Option<tls::Settings>> {
        let is_local = self.bind_address.ip().is_loopback();
        let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_private_key_file) else {
            if !is_local {
                bail!(
                    "--bind-address {}: beyond this machine, --tls-cert-file, --tls-private-key-file and \
                     --client-ca-file are needed",
                    self.bind_address
                );
            }
            return Ok(None);
        };
        if !is_local && self.client_ca_file.is_none() {
            bail!("--bind-address {}: beyond this machine, --client-ca-file is needed", self.bind_address);
        }
        let clients = self.client_ca_file.clone().map(tls::ClientAuth::File);
        Ok(Some(tls::Settings { clients, ..tls::Settings::new(certificate, key) }))
    }
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
    fn beyond_this_machine_clients_need_a_certificate() {
        for (flags, wanted) in [
            ("", Ok(false)),
            ("--bind-address 127.0.0.1:1", Ok(false)),
            ("--bind-address 0.0.0.0:1", Err("are needed")),
            (
                "--bind-address 0.0.0.0:1 --tls-cert-file c --tls-private-key-file k",
                Err("--client-ca-file is needed"),
            ),
            ("--tls-cert-file c --tls-private-key-file k", Ok(true)),
            (
                "--bind-address 0.0.0.0:1 --tls-cert-file c --tls-private-key-file k --client-ca-file a",
                Ok(true),
            ),
        ] {
            let args = Cli::parse_from(std::iter::once("x").chain(flags.split_whitespace())).args;
            match (args.tls(), wanted) {
                (Ok(found), Ok(secure)) => assert_eq!(found.is_some(), secure, "{flags}"),
                (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{flags}: {error}"),
                (found, _) => panic!("{flags}: {found:?}"),
            }
        }
    }
}
