//! The container images.
//!
//! In: environment variables, a registry. Out: image references. Never: a request to a registry.

pub(crate) mod preloaded;

/// The variable that selects digests instead of tags; its value does not matter.
pub const USE_SHA: &str = "TAS_IMAGES_USE_SHA";

/// References of all images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Our own image, for exporter and scheduler.
    pub tholepin: String,
    /// kube-scheduler with scheduler-plugins.
    pub scheduler_plugin: String,
    /// The controller of scheduler-plugins.
    pub scheduler_controller: String,
    /// resource-topology-exporter.
    pub rte: String,
    /// node-feature-discovery.
    pub nfd: String,
    /// The pause image, for RTE's second container.
    pub pause: String,
}

/// The form of image references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pullspec {
    /// With a tag.
    #[default]
    Tag,
    /// With a digest. Our own image has none before it is built, so it keeps its tag.
    Digest,
}

pub(crate) const THOLEPIN: &str = "THOLEPIN_IMAGE";
pub(crate) const SCHEDULER: &str = "TAS_SCHEDULER_PLUGIN_IMAGE";
pub(crate) const CONTROLLER: &str = "TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE";
pub(crate) const RTE: &str = "TAS_RESOURCE_EXPORTER_IMAGE";
pub(crate) const NFD: &str = "TAS_NODE_FEATURE_DISCOVERY_IMAGE";
const PAUSE: &str = "THOLEPIN_PAUSE_IMAGE";

impl Images {
    /// The default references, or those of environment variables. An empty variable means an empty reference, as with
    /// the Go deployer.
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
            // The Go deployer's image is for amd64 only and its registry is gone; this one is for all architectures.
            pause: variable(PAUSE).unwrap_or_else(|| "registry.k8s.io/pause:3.10".to_owned()),
        }
    }

    /// The images in another registry: `registry` replaces the host, the rest of each reference stays.
    #[must_use]
    pub fn mirrored(mut self, registry: &str) -> Self {
        let registry = registry.trim_end_matches('/');
        for image in [
            &mut self.tholepin,
            &mut self.scheduler_plugin,
            &mut self.scheduler_controller,
            &mut self.rte,
            &mut self.nfd,
            &mut self.pause,
        ] {
            *image = format!("{registry}/{}", without_host(image));
        }
        self
    }
}

impl Default for Images {
    /// References with tags; environment variables are not read.
    fn default() -> Self {
        Self::new(Pullspec::Tag, |_| None)
    }
}

/// A reference without its registry. The part before the first slash is a registry if it can be a host name.
fn without_host(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => rest,
        _ => image,
    }
}

#[cfg(test)]
mod tests;
