//! What the Go operator leaves in an OpenShift cluster, for ours to take over: its objects as its API server has them,
//! field by field and with its mistakes.
//!
//! In: the uids of who asked. Out: objects as values, in the order in which it makes them. Never: a mark of ours.

use serde_json::{Value, json};

use super::rig::NAMESPACE;

/// Under which name its writes are recorded.
pub(crate) const MANAGER: &str = "manager";
/// The digest of the scheduler image it was told.
const SCHEDULER_DIGEST: &str = "sha256:5555555555555555555555555555555555555555555555555555555555555555";
/// The image its exporters run: the operator's own.
const IMAGE: &str = "quay.io/openshift-kni/numaresources-operator:4.99.0";
const CIPHERS: &str = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Objects that stay: our operator wants them too, by the same names.
pub(crate) struct Owners {
    /// Uid of the NUMAResourcesOperator.
    pub(crate) operator: String,
    /// Uid of the NUMAResourcesScheduler.
    pub(crate) scheduler: String,
    /// Uid of the KubeletConfig `numa`.
    pub(crate) kubelet_config: String,
}

impl Owners {
    fn exporters(&self) -> Value {
        owner(
            "nodetopology.openshift.io/v1",
            "NUMAResourcesOperator",
            "numaresourcesoperator",
            &self.operator,
        )
    }

    fn scheduler(&self) -> Value {
        owner(
            "nodetopology.openshift.io/v1",
            "NUMAResourcesScheduler",
            "numaresourcesscheduler",
            &self.scheduler,
        )
    }

    fn kubelet_config(&self) -> Value {
        owner("machineconfiguration.openshift.io/v1", "KubeletConfig", "numa", &self.kubelet_config)
    }
}

/// The NUMAResourcesOperator as a user of it wrote it: one group by its pool, one by a selector.
pub(crate) fn operator() -> Value {
    json!({
        "apiVersion": "nodetopology.openshift.io/v1",
        "kind": "NUMAResourcesOperator",
        "metadata": { "name": "numaresourcesoperator" },
        "spec": {
            "logLevel": "Normal",
            "nodeGroups": [{
                "poolName": "worker",
                "config": { "infoRefreshMode": "Periodic", "infoRefreshPeriod": "10s" },
            }],
        },
    })
}

/// The NUMAResourcesScheduler, likewise.
pub(crate) fn scheduler() -> Value {
    json!({
        "apiVersion": "nodetopology.openshift.io/v1",
        "kind": "NUMAResourcesScheduler",
        "metadata": { "name": "numaresourcesscheduler" },
        "spec": {
            "imageSpec": format!("registry.example/noderesourcetopology-scheduler@{SCHEDULER_DIGEST}"),
            "schedulerName": "topo-aware-scheduler",
            "logLevel": "Normal",
        },
    })
}

/// What it makes that ours wants too.
pub(crate) fn kept(owners: &Owners) -> Vec<Value> {
    let (exporters, scheduler) = (owners.exporters(), owners.scheduler());
    let mut objects = access(&exporters);
    objects.extend(network(
        &exporters,
        [
            ("rte-egress-to-api-server", egress()),
            ("ingress-to-rte-metrics", ingress()),
            ("rte-default-deny-all", deny()),
        ],
        &json!({ "name": "resource-topology" }),
    ));
    objects.extend([
        constraints("resource-topology-exporter", "rte.process", json!(["*"]), &exporters),
        constraints(
            "resource-topology-exporter-v2",
            "container_device_plugin_t",
            json!(["configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"]),
            &exporters,
        ),
        daemon_set("worker", &exporters),
        service(&exporters),
        config_map("worker", &owners.kubelet_config()),
    ]);
    objects.extend(scheduler_access(&scheduler));
    objects.extend([scheduler_config(&scheduler), deployment(&scheduler)]);
    objects.extend(network(
        &scheduler,
        [("scheduler-default-deny-all", deny()), ("scheduler-egress-to-api-server", egress())],
        &json!({ "app": "secondary-scheduler" }),
    ));
    objects
}

