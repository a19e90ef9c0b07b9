//! Labels, annotations and finalizers of KMM.
//!
//! In: a Module's namespace and name. Out: keys. Never: a key for a Module with a dot in its name, which KMM misreads.

/// Finalizer of a Module, while nodes have it.
pub const MODULE_FINALIZER: &str = "kmm.node.kubernetes.io/module-finalizer";
/// Finalizer of a worker pod, until KMM has recorded its end.
pub const WORKER_FINALIZER: &str = "kmm.node.kubernetes.io/nodemodulesconfig-reconciler";
/// Finalizer of a device plugin's pod, until its node's label is removed.
pub const PLUGIN_FINALIZER: &str = "kmm.node.kubernetes.io/node-labeler";
/// On namespaces with Modules.
pub const CONTAINS_MODULES: &str = "kmm.node.k8s.io/contains-modules";
/// On pods: the Module's name.
pub const MODULE_NAME: &str = "kmm.node.kubernetes.io/module.name";
/// On pods of a Module: what they are for, such as [`ROLE_DEVICE_PLUGIN`].
pub const ROLE: &str = "kmm.node.kubernetes.io/role";
/// Value of [`ROLE`].
pub const ROLE_DEVICE_PLUGIN: &str = "device-plugin";
/// On worker pods: [`LOAD`] or [`UNLOAD`].
pub const WORKER_ACTION: &str = "kmm.node.kubernetes.io/worker-action";
/// Value of [`WORKER_ACTION`].
pub const LOAD: &str = "Load";
/// Value of [`WORKER_ACTION`].
pub const UNLOAD: &str = "Unload";
/// On worker pods, as annotation: the configuration they load or unload.
pub const WORKER_CONFIG: &str = "kmm.node.kubernetes.io/worker-config";
/// On worker pods, as annotation: the digest of their configuration.
pub const WORKER_HASH: &str = "kmm.node.kubernetes.io/worker-hash";
/// On worker pods, as annotation: the Module's version.
pub const WORKER_MODULE_VERSION: &str = "kmm.node.kubernetes.io/worker-module-version";
/// On namespaces with Pod Security: the level that KMM's pods need.
pub const POD_SECURITY: (&str, &str) = ("pod-security.kubernetes.io/enforce", "privileged");

const PREFIX: &str = "kmm.node.kubernetes.io/";
const BETA: &str = "beta.kmm.node.kubernetes.io/";

/// On nodes: the Module is loaded.
#[must_use]
pub fn ready(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}.{name}.ready")
}

/// On nodes: the version that is loaded.
#[must_use]
pub fn version_ready(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}.{name}.version.ready")
}

/// On nodes: the device plugin's pod is ready.
#[must_use]
pub fn device_plugin_ready(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}.{name}.device-plugin-ready")
}

/// On nodes: the DRA driver's pod is ready.
#[must_use]
pub fn dra_ready(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}.{name}.dra-ready")
}

/// On nodes: the device plugin's pod should run there.
#[must_use]
pub fn device_plugin_target(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}.{name}.device-plugin-target")
}

/// The prefix of [`version_module`].
pub const VERSION_MODULE: &str = "kmm.node.kubernetes.io/version-module.";

/// On nodes, written by tholepin: the desired version.
#[must_use]
pub fn version_module(namespace: &str, name: &str) -> String {
    format!("{VERSION_MODULE}{namespace}.{name}")
}

/// On nodes: the version that worker pods load.
#[must_use]
pub fn version_worker_pod(namespace: &str, name: &str) -> String {
    format!("{BETA}version-worker-pod.{namespace}.{name}")
}

/// Namespace and name of the Module of a [`version_worker_pod`].
#[must_use]
pub fn worker_pod_module(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix(BETA)?.strip_prefix("version-worker-pod.")?.split_once('.')
}

/// On nodes: the version whose device plugin may run.
#[must_use]
pub fn version_schedule_pod(namespace: &str, name: &str) -> String {
    format!("{BETA}version-schedule-pod.{namespace}.{name}")
}

/// On NodeModulesConfigs: the node should have the Module.
#[must_use]
pub fn module_configured(namespace: &str, name: &str) -> String {
    format!("{BETA}{namespace}.{name}.module-configured")
}

/// On NodeModulesConfigs: the node should have the Module, or still has it.
#[must_use]
pub fn module_in_use(namespace: &str, name: &str) -> String {
    format!("{BETA}{namespace}.{name}.module-in-use")
}

/// The name of the pod that loads or unloads a Module on a node, in the Module's namespace.
#[must_use]
pub fn worker_pod(node: &str, module: &str) -> String {
    format!("kmm-worker-{node}-{module}")
}
