//! Names the operator puts on what it makes and on nodes, and the words of its conditions.
//!
//! In and out: nothing but constants.

/// Keeps a DeviceConfig until its Module is gone and its nodes are released.
pub const FINALIZER: &str = "hardware.tholepin.dev/deviceconfig";
/// The finalizer of the sample operator of the authoring guide, which is taken away wherever it is met.
pub const OLD_FINALIZER: &str = "device-config-deletion-finalizer";
/// As whom the operator writes.
pub const FIELD_MANAGER: &str = "tholepin-hardware";
/// The lease by which one of several operators has the DeviceConfigs.
pub const LEASE: &str = "deviceconfig.hardware.tholepin.dev";
/// On nodes: whose they are, as [`super::claim`] says it. The only selector of Modules.
pub const LABEL_DRIVER: &str = "hardware.tholepin.dev/driver";
/// On what was made for a DeviceConfig: its name.
pub const LABEL_DEVICE_CONFIG: &str = "hardware.tholepin.dev/deviceconfig";
/// On what was made by the operator: [`MANAGED_BY`].
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`LABEL_MANAGED_BY`].
pub const MANAGED_BY: &str = "tholepin-operator";

/// Condition: all nodes that should have the driver have it, as asked for.
pub const READY: &str = "Ready";
/// Condition: something went wrong. Its reason says more than that of [`READY`].
pub const ERRORED: &str = "Errored";
/// Condition: nodes are on their way to what is asked for.
pub const PROGRESSING: &str = "Progressing";
/// Condition: it works less well than it should.
pub const DEGRADED: &str = "Degraded";
/// Condition: no node that the selector matches is in the hands of another DeviceConfig.
pub const NODE_SELECTOR_VALID: &str = "NodeSelectorValid";
/// Condition: the device plugin runs where the driver is loaded.
pub const DEVICE_PLUGIN_READY: &str = "DevicePluginReady";
/// Condition: a new version would reach the nodes.
pub const UPGRADEABLE: &str = "Upgradeable";
