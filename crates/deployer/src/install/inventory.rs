//! Our objects in a cluster, and objects of others in our namespaces.
//!
//! In: a cluster. Out: our objects, found by their labels; the occupants of a namespace. Never: a write.

use std::collections::BTreeSet;

use clap::ValueEnum as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::ListParams;
use kube::discovery::{Discovery, Scope, verbs};
use runtime::client;
use serde_json::Value;

use super::decide::is_ours;
use super::kinds;
use super::run::{Halt, listed};
use crate::part::{COMPONENT, Component, MANAGED_BY, MANAGER};
use objects::client::{AT_ONCE, ApiServer, CallError};
use objects::ownership::references;
use objects::{Object, ObjectKind};

/// API groups that repeat objects of other groups, or serve values that are not objects.
const VIEWS: [&str; 7] = [
    "authorization.openshift.io",
    "custom.metrics.k8s.io",
    "events.k8s.io",
    "external.metrics.k8s.io",
    "metrics.k8s.io",
    "packages.operators.coreos.com",
    "project.openshift.io",
];

/// The owners of the objects in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Occupants {
    /// Our components, by their label.
    pub(super) ours: BTreeSet<String>,
    /// Objects of others as `Kind name`.
    pub(super) others: BTreeSet<String>,
}

/// Our objects, and the kinds that could not be listed.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) objects: Vec<(Component, Object)>,
    pub(super) failures: Vec<Halt>,
}

/// Our objects of these components, in the order of installation. `more` names kinds beyond the known ones.
pub(super) async fn inventory(
    api_server: &ApiServer,
    components: &[Component],
    more: &[ObjectKind],
) -> Result<Inventory, Halt> {
    let mut kinds: Vec<ObjectKind> = kinds::all().collect();
    for kind in more {
        if !kinds.iter().any(|known| (&known.group, &known.kind) == (&kind.group, &kind.kind)) {
            kinds.push(kind.clone());
        }
    }
    let names: Vec<&str> = components.iter().map(|component| component.name()).collect();
    let labels = format!("{MANAGED_BY}={MANAGER},{COMPONENT} in ({})", names.join(","));
    let params = ListParams::default().labels(&labels);
    let list = async |kind: ObjectKind| {
        let list = api_server.list(&kind, None, &params).await;
        (kind, list)
    };
    let lists = stream::iter(kinds).map(list);
    let mut found = Inventory::default();
    for (kind, list) in lists.buffered(AT_ONCE).collect::<Vec<_>>().await {
        let items = match list {
            Ok(items) => items.unwrap_or_default(),
            Err(CallError::Cancelled) => return Err(Halt::Cancelled),
            Err(stop) => {
                found.failures.push(Halt::of("listing", format!("{} objects", kind.kind), stop));
                continue;
            }
        };
        let objects = items.into_iter().filter_map(|item| listed(&kind, item));
        found.objects.extend(objects.filter_map(|object| Some((component(&object)?, object))));
    }
    Ok(found)
}

/// The owners of the objects in a namespace. `gone` are uids of what we deleted and what may still be there for a
/// moment.
pub(super) async fn occupants(
    api_server: &ApiServer,
    namespace: &Object,
    gone: &BTreeSet<String>,
) -> Result<Occupants, Halt> {
    let failed = |stop| Halt::of("looking into", namespace, stop);
    let client = &api_server.client;
    let discover = || Discovery::new(client.clone()).exclude(&VIEWS).run_aggregated();
    let discovery = api_server.repeat(discover).await.map_err(failed)?;
    let kinds: Vec<ObjectKind> = discovery
        .groups_alphabetical()
        .into_iter()
        .flat_map(|group| group.resources_by_stability())
        .filter(|(_, can)| can.scope == Scope::Namespaced && can.supports_operation(verbs::LIST))
        .map(|(kind, _)| ObjectKind::new(&kind.group, &kind.version, &kind.kind, &kind.plural))
        .collect();
    let lists = stream::iter(kinds).map(async |kind| {
        match api_server.list_metadata(&kind, Some(namespace.name())).await {
            // Some kinds can only be created, in spite of what discovery reports.
            Err(stop) if stop.is(|error| client::code(error) == Some(405)) => Ok((kind, Vec::new())),
            list => list.map(|items| (kind, items.unwrap_or_default())),
        }
    });
    let lists: Vec<(ObjectKind, Vec<Value>)> = lists.buffered(AT_ONCE).try_collect().await.map_err(failed)?;
    Ok(occupants_of(&lists, gone))
}

/// Whether a definition has objects other than those that our own programs create.
pub(super) async fn is_used(api_server: &ApiServer, definition: &Object) -> Result<bool, Halt> {
    if definition.name() == nrt_definition() {
        return Ok(false);
    }
    let spec = &definition.body()["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(version) = versions.iter().find(|version| version["served"] == true) else {
        return Ok(true);
    };
    let (kind, plural) = (text(&spec["names"]["kind"]), text(&spec["names"]["plural"]));
    let kind = ObjectKind::new(&text(&spec["group"]), &text(&version["name"]), &kind, &plural);
    let list = api_server.list_metadata(&kind, None).await;
    let list = list.map_err(|stop| Halt::of("listing objects of", definition, stop))?;
    Ok(list.is_some_and(|items| !items.is_empty()))
}

