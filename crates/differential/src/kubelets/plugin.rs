//! Our device plugin with the devices of a session.
//!
//! In: a kubelet, what plugins list. Out: a kubelet that knows the devices. Never: a device that the session has not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::bail;
use deviceplugin::config::Config;
use deviceplugin::discovery::Environment;
use deviceplugin::settings::{ConfigSource, Settings};
use node::deviceplugin::RegistrationMode;
use node::podresources::Client;
use serde_json::{Value, json};
use sim::admit::session::{Plugin, Preferred};
use testkit::kubelet::Kubelet;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long a kubelet may take to know all devices.
const PATIENCE: Duration = Duration::from_secs(60);

/// The plugin, running; dropping it ends it.
#[derive(Debug)]
pub(super) struct DevicePlugin {
    token: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl DevicePlugin {
    /// Starts it, and waits until the kubelet knows the devices.
    ///
    /// # Errors
    /// When the configuration is wrong, or the kubelet does not know the devices in time.
    pub(super) async fn start(kubelet: &Kubelet, plugins: &[Plugin]) -> anyhow::Result<Self> {
        let config = Config::parse("session", &configuration(plugins).to_string())?;
        let settings = Settings {
            source: ConfigSource::Flags(config),
            environment: Environment {
                node: kubelet.name().to_owned(),
                sysfs: kubelet.machine().sys(),
                allow_host_paths: false,
            },
            registration: RegistrationMode::Register,
            socket_dir: kubelet.root_dir().join("device-plugins"),
            cdi_dir: kubelet.host().dir().join("cdi"),
            http: None,
            health: None,
            dra: None,
        };
        let token = CancellationToken::new();
        let task = tokio::spawn(deviceplugin::run(settings, token.clone()));
        let plugin = Self { token, task };
        plugin.known(kubelet, plugins).await?;
        Ok(plugin)
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// When it failed.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.token.cancel();
        (&mut self.task).await?
    }

    /// Waits until the kubelet could hand out each healthy device.
    async fn known(&self, kubelet: &Kubelet, plugins: &[Plugin]) -> anyhow::Result<()> {
        let healthy = |plugin: &Plugin| plugin.devices.iter().filter(|device| device.healthy).count();
        let wanted: BTreeMap<&str, usize> =
            plugins.iter().map(|plugin| (plugin.resource.as_str(), healthy(plugin))).collect();
        let client = Client::new(&kubelet.podresources_socket(), PATIENCE)?;
        let begun = Instant::now();
        loop {
            let known = client.allocatable().await.map(|allocatable| {
                let mut known = BTreeMap::<&str, BTreeSet<String>>::new();
                for devices in allocatable.devices {
                    known.entry(devices.resource.as_str()).or_default().extend(devices.ids);
                }
                known.into_iter().map(|(name, ids)| (name, ids.len())).collect::<BTreeMap<_, _>>()
            });
            if known.as_ref().is_ok_and(|known| *known == wanted) {
                return Ok(());
            }
            if self.task.is_finished() || begun.elapsed() > PATIENCE {
                bail!("the kubelet knows {known:?} and not {wanted:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for DevicePlugin {
    fn drop(&mut self) {
        self.token.cancel();
        self.task.abort();
    }
}

/// YAML, which JSON is.
fn configuration(plugins: &[Plugin]) -> Value {
    let resources: Vec<Value> = plugins.iter().map(resource).collect();
    json!({ "version": "v1alpha1", "resources": resources })
}

fn resource(plugin: &Plugin) -> Value {
    let devices = plugin
        .devices
        .iter()
        .map(|device| json!({ "id": device.id, "healthy": device.healthy, "numanodes": device.nodes }));
    let devices: Vec<Value> = devices.collect();
    json!({ "name": plugin.resource, "discovery": { "list": { "devices": { "*": devices } } } })
}

/// Refuses sessions whose plugins are not like ours.
///
/// # Errors
/// Names the resource whose plugin has another preference than ours.
pub(super) fn check(plugins: &[Plugin]) -> anyhow::Result<()> {
    match plugins.iter().find(|plugin| plugin.preferred != Some(Preferred::Own)) {
        None => Ok(()),
        Some(Plugin { resource, .. }) => {
            bail!("{resource}: our plugin prefers devices by a rule of its own (\"preferred\": \"own\")")
        }
    }
}
