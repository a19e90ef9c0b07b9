//! OpenShift's own kinds: SecurityContextConstraints and MachineConfigs.
//!
//! In: [`Options`]. Out: objects. Never: constraints that allow more or less than the pods request; both are made from
//! the same values.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::access::ServiceAccountRef;
use super::meta::{cluster, labels};
use crate::options::{Options, SccVersion, Updater};
use crate::platform::Platform;
use objects::{Object, ObjectKind};

pub mod hooks;
pub mod selinux;

/// The SELinux type of nodes for programs that connect to the kubelet.
pub const DEVICE_PLUGIN: &str = "container_device_plugin_t";
/// The SELinux type that [`selinux::policy`] defines.
pub const RTE_PROCESS: &str = "rte.process";

/// The pod annotation that selects these constraints among those of the service account.
#[must_use]
pub fn required(constraints: &str) -> (String, String) {
    ("openshift.io/required-scc".to_owned(), constraints.to_owned())
}

/// Whether a MachineConfig installs the SELinux policy: for RTE on OpenShift. HyperShift has no MachineConfigs.
pub(super) fn has_machine_config(options: &Options) -> bool {
    options.platform == Platform::OpenShift
        && options.updater.kind == Updater::Rte
        && options.updater.custom_selinux_policy
}

/// The SELinux type of the updater's containers; `None`: unset.
pub(super) fn selinux_type(options: &Options) -> Option<String> {
    let own = options.updater.scc == SccVersion::V1 && has_machine_config(options);
    let usual = if own { RTE_PROCESS } else { DEVICE_PLUGIN };
    let usual = options.platform.is_openshift().then(|| usual.to_owned());
    options.updater.selinux_type.clone().or(usual)
}

/// The constraints of our exporter or nfd-topology-updater: these volumes and root, nothing else.
pub(super) fn read_only_constraints(
    account: ServiceAccountRef<'_>,
    options: &Options,
    volumes: &[&str],
) -> Object {
    constraints(options, account.name, account, (volumes, true))
}

/// The name of RTE's constraints.
#[must_use]
pub fn rte_constraints_name(options: &Options) -> &'static str {
    match options.updater.scc {
        SccVersion::V1 => "resource-topology-exporter",
        SccVersion::V2 => "resource-topology-exporter-v2",
    }
}

/// The constraints of RTE. Version 1 allows its own SELinux type and all volumes, version 2 the nodes' type and some
/// volumes.
#[must_use]
pub fn rte_constraints(account: ServiceAccountRef<'_>, options: &Options) -> Object {
    let volumes: &[&str] = match options.updater.scc {
        SccVersion::V1 => &["*"],
        SccVersion::V2 => &["configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"],
    };
    constraints(options, rte_constraints_name(options), account, (volumes, false))
}

/// Root with these volumes in the containers' SELinux type, and nothing more; all fields that have no default.
fn constraints(
    options: &Options,
    name: &str,
    account: ServiceAccountRef<'_>,
    (volumes, read_only_root_filesystem): (&[&str], bool),
) -> Object {
    let any = json!({ "type": "RunAsAny" });
    let mut selinux = json!({ "type": "MustRunAs" });
    if let Some(kind) = selinux_type(options) {
        selinux["seLinuxOptions"] = json!({ "type": kind, "level": "s0" });
    }
    let body = json!({
        "metadata": cluster(name),
        "allowHostDirVolumePlugin": true,
        "allowHostIPC": false,
        "allowHostNetwork": false,
        "allowHostPID": false,
        "allowHostPorts": false,
        "allowPrivilegeEscalation": false,
        "allowPrivilegedContainer": false,
        "allowedCapabilities": [],
        "defaultAddCapabilities": [],
        "fsGroup": any,
        "groups": [],
        // Null, because pods select the constraints by annotation; the field is required.
        "priority": null,
        "readOnlyRootFilesystem": read_only_root_filesystem,
        "requiredDropCapabilities": ["ALL"],
        "runAsUser": any,
        "seLinuxContext": selinux,
        "seccompProfiles": ["runtime/default"],
        "supplementalGroups": any,
        "users": [account.user()],
        "volumes": volumes,
    });
    let words = ["security.openshift.io", "v1", "SecurityContextConstraints", "securitycontextconstraints"];
    Object::typed(ObjectKind::from(words), &body)
}

/// The MachineConfig that installs the SELinux policy and, if chosen, the container runtime's hook on nodes.
#[must_use]
pub fn machine_config(options: &Options) -> Object {
    let updater = &options.updater;
    let mut files = if updater.cri_hooks { hooks::files().to_vec() } else { Vec::new() };
    files.push(file("/etc/selinux/rte.cil", 0o644, &selinux::policy(options.version.as_ref())));
    let name = match &updater.name {
        None => "50-resource-topology-exporter".to_owned(),
        Some(name) => format!("51-{name}"),
    };
    let mut metadata = cluster(&name);
    metadata.labels = Some(if updater.machine_config_labels.is_empty() {
        labels([("machineconfiguration.openshift.io/role", "worker")])
    } else {
        updater.machine_config_labels.clone()
    });
    let unit = json!({ "name": "rte-selinux-policy-install.service", "enabled": true, "contents": UNIT });
    let config = json!({
        "ignition": { "version": "3.2.0" },
        "storage": { "files": files },
        "systemd": { "units": [unit] },
    });
    let words = ["machineconfiguration.openshift.io", "v1", "MachineConfig", "machineconfigs"];
    let body = json!({ "metadata": metadata, "spec": { "config": config } });
    Object::typed(ObjectKind::from(words), &body)
}

/// A file of root on a node, as Ignition states it; `mode` as in `chmod`.
fn file(path: &str, mode: u32, text: &str) -> Value {
    // The JSON form of a ByteString is a string in base64.
    let encoded = json!(ByteString(text.as_bytes().to_vec()));
    let encoded = encoded.as_str().unwrap_or_default();
    let source = format!("data:text/plain;charset=utf-8;base64,{encoded}");
    json!({ "path": path, "mode": mode, "overwrite": true, "contents": { "source": source } })
}

/// Loads the policy before the kubelet starts.
const UNIT: &str = "\
[Unit]
Description=Install RTE SELinux policy
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=true
ExecStart=/usr/sbin/semodule -i /etc/selinux/rte.cil

[Install]
WantedBy=multi-user.target
";