/// What it forgot: the DaemonSet and configuration of a group that was removed while it did not run, the MachineConfig
/// of before 4.18, and the binding that earlier versions had.
pub(crate) fn stale(owners: &Owners) -> Vec<Value> {
    vec![
        daemon_set("infra", &owners.exporters()),
        config_map("infra", &owners.kubelet_config()),
        machine_config("worker", &owners.exporters()),
        json!({
            "apiVersion": RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "secondary-scheduler", "ownerReferences": [owners.scheduler()] },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kube-scheduler" },
            "subjects": [{ "kind": "ServiceAccount", "name": "secondary-scheduler", "namespace": NAMESPACE }],
        }),
    ]
}

/// The NodeResourceTopology definition as it installs it: without an owner, with the schemas of controller-gen.
pub(crate) fn definition() -> Value {
    let text = json!({ "type": "string" });
    let quantity = json!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        "x-kubernetes-int-or-string": true,
    });
    let list = |properties: Value, required: Value| {
        json!({
            "type": "array",
            "items": { "type": "object", "properties": properties, "required": required },
        })
    };
    let attributes = list(json!({ "name": text, "value": text }), json!(["name", "value"]));
    let costs = list(
        json!({ "name": text, "value": { "type": "integer", "format": "int64" } }),
        json!(["name", "value"]),
    );
    let resources = list(
        json!({ "name": text, "capacity": quantity, "allocatable": quantity, "available": quantity }),
        json!(["allocatable", "available", "capacity", "name"]),
    );
    let zones = list(
        json!({
            "name": text, "type": text, "parent": text,
            "attributes": attributes, "costs": costs, "resources": resources,
        }),
        json!(["name", "type"]),
    );
    let common = json!({
        "apiVersion": text, "kind": text, "metadata": { "type": "object" },
        "topologyPolicies": { "type": "array", "items": text }, "zones": zones,
    });
    let mut newer = common.clone();
    newer["attributes"] = attributes;
    let version = |name: &str, storage: bool, properties: Value, required: Value| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": { "openAPIV3Schema": { "type": "object", "properties": properties, "required": required } },
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "noderesourcetopologies.topology.node.k8s.io",
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870",
                "controller-gen.kubebuilder.io/version": "v0.11.2",
            },
        },
        "spec": {
            "group": "topology.node.k8s.io",
            "names": {
                "kind": "NodeResourceTopology", "listKind": "NodeResourceTopologyList",
                "plural": "noderesourcetopologies", "singular": "noderesourcetopology",
                "shortNames": ["node-res-topo"],
            },
            "scope": "Cluster",
            "versions": [
                version("v1alpha1", false, common, json!(["topologyPolicies", "zones"])),
                version("v1alpha2", true, newer, json!(["zones"])),
            ],
        },
    })
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn within(name: &str, owner: &Value) -> Value {
    json!({ "name": name, "namespace": NAMESPACE, "ownerReferences": [owner] })
}

fn access(owner: &Value) -> Vec<Value> {
    let subject = json!([{ "kind": "ServiceAccount", "name": "rte", "namespace": NAMESPACE }]);
    let role = |kind: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "rte" });
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": within("rte", owner) }),
        json!({
            "apiVersion": RBAC, "kind": "Role", "metadata": within("rte", owner),
            "rules": [
                { "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] },
                { "apiGroups": [""], "resources": ["pods/status"], "verbs": ["update"] },
            ],
        }),
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": within("rte", owner),
            "roleRef": role("Role"), "subjects": subject,
        }),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRole",
            "metadata": { "name": "rte", "ownerReferences": [owner] },
            "rules": [
                // No `patch`, which its exporter uses.
                {
                    "apiGroups": ["topology.node.k8s.io"], "resources": ["noderesourcetopologies"],
                    "verbs": ["create", "update", "get", "list"],
                },
                { "apiGroups": [""], "resources": ["nodes"], "verbs": ["watch", "list"] },
            ],
        }),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding",
            "metadata": { "name": "rte", "ownerReferences": [owner] },
            "roleRef": role("ClusterRole"), "subjects": subject,
        }),
    ]
}

fn deny() -> Value {
    json!({ "policyTypes": ["Ingress", "Egress"] })
}

