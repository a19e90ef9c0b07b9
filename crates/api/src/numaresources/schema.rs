//! Parts of the schema that types do not express: rules in CEL, and the schemas of Kubernetes' own types.
//!
//! In: nothing. Out: pieces of JSON schema. Never: a rule about the status, or one that blocks writes of objects stored
//! by the Go operator: each rule stands at its field, and the API server ignores invalid values that do not change
//! ("ratcheting").

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The distributions whose kubelets have known paths. The deployer has the paths.
const DISTRIBUTIONS: [&str; 10] =
    ["kubeadm", "k3s", "rke2", "microk8s", "talos", "kind", "eks", "gke", "aks", "openshift"];

/// Rules, each with its message.
fn rules<const N: usize>(rules: [(&str, &str); N]) -> Value {
    rules.map(|(rule, message)| json!({"rule": rule, "message": message})).to_vec().into()
}

/// The rule for the only name allowed. It checks new objects only: an object of another name, created before the rule,
/// can still get a status that says so.
pub(super) fn name_rules(name: &str) -> Value {
    json!([{
        "rule": format!("oldSelf.hasValue() || (has(self.metadata.name) && self.metadata.name == '{name}')"),
        "message": format!("the object name must be '{name}'."),
        "optionalOldSelf": true,
    }])
}

/// The rules for the node selection of a group.
pub(super) fn group_rules() -> Value {
    rules([
        (
            "has(self.machineConfigPoolSelector) || has(self.poolName)",
            "node group missing any pool specifier: machineConfigPoolSelector or poolName",
        ),
        (
            "!has(self.nodeSelector) || !has(self.machineConfigPoolSelector)",
            "nodeSelector stands beside poolName, not beside machineConfigPoolSelector",
        ),
    ])
}

/// The rules for settings that nfd-topology-updater does not have: it would drop them silently.
pub(super) fn updater_rules() -> Value {
    let policy = super::keys::SELINUX_POLICY;
    let groups = |rule: &str| format!("!has(self.nodeGroups) || self.nodeGroups.all(group, {rule})");
    let config = |field: &str, rule: &str| {
        groups(&format!("!has(group.config) || !has(group.config.{field}) || group.config.{field}{rule}"))
    };
    let of_policy = format!(
        "!has(group.annotations) || !('{policy}' in group.annotations) || group.annotations['{policy}'] != '{}'",
        super::keys::CUSTOM
    );
    let all = [
        (
            "!has(self.podExcludes) || size(self.podExcludes) == 0".to_owned(),
            "podExcludes: it must be empty with updaterType NFD, which counts all pods",
        ),
        (
            groups("!has(group.kubeletConfigMap)"),
            "nodeGroups[].kubeletConfigMap: it has no effect with updaterType NFD, which reads the kubelet's configuration",
        ),
        (groups(&of_policy), "nodeGroups[].annotations: the SELinux policy custom needs updaterType RTE"),
        (
            config("podsFingerprinting", " != 'EnabledExclusiveResources'"),
            "nodeGroups[].config.podsFingerprinting: it must be Enabled or Disabled with updaterType NFD",
        ),
        (
            config("infoRefreshMode", " == 'Periodic'"),
            "nodeGroups[].config.infoRefreshMode: it must be Periodic with updaterType NFD, which has a timer only",
        ),
        (
            config("infoRefreshPeriod", ".matches('[1-9]')"),
            "nodeGroups[].config.infoRefreshPeriod: it must be above 0s with updaterType NFD, which has a timer only",
        ),
    ];
    let of_nfd = |(rule, message): (String, &str)| json!({"rule": format!("!has(self.updaterType) || self.updaterType != 'NFD' || {rule}"), "message": message});
    all.map(of_nfd).to_vec().into()
}

/// The rule for the check of kubelets' certificates.
pub(super) fn kubelet_rules() -> Value {
    rules([(
        "!(has(self.certificateAuthority) && has(self.insecure) && self.insecure)",
        "certificateAuthority has no effect where insecure is true",
    )])
}

/// The schema of the name of a distribution.
pub(super) fn distribution(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": DISTRIBUTIONS})
}

/// The rule for the number of annotations.
pub(super) fn annotations_rules() -> Value {
    let max = super::NodeGroup::MAX_ANNOTATIONS;
    rules([(&format!("size(self) <= {max}"), &format!("has too many annotations, max {max}"))])
}

/// The rule for patterns of Go's `path.Match`, which treats invalid ones as matching nothing.
pub(super) fn pattern_rules() -> Value {
    let member = r"([^\\\]-]|\\.)";
    let set = format!(r"\[\^?({member}(-{member})?)+\]");
    rules([(
        &format!(r"self.matches(r'^([^\[\\]|\\.|{set})*$')"),
        r"must be a shell pattern: every [ needs its ], no set may be empty, and \ needs a character after it",
    )])
}

/// The schema of a list of tolerations. The operator reports invalid ones, as the Go operator does.
pub(crate) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 64, "items": {
        "type": "object",
        "description": "Taints that are lived with: those that match in key, value and effect.",
        "properties": {
            "key": {
                "type": "string",
                "description": "The taint's key. Empty, with the operator Exists: all taints.",
            },
            "operator": {
                "type": "string",
                "maxLength": 64,
                "description": "How the taint's value is compared. Default: Equal. Lt and Gt compare numbers, where the cluster \
                    knows them.",
            },
            "value": {
                "type": "string",
                "description": "What the taint's value is compared with. Empty with the operator Exists.",
            },
            "effect": {
                "type": "string",
                "maxLength": 64,
                "description": "The taint's effect. Empty: all effects.",
            },
            "tolerationSeconds": {
                "type": "integer",
                "format": "int64",
                "description": "Effect NoExecute: for how many seconds. Default: for ever.",
            },
        },
    }})
}

/// The schema of a label selector.
pub(super) fn selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": "Labels and their values, all of which an object must have.",
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {
                "type": "array",
                "description": "Requirements, all of which an object must meet.",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "description": "What is required of one label.",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "description": "The label."},
                        "operator": {
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                            "description": "Whether the label has to be there, and with which values.",
                        },
                        "values": {
                            "type": "array",
                            "description": "The values, for In and NotIn.",
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string"},
                        },
                    },
                },
            },
        },
    })
}

/// The schema of a list of conditions, with Kubernetes' usual limits.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One condition.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "Type of the condition.",
                },
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "Status of the condition.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The metadata.generation that this is based on.",
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed.",
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "The reason, as one CamelCase word.",
                },
                "message": {
                    "type": "string",
                    "maxLength": 32768,
                    "description": "The message, for people.",
                },
            },
        },
    })
}
