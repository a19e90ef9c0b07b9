//! The command line: ours, and that of the topology-aware sample plugin, which is a part of it.
//!
//! In: arguments, environment variables. Out: [`Settings`]. Never: a file read.
//!
//! The sample plugin's flags are `--config-dir`, `--resource`, `--generate`, their short forms and variables, and
//! klog's, which have no effect. Under the sample plugin's name there is no server for metrics unless it is asked for:
//! its pods share the host's network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Parser, ValueEnum};
use node::deviceplugin::{FOLDER, RegistrationMode};
use runtime::http;

use crate::config::{
    Config, DeviceList, Discovery, File, ListedDevice, MAX_DEVICES, Resource, VERSION, resource_name,
};
use crate::discovery::Environment;
use crate::settings::{ConfigSource, Settings};

/// The default address for metrics and health.
const HTTP: &str = ":8080";
/// Names under which the program acts as the sample plugin.
const SAMPLE_NAMES: [&str; 2] = ["deviceplugin", "sample-device-plugin"];

/// Make devices of this node known to its kubelet
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin device-plugin --config /etc/tholepin/devices.yaml\n  \
    tholepin device-plugin --config-dir /etc/devices --resource example.com/deviceA\n  \
    tholepin device-plugin --resource example.com/test --generate 4")]
pub struct Args {
    /// Verbosity as in klog: 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
    /// The configuration file; read again on SIGHUP and when it changes
    #[arg(long, value_name = "FILE", env = "THOLEPIN_DEVICES", conflicts_with_all = ["resources", "generate"])]
    config: Option<PathBuf>,
    /// Without --config: the folder with lists of devices, `<resource with . and / as _>.yaml`
    #[arg(short = 'C', long, value_name = "DIR", default_value = "/etc/devices")]
    config_dir: PathBuf,
    /// Without --config: the resource; may be repeated
    #[arg(
        short = 'r',
        long = "resource",
        value_name = "NAME",
        env = "DEVICE_RESOURCE_NAME",
        value_delimiter = ','
    )]
    resources: Vec<String>,
    /// Without --config: the number of made-up devices (Dev-0 and so on), instead of those in a list
    #[arg(short = 'G', long, value_name = "COUNT", env = "DEVICE_GENERATE_COUNT", default_value_t = 0)]
    generate: usize,
    /// The name of this node [default: the host's name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,
    /// How the plugin gets known to the kubelet
    #[arg(long, value_enum, default_value_t = Registration::Register)]
    registration: Registration,
    /// The kubelet's folder for plugin sockets [default: /var/lib/kubelet/device-plugins, or plugins_registry with the
    /// watcher]
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    /// The folder where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sysfs: PathBuf,
    /// The folder of Container Device Interface files
    #[arg(long, value_name = "DIR", default_value = cdi::GENERATED_DIR)]
    cdi_dir: PathBuf,
    /// Allow devices that give their containers the whole node: a mount of / or of the kubelet's folder, /dev/mem
    #[arg(long)]
    allow_host_paths: bool,
    /// The address that serves metrics and health; 0 turns them off [default: :8080]
    #[arg(long, value_name = "ADDRESS")]
    http_bind_address: Option<String>,
    /// The address that serves health alone: :PORT, ADDRESS:PORT, or 0 for none
    #[arg(long, value_name = "ADDRESS", default_value = "0", value_parser = http::address)]
    health_probe_bind_address: http::Listen,
    #[command(flatten)]
    dra: crate::dra::Args,
    #[command(flatten)]
    klog: Klog,
}

/// How the kubelet gets to know of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Registration {
    /// The plugin registers on the kubelet's socket, and again after each restart of the kubelet
    Register,
    /// The kubelet finds the plugin's socket in its folder of plugins
    Watcher,
}

/// Flags of Go programs, accepted without effect.
#[derive(Clone, Debug, clap::Args)]
struct Klog {
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, value_name = "BOOL")]
    alsologtostderr: Option<Option<String>>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, value_name = "BOOL")]
    logtostderr: Option<Option<String>>,
    #[arg(long = "add_dir_header", alias = "add-dir-header", hide = true, num_args = 0..=1, require_equals = true)]
    add_dir_header: Option<Option<String>>,
    #[arg(long = "one_output", alias = "one-output", hide = true, num_args = 0..=1, require_equals = true)]
    one_output: Option<Option<String>>,
    #[arg(long = "skip_headers", alias = "skip-headers", hide = true, num_args = 0..=1, require_equals = true)]
    skip_headers: Option<Option<String>>,
    #[arg(long = "skip_log_headers", alias = "skip-log-headers", hide = true, num_args = 0..=1, require_equals = true)]
    skip_log_headers: Option<Option<String>>,
    #[arg(long, hide = true)]
    stderrthreshold: Option<String>,
    #[arg(long, hide = true)]
    vmodule: Option<String>,
    #[arg(long = "log_dir", alias = "log-dir", hide = true)]
    log_dir: Option<String>,
    #[arg(long = "log_file", alias = "log-file", hide = true)]
    log_file: Option<String>,
    #[arg(long = "log_file_max_size", alias = "log-file-max-size", hide = true)]
    log_file_max_size: Option<String>,
    #[arg(long = "log_backtrace_at", alias = "log-backtrace-at", hide = true)]
    log_backtrace_at: Option<String>,
}

