//! Kubelet configurations in OpenShift's objects, for kubelets that cannot be asked, as in must-gathers.
//!
//! In: KubeletConfig and MachineConfigPool objects, on HyperShift ConfigMaps with KubeletConfigs. Out: the settings of
//! a node. Never: settings that pools and configurations leave open.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use runtime::yaml::{self, Mode};
use serde_json::Value;

use crate::validate::evidence::{ConfigSource, Settings, text};

/// HyperShift's label with the pool of a ConfigMap or node.
pub const NODE_POOL: &str = "hypershift.openshift.io/nodePool";

/// Pools and their configurations.
#[derive(Debug, Default)]
pub struct Pools {
    /// MachineConfigPools by name: the pool's own labels, and the labels of its nodes.
    pools: BTreeMap<String, (Value, Value)>,
    /// KubeletConfigs by name: the selector of pools, and the configuration.
    configs: BTreeMap<String, (Value, Value)>,
    /// Title and configuration by HyperShift's name of the pool.
    hosted: BTreeMap<String, (String, Value)>,
}

impl Pools {
    /// Reads a KubeletConfig or a MachineConfigPool.
    pub(super) fn object(&mut self, object: &Value) {
        let name = text(object, "/metadata/name").to_owned();
        let at = |path: &str| object.pointer(path).cloned().unwrap_or_default();
        if text(object, "/kind") == "MachineConfigPool" {
            self.pools.insert(name, (at("/metadata/labels"), at("/spec/nodeSelector")));
        } else {
            let config = (at("/spec/machineConfigPoolSelector"), at("/spec/kubeletConfig"));
            self.configs.insert(name, config);
        }
    }

    /// Reads a ConfigMap if it contains a KubeletConfig of HyperShift.
    pub(super) fn config_map(&mut self, object: &Value) -> Result<(), String> {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let Some(pool) = labels.and_then(|labels| labels.get(NODE_POOL)).and_then(Value::as_str) else {
            return Ok(());
        };
        let name = text(object, "/metadata/name");
        for (key, content) in object.get("data").and_then(Value::as_object).into_iter().flatten() {
            let content = content.as_str().unwrap_or_default();
            if !content.contains("KubeletConfig") {
                continue;
            }
            let config: Value = yaml::read_str(key, content, Mode::Lenient).map_err(|e| e.to_string())?;
            if let Some(config) = config.pointer("/spec/kubeletConfig") {
                // The pool's name follows that of its namespace.
                let pool = pool.rsplit('/').next().unwrap_or(pool);
                self.hosted.insert(pool.to_owned(), (format!("ConfigMap {name}"), config.clone()));
            }
        }
        Ok(())
    }

    /// The settings of a node with these labels. A custom pool precedes `worker`, as in OpenShift's own operator.
    #[must_use]
    pub fn settings(&self, labels: &BTreeMap<String, String>) -> Option<Settings> {
        let read = |title: String, config: &Value| {
            Settings::new(ConfigSource::Object(title.clone()), config, &title)
        };
        if let Some((title, config)) = labels.get(NODE_POOL).and_then(|pool| self.hosted.get(pool)) {
            return Some(read(title.clone(), config));
        }
        let mut pools: Vec<_> = self.pools.iter().filter(|(_, (_, nodes))| selects(nodes, labels)).collect();
        pools.sort_by_key(|(name, _)| (name.as_str() == "worker", name.as_str()));
        for (_, (labels, _)) in pools {
            let labels = serde_json::from_value(labels.clone()).unwrap_or_default();
            let config = self.configs.iter().find(|(_, (selector, _))| selects(selector, &labels));
            if let Some((name, (_, config))) = config {
                return Some(read(format!("KubeletConfig {name}"), config));
            }
        }
        None
    }
}

/// Whether a LabelSelector matches. Unlike in Kubernetes an empty selector matches nothing, because no pool has all
/// nodes.
pub(in crate::validate) fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let selector = serde_json::from_value::<LabelSelector>(selector.clone()).ok();
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    selector.is_some_and(|selector| !selector.selects_all() && selector.matches(labels))
}
