//! The Topology Manager's settings in objects and answers.
//!
//! In: objects and answers as JSON. Out: settings, or one line about what cannot be read. Never: a call; a default,
//! unless the text is a kubelet's complete configuration.

use std::collections::BTreeMap;
use std::path::Path;

use api::numaresources::keys;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use node::kubelet::config::{Configuration, Stated};
use runtime::yaml::{self, Mode};
use serde::Deserialize;
use serde_json::Value;

use crate::cluster_state::{KubeletConfig, KubeletSettings, NodePoolConfig, Rank};

/// The key under which HyperShift keeps a KubeletConfig in a ConfigMap.
const NODE_POOL_KEY: &str = "config";
/// The keys under which a user's ConfigMap may have the KubeletConfiguration; kubeadm's has the second.
const CONFIG_MAP_KEYS: [&str; 3] = ["config", "kubelet", "kubelet-config"];
/// The group of KubeletConfig objects; all its versions have the fields that are read here.
const GROUP: &str = "machineconfiguration.openshift.io/";

/// Reads an OpenShift KubeletConfig, the whole object.
#[must_use]
pub fn kubelet_config(object: &Value) -> KubeletConfig {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    let annotations = &object["metadata"]["annotations"];
    let suffix = annotations.get(keys::MACHINE_CONFIG_SUFFIX).and_then(Value::as_str);
    KubeletConfig {
        pool_selector: LabelSelector::deserialize(&object["spec"]["machineConfigPoolSelector"]).ok(),
        payload: payload(object),
        rank: Rank {
            new: suffix.is_none(),
            suffix: suffix.unwrap_or_default().to_owned(),
            created: text("/metadata/creationTimestamp").unwrap_or_default().to_owned(),
        },
    }
}

/// Reads a ConfigMap in which HyperShift keeps a KubeletConfig; it may lack data.
#[must_use]
pub fn node_pool_config(map: &Value) -> NodePoolConfig {
    let node_pool = map["metadata"]["labels"][keys::LABEL_NODE_POOL].as_str().unwrap_or_default();
    let text = map["data"][NODE_POOL_KEY].as_str();
    let object = text.ok_or_else(|| format!("data has no key {NODE_POOL_KEY:?}")).and_then(|text| {
        let read = yaml::read_str::<Value>(NODE_POOL_KEY, text, Mode::Lenient);
        read.map_err(|error| error.to_string()).and_then(identified)
    });
    let payload = object.map_or_else(|reason| Some(Err(reason)), |object| payload(&object));
    NodePoolConfig { node_pool: node_pool.to_owned(), payload }
}

/// Reads the data of a user's ConfigMap with a complete KubeletConfiguration.
///
/// # Errors
/// When it has none, or one that no kubelet would start with.
pub fn config_map(data: &BTreeMap<String, String>) -> Result<KubeletSettings, String> {
    let there = CONFIG_MAP_KEYS.into_iter().find_map(|key| data.get(key).map(|text| (key, text)));
    let Some((key, text)) = there else {
        return Err(format!("data has none of the keys {}", CONFIG_MAP_KEYS.join(", ")));
    };
    let configuration = Configuration::parse(text, Path::new(key)).map_err(|error| error.to_string())?;
    Ok(effective(&configuration))
}

/// Reads a kubelet's answer on `/configz`. The caller limits its size.
///
/// # Errors
/// When it is another answer.
pub fn configz(answer: &str) -> Result<KubeletSettings, String> {
    let configuration = Configuration::from_configz(answer, Path::new("configz"));
    configuration.map(|configuration| effective(&configuration)).map_err(|error| error.to_string())
}

/// The KubeletConfiguration in a KubeletConfig. The platform merges it into its own, so missing fields are unknown.
fn payload(object: &Value) -> Option<Result<KubeletSettings, String>> {
    let part = object.pointer("/spec/kubeletConfig").filter(|part| !part.is_null())?;
    let stated = Stated::read(part, Path::new("spec.kubeletConfig"));
    Some(match stated {
        Ok(Stated { policy, scope }) => Ok(KubeletSettings { policy, scope }),
        Err(error) => Err(error.to_string()),
    })
}

/// The entries of a map whose values are texts.
#[must_use]
pub fn texts(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The same object, if it is a KubeletConfig.
fn identified(object: Value) -> Result<Value, String> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version.starts_with(GROUP) && kind == "KubeletConfig" {
        return Ok(object);
    }
    let short = |text: &str| text.chars().take(60).collect::<String>();
    let found = format!("apiVersion {:?}, kind {:?}", short(version), short(kind));
    Err(format!("{NODE_POOL_KEY}: {found} is not a KubeletConfig of {}", GROUP.trim_end_matches('/')))
}

