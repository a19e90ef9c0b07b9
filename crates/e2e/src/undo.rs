//! Changes of objects that were there before, and how they are undone.
//!
//! In: an object and the fields that a spec is about to change. Out: the same fields as they were, even after the
//! process was killed. Never: a change before its undoing is written down in the cluster.
//!
//! The record is a ConfigMap in the suite's namespace, an entry for each change. The next run applies what an
//! interrupted one has left. Cost: a write more for each change.

use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// The name of the ConfigMap.
pub const RECORD: &str = "undo";

/// An object, as its URL names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Group and version, as `apps/v1`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The kind's plural.
    pub plural: String,
    /// Empty where the kind has none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// What is to be put back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "what")]
pub enum Change {
    /// A field: its JSON pointer, and its value, if it was there.
    Field {
        /// As `/spec/unschedulable`.
        pointer: String,
        /// The value before.
        before: Option<Value>,
    },
    /// A taint that was added to a node.
    Taint {
        /// The taint's key.
        key: String,
    },
    /// The object itself, which is deleted.
    Deleted {
        /// The object before, without what the API server fills in.
        object: Value,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    /// The spec that made the change.
    #[serde(default)]
    spec: String,
    target: Target,
    change: Change,
}

/// The record of a run. Several specs may change things at a time; each undoes its own changes.
pub struct Undo {
    client: Client,
    namespace: String,
    /// By number; later changes are undone first.
    entries: Mutex<BTreeMap<u32, Entry>>,
}

/// The changes of one spec.
#[derive(Clone, Copy)]
pub struct Changes<'u> {
    undo: &'u Undo,
    spec: &'u str,
}

/// Whether an earlier change of the same spec, since `mark`, puts the same field back to what it was before both. A
/// value in between would set off whatever follows the object.
fn is_covered(entries: &BTreeMap<u32, Entry>, mark: u32, number: u32) -> bool {
    let field = |entry: &Entry| match &entry.change {
        Change::Field { pointer, .. } => Some((entry.spec.clone(), entry.target.clone(), pointer.clone())),
        Change::Taint { .. } | Change::Deleted { .. } => None,
    };
    let own = entries.get(&number).and_then(field);
    own.is_some() && entries.range(mark..number).any(|(_, other)| field(other) == own)
}

impl Target {
    /// An object: group and version, kind and plural; the namespace is empty where the kind has none.
    #[must_use]
    pub fn new((api_version, kind, plural): (&str, &str, &str), namespace: &str, name: &str) -> Self {
        let [api_version, kind, plural, namespace, name] =
            [api_version, kind, plural, namespace, name].map(str::to_owned);
        Self { api_version, kind, plural, namespace, name }
    }

    /// An object of a kind.
    #[must_use]
    pub fn of(resource: &ApiResource, namespace: &str, name: &str) -> Self {
        Self::new((&resource.api_version, &resource.kind, &resource.plural), namespace, name)
    }

    /// A node.
    #[must_use]
    pub fn node(name: &str) -> Self {
        Self::of(&ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&()), "", name)
    }

    /// The API of the object's kind.
    #[must_use]
    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        let resource = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(group, version, &self.kind),
            &self.plural,
        );
        match &*self.namespace {
            "" => Api::all_with(client.clone(), &resource),
            namespace => Api::namespaced_with(client.clone(), namespace, &resource),
        }
    }
}

