//! One object of each kind that is kept, and what others may do to them.

use objects::{Object, ObjectKind};
use operator::desired::{DesiredObject, Owner, owned, shared};
use serde_json::{Value, json};

/// Where they are.
pub(crate) const NAMESPACE: &str = "engine";

/// Who asks for them.
pub(crate) fn owner() -> Owner {
    Owner {
        api_version: "nodetopology.openshift.io/v1".to_owned(),
        kind: "NUMAResourcesOperator".to_owned(),
        name: "numaresourcesoperator".to_owned(),
        uid: "00000000-0000-0000-0000-000000000001".to_owned(),
    }
}

fn wanted(group: &str, kind: &str, plural: &str, namespaced: bool, mut body: Value) -> DesiredObject {
    body["metadata"]["name"] = "engine".into();
    if namespaced {
        body["metadata"]["namespace"] = NAMESPACE.into();
    }
    owned(Object::from_value(ObjectKind::new(group, "v1", kind, plural), body).unwrap(), &owner())
}

/// All of them.
pub(crate) fn all() -> Vec<DesiredObject> {
    let rbac = "rbac.authorization.k8s.io";
    let rules = json!([
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"] },
        { "apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"] },
    ]);
    let binding = |kind: &str| {
        json!({
            "roleRef": { "apiGroup": rbac, "kind": kind, "name": "engine" },
            "subjects": [{ "kind": "ServiceAccount", "name": "engine", "namespace": NAMESPACE }],
        })
    };
    vec![
        wanted("", "ServiceAccount", "serviceaccounts", true, json!({})),
        wanted(
            "",
            "ConfigMap",
            "configmaps",
            true,
            json!({ "data": { "config.yaml": "a: b\n", "other": "x" } }),
        ),
        wanted(rbac, "Role", "roles", true, json!({ "rules": rules })),
        wanted(rbac, "RoleBinding", "rolebindings", true, binding("Role")),
        wanted(rbac, "ClusterRole", "clusterroles", false, json!({ "rules": rules })),
        wanted(rbac, "ClusterRoleBinding", "clusterrolebindings", false, binding("ClusterRole")),
        wanted(
            "networking.k8s.io",
            "NetworkPolicy",
            "networkpolicies",
            true,
            json!({ "spec": {
            "podSelector": { "matchLabels": { "name": "engine" } },
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{ "ports": [{ "port": 6443, "protocol": "TCP" }] }],
        } }),
        ),
        wanted(
            "",
            "Service",
            "services",
            true,
            json!({
                "metadata": { "annotations": { "for": "engine" } },
                "spec": {
                    "selector": { "name": "engine" },
                    "ports": [{ "name": "metrics", "port": 2112, "targetPort": "metrics", "protocol": "TCP" }],
                },
            }),
        ),
        wanted(
            "apps",
            "DaemonSet",
            "daemonsets",
            true,
            workload(&json!({
                "updateStrategy": { "rollingUpdate": { "maxUnavailable": "25%" } },
            })),
        ),
        wanted("apps", "Deployment", "deployments", true, workload(&json!({ "replicas": 2 }))),
        definition(),
    ]
}

