//! Samples for users: the kernel module of `samples/kernel-module` with our device plugin; a policy for nodes.
//!
//! In: nothing. Out: a namespace, a DeviceConfig, a policy. Never: a field whose default would do.

use std::collections::BTreeMap;

use api::hardware::policy::node_policy;
use api::hardware::{DeviceConfig, DevicePlugin, Spec};
use api::kmm::keys::POD_SECURITY;
use deployer::manifests::meta::{cluster, labels, within};
use k8s_openapi::api::core::v1::Namespace;
use objects::Object;
use serde_json::{Map, Value, json};

/// The namespace of the sample.
pub const NAMESPACE: &str = "accelerators";
/// The label of nodes with the sample's hardware.
pub const NODES: (&str, &str) = ("feature.node.kubernetes.io/pci-1200_1da3.present", "true");
/// The label that the sample policy requires.
pub const TEAM: &str = "example.com/team";

/// The namespace, with the pod security level that KMM's pods and the device plugin need.
#[must_use]
pub fn namespace() -> Namespace {
    let mut metadata = cluster(NAMESPACE);
    metadata.labels = Some(labels([POD_SECURITY]));
    Namespace { metadata, ..Namespace::default() }
}

/// The DeviceConfig of the sample driver.
#[must_use]
pub fn device_config() -> DeviceConfig {
    let spec = Spec {
        driver_image: "registry.example/drivers/tholepin-sample".to_owned(),
        driver_version: "1.0.0".to_owned(),
        node_selector: Some(BTreeMap::from([(NODES.0.to_owned(), NODES.1.to_owned())])),
        device_plugin: Some(DevicePlugin { config: Some(config()), ..DevicePlugin::default() }),
        ..Spec::default()
    };
    DeviceConfig { metadata: within(NAMESPACE, "tholepin-sample"), spec, ..DeviceConfig::default() }
}

/// The plugin's configuration: the device nodes of the sample module.
fn config() -> Map<String, Value> {
    let resource = json!({
        "name": "tholepin.dev/sample",
        "discovery": {"directory": {"path": "/dev", "prefix": "tholepin-sample"}},
    });
    let fields = [("version", json!("v1alpha1")), ("resources", json!([resource]))];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The namespace and the DeviceConfig.
#[must_use]
pub fn objects() -> Vec<Object> {
    vec![Object::new(&namespace()), Object::new(&device_config())]
}

/// A policy and its binding that limit the nodes of each namespace.
#[must_use]
pub fn policies() -> Vec<Object> {
    let (policy, binding) = node_policy(TEAM);
    vec![Object::new(&policy), Object::new(&binding)]
}
