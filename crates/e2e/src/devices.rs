//! Devices that pin pods to zones, and sample devices: our device plugin on every node of the suite.
//!
//! In: the nodes with their zones. Out: a DaemonSet whose plugins offer them; the objects are the suite's. Never: a
//! device that a program uses: allocation gives a container nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use topology::resource::ResourceName;
use topology::zone::{NodeTopology, ZoneId};

use crate::cluster::NAMESPACE;
use crate::facts::NodeFacts;
use crate::fixture::labels;
use crate::platform::Platform;
use crate::pods::Images;

/// Devices of each zone that pin pods: the most padding pods and others that a zone takes.
const PINS: u32 = 15;
/// What names of devices that pin pods begin with.
const PIN: &str = "kni.node/numacell";
/// The names of the sample devices.
pub const SAMPLES: [&str; 3] =
    ["e2e.tholepin.dev/device1", "e2e.tholepin.dev/device2", "e2e.tholepin.dev/device3"];
/// The sample devices in the first zone, the second, and all others: the third kind is in one zone only.
const COUNTS: [[u32; 3]; 3] = [[8, 8, 4], [8, 8, 0], [0, 0, 0]];
/// The name of the objects.
pub const NAME: &str = "numacell";

/// The resource that pins a pod to a zone.
#[must_use]
pub fn of_zone(zone: ZoneId) -> String {
    format!("{PIN}{:02}", zone.0)
}

/// The resources of a zone with the number of their devices, by the zone's place among those of its node.
fn of_row(row: usize, zone: ZoneId) -> impl Iterator<Item = (String, u32)> {
    let counts = COUNTS.get(row).or_else(|| COUNTS.last()).copied().unwrap_or_default();
    let samples = SAMPLES.iter().map(|name| (*name).to_owned()).zip(counts);
    [(of_zone(zone), PINS)].into_iter().chain(samples)
}

/// The first device that a report does not offer as it should, in words. Devices of an earlier run whose plugin is gone
/// are there too, but not to be had.
#[must_use]
pub fn missing(topology: &NodeTopology) -> Option<String> {
    let allocatable = topology.allocatable();
    topology.zones.iter().enumerate().find_map(|(row, zone)| {
        of_row(row, zone.id).find_map(|(name, wanted)| {
            let there = ResourceName::new(&name).map_or(0, |name| allocatable.amount(zone.id, name));
            let is_there = there == i64::from(wanted);
            (!is_there).then(|| format!("zone {} has {there} of {wanted} {name}", zone.id.0))
        })
    })
}

/// Whether a resource is one of the suite.
#[must_use]
pub fn is_ours(name: &str) -> bool {
    SAMPLES.contains(&name) || name.starts_with(PIN)
}

/// The rights to a privileged pod where the platform asks for some, ConfigMap and DaemonSet.
#[must_use]
pub fn objects(nodes: &[NodeFacts], images: &Images, kubelet_root: &str, platform: Platform) -> Vec<Value> {
    let resources: Vec<Value> = configuration(nodes)
        .into_iter()
        .map(|(name, devices)| json!({ "name": name, "discovery": { "list": { "devices": devices } } }))
        .collect();
    let file = json!({ "version": api::hardware::PLUGIN_CONFIG_VERSION, "resources": resources });
    let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
    let metadata = json!({ "name": NAME, "namespace": NAMESPACE, "labels": labels("suite") });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
        "data": { "config.yaml": file.to_string() },
    });
    let sockets = format!("{kubelet_root}/device-plugins");
    let container = json!({
        "name": NAME, "image": images.tholepin, "imagePullPolicy": images.pull_policy,
        "command": ["/tholepin", "device-plugin"],
        "args": ["--config=/etc/numacell/config.yaml", "--http-bind-address=0"],
        "env": [{ "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }],
        // The kubelet's folder of sockets is root's, and the image has another user.
        "securityContext": { "privileged": true, "runAsUser": 0 },
        "volumeMounts": [
            { "name": "sockets", "mountPath": "/var/lib/kubelet/device-plugins" },
            { "name": "config", "mountPath": "/etc/numacell", "readOnly": true },
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    let hostname = json!([{ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": names }] }]);
    let selected = json!({ "app": NAME });
    let mut pod_labels = labels("suite");
    pod_labels.insert("app".to_owned(), NAME.to_owned());
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata,
        "spec": {
            "selector": { "matchLabels": selected },
            "template": {
                "metadata": { "labels": pod_labels },
                "spec": {
                    "automountServiceAccountToken": false,
                    "tolerations": [{ "operator": "Exists" }],
                    "affinity": { "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": hostname },
                    } },
                    "containers": [container],
                    "volumes": [
                        { "name": "sockets", "hostPath": { "path": sockets } },
                        { "name": "config", "configMap": { "name": NAME } },
                    ],
                },
            },
        },
    });
    let rights = (platform != Platform::Kubernetes).then(rights);
    rights.into_iter().chain([map, set]).collect()
}

/// The right of the namespace's account to OpenShift's security context constraints for privileged pods.
fn rights() -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": { "name": NAME, "namespace": NAMESPACE, "labels": labels("suite") },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "system:openshift:scc:privileged" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE }],
    })
}

/// Devices by resource and node, in the form of the plugin's configuration.
fn configuration(nodes: &[NodeFacts]) -> BTreeMap<String, BTreeMap<String, Vec<Value>>> {
    let mut resources: BTreeMap<String, BTreeMap<String, Vec<Value>>> = BTreeMap::new();
    for node in nodes {
        for (row, zone) in node.topology.zones.iter().enumerate() {
            for (resource, count) in of_row(row, zone.id) {
                let short = resource.rsplit('/').next().unwrap_or_default().to_owned();
                let devices = (0..count).map(|number| {
                    json!({ "id": format!("{short}-{}-{number:03}", zone.id.0), "numanode": zone.id.0 })
                });
                resources.entry(resource).or_default().entry(node.name.clone()).or_default().extend(devices);
            }
        }
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_root_and_have_rights_where_the_platform_asks_for_some() {
        let images =
            Images { tholepin: "tholepin".to_owned(), pause: None, pull_policy: "Always".to_owned() };
        for (platform, kinds) in [
            (Platform::Kubernetes, &["ConfigMap", "DaemonSet"][..]),
            (Platform::OpenShift, &["RoleBinding", "ConfigMap", "DaemonSet"]),
            (Platform::HyperShift, &["RoleBinding", "ConfigMap", "DaemonSet"]),
        ] {
            let objects = objects(&[], &images, "/var/lib/kubelet", platform);
            let found: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
            assert_eq!(found, kinds, "{platform}");
            let pod = &objects.last().unwrap()["spec"]["template"]["spec"];
            assert_eq!(pod["containers"][0]["securityContext"]["runAsUser"], 0, "{platform}");
        }
    }
}