fn egress() -> Value {
    json!({ "policyTypes": ["Egress"], "egress": [{ "ports": [{ "port": 6443, "protocol": "TCP" }] }] })
}

fn ingress() -> Value {
    json!({ "policyTypes": ["Ingress"], "ingress": [{ "ports": [{ "port": 2112, "protocol": "TCP" }] }] })
}

fn network<const N: usize>(owner: &Value, policies: [(&str, Value); N], pods: &Value) -> Vec<Value> {
    let policies = policies.into_iter().map(|(name, mut spec)| {
        spec["podSelector"] = json!({ "matchLabels": pods });
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": within(name, owner), "spec": spec,
        })
    });
    policies.collect()
}

fn constraints(name: &str, se_linux: &str, volumes: Value, owner: &Value) -> Value {
    json!({
        "apiVersion": "security.openshift.io/v1",
        "kind": "SecurityContextConstraints",
        "metadata": { "name": name, "ownerReferences": [owner] },
        "allowHostDirVolumePlugin": true,
        "allowHostIPC": false,
        "allowHostNetwork": false,
        "allowHostPID": false,
        "allowHostPorts": false,
        "allowPrivilegeEscalation": true,
        "allowPrivilegedContainer": false,
        "allowedCapabilities": [],
        "defaultAddCapabilities": null,
        "fsGroup": { "type": "RunAsAny" },
        "groups": [],
        "priority": null,
        "readOnlyRootFilesystem": false,
        "requiredDropCapabilities": null,
        "runAsUser": { "type": "RunAsAny" },
        "seLinuxContext": { "type": "MustRunAs", "seLinuxOptions": { "type": se_linux, "level": "s0" } },
        "supplementalGroups": { "type": "RunAsAny" },
        "users": [format!("system:serviceaccount:{NAMESPACE}:rte")],
        "volumes": volumes,
    })
}

/// Arguments as rendered for the defaults: a certificate is asked for, and events that never come.
fn exporter_args() -> Value {
    json!([
        "--sleep-interval=10s",
        "--sysfs=/host-sys",
        "--podresources-socket=unix:///host-podresources/kubelet.sock",
        "-v=2",
        "--pods-fingerprint",
        "--metrics-mode=httptls",
        "--metrics-tls-min-version=VersionTLS12",
        format!("--metrics-tls-cipher-suites={CIPHERS}"),
        "--refresh-node-resources",
        "--pods-fingerprint-method=with-exclusive-resources",
        "--add-nrt-owner=false",
    ])
}

fn exporter_container() -> Value {
    let field =
        |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    json!({
        "name": "resource-topology-exporter",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/resource-topology-exporter"],
        "args": exporter_args(),
        "env": [
            field("NODE_NAME", "spec.nodeName"),
            field("REFERENCE_NAMESPACE", "metadata.namespace"),
            field("REFERENCE_POD_NAME", "metadata.name"),
            { "name": "REFERENCE_CONTAINER_NAME", "value": "shared-pool-container" },
            { "name": "METRICS_PORT", "value": "2112" },
            { "name": "PFP_STATUS_DUMP", "value": "/run/pfpstatus" },
        ],
        "ports": [{ "name": "metrics-port", "containerPort": 2112 }],
        "securityContext": {
            "runAsUser": 0, "runAsGroup": 0,
            "seLinuxOptions": { "type": "container_device_plugin_t", "level": "s0" },
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            { "name": "host-sys", "mountPath": "/host-sys", "readOnly": true },
            { "name": "host-podresources", "mountPath": "/host-podresources" },
            // Its flag, where it has one, says `/run/rte`.
            { "name": "host-run-rte", "mountPath": "/host-run-rte" },
            { "name": "rte-config-volume", "mountPath": "/etc/resource-topology-exporter/" },
            { "name": "run-pfpstatus", "mountPath": "/run/pfpstatus" },
            { "name": "rte-metrics-service-cert", "mountPath": "/etc/secrets/rte/", "readOnly": true },
        ],
    })
}

