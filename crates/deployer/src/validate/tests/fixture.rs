//! A cluster as its objects, all in order until a test changes some.

use std::collections::BTreeMap;

use api::nrt::attribute;
use jiff::Timestamp;
use serde_json::{Value, json};
use topology::fingerprint::Fingerprint;

use crate::validate::collect::Collector;
use crate::validate::evidence::Evidence;

/// The time at which it is looked at.
pub(crate) const NOW: &str = "2026-03-01T12:00:00Z";
/// When everything was made.
pub(crate) const THEN: &str = "2026-03-01T08:00:00Z";

/// Objects by kind and name, kubelets' configurations by node.
pub(crate) struct ClusterFixture {
    pub(crate) version: String,
    pub(crate) objects: BTreeMap<String, Value>,
    pub(crate) configz: BTreeMap<String, Value>,
}

impl ClusterFixture {
    /// Two nodes of 2 zones x 8 cores x 2 threads, an exporter, a scheduler, a pod.
    pub(crate) fn healthy() -> Self {
        let mut world =
            Self { version: "v1.36.3".to_owned(), objects: BTreeMap::new(), configz: BTreeMap::new() };
        let mut definition = serde_json::to_value(api::crd::nrt_crd()).unwrap();
        definition["status"] = json!({ "conditions": [{ "type": "Established", "status": "True" }] });
        world.add(definition);
        world.add(exporter_set());
        world.add(scheduler());
        world.add(scheduler_config());
        world.add(
            json!({ "kind": "Lease", "metadata": { "namespace": "tholepin", "name": "topo-aware-scheduler" },
            "spec": { "holderIdentity": "tholepin-scheduler-x_1", "leaseDurationSeconds": 15,
                      "renewTime": "2026-03-01T11:59:58.000000Z" } }),
        );
        for node in ["node-0", "node-1"] {
            world.add_node(node);
        }
        world.add(pod("shop", "db", Some("node-0"), "topo-aware-scheduler", "4", "Running"));
        let zone = &mut world.get("NodeResourceTopology node-0")["zones"][1];
        zone["resources"][0]["available"] = "12".into();
        zone["resources"][1]["available"] = "62Gi".into();
        for node in ["node-0", "node-1"] {
            world.sign(node);
        }
        world
    }

    fn add_node(&mut self, node: &str) {
        self.add(node_object(node));
        self.add(report(node));
        self.configz.insert(node.to_owned(), configuration());
        let mut pod =
            pod("tholepin", &format!("exporter-{node}"), Some(node), "default-scheduler", "", "Running");
        pod["spec"]["containers"][0]["command"] = json!(["tholepin", "exporter"]);
        pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet",
            "name": "tholepin-exporter", "uid": "ds", "controller": true }]);
        self.add(pod);
    }

    /// Puts an object in, or in place of the one of its kind and name.
    pub(crate) fn add(&mut self, object: Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = format!("{} {}", text("/kind"), text("/metadata/name"));
        self.objects.insert(key, object);
    }

    /// The object `Kind name`.
    pub(crate) fn get(&mut self, key: &str) -> &mut Value {
        let keys: Vec<&String> = self.objects.keys().collect();
        assert!(self.objects.contains_key(key), "{key} is none of {keys:?}");
        self.objects.get_mut(key).unwrap()
    }

    /// Takes an object away.
    pub(crate) fn remove(&mut self, key: &str) {
        self.get(key);
        self.objects.remove(key);
    }

    /// Sets a field of a kubelet's configuration; `*` is every node.
    pub(crate) fn configure(&mut self, node: &str, field: &str, value: impl Into<Value>) {
        let value = value.into();
        for (name, configuration) in &mut self.configz {
            if node == "*" || node == name {
                configuration[field] = value.clone();
            }
        }
    }

    /// Sets an attribute of a report; `*` is every node.
    pub(crate) fn attribute(&mut self, node: &str, name: &str, value: &str) {
        for key in self.objects.keys().cloned().collect::<Vec<_>>() {
            let Some(of) = key.strip_prefix("NodeResourceTopology ") else { continue };
            if node == "*" || node == of {
                let attributes = self.get(&key)["attributes"].take();
                let mut list: Vec<api::nrt::Attribute> = serde_json::from_value(attributes).unwrap();
                attribute::insert(&mut list, name, value);
                self.get(&key)["attributes"] = serde_json::to_value(list).unwrap();
            }
        }
    }

    /// Gives the report of a node the fingerprint of its pods.
    pub(crate) fn sign(&mut self, node: &str) {
        let on = |object: &&Value| object["kind"] == "Pod" && object["spec"]["nodeName"] == node;
        let names: Vec<(String, String)> = self
            .objects
            .values()
            .filter(on)
            .filter(|pod| !["Failed", "Succeeded"].contains(&pod["status"]["phase"].as_str().unwrap()))
            .map(|pod| (&pod["metadata"]["namespace"], &pod["metadata"]["name"]))
            .map(|(namespace, name)| {
                (namespace.as_str().unwrap().to_owned(), name.as_str().unwrap().to_owned())
            })
            .collect();
        let names = names.iter().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let fingerprint = Fingerprint::of_names(names).to_string();
        self.attribute(node, api::keys::ATTRIBUTE_FINGERPRINT, &fingerprint);
    }

    /// What there is to see.
    pub(crate) fn evidence(&self) -> Evidence {
        let mut collector = Collector::with_cluster();
        collector.server_version(&self.version);
        for object in self.objects.values() {
            collector.object(object.clone());
        }
        for (node, configuration) in &self.configz {
            let answer = json!({ "kubeletconfig": configuration }).to_string();
            collector.configz(node, Ok(&answer));
        }
        assert_eq!(collector.notes, <[String; 0]>::default());
        collector.finish(Some(NOW.parse::<Timestamp>().unwrap()))
    }
}