/// The name of the definition of NodeResourceTopology; exporters recreate its objects, so their loss does not matter.
fn nrt_definition() -> String {
    let kind = ObjectKind::of::<api::nrt::NodeResourceTopology>();
    format!("{}.{}", kind.plural, kind.group)
}

/// The component that the object's label names.
fn component(object: &Object) -> Option<Component> {
    Component::from_str(object.label(COMPONENT)?, false).ok()
}

fn occupants_of(lists: &[(ObjectKind, Vec<Value>)], gone: &BTreeSet<String>) -> Occupants {
    let uid = |object: &Value| object["uid"].as_str().unwrap_or_default().to_owned();
    let here: BTreeSet<String> =
        lists.iter().flat_map(|(_, items)| items).map(|item| uid(&item["metadata"])).collect();
    let mut occupants = Occupants::default();
    for (kind, items) in lists {
        for item in items {
            let metadata = &item["metadata"];
            if gone.contains(&uid(metadata)) || is_of_the_cluster(kind, metadata) {
                continue;
            }
            if is_ours(item) {
                let label = metadata["labels"][COMPONENT].as_str().unwrap_or("no component");
                occupants.ours.insert(label.to_owned());
                continue;
            }
            // The garbage collector deletes it with its owner; an owner that is not listed was in this namespace.
            let follows = |owner: &Value| {
                here.contains(&uid(owner))
                    || gone.contains(&uid(owner))
                    || owner["apiVersion"] == "apps/v1"
                    || owner["apiVersion"] == "batch/v1"
            };
            if !references(item).iter().any(follows) {
                let name = metadata["name"].as_str().unwrap_or_default();
                occupants.others.insert(format!("{} {name}", kind.kind));
            }
        }
    }
    occupants
}

/// Whether the cluster creates this object in each namespace, or a running program of ours does; its loss does not
/// matter.
fn is_of_the_cluster(kind: &ObjectKind, metadata: &Value) -> bool {
    let name = metadata["name"].as_str().unwrap_or_default();
    let noted = |annotation: &str| metadata["annotations"][annotation].is_string();
    match kind.kind.as_str() {
        "Event" | "Lease" | "Endpoints" | "EndpointSlice" => true,
        "ServiceAccount" => matches!(name, "default" | "builder" | "deployer"),
        "ConfigMap" => matches!(name, "kube-root-ca.crt" | "openshift-service-ca.crt"),
        "RoleBinding" => {
            matches!(name, "system:deployers" | "system:image-builders" | "system:image-pullers")
        }
        "Secret" => {
            noted("kubernetes.io/service-account.name")
                || noted("openshift.io/internal-registry-auth-token.service-account")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(kind: &str) -> ObjectKind {
        ObjectKind::new("", "v1", kind, &format!("{}s", kind.to_lowercase()))
    }

    #[test]
    fn only_objects_of_others_count_as_occupants() {
        let item = |metadata: Value| json!({ "metadata": metadata });
        let ours = json!({ MANAGED_BY: MANAGER, COMPONENT: "api" });
        // kind, metadata -> counts as others', counts as ours
        let table = [
            ("ConfigMap", json!({ "name": "users", "uid": "1" }), true, false),
            ("ConfigMap", json!({ "name": "kube-root-ca.crt", "uid": "1" }), false, false),
            ("ServiceAccount", json!({ "name": "default", "uid": "1" }), false, false),
            ("ServiceAccount", json!({ "name": "users", "uid": "1" }), true, false),
            ("Lease", json!({ "name": "x", "uid": "1" }), false, false),
            ("ConfigMap", json!({ "name": "c", "uid": "1", "labels": ours }), false, true),
            ("ConfigMap", json!({ "name": "c", "uid": "deleted" }), false, false),
            (
                "Pod",
                json!({ "name": "p", "uid": "1", "ownerReferences": [{ "uid": "2", "apiVersion": "apps/v1" }] }),
                false,
                false,
            ),
            (
                "ConfigMap",
                json!({ "name": "p", "uid": "1", "ownerReferences": [{ "uid": "2", "apiVersion": "x.io/v1" }] }),
                true,
                false,
            ),
            (
                "ConfigMap",
                json!({ "name": "p", "uid": "1", "ownerReferences": [{ "uid": "deleted" }] }),
                false,
                false,
            ),
            (
                "Secret",
                json!({ "name": "t", "uid": "1", "annotations": { "kubernetes.io/service-account.name": "x" } }),
                false,
                false,
            ),
            ("Secret", json!({ "name": "t", "uid": "1" }), true, false),
        ];
        let gone = BTreeSet::from(["deleted".to_owned()]);
        for (name, metadata, others, is_ours) in table {
            let got = occupants_of(&[(kind(name), vec![item(metadata.clone())])], &gone);
            assert_eq!(
                (!got.others.is_empty(), !got.ours.is_empty()),
                (others, is_ours),
                "{name} {metadata}"
            );
        }
    }

    #[test]
    fn owned_objects_follow_their_owners() {
        let owner = json!({ "metadata": { "name": "o", "uid": "o" } });
        let owned = json!({ "metadata": { "name": "p", "uid": "p", "ownerReferences": [{ "uid": "o" }] } });
        let got = occupants_of(&[(kind("Pod"), vec![owned]), (kind("Thing"), vec![owner])], &BTreeSet::new());
        assert_eq!(got.others, BTreeSet::from(["Thing o".to_owned()]), "only the owner is named");
    }
}
