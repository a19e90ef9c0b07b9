//! One Kubernetes object on its way to a cluster or to text.
//!
//! In: typed objects. Out: their JSON form with what is needed to find them on an API server without discovery. Never: a
//! change of content.

use std::fmt;

use kube::core::{ApiResource, GroupVersionKind};
use serde::Serialize;
use serde_json::Value;

/// Which kind of object, and under which path the API server serves it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sort {
    /// API group; empty for the core group.
    pub group: String,
    /// API version without the group, such as `v1`.
    pub version: String,
    /// The kind, such as `DaemonSet`.
    pub kind: String,
    /// The resource's name in paths, such as `daemonsets`.
    pub plural: String,
}

/// One object, complete with `apiVersion` and `kind`.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    sort: Sort,
    namespace: Option<String>,
    name: String,
    body: Value,
}

/// What is not an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No name, so it cannot be found again.
    #[error("{0} has no metadata.name")]
    NoName(String),
    /// A value without a JSON form.
    #[error("{0} cannot be written as JSON: {1}")]
    NotJson(String, String),
}

impl Sort {
    /// The kind of a type that knows it.
    #[must_use]
    pub fn of<K: kube::Resource<DynamicType = ()>>() -> Self {
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
        }
    }

    /// A kind of which there is no type.
    #[must_use]
    pub fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        let [group, version, kind, plural] = [group, version, kind, plural].map(str::to_owned);
        Self { group, version, kind, plural }
    }

    /// As `apiVersion` has it.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// As kube's dynamic client wants it.
    #[must_use]
    pub fn resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        ApiResource::from_gvk_with_plural(&kind, &self.plural)
    }
}

impl Object {
    /// The object of a typed value. A namespaced kind has to have its namespace set.
    ///
    /// # Errors
    /// When it has no name or no JSON form.
    pub fn new<K: kube::Resource<DynamicType = ()> + Serialize>(value: &K) -> Result<Self, Error> {
        let sort = Sort::of::<K>();
        let body = serde_json::to_value(value);
        let body = body.map_err(|error| Error::NotJson(sort.kind.clone(), error.to_string()))?;
        Self::of_sort(sort, body)
    }

    /// The object of a value of a kind of which there is no type; `apiVersion` and `kind` are set here.
    ///
    /// # Errors
    /// When it has no name.
    pub fn of_sort(sort: Sort, mut body: Value) -> Result<Self, Error> {
        body["apiVersion"] = sort.api_version().into();
        body["kind"] = sort.kind.clone().into();
        let text = |field: &str| body["metadata"][field].as_str().map(str::to_owned);
        let name = text("name").ok_or_else(|| Error::NoName(sort.kind.clone()))?;
        let namespace = text("namespace");
        Ok(Self { sort, namespace, name, body })
    }

    /// Its kind.
    #[must_use]
    pub fn sort(&self) -> &Sort {
        &self.sort
    }

    /// Its namespace; none for what belongs to the cluster.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All of it.
    #[must_use]
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// Whether both mean the same object, in whatever version and whatever they say.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let key = |object: &Self| {
            let Self { sort, namespace, name, .. } = object;
            (sort.group.clone(), sort.kind.clone(), namespace.clone(), name.clone())
        };
        key(self) == key(other)
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.body["metadata"]["labels"][key].as_str()
    }

    /// The same with a field of its metadata replaced.
    #[must_use]
    pub fn with_metadata(mut self, field: &str, value: Value) -> Self {
        self.body["metadata"][field] = value;
        self
    }

    /// The same with one more label.
    #[must_use]
    pub fn labelled(mut self, key: &str, value: &str) -> Self {
        self.body["metadata"]["labels"][key] = value.into();
        self
    }
}

/// As people name it: `DaemonSet tholepin/tholepin-exporter`.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.sort.kind, self.name),
            None => write!(f, "{} {}", self.sort.kind, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DaemonSet;
    use k8s_openapi::api::core::v1::Namespace;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_typed_value_says_where_it_belongs() {
        let mut set = DaemonSet::default();
        set.metadata.name = Some("exporter".to_owned());
        set.metadata.namespace = Some("numa".to_owned());
        let object = Object::new(&set).unwrap();
        assert_eq!(object.sort(), &Sort::new("apps", "v1", "DaemonSet", "daemonsets"));
        assert_eq!((object.namespace(), object.name()), (Some("numa"), "exporter"));
        assert_eq!(object.body()["apiVersion"], "apps/v1");
        assert_eq!(object.to_string(), "DaemonSet numa/exporter");
        assert_eq!(object.labelled("a", "b").label("a"), Some("b"));
    }

    #[test]
    fn the_core_group_has_no_name() {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("numa".to_owned());
        let object = Object::new(&namespace).unwrap();
        assert_eq!(object.sort().api_version(), "v1");
        assert_eq!(object.to_string(), "Namespace numa");
    }

    #[test]
    fn kinds_without_types_are_objects_too() {
        let sort = Sort::new(
            "security.openshift.io",
            "v1",
            "SecurityContextConstraints",
            "securitycontextconstraints",
        );
        let object = Object::of_sort(sort, json!({ "metadata": { "name": "x" } })).unwrap();
        assert_eq!(object.body()["kind"], "SecurityContextConstraints");
        assert_eq!(object.sort().resource().api_version, "security.openshift.io/v1");
    }

    #[test]
    fn without_a_name_it_is_none() {
        let error = Object::new(&Namespace::default()).unwrap_err();
        assert_eq!(error.to_string(), "Namespace has no metadata.name");
    }
}
