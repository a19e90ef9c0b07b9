//! The command line: ours, and that of the topology-aware sample plugin, which is a part of it.
//!
//! In: words, variables. Out: [`Settings`]. Never: a file read.
//!
//! The sample plugin's words are `--config-dir`, `--resource`, `--generate`, their short forms and variables, and klog's, which are
//! taken and have no effect. Called by its name there is no server for metrics unless it is asked for: its pods share the host's network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Parser, ValueEnum};
use node::deviceplugin::{FOLDER, Way};
use runtime::http;

use crate::config::{Config, Discovery, File, MAX_DEVICES, Resource, VERSION, resource_name};
use crate::discovery::Place;
use crate::discovery::list::{Devices, Entry};
use crate::settings::{Settings, Source};

/// Where metrics and health are served unless somebody says otherwise.
const HTTP: &str = ":8080";
/// Names under which the program is the sample plugin.
const SAMPLE: [&str; 2] = ["deviceplugin", "sample-device-plugin"];

/// Make devices of this node known to its kubelet
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin device-plugin --config /etc/tholepin/devices.yaml\n  \
    tholepin device-plugin --config-dir /etc/devices --resource example.com/deviceA\n  \
    tholepin device-plugin --resource example.com/test --generate 4")]
pub struct Args {
    /// Verbosity as in klog: 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
    /// The configuration; read anew on SIGHUP and when it changes
    #[arg(long, value_name = "FILE", env = "THOLEPIN_DEVICES", conflicts_with_all = ["resources", "generate"])]
    config: Option<PathBuf>,
    /// Without a configuration: the folder with lists of devices, `<resource with . and / as _>.yaml`
    #[arg(short = 'C', long, value_name = "DIR", default_value = "/etc/devices")]
    config_dir: PathBuf,
    /// Without a configuration: the resource; may be repeated
    #[arg(
        short = 'r',
        long = "resource",
        value_name = "NAME",
        env = "DEVICE_RESOURCE_NAME",
        value_delimiter = ','
    )]
    resources: Vec<String>,
    /// Without a configuration: that many made-up devices, Dev-0 and so on, instead of those in a list
    #[arg(short = 'G', long, value_name = "COUNT", env = "DEVICE_GENERATE_COUNT", default_value_t = 0)]
    generate: usize,
    /// Name of this node [default: the host's name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,
    /// How the kubelet gets to know of us
    #[arg(long, value_enum, default_value_t = Registration::Register)]
    registration: Registration,
    /// The kubelet's folder for our sockets [default: /var/lib/kubelet/device-plugins, or plugins_registry with the watcher]
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sysfs: PathBuf,
    /// The folder of Container Device Interface files
    #[arg(long, value_name = "DIR", default_value = cdi::GENERATED_DIR)]
    cdi_dir: PathBuf,
    /// Where metrics and health are served; 0 turns them off [default: :8080]
    #[arg(long, value_name = "ADDRESS")]
    http_bind_address: Option<String>,
    #[command(flatten)]
    dra: crate::dra::Args,
    #[command(flatten)]
    klog: Klog,
}

/// How the kubelet gets to know of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Registration {
    /// We register on its socket, and again after each of its restarts
    Register,
    /// It finds our socket in its folder of plugins
    Watcher,
}

/// Words of Go programs, taken without effect.
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

/// Whether the sample plugin is called so.
#[must_use]
pub fn named(name: &str) -> bool {
    SAMPLE.contains(&name)
}

/// The sample plugin's words, its own name first.
///
/// # Errors
/// When they are none; asking for help is one of these errors.
pub fn sample(words: &[String]) -> Result<Args, clap::Error> {
    let mut args = Sample::try_parse_from(words)?.args;
    args.http_bind_address.get_or_insert_with(|| "0".to_owned());
    Ok(args)
}

impl Args {
    /// The settings.
    ///
    /// # Errors
    /// Names the flag and what is allowed.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let (way, folder) = match self.registration {
            Registration::Register => (Way::Register, FOLDER),
            Registration::Watcher => (Way::Watcher, node::pluginwatcher::FOLDER),
        };
        let folder = self.socket_dir.clone().unwrap_or_else(|| folder.into());
        if !folder.is_absolute() {
            bail!("--socket-dir {:?}: allowed are absolute paths", folder.display().to_string());
        }
        let http = self.http_bind_address.as_deref().unwrap_or(HTTP);
        let node = self.node_name.clone().filter(|name| !name.is_empty());
        let place = Place { node: node.unwrap_or_else(runtime::host::name), sysfs: self.sysfs.clone() };
        let dra = self.dra.settings(&place.node, self.cdi_dir.clone())?;
        Ok(Settings {
            source: self.source()?,
            dra,
            place,
            way,
            folder,
            cdi_dir: self.cdi_dir.clone(),
            http: http::address(http).context("--http-bind-address")?,
        })
    }

    fn source(&self) -> anyhow::Result<Source> {
        if let Some(path) = &self.config {
            return Ok(Source::File(path.clone()));
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
        Ok(Source::Flags(Config { version: VERSION.to_owned(), resources }))
    }

    fn resource(&self, name: &str) -> Resource {
        let discovery = if self.generate > 0 {
            Discovery { list: Some(generated(self.generate)), ..Discovery::default() }
        } else {
            let path = self.config_dir.join(file_name(name));
            Discovery { file: Some(File { path }), ..Discovery::default() }
        };
        Resource { sample: true, ..Resource::new(name, discovery) }
    }
}

/// The file with a resource's devices: `example_com_deviceA.yaml`.
fn file_name(resource: &str) -> PathBuf {
    Path::new(&format!("{}.yaml", resource.replace(['.', '/'], "_"))).to_owned()
}

fn generated(count: usize) -> Devices {
    let entry = |number| Entry {
        id: format!("Dev-{number}").into(),
        healthy: Some(true),
        numanode: Some(-1),
        ..Entry::default()
    };
    Devices { devices: BTreeMap::from([("*".to_owned(), (0..count).map(entry).collect())]) }
}

#[cfg(test)]
mod tests;
