//! Objects of the workloads: from templates, or made like upstream's helpers make them.
//!
//! In: templates and positions. Out: JSON for the API server. No I/O except reading each template once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::operations::CreateNodes;
use super::template::{Position, is_template, render};

/// The templates of a case.
pub(super) struct Templates {
    folder: PathBuf,
    /// By path; a text without constructs is read as YAML only once.
    read: BTreeMap<String, Template>,
}

#[derive(Clone)]
pub(super) enum Template {
    Fixed(Value),
    Text(String),
}

impl Templates {
    pub(super) fn of(folder: PathBuf) -> Self {
        Self { folder, read: BTreeMap::new() }
    }

    /// The template at a path, which is relative to the case's folder.
    pub(super) fn get(&mut self, path: &str) -> anyhow::Result<Template> {
        if let Some(template) = self.read.get(path) {
            return Ok(template.clone());
        }
        let text =
            std::fs::read_to_string(self.folder.join(path)).with_context(|| format!("reading {path}"))?;
        let template = if is_template(&text) {
            Template::Text(text)
        } else {
            Template::Fixed(serde_saphyr::from_str(&text).with_context(|| path.to_owned())?)
        };
        self.read.insert(path.to_owned(), template.clone());
        Ok(template)
    }
}

impl Template {
    pub(super) fn object(&self, position: Position) -> anyhow::Result<Value> {
        match self {
            Self::Fixed(object) => Ok(object.clone()),
            Self::Text(text) => Ok(serde_saphyr::from_str(&render(text, position)?)?),
        }
    }

    /// An object of a template that may leave out its kind.
    pub(super) fn object_of(&self, kind: &str, position: Position) -> anyhow::Result<Value> {
        let mut object = self.object(position)?;
        let fields = object.as_object_mut().context("a template is not a mapping")?;
        fields.entry("apiVersion").or_insert_with(|| json!("v1"));
        fields.entry("kind").or_insert_with(|| json!(kind));
        Ok(object)
    }
}

/// A member that is a mapping, made if it is not there.
fn member<'a>(object: &'a mut Value, key: &str) -> anyhow::Result<&'a mut Map<String, Value>> {
    let fields = object.as_object_mut().context("not a mapping")?;
    let inner = fields.entry(key).or_insert_with(|| json!({}));
    inner.as_object_mut().with_context(|| format!("{key} is not a mapping"))
}

/// The pod of operations that name no template, as upstream has it.
pub(super) fn base_pod() -> Template {
    let amounts = json!({ "cpu": "100m", "memory": "500Mi" });
    Template::Fixed(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "generateName": "pod-" },
        "spec": { "containers": [{
            "name": "pause", "image": "registry.k8s.io/pause:3.10.1", "ports": [{ "containerPort": 80 }],
            "resources": { "limits": amounts, "requests": amounts },
        }] },
    }))
}

/// The node of operations that name no template, as upstream has it.
pub(super) fn base_node(prefix: &str) -> Template {
    let amounts = json!({ "pods": "110", "cpu": "4", "memory": "32Gi" });
    Template::Fixed(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "generateName": prefix },
        "status": {
            "capacity": amounts, "allocatable": amounts, "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    }))
}

/// A pod as the API server takes it. Upstream reads field names in any case, the server does not:
/// one template of spread constraints begins them with capitals.
pub(super) fn pod(mut pod: Value) -> anyhow::Result<Value> {
    let spec = member(&mut pod, "spec")?;
    if let Some(Value::Array(constraints)) = spec.get_mut("topologySpreadConstraints") {
        for constraint in constraints.iter_mut().filter_map(Value::as_object_mut) {
            let fields = std::mem::take(constraint);
            constraint.extend(fields.into_iter().map(|(key, value)| (uncapitalised(&key), value)));
        }
    }
    Ok(pod)
}

fn uncapitalised(key: &str) -> String {
    let mut letters = key.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + letters.as_str())
}

/// A node with its name and labels. `number` counts the nodes of a workload, the position those of an operation.
pub(super) fn node(
    template: &Template,
    operation: &CreateNodes,
    number: usize,
    position: Position,
) -> anyhow::Result<(String, Value)> {
    let mut node = template.object_of("Node", position)?;
    let metadata = member(&mut node, "metadata")?;
    let prefix = metadata.get("generateName").and_then(Value::as_str).unwrap_or("node-");
    let generated = format!("{prefix}{number:05}");
    let name = metadata.get("name").and_then(Value::as_str).map_or(generated, str::to_owned);
    metadata.remove("generateName");
    metadata.insert("name".to_owned(), json!(name));
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    let labels = labels.as_object_mut().context("labels are not a mapping")?;
    labels.insert("kubernetes.io/hostname".to_owned(), json!(name));
    if let Some(strategy) = &operation.label_node_prepare_strategy
        && let Some(value) = strategy.label_values.iter().cycle().nth(position.index)
    {
        labels.insert(strategy.label_key.clone(), json!(value));
    }
    if let Some(strategy) = &operation.unique_node_label_strategy {
        labels.insert(strategy.label_key.clone(), json!(name));
    }
    Ok((name, node))
}

/// What drivers can attach to a node, if the operation says so.
pub(super) fn csi_node(operation: &CreateNodes, node: &str) -> Option<Value> {
    let strategy = operation.node_allocatable_strategy.as_ref()?;
    let drivers = strategy.csi_node_allocatable.iter();
    let drivers = drivers.map(|(name, count)| json!({ "name": name, "nodeID": node, "allocatable": count }));
    let drivers: Vec<Value> = drivers.collect();
    Some(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": { "name": node, "annotations": {
            "storage.alpha.kubernetes.io/migrated-plugins": strategy.migrated_plugins.join(","),
        } },
        "spec": { "drivers": drivers },
    }))
}

