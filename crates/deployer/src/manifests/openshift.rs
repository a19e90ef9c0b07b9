//! OpenShift's own kinds: SecurityContextConstraints and MachineConfigs.
//!
//! In: [`Options`]. Out: objects, from types of our own. Never: constraints that allow more or less than the pods
//! request; both are made from the same values.

use serde::Serialize;

use super::Error;
use super::access::ServiceAccountRef;
use super::meta::{cluster, labels};
use crate::options::{Options, SccVersion, Updater};
use crate::platform::Platform;
use objects::{Object, ObjectKind, object};

pub mod hooks;
mod ignition;
pub mod selinux;

/// The SELinux type of nodes for programs that connect to the kubelet.
pub const DEVICE_PLUGIN: &str = "container_device_plugin_t";
/// The SELinux type that [`selinux::policy`] defines.
pub const RTE_PROCESS: &str = "rte.process";
/// The pod annotation that selects SecurityContextConstraints.
const REQUIRED: &str = "openshift.io/required-scc";

/// SecurityContextConstraints (`security.openshift.io/v1`), with all fields that have no default.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Constraints {
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    allow_host_dir_volume_plugin: bool,
    #[serde(rename = "allowHostIPC")]
    allow_host_ipc: bool,
    allow_host_network: bool,
    #[serde(rename = "allowHostPID")]
    allow_host_pid: bool,
    allow_host_ports: bool,
    allow_privilege_escalation: bool,
    allow_privileged_container: bool,
    allowed_capabilities: Vec<String>,
    default_add_capabilities: Vec<String>,
    fs_group: Strategy,
    groups: Vec<String>,
    /// Always null, because pods select the constraints by annotation; the field is required.
    priority: Option<i32>,
    read_only_root_filesystem: bool,
    required_drop_capabilities: Vec<String>,
    run_as_user: Strategy,
    #[serde(rename = "seLinuxContext")]
    selinux_context: Strategy,
    seccomp_profiles: Vec<String>,
    supplemental_groups: Strategy,
    users: Vec<String>,
    volumes: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Strategy {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<i64>,
    #[serde(rename = "seLinuxOptions", skip_serializing_if = "Option::is_none")]
    selinux_options: Option<SelinuxOptions>,
}

#[derive(Clone, Debug, Serialize)]
struct SelinuxOptions {
    #[serde(rename = "type")]
    kind: String,
    level: &'static str,
}

/// The pod annotation that selects these constraints among those of the service account.
#[must_use]
pub fn required(constraints: &str) -> (String, String) {
    (REQUIRED.to_owned(), constraints.to_owned())
}

/// Whether a MachineConfig installs the SELinux policy: for RTE on OpenShift. HyperShift has no MachineConfigs.
#[must_use]
pub fn has_machine_config(options: &Options) -> bool {
    options.platform == Platform::OpenShift
        && options.updater.kind == Updater::Rte
        && options.updater.custom_selinux_policy
}

/// The SELinux type of the updater's containers; `None`: unset.
#[must_use]
pub fn selinux_type(options: &Options) -> Option<String> {
    let own = options.updater.scc == SccVersion::V1 && has_machine_config(options);
    let usual = if own { RTE_PROCESS } else { DEVICE_PLUGIN };
    let usual = options.platform.is_openshift().then(|| usual.to_owned());
    options.updater.selinux_type.clone().or(usual)
}

/// The constraints of our exporter: `hostPath` volumes and root, nothing else.
///
/// # Errors
/// When the object has no JSON form; our types always have one.
pub fn exporter_constraints(account: ServiceAccountRef<'_>, options: &Options) -> Result<Object, Error> {
    let constraints = Constraints {
        read_only_root_filesystem: true,
        volumes: words(&["configMap", "hostPath", "projected"]),
        ..confined(options, account.name, account)
    };
    Ok(scc_object(&constraints)?)
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
///
/// # Errors
/// When the object has no JSON form; our types always have one.
pub fn rte_constraints(account: ServiceAccountRef<'_>, options: &Options) -> Result<Object, Error> {
    let used = ["configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"];
    let volumes = match options.updater.scc {
        SccVersion::V1 => words(&["*"]),
        SccVersion::V2 => words(&used),
    };
    let name = rte_constraints_name(options);
    Ok(scc_object(&Constraints { volumes, ..confined(options, name, account) })?)
}

/// The constraints of nfd-topology-updater.
///
/// # Errors
/// When the object has no JSON form; our types always have one.
pub fn nfd_constraints(account: ServiceAccountRef<'_>, options: &Options) -> Result<Object, Error> {
    let volumes = words(&["hostPath", "projected"]);
    let read_only_root_filesystem = true;
    Ok(scc_object(&Constraints {
        volumes,
        read_only_root_filesystem,
        ..confined(options, account.name, account)
    })?)
}

/// Root with `hostPath` volumes in the containers' SELinux type, and nothing more.
fn confined(options: &Options, name: &str, account: ServiceAccountRef<'_>) -> Constraints {
    let any = Strategy { kind: "RunAsAny", ..Strategy::default() };
    let selinux = selinux_type(options).map(|kind| SelinuxOptions { kind, level: "s0" });
    Constraints {
        metadata: cluster(name),
        allow_host_dir_volume_plugin: true,
        allow_host_ipc: false,
        allow_host_network: false,
        allow_host_pid: false,
        allow_host_ports: false,
        allow_privilege_escalation: false,
        allow_privileged_container: false,
        allowed_capabilities: Vec::new(),
        default_add_capabilities: Vec::new(),
        fs_group: any.clone(),
        groups: Vec::new(),
        priority: None,
        read_only_root_filesystem: false,
        required_drop_capabilities: words(&["ALL"]),
        run_as_user: any.clone(),
        selinux_context: Strategy { kind: "MustRunAs", selinux_options: selinux, uid: None },
        seccomp_profiles: words(&["runtime/default"]),
        supplemental_groups: any,
        users: vec![account.user()],
        volumes: Vec::new(),
    }
}

fn scc_object(constraints: &Constraints) -> Result<Object, object::Error> {
    of("security.openshift.io", "SecurityContextConstraints", "securitycontextconstraints", constraints)
}

/// The MachineConfig that installs the SELinux policy and, if chosen, the container runtime's hook on nodes.
///
/// # Errors
/// When the object has no JSON form; our types always have one.
pub fn machine_config(options: &Options) -> Result<Object, Error> {
    let updater = &options.updater;
    let mut files = if updater.cri_hooks { hooks::files().to_vec() } else { Vec::new() };
    files.push(ignition::File::new(
        "/etc/selinux/rte.cil",
        0o644,
        &selinux::policy(options.version.as_ref()),
    ));
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
    let unit = ignition::Unit::enabled("rte-selinux-policy-install.service", UNIT);
    let config = ignition::machine_config(metadata, files, vec![unit]);
    Ok(of("machineconfiguration.openshift.io", "MachineConfig", "machineconfigs", &config)?)
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

fn of(group: &str, kind: &str, plural: &str, value: &impl Serialize) -> Result<Object, object::Error> {
    let body = serde_json::to_value(value);
    let body = body.map_err(|error| object::Error::NotJson(kind.to_owned(), error.to_string()))?;
    Object::from_value(ObjectKind::new(group, "v1", kind, plural), body)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