fn node_object(name: &str) -> Value {
    let labels = json!({ "node-role.kubernetes.io/worker": "", "kubernetes.io/hostname": name });
    json!({ "kind": "Node", "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": labels },
        "status": {
            "capacity": { "cpu": "32", "memory": "128Gi", "hugepages-2Mi": "0", "pods": "250", "example.com/gpu": "4" },
            "allocatable": { "cpu": "30", "memory": "126Gi", "hugepages-2Mi": "0", "pods": "250", "example.com/gpu": "4" },
            "conditions": [{ "type": "Ready", "status": "True" }],
            "nodeInfo": { "kubeletVersion": "v1.36.3", "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "linux",
                "osImage": "", "systemUUID": "" },
        } })
}

/// Zone 0 has CPUs 0-7 and 16-23, zone 1 the others; one core of each is reserved.
fn configuration() -> Value {
    json!({
        "cpuManagerPolicy": "static", "cpuManagerReconcilePeriod": "5s",
        "memoryManagerPolicy": "Static", "topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "container",
        "reservedSystemCPUs": "0,16",
        "kubeReserved": { "memory": "1Gi" }, "systemReserved": { "memory": "924Mi" },
        "evictionHard": { "memory.available": "100Mi" },
        "reservedMemory": [
            { "numaNode": 0, "limits": { "memory": "1Gi" } }, { "numaNode": 1, "limits": { "memory": "1Gi" } },
        ],
    })
}

fn report(node: &str) -> Value {
    let resource = |name: &str, capacity: &str, allocatable: &str| {
        json!({ "name": name, "capacity": capacity,
        "allocatable": allocatable, "available": allocatable })
    };
    let zone = |id: u32, cpus: &str, free: &str| {
        json!({ "name": format!("node-{id}"), "type": "Node",
        "attributes": [{ "name": "cpus", "value": cpus }],
        "resources": [resource("cpu", "16", free), resource("memory", "64Gi", "63Gi"),
                      resource("hugepages-2Mi", "0", "0"), resource("example.com/gpu", "2", "2")] })
    };
    let attribute = |name: &str, value: &str| json!({ "name": name, "value": value });
    json!({ "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": { "name": node, "uid": "report",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": node, "uid": format!("uid-{node}") }],
            "managedFields": [{ "manager": "tholepin-exporter", "operation": "Update",
                "time": THEN, "fieldsV1": { "f:zones": {}, "f:attributes": {} } }] },
        "zones": [zone(0, "0-7,16-23", "14"), zone(1, "8-15,24-31", "16")],
        "attributes": [
            attribute("topologyManagerPolicy", "single-numa-node"), attribute("topologyManagerScope", "container"),
            attribute("cpuManagerPolicy", "static"), attribute("memoryManagerPolicy", "Static"),
            attribute("threadsPerCore", "2"),
        ] })
}

fn exporter_set() -> Value {
    json!({ "kind": "DaemonSet", "metadata": { "namespace": "tholepin", "name": "tholepin-exporter" },
        "spec": { "template": { "spec": { "containers": [{ "name": "exporter", "image": "example.com/tholepin:1",
            "command": ["tholepin", "exporter"] }] } } },
        "status": { "desiredNumberScheduled": 2, "numberReady": 2 } })
}

fn scheduler() -> Value {
    json!({ "kind": "Deployment", "metadata": { "namespace": "tholepin", "name": "tholepin-scheduler" },
        "spec": { "replicas": 1, "template": { "spec": {
            "containers": [{ "name": "scheduler", "image": "example.com/tholepin:1",
                "command": ["tholepin", "scheduler", "--config=/etc/tholepin/config.yaml"] }],
            "volumes": [{ "name": "config", "configMap": { "name": "tholepin-scheduler" } }] } } },
        "status": { "readyReplicas": 1 } })
}

fn scheduler_config() -> Value {
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection:\n  \
        leaderElect: true\n  resourceNamespace: tholepin\n  resourceName: topo-aware-scheduler\nprofiles:\n- schedulerName: \
        topo-aware-scheduler\n";
    json!({ "kind": "ConfigMap", "metadata": { "namespace": "tholepin", "name": "tholepin-scheduler" },
        "data": { "config.yaml": text } })
}

/// A pod of one container; with cpus it is Guaranteed.
pub(crate) fn pod(
    namespace: &str,
    name: &str,
    node: Option<&str>,
    scheduler: &str,
    cpus: &str,
    phase: &str,
) -> Value {
    let resources = match cpus {
        "" => json!({}),
        cpus => {
            json!({ "requests": { "cpu": cpus, "memory": "1Gi" }, "limits": { "cpu": cpus, "memory": "1Gi" } })
        }
    };
    let mut pod = json!({ "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "uid": format!("uid-{name}"), "creationTimestamp": THEN },
        "spec": { "schedulerName": scheduler, "containers": [{ "name": "main", "image": "app", "resources": resources }] },
        "status": { "phase": phase } });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
        pod["status"]["startTime"] = THEN.into();
    }
    pod
}