/// A volume and its claim, bound to each other.
pub(super) struct BoundVolume {
    pub(super) claim_name: String,
    pub(super) claim: Value,
    pub(super) volume_name: String,
    pub(super) volume: Value,
}

impl BoundVolume {
    pub(super) fn new(
        mut volume: Value,
        mut claim: Value,
        namespace: &str,
        at: usize,
    ) -> anyhow::Result<Self> {
        let (claim_name, volume_name) = (format!("pvc-{at}"), format!("{namespace}-vol-{at}"));
        member(&mut claim, "metadata")?.insert("name".to_owned(), json!(claim_name));
        member(&mut claim, "spec")?.insert("volumeName".to_owned(), json!(volume_name));
        member(&mut volume, "metadata")?.insert("name".to_owned(), json!(volume_name));
        let spec = member(&mut volume, "spec")?;
        spec.insert(
            "claimRef".to_owned(),
            json!({
                "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace, "name": claim_name,
            }),
        );
        if let Some(Value::Object(csi)) = spec.get_mut("csi") {
            csi.insert("volumeHandle".to_owned(), json!(volume_name));
        }
        if let Some(Value::Object(ebs)) = spec.get_mut("awsElasticBlockStore") {
            ebs.insert("volumeID".to_owned(), json!(format!("vol-{at}")));
        }
        Ok(Self { claim_name, claim, volume_name, volume })
    }

    /// The pod with this volume alone.
    pub(super) fn mount(&self, mut pod: Value) -> anyhow::Result<Value> {
        let volume = json!({ "name": "vol", "persistentVolumeClaim": { "claimName": self.claim_name } });
        member(&mut pod, "spec")?.insert("volumes".to_owned(), json!([volume]));
        Ok(pod)
    }
}

/// The devices of a driver on a node, with upstream's attributes.
pub(super) fn resource_slice(driver: &str, node: &str, devices: usize) -> Value {
    let device = |at: usize| {
        json!({
            "name": format!("instance-{at}"),
            "attributes": {
                "model": { "string": "A100" },
                "family": { "string": "GPU" },
                "driverVersion": { "version": "1.2.3" },
                "dra.example.com/numa": { "int": at },
            },
            "capacity": { "memory": { "value": "1Gi" } },
        })
    };
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": { "name": node },
        "spec": {
            "driver": driver, "nodeName": node,
            "pool": { "name": node, "generation": 0, "resourceSliceCount": 1 },
            "devices": (0..devices).map(device).collect::<Vec<_>>(),
        },
    })
}

/// Whether a name matches a pattern: itself, or the beginning of a name and `*`.
pub(super) fn name_matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONLY: Position = Position { index: 0, count: 1 };

    #[test]
    fn nodes_have_names_and_labels() {
        let operation: CreateNodes = serde_json::from_value(json!({
            "count": 4,
            "labelNodePrepareStrategy": { "labelKey": "zone", "labelValues": ["a", "b", "c"] },
            "uniqueNodeLabelStrategy": { "labelKey": "unique" },
            "nodeAllocatableStrategy": { "csiNodeAllocatable": { "driver": { "count": 3 } } },
        }))
        .unwrap();
        let position = Position { index: 4, count: 5 };
        let (name, made) = node(&base_node("node-0-"), &operation, 12, position).unwrap();
        assert_eq!(name, "node-0-00012");
        assert_eq!(
            made["metadata"],
            json!({ "name": name, "labels": {
                "kubernetes.io/hostname": name, "zone": "b", "unique": name,
            } })
        );
        let csi_node = csi_node(&operation, &name).unwrap();
        let driver = json!({ "name": "driver", "nodeID": name, "allocatable": { "count": 3 } });
        assert_eq!(csi_node["spec"]["drivers"], json!([driver]));

        let named = Template::Fixed(json!({ "metadata": { "name": "one" } }));
        let (name, made) = node(&named, &operation, 12, ONLY).unwrap();
        assert_eq!((name.as_str(), &made["kind"]), ("one", &json!("Node")));
    }

    #[test]
    fn pods_have_fields_that_the_server_knows() {
        let constraint = json!({ "NodeTaintsPolicy": "Honor", "maxSkew": 1 });
        let made = pod(json!({ "spec": { "topologySpreadConstraints": [constraint] } })).unwrap();
        let constraint = json!({ "nodeTaintsPolicy": "Honor", "maxSkew": 1 });
        assert_eq!(made["spec"], json!({ "topologySpreadConstraints": [constraint] }));
    }

    #[test]
    fn volumes_and_claims_are_bound_to_each_other() {
        let volume = json!({ "spec": { "csi": { "driver": "d" } } });
        let bound = BoundVolume::new(volume, json!({ "spec": {} }), "ns", 3).unwrap();
        assert_eq!(bound.claim["spec"]["volumeName"], "ns-vol-3");
        assert_eq!(bound.volume["spec"]["claimRef"]["name"], "pvc-3");
        assert_eq!(bound.volume["spec"]["csi"]["volumeHandle"], "ns-vol-3");
        let pod = bound.mount(base_pod().object(ONLY).unwrap()).unwrap();
        assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "pvc-3");
    }

    #[test]
    fn patterns_match_names() {
        for (pattern, name, expected) in
            [("a-*", "a-1", true), ("a-*", "b-1", false), ("a", "a", true), ("a", "a-1", false)]
        {
            assert_eq!(name_matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
