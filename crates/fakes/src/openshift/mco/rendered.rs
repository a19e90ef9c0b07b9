//! Rendered configurations: all that the machines of a pool are to have, under one name.
//!
//! In: what a pool's selector takes, its KubeletConfig, the cluster's TLS profile. Out: a name that changes with the
//! content and comes back with it, and the fields for kubelets. Never: a file on a machine other than the kubelet's.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::SelectorExt as _;
use serde_json::{Map, Value, json};

use super::kubelet_config::{Accepted, selector};
use super::tls;
use super::world::{Kind, World};

/// The label of MachineConfigs that says whose they are.
const ROLE: &str = "machineconfiguration.openshift.io/role";

/// The pool of all that are in no other.
const WORKER: &str = "worker";

/// What a pool's machines are to have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rendered {
    pub(super) name: String,
    /// What it is made of, as pools list it.
    pub(super) source: Vec<Value>,
    /// Fields over the kubelets' own configuration.
    pub(super) kubelet: Map<String, Value>,
}

impl Rendered {
    /// `None`: the pool takes nothing, and so is left alone.
    pub(super) fn of(pool: &DynamicObject, world: &World, accepted: &Accepted) -> Option<Self> {
        let takes = selector(&pool.data["spec"]["machineConfigSelector"])?;
        let mut hasher = DefaultHasher::new();
        let mut source = Vec::new();
        for config in world.all(Kind::MachineConfig).filter(|config| takes.matches(config.labels())) {
            (config.name_any(), config.data["spec"].to_string()).hash(&mut hasher);
            source.push(reference("MachineConfig", &config.name_any()));
        }
        let profile =
            |spec: &Value| Some(spec["tlsSecurityProfile"].clone()).filter(|profile| !profile.is_null());
        // What is generated for workers, custom pools take too.
        let role = |name: &str| BTreeMap::from([(ROLE.to_owned(), name.to_owned())]);
        let of_workers = || {
            let workers = world.all(Kind::Pool).find(|pool| pool.name_any() == WORKER)?;
            accepted.of(workers).filter(|_| takes.matches(&role(WORKER)))
        };
        let own = accepted.of(pool).or_else(of_workers);
        let of_cluster = || profile(&world.only(Kind::ApiServer)?.data["spec"]);
        let profile = own.and_then(|(_, spec)| profile(spec)).or_else(of_cluster);
        let mut kubelet = tls::fields(&profile.unwrap_or_default());
        if let Some((name, spec)) = own {
            kubelet.extend(spec["kubeletConfig"].as_object().cloned().unwrap_or_default());
            source.push(reference("KubeletConfig", name));
        }
        json!(kubelet).to_string().hash(&mut hasher);
        let name = format!("rendered-{}-{:032x}", pool.name_any(), hasher.finish());
        Some(Self { name, source, kubelet })
    }

    /// As `spec.configuration` and `status.configuration` have it.
    pub(super) fn configuration(&self) -> Value {
        json!({ "name": self.name, "source": self.source })
    }
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": kind, "name": name })
}
