//! Labels, finalizers and condition types of the hardware operator.
//!
//! In and out: constants only.

/// Finalizer of a DeviceConfig, until its Module is gone and its nodes are released.
pub const FINALIZER: &str = "hardware.tholepin.dev/deviceconfig";
/// The finalizer of the authoring guide's sample operator, which the operator removes.
pub const OLD_FINALIZER: &str = "device-config-deletion-finalizer";
/// The operator's field manager.
pub const FIELD_MANAGER: &str = "tholepin-hardware";
/// The lease for leader election of hardware operators.
pub const LEASE: &str = "deviceconfig.hardware.tholepin.dev";
/// Label of nodes: the DeviceConfig that has claimed the node, in the form of `super::claim`. The only selector of
/// Modules.
pub const LABEL_DRIVER: &str = "hardware.tholepin.dev/driver";
/// Taint of nodes whose driver is about to change, which keeps new pods away. Modules tolerate it.
pub const CORDON_TAINT: &str = "hardware.tholepin.dev/changing";
/// Label of objects created for a DeviceConfig: its name.
pub const LABEL_DEVICE_CONFIG: &str = "hardware.tholepin.dev/deviceconfig";
/// Label of objects created by the operator: [`MANAGED_BY`].
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`LABEL_MANAGED_BY`].
pub const MANAGED_BY: &str = "tholepin-operator";

/// Condition: all nodes that should have the driver have the requested one.
pub const READY: &str = "Ready";
/// Condition: an error, with a more specific reason than that of [`READY`].
pub const ERRORED: &str = "Errored";
/// Condition: nodes are changing to the desired state.
pub const PROGRESSING: &str = "Progressing";
/// Condition: some nodes or devices do not work as they should.
pub const DEGRADED: &str = "Degraded";
/// Condition: no selected node is claimed by another DeviceConfig.
pub const NODE_SELECTOR_VALID: &str = "NodeSelectorValid";
/// Condition: the device plugin runs where the driver is loaded.
pub const DEVICE_PLUGIN_READY: &str = "DevicePluginReady";
/// Condition: a new driver version would be rolled out.
pub const UPGRADEABLE: &str = "Upgradeable";