fn daemon_set(pool: &str, owner: &Value) -> Value {
    let name = format!("numaresourcesoperator-{pool}");
    let labels = json!({ "name": "resource-topology" });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": within(&name, owner),
        "spec": {
            // The same for each group.
            "selector": { "matchLabels": labels },
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "25%" } },
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {
                        "configmap.hash": format!("SHA256:{}", "c".repeat(64)),
                        "openshift.io/required-scc": "resource-topology-exporter-v2",
                    },
                },
                "spec": {
                    "serviceAccountName": "rte",
                    "priorityClassName": "system-node-critical",
                    "readinessGates": [
                        { "conditionType": "PodresourcesFetched" },
                        { "conditionType": "NodeTopologyUpdated" },
                    ],
                    "nodeSelector": { format!("node-role.kubernetes.io/{pool}"): "" },
                    "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                        "labelSelector": { "matchLabels": labels },
                        "topologyKey": "kubernetes.io/hostname",
                    }] } },
                    "containers": [
                        exporter_container(),
                        {
                            "name": "shared-pool-container",
                            "image": IMAGE,
                            "imagePullPolicy": "IfNotPresent",
                            "command": ["/bin/sh", "-c", "--"],
                            "args": ["while true; do sleep 30s; done"],
                            "terminationMessagePolicy": "FallbackToLogsOnError",
                        },
                    ],
                    "volumes": [
                        { "name": "host-sys", "hostPath": { "path": "/sys", "type": "Directory" } },
                        {
                            "name": "host-podresources",
                            "hostPath": { "path": "/var/lib/kubelet/pod-resources", "type": "Directory" },
                        },
                        { "name": "host-run-rte", "hostPath": { "path": "/run/rte", "type": "DirectoryOrCreate" } },
                        { "name": "rte-config-volume", "configMap": { "name": name, "optional": true } },
                        { "name": "run-pfpstatus", "emptyDir": { "medium": "Memory", "sizeLimit": "8Mi" } },
                        { "name": "rte-metrics-service-cert", "secret": { "secretName": "rte-metrics-service-cert" } },
                    ],
                },
            },
        },
    })
}

fn service(owner: &Value) -> Value {
    let labels = json!({ "name": "resource-topology" });
    let mut metadata = within("numaresources-rte-metrics-service", owner);
    metadata["labels"] = labels.clone();
    metadata["annotations"] =
        json!({ "service.beta.openshift.io/serving-cert-secret-name": "rte-metrics-service-cert" });
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {
            "selector": labels,
            "ports": [{
                "name": "metrics-port", "port": 2112, "protocol": "TCP", "targetPort": "metrics-port",
            }],
        },
    })
}

/// Owned by the KubeletConfig it was made of.
fn config_map(pool: &str, owner: &Value) -> Value {
    let mut metadata = within(&format!("numaresourcesoperator-{pool}"), owner);
    metadata["labels"] = json!({
        "numaresourcesoperator.nodetopology.openshift.io/name": "numaresourcesoperator",
        "nodegroup.nodetopology.openshift.io/machineconfigpool": pool,
    });
    let text = "kubelet:\n  topologyManagerPolicy: single-numa-node\n  topologyManagerScope: pod\n";
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "config.yaml": text } })
}

fn machine_config(pool: &str, owner: &Value) -> Value {
    let unit = "[Unit]\nDescription=policy\n\n[Service]\nType=oneshot\nExecStart=/usr/sbin/semodule -i /etc/selinux/rte.cil\n";
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {
            "name": format!("51-numaresourcesoperator-{pool}"),
            "labels": { "machineconfiguration.openshift.io/role": pool },
            "ownerReferences": [owner],
        },
        "spec": { "config": {
            "ignition": { "version": "3.2.0" },
            "storage": { "files": [{
                "path": "/etc/selinux/rte.cil", "mode": 420, "overwrite": true,
                "contents": { "source": "data:text/plain;charset=utf-8;base64,KGJsb2NrIHJ0ZSkK" },
            }] },
            "systemd": { "units": [{
                "name": "rte-selinux-policy-install.service", "enabled": true, "contents": unit,
            }] },
        } },
    })
}

