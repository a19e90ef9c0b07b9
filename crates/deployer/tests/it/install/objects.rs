//! Parts as they could be: a bit of every kind, small.

use super::*;

/// What is different from one version of the parts to the next.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    /// Said in the updater's ConfigMap.
    pub(crate) text: &'static str,
    /// The updater has a ConfigMap.
    pub(crate) config: bool,
    /// The ClusterRole that the updater's binding names.
    pub(crate) role: &'static str,
    /// The updater's DaemonSet is a NUMA one.
    pub(crate) selector: &'static str,
    pub(crate) replicas: i32,
    /// What the scheduler's pods ask nodes for.
    pub(crate) nodes: Value,
    pub(crate) image: &'static str,
}

impl Default for Variant {
    fn default() -> Self {
        Self {
            text: "one",
            config: true,
            role: "updater",
            selector: "updater",
            replicas: 1,
            nodes: json!({}),
            image: "any:1",
        }
    }
}

/// An object by its kind.
pub(crate) fn object(body: Value) -> Object {
    let (group, version) = match body["apiVersion"].as_str().unwrap().split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), body["apiVersion"].as_str().unwrap().to_owned()),
    };
    let kind = body["kind"].as_str().unwrap();
    let plural = match kind {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        "NodeResourceTopology" => "noderesourcetopologies".to_owned(),
        "PriorityClass" => "priorityclasses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let kind = ::objects::ObjectKind::new(&group, &version, kind, &plural);
    Object::from_value(kind, body).unwrap()
}

/// The parts.
pub(crate) fn parts(variant: &Variant) -> Vec<Part> {
    vec![
        Part::new(Component::Api, [Object::new(&api::crd::nrt_crd())]),
        Part::new(Component::Exporter, updater(variant)),
        Part::new(Component::Scheduler, scheduler(variant)),
    ]
}

/// Everything that was made, by name.
pub(crate) fn names(parts: &[Part]) -> Vec<String> {
    parts.iter().flat_map(Part::objects).map(ToString::to_string).collect()
}

/// The object of this name as people have it.
pub(crate) fn find(parts: &[Part], name: &str) -> Object {
    let mut all = parts.iter().flat_map(Part::objects);
    all.find(|object| object.to_string() == name).unwrap().clone()
}

pub(crate) const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn updater(variant: &Variant) -> Vec<Object> {
    let meta = |name: &str| json!({ "name": name, "namespace": "numa" });
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "numa", "labels": {
            "pod-security.kubernetes.io/enforce": "privileged",
        } } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("updater") }),
        json!({ "apiVersion": RBAC, "kind": "ClusterRole", "metadata": { "name": "numa-updater" }, "rules": [
            { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] },
        ] }),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": { "name": "numa-updater" },
            "subjects": [{ "kind": "ServiceAccount", "name": "updater", "namespace": "numa" }],
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": format!("numa-{}", variant.role),
            },
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta("updater"),
            "spec": { "podSelector": {}, "policyTypes": ["Ingress"] },
        }),
        workload("DaemonSet", &meta("updater"), variant),
    ];
    if variant.config {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("updater"), "data": { "text": variant.text },
        });
        objects.insert(2, map);
    }
    objects.into_iter().map(object).collect()
}

fn scheduler(variant: &Variant) -> Vec<Object> {
    let meta = |name: &str| json!({ "name": name, "namespace": "numa-scheduler" });
    let objects = [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "numa-scheduler" } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("scheduler") }),
        json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "numa" },
            "value": 1000 }),
        json!({ "apiVersion": RBAC, "kind": "Role", "metadata": meta("scheduler"), "rules": [
            { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] },
        ] }),
        workload("Deployment", &meta("scheduler"), variant),
    ];
    objects.into_iter().map(object).collect()
}

fn workload(kind: &str, metadata: &Value, variant: &Variant) -> Value {
    let labels = json!({ "app": variant.selector });
    let mut workload = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": metadata,
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": {
                "automountServiceAccountToken": false,
                "dnsPolicy": "Default",
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "main", "image": variant.image, "imagePullPolicy": "IfNotPresent" }],
            },
        } },
    });
    if kind == "Deployment" {
        workload["spec"]["replicas"] = variant.replicas.into();
        workload["spec"]["template"]["spec"]["nodeSelector"] = variant.nodes.clone();
    }
    workload
}