impl Undo {
    /// The record in a namespace, with what an interrupted run has left.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn open(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let data = maps.get_opt(RECORD).await?.and_then(|map| map.data).unwrap_or_default();
        let entry = |(number, text): (String, String)| -> anyhow::Result<(u32, Entry)> {
            let context = || format!("entry {number} of ConfigMap {namespace}/{RECORD}");
            Ok((number.parse().with_context(context)?, serde_json::from_str(&text).with_context(context)?))
        };
        let entries = data.into_iter().map(entry).collect::<anyhow::Result<_>>()?;
        Ok(Self { client: client.clone(), namespace: namespace.to_owned(), entries: Mutex::new(entries) })
    }

    /// How many changes are not undone yet.
    pub async fn pending(&self) -> usize {
        self.entries.lock().await.len()
    }

    /// The changes of a spec.
    #[must_use]
    pub fn by<'u>(&'u self, spec: &'u str) -> Changes<'u> {
        Changes { undo: self, spec }
    }

    /// Undoes everything, the last change first.
    ///
    /// # Errors
    /// The first change that cannot be undone; it and those before it stay recorded.
    pub async fn all(&self) -> anyhow::Result<()> {
        self.back(0, |_| true).await
    }

    async fn back(&self, mark: u32, is_chosen: impl Fn(&Entry) -> bool) -> anyhow::Result<()> {
        loop {
            let last = {
                let entries = self.entries.lock().await;
                let last = entries.range(mark..).rev().find(|(_, entry)| is_chosen(entry));
                last.map(|(number, entry)| (*number, entry.clone(), is_covered(&entries, mark, *number)))
            };
            let Some((number, entry, is_covered)) = last else { return Ok(()) };
            let target = &entry.target;
            if !is_covered {
                self.revert(&entry)
                    .await
                    .with_context(|| format!("undoing a change of {} {}", target.kind, target.name))?;
            }
            self.entries.lock().await.remove(&number);
            self.write(number, None).await?;
        }
    }

    async fn revert(&self, entry: &Entry) -> anyhow::Result<()> {
        let target = &entry.target;
        match &entry.change {
            Change::Field { pointer, before } => self.put_back(target, pointer, before.clone()).await,
            Change::Taint { key } => {
                self.taints(target, |taints| taints.retain(|taint| taint["key"] != key.as_str())).await
            }
            Change::Deleted { object } => {
                let object: DynamicObject = serde_json::from_value(object.clone())?;
                match target.api(&self.client).create(&PostParams::default(), &object).await {
                    Err(error) if !runtime::client::is_already_exists(&error) => Err(error.into()),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Writes a field, whatever it is now. An object that has gone since needs nothing.
    async fn put_back(&self, target: &Target, pointer: &str, value: Option<Value>) -> anyhow::Result<()> {
        let Some(now) = target.api(&self.client).get_opt(&target.name).await? else { return Ok(()) };
        match self.put(target, &serde_json::to_value(now)?, pointer, value).await {
            Err(error) if error.downcast_ref().is_some_and(runtime::client::is_not_found) => Ok(()),
            other => other,
        }
    }

    /// Writes a field of an object as it was read.
    async fn put(
        &self,
        target: &Target,
        now: &Value,
        pointer: &str,
        value: Option<Value>,
    ) -> anyhow::Result<()> {
        let operation = match (now.pointer(pointer).is_some(), value) {
            (false, None) => return Ok(()),
            (true, None) => json!({ "op": "remove", "path": pointer }),
            (true, Some(value)) => json!({ "op": "replace", "path": pointer, "value": value }),
            (false, Some(value)) => json!({ "op": "add", "path": pointer, "value": value }),
        };
        let mut operations = vec![operation];
        // The first label of an object has no parent to be added to.
        let parent = pointer.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty());
        if let Some(parent) = parent.filter(|parent| now.pointer(parent).is_none()) {
            operations.insert(0, json!({ "op": "add", "path": parent, "value": {} }));
        }
        let patch = serde_json::from_value(Value::Array(operations))?;
        let api = target.api(&self.client);
        api.patch(&target.name, &PatchParams::default(), &Patch::<Value>::Json(patch)).await?;
        Ok(())
    }

    async fn taints(&self, target: &Target, change: impl Fn(&mut Vec<Value>)) -> anyhow::Result<()> {
        let api = target.api(&self.client);
        loop {
            let Some(node) = api.get_opt(&target.name).await? else { return Ok(()) };
            let mut taints = match &node.data["spec"]["taints"] {
                Value::Array(taints) => taints.clone(),
                _ => Vec::new(),
            };
            let before = taints.clone();
            change(&mut taints);
            if taints == before {
                return Ok(());
            }
            // Controllers write taints too: only the version that was read is replaced.
            let version = node.metadata.resource_version;
            let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
            match api.patch(&target.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(error) if runtime::client::is_conflict(&error) => {}
                other => return other.map(drop).map_err(Into::into),
            }
        }
    }

    async fn record(&self, spec: &str, target: &Target, change: Change) -> anyhow::Result<()> {
        let entry = Entry { spec: spec.to_owned(), target: target.clone(), change };
        let mut entries = self.entries.lock().await;
        let number = entries.last_key_value().map_or(0, |(number, _)| number + 1);
        self.write(number, Some(serde_json::to_string(&entry)?)).await?;
        entries.insert(number, entry);
        Ok(())
    }

    /// Writes one entry, or removes it.
    async fn write(&self, number: u32, text: Option<String>) -> anyhow::Result<()> {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let data = json!({ "data": { number.to_string(): text } });
        let patched = maps.patch(RECORD, &PatchParams::default(), &Patch::Merge(&data)).await;
        match patched {
            Err(error) if runtime::client::is_not_found(&error) && text.is_some() => {
                let mut map: ConfigMap = serde_json::from_value(data)?;
                map.metadata.name = Some(RECORD.to_owned());
                maps.create(&PostParams::default(), &map).await?;
            }
            Err(error) if runtime::client::is_not_found(&error) => {}
            other => drop(other?),
        }
        Ok(())
    }
}

impl Changes<'_> {
    /// Sets a field of an object; `None` removes it.
    ///
    /// # Errors
    /// When the object cannot be read or changed.
    pub async fn set(&self, target: &Target, pointer: &str, value: Option<Value>) -> anyhow::Result<()> {
        let object = target.api(&self.undo.client).get(&target.name).await?;
        let object = serde_json::to_value(&object)?;
        let before = object.pointer(pointer).cloned();
        if before == value {
            return Ok(());
        }
        self.undo.record(self.spec, target, Change::Field { pointer: pointer.to_owned(), before }).await?;
        self.undo.put(target, &object, pointer, value).await
    }

    /// Adds a taint to a node.
    ///
    /// # Errors
    /// When the node cannot be changed.
    pub async fn taint(&self, node: &str, key: &str, value: &str, effect: &str) -> anyhow::Result<()> {
        let target = Target::node(node);
        self.undo.record(self.spec, &target, Change::Taint { key: key.to_owned() }).await?;
        let taint = json!({ "key": key, "value": value, "effect": effect });
        self.undo
            .taints(&target, |taints| {
                taints.retain(|other| other["key"] != taint["key"] || other["effect"] != taint["effect"]);
                taints.push(taint.clone());
            })
            .await
    }

    /// Deletes an object that is made anew afterwards.
    ///
    /// # Errors
    /// When it cannot be read or deleted.
    pub async fn delete(&self, target: &Target) -> anyhow::Result<()> {
        let api = target.api(&self.undo.client);
        let mut object = serde_json::to_value(api.get(&target.name).await?)?;
        let metadata = json!({
            "name": target.name, "namespace": object["metadata"]["namespace"],
            "labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"],
        });
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
            fields.insert("metadata".to_owned(), metadata);
        }
        self.undo.record(self.spec, target, Change::Deleted { object }).await?;
        api.delete(&target.name, &kube::api::DeleteParams::default()).await?;
        Ok(())
    }

    /// Undoes the spec's changes, the last one first.
    ///
    /// # Errors
    /// The first change that cannot be undone; it and those before it stay recorded.
    pub async fn undo(&self) -> anyhow::Result<()> {
        self.back_to(0).await
    }

    /// A mark for [`Changes::back_to`].
    pub async fn mark(&self) -> u32 {
        self.undo.entries.lock().await.last_key_value().map_or(0, |(number, _)| number + 1)
    }

    /// Undoes what the spec has changed since a mark, the last change first.
    ///
    /// # Errors
    /// The first change that cannot be undone; it and those before it stay recorded.
    pub async fn back_to(&self, mark: u32) -> anyhow::Result<()> {
        self.undo.back(mark, |entry| entry.spec == self.spec).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_changes_of_one_field_the_first_counts() {
        let field = |node: &str, pointer: &str| Entry {
            spec: "s".to_owned(),
            target: Target::node(node),
            change: Change::Field { pointer: pointer.to_owned(), before: None },
        };
        let spec = "s".to_owned();
        let taint = Entry {
            spec: spec.clone(),
            target: Target::node("a"),
            change: Change::Taint { key: "k".to_owned() },
        };
        let deleted =
            Entry { spec, target: Target::node("a"), change: Change::Deleted { object: json!({}) } };
        let all = [
            field("a", "/x"),
            taint.clone(),
            taint,
            field("b", "/x"),
            deleted,
            field("a", "/x"),
            field("a", "/x/y"),
        ];
        let mut entries: BTreeMap<u32, Entry> = (0..).zip(all).collect();
        let covered = |entries: &BTreeMap<u32, Entry>, mark| {
            (mark..7).filter(|number| is_covered(entries, mark, *number)).collect::<Vec<_>>()
        };
        assert_eq!(covered(&entries, 0), [5]);
        assert_eq!(covered(&entries, 1), [0; 0]);
        // Another spec puts back what it has changed itself.
        entries.insert(0, Entry { spec: "t".to_owned(), ..field("a", "/x") });
        assert_eq!(covered(&entries, 0), [0; 0]);
    }
}
