//! Calls to the API server for objects of any kind.
//!
//! In: JSON. Out: requests with strict validation, so that a field that the server does not know is an error and not
//! another workload.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::core::Request;
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, Resource as _};
use serde::Deserialize;
use serde_json::{Value, json};

/// Calls at a time, as upstream makes them.
const CALLS: usize = 30;

/// The API server.
#[derive(Clone)]
pub(super) struct Server {
    client: Client,
    kinds: Arc<Mutex<Kinds>>,
}

/// What the server has said about kinds, by API version and kind.
type Kinds = BTreeMap<(String, String), (ApiResource, Scope)>;

#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Named>,
}

/// Where objects of a kind are.
pub(super) struct Place(Request);

impl Server {
    pub(super) fn new(client: Client) -> Self {
        Self { client, kinds: Arc::default() }
    }

    /// Where an object is, by its kind; the namespace is left out for kinds without namespaces.
    pub(super) async fn place(&self, object: &Value, namespace: &str) -> anyhow::Result<Place> {
        let text =
            |key| object.get(key).and_then(Value::as_str).with_context(|| format!("an object without {key}"));
        let (version, kind) = (text("apiVersion")?, text("kind")?);
        let key = (version.to_owned(), kind.to_owned());
        let known = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let (resource, scope) = match known {
            Some(known) => known,
            None => {
                let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
                let gvk = GroupVersionKind::gvk(group, version, kind);
                let (resource, capabilities) =
                    pinned_kind(&self.client, &gvk).await.with_context(|| format!("the kind {kind}"))?;
                let found = (resource, capabilities.scope);
                self.kinds.lock().unwrap_or_else(PoisonError::into_inner).insert(key, found.clone());
                found
            }
        };
        let namespace = (scope == Scope::Namespaced).then_some(namespace);
        Ok(Place(Request::new(DynamicObject::url_path(&resource, namespace))))
    }

    /// Makes an object; its name.
    pub(super) async fn create(&self, object: &Value, namespace: &str) -> anyhow::Result<String> {
        let Place(at) = self.place(object, namespace).await?;
        let mut request = at.create(&PostParams::default(), serde_json::to_vec(object)?)?;
        *request.uri_mut() = strict(request.uri())?;
        let named: Named = self.client.request(request).await.with_context(|| {
            let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
            format!("creating {kind}")
        })?;
        Ok(named.metadata.name)
    }

    /// Makes a namespace that may be there.
    pub(super) async fn create_namespace(&self, name: &str, mut template: Value) -> anyhow::Result<()> {
        let fields = template.as_object_mut().context("not a mapping")?;
        fields.insert("apiVersion".to_owned(), json!("v1"));
        fields.insert("kind".to_owned(), json!("Namespace"));
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        metadata.as_object_mut().context("not a mapping")?.insert("name".to_owned(), json!(name));
        match self.create(&template, "").await {
            Err(error) if is_status(&error, 409) => Ok(()),
            made => made.map(drop),
        }
    }

    /// Replaces an object, or a part of it.
    pub(super) async fn replace(
        &self,
        object: &Value,
        namespace: &str,
        part: Option<&str>,
    ) -> anyhow::Result<()> {
        let Place(at) = self.place(object, namespace).await?;
        let name =
            object.pointer("/metadata/name").and_then(Value::as_str).context("an object without name")?;
        let (params, body) = (PostParams::default(), serde_json::to_vec(object)?);
        let mut request = match part {
            Some(part) => at.replace_subresource(part, name, &params, body)?,
            None => at.replace(name, &params, body)?,
        };
        *request.uri_mut() = strict(request.uri())?;
        self.client.request::<Value>(request).await.with_context(|| format!("replacing {name}"))?;
        Ok(())
    }

    /// Sets the phase in an object's status.
    pub(super) async fn set_phase(
        &self,
        object: &Value,
        namespace: &str,
        name: &str,
        phase: &str,
    ) -> anyhow::Result<()> {
        let Place(at) = self.place(object, namespace).await?;
        let patch = kube::api::Patch::Merge(json!({ "status": { "phase": phase } }));
        let request = at.patch_subresource("status", name, &kube::api::PatchParams::default(), &patch)?;
        self.client.request::<Value>(request).await.with_context(|| format!("the status of {name}"))?;
        Ok(())
    }

    /// Deletes an object.
    pub(super) async fn delete(&self, at: &Place, name: &str) -> anyhow::Result<()> {
        let request = at.0.delete(name, &DeleteParams::default())?;
        self.client.request::<Value>(request).await.with_context(|| format!("deleting {name}"))?;
        Ok(())
    }

    /// Deletes all objects of a place that have these labels.
    pub(super) async fn delete_all(
        &self,
        at: &Place,
        labels: &str,
        params: &DeleteParams,
    ) -> anyhow::Result<()> {
        let list = ListParams::default().labels(labels);
        let request = at.0.delete_collection(params, &list)?;
        self.client.request::<Value>(request).await.context("deleting pods")?;
        Ok(())
    }

    /// The names of all objects of a place.
    pub(super) async fn names(&self, at: &Place) -> anyhow::Result<Vec<String>> {
        let list: List = self.client.request(at.0.list(&ListParams::default())?).await?;
        Ok(list.items.into_iter().map(|item| item.metadata.name).collect())
    }
}

/// The address of a request, with strict validation of fields.
fn strict<U: std::fmt::Display + std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    uri: &U,
) -> anyhow::Result<U> {
    let text = uri.to_string();
    let joint = match text.chars().last() {
        Some('?') => "",
        _ if text.contains('?') => "&",
        _ => "?",
    };
    Ok(format!("{text}{joint}fieldValidation=Strict").parse()?)
}

/// Whether an error is the API server's answer with this code.
pub(super) fn is_status(error: &anyhow::Error, code: u16) -> bool {
    let kube = error.downcast_ref::<kube::Error>();
    matches!(kube, Some(kube::Error::Api(status)) if status.code == code)
}

/// Makes calls, several at a time.
pub(super) async fn calls<F>(count: usize, call: impl Fn(usize) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    futures::stream::iter(0..count).map(call).buffer_unordered(CALLS).try_collect::<()>().await
}