/// The settings of a kubelet with this configuration, defaults filled in.
fn effective(configuration: &Configuration) -> KubeletSettings {
    KubeletSettings {
        policy: Some(configuration.rules.policy.as_str().to_owned()),
        scope: Some(configuration.rules.scope.as_str().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(policy: &str, scope: &str) -> KubeletSettings {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        KubeletSettings { policy: some(policy), scope: some(scope) }
    }

    #[track_caller]
    fn fails(read: Option<Result<KubeletSettings, String>>, wants: &[&str]) {
        let error = read.unwrap().unwrap_err();
        assert!(wants.iter().all(|want| error.contains(want)), "{error:?} does not say all of {wants:?}");
        assert!(!error.contains('\n'), "{error:?}");
    }

    fn of(payload: &Value) -> Option<Result<KubeletSettings, String>> {
        kubelet_config(&json!({"spec": {"kubeletConfig": payload}})).payload
    }

    #[test]
    fn k005_k008_a_kubelet_config_without_payload_says_nothing() {
        assert_eq!(kubelet_config(&json!({"spec": {"autoSizingReserved": true}})).payload, None);
        assert_eq!(kubelet_config(&json!({})).payload, None);
        assert_eq!(of(&Value::Null), None);
    }

    /// Go's empty raw bytes are `null` on the wire; any other value that is no KubeletConfiguration is an error.
    #[test]
    fn k004_a_payload_that_is_none_is_an_error() {
        fails(of(&json!("")), &["spec.kubeletConfig", "not a map of fields"]);
        fails(of(&json!([])), &["spec.kubeletConfig"]);
        fails(of(&json!({"topologyManagerPolicy": 1})), &["topologyManagerPolicy is 1", "text"]);
        fails(node_pool_config(&json!({})).payload, &["no key \"config\""]);
    }

    #[test]
    fn settings_are_read_verbatim() {
        let both = json!({"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"});
        assert_eq!(of(&both), Some(Ok(settings("single-numa-node", "pod"))));
        // An unknown policy is left to the kubelet.
        assert_eq!(of(&json!({"topologyManagerPolicy": "odd"})), Some(Ok(settings("odd", ""))));
        assert_eq!(of(&json!({"TOPOLOGYMANAGERPOLICY": "none"})), Some(Ok(settings("none", ""))));
        assert_eq!(of(&json!({"topologyManagerScope": "", "maxPods": "many"})), Some(Ok(settings("", ""))));
        assert_eq!(of(&json!({})), Some(Ok(settings("", ""))));
    }

    #[test]
    fn pools_and_rank_are_read() {
        let config = |annotations: Value| {
            kubelet_config(&json!({
                "metadata": {"creationTimestamp": "2026-02-03T04:05:06Z", "annotations": annotations},
                "spec": {"machineConfigPoolSelector": {"matchLabels": {"a": "b"}}},
            }))
        };
        let first = config(json!({keys::MACHINE_CONFIG_SUFFIX: ""}));
        let second = config(json!({keys::MACHINE_CONFIG_SUFFIX: "1"}));
        let new = config(json!(null));
        assert!(first.rank < second.rank && second.rank < new.rank);
        assert_eq!(new.rank.created, "2026-02-03T04:05:06Z");
        let labels = first.pool_selector.unwrap().match_labels.unwrap();
        assert_eq!(labels, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        let none = kubelet_config(&json!({"spec": {"machineConfigPoolSelector": null}}));
        assert_eq!(none.pool_selector, None);
    }

    fn map(key: &str, text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), text.to_owned())])
    }

    #[test]
    fn a_node_pools_config_is_a_kubelet_config_in_yaml() {
        let read = |text: &str| {
            let labels = map(keys::LABEL_NODE_POOL, "np");
            node_pool_config(&json!({ "metadata": { "labels": labels }, "data": map("config", text) }))
        };
        let head = "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\n";
        let full = format!("{head}spec:\n  kubeletConfig:\n    topologyManagerPolicy: restricted\n");
        let wanted =
            NodePoolConfig { node_pool: "np".to_owned(), payload: Some(Ok(settings("restricted", ""))) };
        assert_eq!(read(&full), wanted);
        assert_eq!(read(&format!("{head}spec: {{}}\n")).payload, None);
        fails(read("a: [").payload, &["config: "]);
        fails(read("").payload, &["config"]);
        let other = full.replace("KubeletConfig\n", "Other\n");
        fails(read(&other).payload, &["kind \"Other\"", "not a KubeletConfig"]);
        let other = full.replace("machineconfiguration", "else");
        fails(read(&other).payload, &["apiVersion \"else.openshift.io/v1\""]);
    }

    #[test]
    fn a_config_map_is_a_complete_configuration() {
        for key in CONFIG_MAP_KEYS {
            let text = "kind: KubeletConfiguration\ntopologyManagerPolicy: best-effort\n";
            assert_eq!(config_map(&map(key, text)), Ok(settings("best-effort", "container")));
        }
        assert_eq!(config_map(&map("kubelet", "maxPods: 9\n")), Ok(settings("none", "container")));
        fails(Some(config_map(&BTreeMap::new())), &["config, kubelet, kubelet-config"]);
        fails(Some(config_map(&map("config", "topologyManagerPolicy: odd"))), &["single-numa-node"]);
        fails(Some(config_map(&map("config", "kind: KubeletConfig"))), &["kind"]);
    }

    #[test]
    fn an_answer_of_configz_is_a_complete_configuration() {
        let answer =
            r#"{"kubeletconfig": {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}}"#;
        assert_eq!(configz(answer), Ok(settings("restricted", "pod")));
        fails(Some(configz("<html>")), &["configz"]);
        fails(Some(configz("{}")), &["kubeletconfig"]);
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(text in ".{0,80}", key in "config|kubelet") {
            let _ = config_map(&map(&key, &text));
            let _ = node_pool_config(&json!({ "data": map(&key, &text) }));
            let _ = configz(&text);
            let _ = kubelet_config(&json!(text));
        }
    }
}
