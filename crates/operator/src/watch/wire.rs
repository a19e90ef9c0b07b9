//! Objects as they come off the wire, with no more of them than somebody reads.
//!
//! In: JSON of the API server. Out: [`Wire`]: [`Raw`] for kinds that are kept whole, [`Parts`] of others, [`WireNode`] for nodes. Never: a
//! kind's rules.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::null::null_as_default;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use kube::core::ApiResource;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::world::Node;

/// An object of any kind, with what is kept of it.
#[derive(Clone, Debug)]
pub(crate) struct Wire<B> {
    /// What identifies it, and what its readers need.
    pub(crate) meta: ObjectMeta,
    /// What is kept.
    pub(crate) body: B,
}

/// An object that is kept complete, and as it was sent. Its `meta` is what identifies it, and nothing else.
pub(crate) type Raw = Wire<Value>;

/// What is read of an object's spec and status, and nothing else of them.
#[derive(Clone, Debug)]
pub(crate) struct Parts<S, T> {
    pub(crate) spec: S,
    pub(crate) status: T,
}

/// A node, of which nearly everything has been left out.
pub(super) type WireNode = Wire<Parts<IgnoredAny, Status>>;

/// One copy of each text, for texts that many objects have.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    known: BTreeSet<Arc<str>>,
    /// How many there were when those that nobody has any more were last thrown away.
    kept: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<IgnoredAny>,
}

/// Of a node's status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    #[serde(deserialize_with = "null_as_default")]
    addresses: Vec<Address>,
    #[serde(deserialize_with = "null_as_default")]
    conditions: Vec<Condition>,
    daemon_endpoints: Option<Endpoints>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Endpoints {
    kubelet_endpoint: Option<Endpoint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Endpoint {
    /// In capitals on the wire.
    #[serde(rename = "Port", default)]
    port: u16,
}

/// The port kubelets are at unless they say otherwise.
const KUBELET: u16 = 10250;

impl Raw {
    /// A field's text, by a JSON pointer.
    #[must_use]
    pub(crate) fn text(&self, pointer: &str) -> Option<&str> {
        self.body.pointer(pointer).and_then(Value::as_str)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let body = Value::deserialize(deserializer)?;
        let text = |field: &str| body["metadata"][field].as_str().map(str::to_owned);
        let meta = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, body })
    }
}

impl<'de, S, T> Deserialize<'de> for Wire<Parts<S, T>>
where
    S: Default + DeserializeOwned,
    T: Default + DeserializeOwned,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(bound = "S: Default + DeserializeOwned, T: Default + DeserializeOwned")]
        struct Whole<S, T> {
            #[serde(default)]
            metadata: Meta,
            #[serde(default)]
            spec: S,
            #[serde(default)]
            status: T,
        }
        let Whole { metadata, spec, status } = Whole::deserialize(deserializer)?;
        let meta = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            labels: metadata.labels,
            // Whether there is one is all that is asked.
            deletion_timestamp: metadata.deletion_timestamp.map(|_| Time(jiff::Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, body: Parts { spec, status } })
    }
}

impl WireNode {
    /// What is kept of it: its name, and what matters.
    #[must_use]
    pub(super) fn trim(self, texts: &mut Texts) -> (String, Node) {
        let Self { meta, body: Parts { status, .. } } = self;
        let labels = texts.share_all(&meta.labels.unwrap_or_default());
        let ready = status.conditions.iter().any(|at| at.kind == "Ready" && at.status == "True");
        let port = status.daemon_endpoints.and_then(|all| all.kubelet_endpoint).map(|one| one.port);
        let port = port.filter(|port| *port != 0).unwrap_or(KUBELET);
        let internal = status.addresses.into_iter().find(|one| one.kind == "InternalIP");
        let kubelet = internal.map(|one| (one.address, port));
        (meta.name.unwrap_or_default(), Node { labels, ready, kubelet })
    }
}

impl Texts {
    /// The copy of a text.
    pub(crate) fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        if self.known.len() > 2 * self.kept + 1024 {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.kept = self.known.len();
        }
        let new: Arc<str> = text.into();
        self.known.insert(Arc::clone(&new));
        new
    }

    /// The copies of keys and values, such as of labels.
    pub(crate) fn share_all(&mut self, words: &BTreeMap<String, String>) -> BTreeMap<Arc<str>, Arc<str>> {
        words.iter().map(|(key, value)| (self.share(key), self.share(value))).collect()
    }
}

impl<B> Resource for Wire<B> {
    type DynamicType = ApiResource;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }

    fn api_version(kind: &ApiResource) -> Cow<'_, str> {
        kind.api_version.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(body: &Value) -> (String, Node) {
        WireNode::deserialize(body).unwrap().trim(&mut Texts::default())
    }

    #[test]
    fn of_a_node_what_matters_is_kept() {
        let body = json!({
            "metadata": {
                "name": "n1", "uid": "u", "labels": { "a": "1" }, "annotations": { "long": "text" },
                "managedFields": [{ "manager": "kubelet" }],
            },
            "spec": { "taints": [] },
            "status": {
                "addresses": [{ "type": "Hostname", "address": "n1" }, { "type": "InternalIP", "address": "10.0.0.1" }],
                "conditions": [{ "type": "Ready", "status": "True", "reason": "x" }],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": 10255 } },
                "images": [{ "names": ["x"] }],
            },
        });
        let (name, kept) = node(&body);
        assert_eq!(
            (name.as_str(), kept.ready, kept.kubelet),
            ("n1", true, Some(("10.0.0.1".to_owned(), 10255)))
        );
        assert_eq!(kept.labels.get("a").map(|value| &**value), Some("1"));
    }

    #[test]
    fn a_node_that_says_little_is_not_ready() {
        for body in [
            json!({ "metadata": { "name": "n1" } }),
            json!({ "metadata": { "name": "n1" }, "status": { "conditions": null, "addresses": null } }),
            json!({ "metadata": { "name": "n1" }, "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
        ] {
            assert_eq!(node(&body), ("n1".to_owned(), Node::default()), "{body}");
        }
        let port = json!({
            "metadata": { "name": "n1" },
            "status": { "addresses": [{ "type": "InternalIP", "address": "::1" }] },
        });
        assert_eq!(node(&port).1.kubelet, Some(("::1".to_owned(), 10250)));
    }

    #[test]
    fn texts_are_there_once_and_go_with_the_last_who_has_them() {
        let mut texts = Texts::default();
        let one = texts.share("kubernetes.io/os");
        assert!(Arc::ptr_eq(&one, &texts.share("kubernetes.io/os")));
        for number in 0..100_000 {
            drop(texts.share(&number.to_string()));
        }
        assert!(texts.known.len() < 4096, "{}", texts.known.len());
        assert!(Arc::ptr_eq(&one, &texts.share("kubernetes.io/os")));
    }

    #[test]
    fn an_object_of_any_kind_is_kept_as_it_is() {
        let body = json!({ "metadata": { "name": "x", "namespace": "n", "odd": 1 }, "data": { "a": null } });
        let raw = Raw::deserialize(&body).unwrap();
        assert_eq!(raw.body, body);
        assert_eq!((raw.meta.name.as_deref(), raw.meta.namespace.as_deref()), (Some("x"), Some("n")));
        assert_eq!(raw.text("/metadata/name"), Some("x"));
    }
}