fn scheduler_access(owner: &Value) -> Vec<Value> {
    let subject =
        json!([{ "kind": "ServiceAccount", "name": "secondary-scheduler", "namespace": NAMESPACE }]);
    let (cluster, leader) = ("topology-aware-scheduler", "topology-aware-scheduler-leader-elect");
    let role = |kind: &str, name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
    let rule = |group: &str, resources: Value, verbs: Value| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    let read = || json!(["get", "list", "watch"]);
    // Creating is limited to a name, which means never.
    let lease = |group: &str, resource: &str, verbs: Value| {
        json!({
            "apiGroups": [group], "resources": [resource], "verbs": verbs,
            "resourceNames": ["numa-scheduler-leader"],
        })
    };
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": within("secondary-scheduler", owner) }),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRole",
            "metadata": { "name": cluster, "ownerReferences": [owner] },
            "rules": [
                rule("", json!(["events"]), json!(["create", "patch", "update"])),
                rule("events.k8s.io", json!(["events"]), json!(["create", "patch", "update"])),
                rule("", json!(["nodes", "services", "namespaces"]), read()),
                rule("", json!(["pods"]), json!(["delete", "get", "list", "watch"])),
                rule("", json!(["bindings", "pods/binding"]), json!(["create"])),
                rule("", json!(["pods/status"]), json!(["patch", "update"])),
                rule("coordination.k8s.io", json!(["leases"]), json!(["create"])),
                rule("topology.node.k8s.io", json!(["noderesourcetopologies"]), read()),
            ],
        }),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding",
            "metadata": { "name": cluster, "ownerReferences": [owner] },
            "roleRef": role("ClusterRole", cluster), "subjects": subject,
        }),
        json!({
            "apiVersion": RBAC, "kind": "Role", "metadata": within(leader, owner),
            "rules": [
                lease("coordination.k8s.io", "leases", json!(["create"])),
                lease("coordination.k8s.io", "leases", json!(["get", "update"])),
                lease("", "endpoints", json!(["create"])),
                lease("", "endpoints", json!(["get", "update"])),
            ],
        }),
        json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": within(leader, owner),
            "roleRef": role("Role", leader), "subjects": subject,
        }),
    ]
}

fn scheduler_config(owner: &Value) -> Value {
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection:\n  leaderElect: false\n";
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": within("topo-aware-scheduler-config", owner),
        "data": { "config.yaml": text },
    })
}

fn deployment(owner: &Value) -> Value {
    let labels = json!({ "app": "secondary-scheduler" });
    let container = json!({
        "name": "secondary-scheduler",
        "image": format!("registry.example/noderesourcetopology-scheduler@{SCHEDULER_DIGEST}"),
        "command": ["/bin/kube-scheduler"],
        "args": [
            "--config=/etc/kubernetes/config.yaml",
            "-v=2",
            "--tls-min-version=VersionTLS12",
            format!("--tls-cipher-suites={CIPHERS}"),
        ],
        "env": [{ "name": "PFP_STATUS_DUMP", "value": "/run/pfpstatus" }],
        "resources": { "requests": { "cpu": "150m", "memory": "500Mi" } },
        "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
        "volumeMounts": [
            { "name": "etckubernetes", "mountPath": "/etc/kubernetes" },
            { "name": "runpfpstatus", "mountPath": "/run/pfpstatus" },
        ],
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": within("secondary-scheduler", owner),
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {
                        "configmap.hash": format!("SHA256:{}", "d".repeat(64)),
                        "target.workload.openshift.io/management": "{\"effect\": \"PreferredDuringScheduling\"}",
                    },
                },
                "spec": {
                    "serviceAccountName": "secondary-scheduler",
                    "priorityClassName": "system-node-critical",
                    "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
                    "tolerations": [
                        { "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" },
                        { "key": "node-role.kubernetes.io/master", "effect": "NoSchedule" },
                    ],
                    "topologySpreadConstraints": [{
                        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["pod-template-hash"],
                        "labelSelector": { "matchLabels": labels },
                    }],
                    "containers": [container],
                    "volumes": [
                        { "name": "etckubernetes", "configMap": { "name": "topo-aware-scheduler-config" } },
                        { "name": "runpfpstatus", "emptyDir": { "medium": "Memory", "sizeLimit": "64Mi" } },
                    ],
                },
            },
        },
    })
}