fn workload(more: &Value) -> Value {
    let mut spec = json!({
        "selector": { "matchLabels": { "name": "engine", "pool": "a" } },
        "template": {
            "metadata": { "labels": { "name": "engine", "pool": "a" }, "annotations": { "hash": "1" } },
            "spec": {
                "serviceAccountName": "engine",
                "priorityClassName": "system-node-critical",
                "nodeSelector": { "worker": "" },
                "containers": [{
                    "name": "main",
                    "image": "engine:1",
                    "args": ["--a", "--b"],
                    "env": [{ "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }],
                    "ports": [{ "name": "metrics", "containerPort": 2112 }],
                    "resources": { "requests": { "cpu": "10m", "memory": "20Mi" } },
                    "volumeMounts": [{ "name": "sys", "mountPath": "/host-sys", "readOnly": true }],
                }],
                "volumes": [
                    { "name": "sys", "hostPath": { "path": "/sys", "type": "Directory" } },
                    { "name": "run", "emptyDir": {} },
                ],
            },
        },
    });
    json_patch::merge(&mut spec, more);
    json!({ "spec": spec })
}

fn definition() -> DesiredObject {
    let mut crd = serde_json::to_value(api::crd::nrt_crd()).unwrap();
    let names = json!({ "kind": "Engine", "plural": "engines", "singular": "engine", "listKind": "EngineList", "shortNames": null });
    json_patch::merge(
        &mut crd,
        &json!({
            "metadata": { "name": "engines.topology.example.com", "annotations": null },
            "spec": { "group": "topology.example.com", "names": names },
        }),
    );
    let kind = ObjectKind::new(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );
    shared(Object::from_value(kind, crd).unwrap())
}

/// Sets a value at a JSON pointer, making what is missing on the way; `null` removes; `/-` at the end adds.
pub(crate) type Edit = (&'static str, Value);

/// What others may do to an object of a kind, beside its metadata.
pub(crate) fn edits(kind: &str) -> Vec<Edit> {
    let rule = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": ["*"] });
    let container = json!({ "name": "other", "image": "other:1", "env": [{ "name": "X", "value": "y" }] });
    let workload = || {
        vec![
            ("/spec/template/spec/containers/-", container.clone()),
            ("/spec/template/spec/initContainers/-", container.clone()),
            ("/spec/template/spec/containers/0/image", json!("engine:2")),
            ("/spec/template/spec/containers/0/args/-", json!("--c")),
            ("/spec/template/spec/containers/0/args", Value::Null),
            ("/spec/template/spec/containers/0/command", json!(["sh"])),
            ("/spec/template/spec/containers/0/env/-", json!({ "name": "X", "value": "y" })),
            ("/spec/template/spec/containers/0/env", Value::Null),
            ("/spec/template/spec/containers/0/ports/-", json!({ "containerPort": 9, "protocol": "UDP" })),
            ("/spec/template/spec/containers/0/resources/limits", json!({ "cpu": "2" })),
            ("/spec/template/spec/containers/0/resources", Value::Null),
            ("/spec/template/spec/containers/0/imagePullPolicy", json!("Always")),
            ("/spec/template/spec/containers/0/securityContext/privileged", json!(true)),
            ("/spec/template/spec/containers/0/volumeMounts/0/readOnly", Value::Null),
            ("/spec/template/spec/containers/0/terminationMessagePolicy", json!("FallbackToLogsOnError")),
            ("/spec/template/spec/volumes/-", json!({ "name": "tmp", "emptyDir": {} })),
            ("/spec/template/spec/volumes/1/emptyDir/medium", json!("Memory")),
            ("/spec/template/spec/nodeSelector/zone", json!("a")),
            ("/spec/template/spec/nodeSelector", Value::Null),
            ("/spec/template/spec/tolerations/-", json!({ "operator": "Exists" })),
            ("/spec/template/spec/hostNetwork", json!(true)),
            ("/spec/template/spec/priorityClassName", Value::Null),
            ("/spec/template/spec/terminationGracePeriodSeconds", json!(5)),
            ("/spec/template/metadata/labels/more", json!("x")),
            ("/spec/template/metadata/annotations/more", json!("x")),
            ("/spec/template/metadata/annotations/hash", json!("2")),
            ("/spec/minReadySeconds", json!(7)),
            ("/spec/revisionHistoryLimit", json!(3)),
        ]
    };
    match kind {
        "ServiceAccount" => vec![("/automountServiceAccountToken", json!(false))],
        "ConfigMap" => vec![
            ("/data/more", json!("x")),
            ("/data/config.yaml", json!("a: c\n")),
            ("/data/other", Value::Null),
            ("/data", Value::Null),
            ("/binaryData/b", json!("AAAA")),
        ],
        "Role" | "ClusterRole" => vec![
            ("/rules/-", rule),
            ("/rules", json!([])),
            ("/rules/0/verbs/-", json!("delete")),
            ("/rules/1", Value::Null),
        ],
        "RoleBinding" | "ClusterRoleBinding" => vec![
            (
                "/subjects/-",
                json!({ "kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io" }),
            ),
            ("/subjects", json!([])),
            ("/subjects/0/name", json!("eve")),
        ],
        "NetworkPolicy" => vec![
            ("/spec/ingress/-", json!({})),
            ("/spec/egress/-", json!({})),
            ("/spec/egress", Value::Null),
            ("/spec/podSelector/matchLabels/name", json!("eve")),
            ("/spec/podSelector/matchLabels/more", json!("x")),
            ("/spec/policyTypes", json!(["Egress"])),
        ],
        "Service" => vec![
            ("/spec/ports/-", json!({ "name": "more", "port": 1 })),
            ("/spec/ports/0/targetPort", json!(1)),
            ("/spec/selector/more", json!("x")),
            ("/spec/selector", Value::Null),
            ("/spec/type", json!("NodePort")),
            ("/spec/sessionAffinity", json!("ClientIP")),
            ("/spec/publishNotReadyAddresses", json!(true)),
        ],
        "DaemonSet" => {
            let own = [
                ("/spec/updateStrategy/rollingUpdate/maxUnavailable", json!(1)),
                ("/spec/updateStrategy", json!({ "type": "OnDelete" })),
            ];
            workload().into_iter().chain(own).collect()
        }
        "Deployment" => {
            let own = [
                ("/spec/replicas", json!(5)),
                ("/spec/strategy", json!({ "type": "Recreate" })),
                ("/spec/paused", json!(true)),
                ("/spec/progressDeadlineSeconds", json!(60)),
            ];
            workload().into_iter().chain(own).collect()
        }
        "CustomResourceDefinition" => vec![
            ("/spec/names/shortNames/-", json!("eng")),
            ("/spec/names/categories/-", json!("all")),
            ("/spec/versions/0/served", json!(false)),
            (
                "/spec/versions/1/additionalPrinterColumns/-",
                json!({ "name": "x", "type": "string", "jsonPath": ".x" }),
            ),
            ("/spec/versions/0/schema/openAPIV3Schema/description", json!("Other.")),
            ("/spec/versions/1/schema/openAPIV3Schema/properties/more", json!({ "type": "string" })),
        ],
        _ => vec![],
    }
}

/// Makes an edit. Whether it changed anything.
pub(crate) fn edit(body: &mut Value, (path, value): &Edit) -> bool {
    let before = body.clone();
    let (parent, last) = path.rsplit_once('/').unwrap();
    let mut there = &mut *body;
    for step in parent.split('/').skip(1) {
        there = match there {
            Value::Array(list) => {
                let Some(element) = list.get_mut(step.parse::<usize>().unwrap()) else { return false };
                element
            }
            other => &mut other[step],
        };
    }
    if last == "-" {
        match there {
            Value::Array(list) => list.push(value.clone()),
            other => *other = json!([value]),
        }
    } else if let Value::Array(list) = there {
        list.remove(last.parse().unwrap());
    } else if value.is_null() {
        if let Some(fields) = there.as_object_mut() {
            fields.remove(last);
        }
    } else {
        there[last] = value.clone();
    }
    *body != before
}
