//! Names that KMM gives, and how they are read.
//!
//! In: a module's namespace and name. Out: labels, finalizers. Never: an object.

/// KMM's API group.
pub const GROUP: &str = "kmm.sigs.x-k8s.io";
/// The only version that is served.
pub const VERSION: &str = "v1beta1";
/// Keeps a Module until its kernel module is unloaded everywhere.
pub const MODULE_FINALIZER: &str = "kmm.node.kubernetes.io/module-finalizer";
/// Keeps a device plugin's pod until its node is no longer labelled for it.
pub const POD_FINALIZER: &str = "kmm.node.kubernetes.io/node-labeler";
/// On namespaces with Modules.
pub const CONTAINS_MODULES: &str = "kmm.node.k8s.io/contains-modules";
/// On pods: the Module's name.
pub const MODULE_NAME: &str = "kmm.node.kubernetes.io/module.name";
/// On pods: what they are for.
pub const ROLE: &str = "kmm.node.kubernetes.io/role";
/// The role of a device plugin.
pub const DEVICE_PLUGIN: &str = "device-plugin";
/// The role of a DRA driver.
pub const DRA: &str = "dra";
/// On worker pods: `Load` or `Unload`.
pub const WORKER_ACTION: &str = "kmm.node.kubernetes.io/worker-action";

pub(super) const PREFIX: &str = "kmm.node.kubernetes.io/";
pub(super) const BETA: &str = "beta.kmm.node.kubernetes.io/";
pub(super) const READY: &str = ".ready";
pub(super) const VERSION_READY: &str = ".version.ready";
pub(super) const PLUGIN_READY: &str = ".device-plugin-ready";
pub(super) const DRA_READY: &str = ".dra-ready";
pub(super) const PLUGIN_TARGET: &str = ".device-plugin-target";
pub(super) const CONFIGURED: &str = ".module-configured";
pub(super) const IN_USE: &str = ".module-in-use";

/// Namespace and name of a module; labels have `NAMESPACE.NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModuleName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ModuleName {
    /// Of this namespace and name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// On a node where it is loaded as configured. The value is empty.
    #[must_use]
    pub fn ready(&self) -> String {
        self.label(PREFIX, READY)
    }

    /// On the same node; the value is the version that is loaded.
    #[must_use]
    pub fn version_ready(&self) -> String {
        self.label(PREFIX, VERSION_READY)
    }

    /// On a node with a ready pod of its device plugin.
    #[must_use]
    pub fn plugin_ready(&self) -> String {
        self.label(PREFIX, PLUGIN_READY)
    }

    /// On a node with a ready pod of its DRA driver.
    #[must_use]
    pub fn dra_ready(&self) -> String {
        self.label(PREFIX, DRA_READY)
    }

    /// On a node that its device plugin may be on.
    #[must_use]
    pub fn plugin_target(&self) -> String {
        self.label(PREFIX, PLUGIN_TARGET)
    }

    /// On a NodeModulesConfig that says it shall be loaded.
    #[must_use]
    pub fn configured(&self) -> String {
        self.label(BETA, CONFIGURED)
    }

    /// On a NodeModulesConfig that says it shall be loaded, or is.
    #[must_use]
    pub fn in_use(&self) -> String {
        self.label(BETA, IN_USE)
    }

    /// On a node, by the manager of upgrades: the version it shall have.
    #[must_use]
    pub fn version_module(&self) -> String {
        format!("{PREFIX}version-module.{}.{}", self.namespace, self.name)
    }

    /// On a node, by KMM: the version its worker may load.
    #[must_use]
    pub fn version_worker(&self) -> String {
        format!("{BETA}version-worker-pod.{}.{}", self.namespace, self.name)
    }

    /// On a node, by KMM: the version whose device plugin may be there.
    #[must_use]
    pub fn version_schedule(&self) -> String {
        format!("{BETA}version-schedule-pod.{}.{}", self.namespace, self.name)
    }

    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn label(&self, prefix: &str, suffix: &str) -> String {
        format!("{prefix}{}.{}{suffix}", self.namespace, self.name)
    }

    /// The module that a label with this prefix and suffix is about.
    pub(super) fn between(label: &str, prefix: &str, suffix: &str) -> Option<Self> {
        let inner = label.strip_prefix(prefix)?.strip_suffix(suffix)?;
        let (namespace, name) = inner.split_once('.')?;
        Some(Self::new(namespace, name))
    }

    /// The module of a version label. As KMM reads it: the last two of all that dots separate, so a name with a
    /// dot is misread.
    pub(super) fn versioned(label: &str) -> Option<Self> {
        let kinds = ["version-module.", "version-worker-pod.", "version-schedule-pod."];
        let inner = label.strip_prefix(BETA).or_else(|| label.strip_prefix(PREFIX))?;
        kinds.iter().find(|kind| inner.starts_with(**kind))?;
        let mut parts = label.rsplit('.');
        let (name, namespace) = (parts.next()?, parts.next()?);
        Some(Self::new(namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_they_are_written() {
        let of = ModuleName::new("hw", "acc-module");
        assert_eq!(of.ready(), "kmm.node.kubernetes.io/hw.acc-module.ready");
        assert_eq!(of.version_ready(), "kmm.node.kubernetes.io/hw.acc-module.version.ready");
        assert_eq!(of.in_use(), "beta.kmm.node.kubernetes.io/hw.acc-module.module-in-use");
        assert_eq!(ModuleName::between(&of.version_ready(), PREFIX, VERSION_READY), Some(of.clone()));
        assert_eq!(ModuleName::between(&of.configured(), BETA, CONFIGURED), Some(of.clone()));
        assert_eq!(ModuleName::between(&of.configured(), BETA, IN_USE), None);
        for label in [of.version_module(), of.version_worker(), of.version_schedule()] {
            assert_eq!(ModuleName::versioned(&label), Some(of.clone()), "{label}");
        }
        assert_eq!(ModuleName::versioned(&of.version_ready()), None);
        // Its second half is taken for the whole.
        assert_eq!(
            ModuleName::versioned(&ModuleName::new("hw", "a.b").version_module()),
            Some(ModuleName::new("a", "b"))
        );
    }
}
