//! Objects from the API server, reduced to the fields that are read.
//!
//! In: JSON of the API server. Out: [`Wire`]: [`Raw`] for kinds that are kept whole, [`Parts`] of others. Never: a rule
//! of one kind.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use kube::core::ApiResource;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object of any kind, reduced to metadata and a body.
#[derive(Clone, Debug)]
pub struct Wire<B> {
    /// Identity, labels, and whether the object is being deleted.
    pub meta: ObjectMeta,
    /// The kept part of the object.
    pub body: B,
}

/// A complete object, as the server sent it. Its `meta` has the identity only.
pub type Raw = Wire<Value>;

/// The fields that are read of an object's spec and status.
#[derive(Clone, Debug)]
pub struct Parts<S, T> {
    /// The fields of `spec` that are read.
    pub spec: S,
    /// The fields of `status` that are read.
    pub status: T,
}

/// A pool with one copy of each text, for texts that many objects share.
#[derive(Debug, Default)]
pub struct Texts {
    known: BTreeSet<Arc<str>>,
    /// The number of texts after the last removal of unused ones.
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

impl Raw {
    /// The text of a field, by JSON pointer.
    #[must_use]
    pub fn text(&self, pointer: &str) -> Option<&str> {
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
            // Readers only check whether there is one.
            deletion_timestamp: metadata.deletion_timestamp.map(|_| Time(jiff::Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, body: Parts { spec, status } })
    }
}

impl Texts {
    /// The shared copy of a text.
    pub fn share(&mut self, text: &str) -> Arc<str> {
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

    /// The shared copies of keys and values, such as those of labels.
    pub fn share_all(&mut self, words: &BTreeMap<String, String>) -> BTreeMap<Arc<str>, Arc<str>> {
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