/// The sample plugin's command line.
#[derive(Debug, Parser)]
#[command(name = "deviceplugin", version)]
struct Sample {
    #[command(flatten)]
    args: Args,
}

/// Whether a program name is one of the sample plugin's.
#[must_use]
pub fn is_sample_name(name: &str) -> bool {
    SAMPLE_NAMES.contains(&name)
}

/// Parses the sample plugin's command line, its own name first.
///
/// # Errors
/// When the arguments are invalid; a request for help is one of these errors.
pub fn parse_sample(words: &[String]) -> Result<Args, clap::Error> {
    let mut args = Sample::try_parse_from(words)?.args;
    args.http_bind_address.get_or_insert_with(|| "0".to_owned());
    Ok(args)
}

impl Args {
    /// The settings these arguments result in.
    ///
    /// # Errors
    /// Names the flag and what is allowed.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let (registration, usual_dir) = match self.registration {
            Registration::Register => (RegistrationMode::Register, FOLDER),
            Registration::Watcher => (RegistrationMode::Watcher, node::pluginwatcher::FOLDER),
        };
        let socket_dir = self.socket_dir.clone().unwrap_or_else(|| usual_dir.into());
        if !socket_dir.is_absolute() {
            bail!("--socket-dir {:?}: allowed are absolute paths", socket_dir.display().to_string());
        }
        let http = self.http_bind_address.as_deref().unwrap_or(HTTP);
        let http = http::address(http).context("--http-bind-address")?;
        let health = ("--health-probe-bind-address", self.health_probe_bind_address);
        http::distinct(("--http-bind-address", http), health).map_err(anyhow::Error::msg)?;
        let node = self.node_name.clone().filter(|name| !name.is_empty());
        let environment = Environment {
            node: node.unwrap_or_else(runtime::host::name),
            sysfs: self.sysfs.clone(),
            allow_host_paths: self.allow_host_paths,
        };
        let dra = self.dra.settings(&environment.node, self.cdi_dir.clone())?;
        Ok(Settings {
            source: self.source()?,
            dra,
            environment,
            registration,
            socket_dir,
            cdi_dir: self.cdi_dir.clone(),
            http,
            health: self.health_probe_bind_address,
        })
    }

    fn source(&self) -> anyhow::Result<ConfigSource> {
        if let Some(path) = &self.config {
            return Ok(ConfigSource::File(path.clone()));
        }
        let names: Vec<&String> = self.resources.iter().filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            bail!("no devices: give --config FILE, or --resource NAME (DEVICE_RESOURCE_NAME)");
        }
        if self.generate > MAX_DEVICES {
            bail!("--generate {}: allowed are 0 to {MAX_DEVICES}", self.generate);
        }
        let mut resources = BTreeMap::new();
        for name in names {
            resource_name(name).map_err(|reason| anyhow::anyhow!("--resource {reason}"))?;
            resources.insert(name, self.resource(name));
        }
        let resources = resources.into_values().collect();
        Ok(ConfigSource::Flags(Config { version: VERSION.to_owned(), resources }))
    }

    fn resource(&self, name: &str) -> Resource {
        let discovery = if self.generate > 0 {
            Discovery { list: Some(generated(self.generate)), ..Discovery::default() }
        } else {
            let path = self.config_dir.join(list_file_name(name));
            Discovery { file: Some(File { path }), ..Discovery::default() }
        };
        Resource { sample: true, ..Resource::new(name, discovery) }
    }
}

/// The name of the file with a resource's devices: `example_com_deviceA.yaml`.
fn list_file_name(resource: &str) -> PathBuf {
    Path::new(&format!("{}.yaml", resource.replace(['.', '/'], "_"))).to_owned()
}

fn generated(count: usize) -> DeviceList {
    let entry = |number| ListedDevice {
        id: format!("Dev-{number}").into(),
        healthy: Some(true),
        numanode: Some(-1),
        ..ListedDevice::default()
    };
    DeviceList { devices: BTreeMap::from([("*".to_owned(), (0..count).map(entry).collect())]) }
}

#[cfg(test)]
mod tests;
