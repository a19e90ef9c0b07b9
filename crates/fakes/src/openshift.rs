//! What makes a control plane look like OpenShift's: its definitions, and the objects every such cluster has.
//!
//! In: a client of a cluster, which [`Flavour`] it shall be. Out: the kinds that installers meet there, with
//! schemas that refuse what does not belong into them, the objects by which the distribution is recognised, and a
//! fake of its Machine Config Operator ([`mco`]). Never: other controllers: no admission asks a
//! SecurityContextConstraint, and serving certificates are not issued.
//!
//! Field names, required fields and values are those of the OpenShift API 4.18. MachineConfig's Ignition part,
//! which a real cluster checks only when a node fails to boot with it, has a schema here too.

mod definition;
mod instance;
pub mod mco;
#[cfg(test)]
mod tests;

use anyhow::Context as _;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::Value;

use testkit::cluster::install_crds;

pub use instance::{MANAGED, NODE_POOL, kubelet_config, node_pool_config, pool, scheduler, tls_profile};

/// Which of Red Hat's distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// OpenShift with its own control plane.
    OpenShift,
    /// A cluster hosted by HyperShift, as its users see it: no MachineConfigs, a control plane elsewhere.
    HyperShift,
}

/// An object of such a cluster, and the definition it belongs to.
#[derive(Clone, Debug)]
pub struct Instance {
    /// How its kind is called in paths.
    pub plural: &'static str,
    /// All of it, status included.
    pub body: Value,
}

/// The CustomResourceDefinitions that a cluster of this flavour has, as JSON.
#[must_use]
pub fn definitions(flavour: Flavour) -> Vec<Value> {
    match flavour {
        Flavour::OpenShift => [definitions(Flavour::HyperShift), definition::machine()].concat(),
        Flavour::HyperShift => {
            [definition::config(), definition::operators(), definition::security()].concat()
        }
    }
}

/// The objects that a cluster of this flavour and version has, such as `4.18.7`.
#[must_use]
pub fn instances(flavour: Flavour, version: &str) -> Vec<Instance> {
    match flavour {
        Flavour::OpenShift => {
            [instance::config("HighlyAvailable", version), instance::security(), instance::machine()].concat()
        }
        Flavour::HyperShift => [instance::config("External", version), instance::security()].concat(),
    }
}

/// Makes a cluster look like one of this flavour and version, and waits until its kinds are served.
///
/// # Errors
/// When the API server refuses something.
pub async fn install(client: &Client, flavour: Flavour, version: &str) -> anyhow::Result<()> {
    let text = definitions(flavour).iter().map(Value::to_string).collect::<Vec<_>>();
    install_crds(client, &text.join("\n---\n")).await?;
    for instance in instances(flavour, version) {
        make(client, &instance).await?;
    }
    Ok(())
}

/// Makes an object of such a cluster, or makes it be as this says, status included.
///
/// # Errors
/// When the API server refuses it.
pub async fn make(client: &Client, instance: &Instance) -> anyhow::Result<()> {
    apply(client, instance).await.with_context(|| format!("making {}", instance.body))
}

async fn apply(client: &Client, instance: &Instance) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&instance.body["apiVersion"]), text(&instance.body["kind"]));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let kind = GroupVersionKind::gvk(group, version, &kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, instance.plural);
    let metadata = &instance.body["metadata"];
    let api: Api<DynamicObject> = match metadata["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = text(&metadata["name"]);
    let params = PatchParams {
        field_validation: Some(kube::api::ValidationDirective::Strict),
        ..PatchParams::apply("testkit").force()
    };
    api.patch(&name, &params, &Patch::Apply(&instance.body)).await?;
    if !instance.body["status"].is_null() {
        api.patch_status(&name, &params, &Patch::Apply(&instance.body)).await?;
    }
    Ok(())
}
