//! Which images containers run.
//!
//! In: variables of the environment, a registry. Out: pull specifications, and the same as text for scripts that mirror them. Never: a
//! registry's answer.

use crate::options::{Scheduler, Updater};

/// Selects digests instead of tags when it is there, whatever it says.
pub const USE_SHA: &str = "TAS_IMAGES_USE_SHA";

/// Every image there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Ours: exporter and scheduler.
    pub tholepin: String,
    /// kube-scheduler with scheduler-plugins.
    pub scheduler_plugin: String,
    /// scheduler-plugins' controller.
    pub scheduler_controller: String,
    /// resource-topology-exporter.
    pub rte: String,
    /// node-feature-discovery.
    pub nfd: String,
    /// What RTE's second container runs: nothing.
    pub pause: String,
}

/// How an image is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pullspec {
    /// By its tag.
    #[default]
    Tag,
    /// By its digest. Ours has none before it is built and is named by its tag all the same.
    Digest,
}

/// The images that one set of choices uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// What publishes, and the variable that overrides it.
    pub topology_updater: (&'static str, String),
    /// What schedules.
    pub scheduler_plugin: (&'static str, String),
    /// The controller beside it, if there is one.
    pub scheduler_controller: Option<(&'static str, String)>,
}

const THOLEPIN: &str = "THOLEPIN_IMAGE";
const SCHEDULER: &str = "TAS_SCHEDULER_PLUGIN_IMAGE";
const CONTROLLER: &str = "TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE";
const RTE: &str = "TAS_RESOURCE_EXPORTER_IMAGE";
const NFD: &str = "TAS_NODE_FEATURE_DISCOVERY_IMAGE";
const PAUSE: &str = "THOLEPIN_PAUSE_IMAGE";

impl Images {
    /// The defaults, and what variables say instead; an empty variable means an empty name, as with the Go deployer.
    pub fn new(pullspec: Pullspec, variable: impl Fn(&str) -> Option<String>) -> Self {
        let image = |name: &str, repository: &str, tag: &str, digest: &str| {
            variable(name).unwrap_or_else(|| match pullspec {
                Pullspec::Tag => format!("{repository}:{tag}"),
                Pullspec::Digest => format!("{repository}@sha256:{digest}"),
            })
        };
        Self {
            tholepin: variable(THOLEPIN)
                .unwrap_or_else(|| concat!("tholepin:", env!("CARGO_PKG_VERSION")).to_owned()),
            scheduler_plugin: image(
                SCHEDULER,
                "registry.k8s.io/scheduler-plugins/kube-scheduler",
                "v0.27.8",
                "5b1e96f23e87f6e38e2e31062cdc705d34728dc8181b3b78298d689e30156dbc",
            ),
            scheduler_controller: image(
                CONTROLLER,
                "registry.k8s.io/scheduler-plugins/controller",
                "v0.27.8",
                "b616f088ab5d5c70b7faa17d08837c8e54ad0e5fef4d7c6a304f70bfd3b89b55",
            ),
            rte: image(
                RTE,
                "quay.io/k8stopologyawareschedwg/resource-topology-exporter",
                "v0.19.3",
                "6e9b01d6b18a38909d523082a06f1a626161f58c72fd0a8f17db2dae9f5e14c3",
            ),
            nfd: image(
                NFD,
                "registry.k8s.io/nfd/node-feature-discovery",
                "v0.15.1",
                "cab8506a76c96a4318d4cb1858ead6fe55a2e0499f69b4201b01d69d4fa14f10",
            ),
            // The Go deployer's is for amd64 only and in a registry that is no more; this one is for all processors.
            pause: variable(PAUSE).unwrap_or_else(|| "registry.k8s.io/pause:3.10".to_owned()),
        }
    }

    /// The same images in another registry: the host is replaced, the rest of each name stays.
    #[must_use]
    pub fn mirrored(self, registry: &str) -> Self {
        let registry = registry.trim_end_matches('/');
        let moved = |image: String| format!("{registry}/{}", without_host(&image));
        Self {
            tholepin: moved(self.tholepin),
            scheduler_plugin: moved(self.scheduler_plugin),
            scheduler_controller: moved(self.scheduler_controller),
            rte: moved(self.rte),
            nfd: moved(self.nfd),
            pause: moved(self.pause),
        }
    }

    /// Those that an updater and a scheduler use.
    #[must_use]
    pub fn used(&self, updater: Updater, scheduler: Scheduler) -> Used {
        let (plugin, controller) = match scheduler {
            Scheduler::Tholepin => ((THOLEPIN, &self.tholepin), None),
            Scheduler::Plugin => {
                ((SCHEDULER, &self.scheduler_plugin), Some((CONTROLLER, self.scheduler_controller.clone())))
            }
        };
        Used {
            topology_updater: match updater {
                Updater::Tholepin => (THOLEPIN, self.tholepin.clone()),
                Updater::Rte => (RTE, self.rte.clone()),
                Updater::Nfd => (NFD, self.nfd.clone()),
            },
            scheduler_plugin: (plugin.0, plugin.1.clone()),
            scheduler_controller: controller,
        }
    }
}

impl Default for Images {
    /// By tag, whatever the environment says.
    fn default() -> Self {
        Self::new(Pullspec::Tag, |_| None)
    }
}

/// A name without its registry: what is before the first slash is one if it could be a host.
fn without_host(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => rest,
        _ => image,
    }
}

#[cfg(test)]
mod tests;
