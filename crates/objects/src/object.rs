//! One Kubernetes object on its way to a cluster or to text.
//!
//! In: typed objects, or JSON and a kind. Out: JSON with the key that finds the object on an API server. Never: a
//! change of content.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::ObjectKind;

/// An object, complete with `apiVersion` and `kind`.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use objects::Object;
///
/// let mut map = ConfigMap::default();
/// map.metadata.name = Some("config".to_owned());
/// map.metadata.namespace = Some("numa".to_owned());
/// let object = Object::new(&map).labelled("app", "exporter");
/// assert_eq!(object.to_string(), "ConfigMap numa/config");
/// assert_eq!(object.body()["metadata"]["labels"]["app"], "exporter");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    key: ObjectKey,
    body: Value,
}

/// The kind, namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The kind.
    pub kind: ObjectKind,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object of a Rust type; `namespace` is `None` for cluster-scoped objects.
    #[must_use]
    pub fn of<K: kube::Resource<DynamicType = ()>>(namespace: Option<&str>, name: &str) -> Self {
        Self { kind: ObjectKind::of::<K>(), namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }
}

/// An object without a name: it cannot be found again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} has no metadata.name")]
pub struct NoName(String);

impl Object {
    /// The object of a typed value with a name. A namespaced kind must have its namespace set.
    #[must_use]
    pub fn new<K: kube::Resource<DynamicType = ()> + Serialize>(value: &K) -> Self {
        Self::typed(ObjectKind::of::<K>(), value)
    }

    /// The object of a typed value with a name, of a kind that the type does not tell.
    ///
    /// Every type of Kubernetes has a JSON form. A value without a name gets the empty one, which no API server takes.
    #[must_use]
    pub fn typed(kind: ObjectKind, value: &impl Serialize) -> Self {
        Self::with_kind(kind, serde_json::to_value(value).unwrap_or_default())
    }

    fn with_kind(kind: ObjectKind, mut body: Value) -> Self {
        body["apiVersion"] = kind.api_version().into();
        body["kind"] = kind.kind.clone().into();
        let text = |field: &str| body["metadata"][field].as_str().map(str::to_owned);
        let (name, namespace) = (text("name").unwrap_or_default(), text("namespace"));
        Self { key: ObjectKey { kind, namespace, name }, body }
    }

    /// The object of a value whose kind has no Rust type; sets `apiVersion` and `kind`.
    ///
    /// # Errors
    /// When the value has no name.
    pub fn from_value(kind: ObjectKind, body: Value) -> Result<Self, NoName> {
        let object = Self::with_kind(kind, body);
        if object.name().is_empty() { Err(NoName(object.key.kind.kind)) } else { Ok(object) }
    }

    /// An object that says no more than its key, for requests that need no more.
    #[must_use]
    pub fn bare(key: ObjectKey) -> Self {
        let mut metadata = serde_json::json!({ "name": key.name });
        if let Some(namespace) = &key.namespace {
            metadata["namespace"] = namespace.as_str().into();
        }
        let body = serde_json::json!({
            "apiVersion": key.kind.api_version(), "kind": key.kind.kind, "metadata": metadata,
        });
        Self { key, body }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &ObjectKind {
        &self.key.kind
    }

    /// The namespace; `None` for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.key.namespace.as_deref()
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// The whole object as JSON.
    #[must_use]
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// Whether both name the same object, whatever their API versions and content.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |object: &Self| {
            let ObjectKey { kind, namespace, name } = object.key.clone();
            (kind.group, kind.kind, namespace, name)
        };
        place(self) == place(other)
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.body["metadata"]["labels"][key].as_str()
    }

    /// The same object with a field of its metadata replaced.
    #[must_use]
    pub fn with_metadata(mut self, field: &str, value: Value) -> Self {
        self.body["metadata"][field] = value;
        self
    }

    /// The same object with one more label.
    #[must_use]
    pub fn labelled(mut self, key: &str, value: &str) -> Self {
        self.body["metadata"]["labels"][key] = value.into();
        self
    }

    /// The same object with other content; key, `apiVersion` and `kind` stay.
    #[must_use]
    pub fn edited(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.body);
        self
    }
}

/// Kind, namespace and name as people write them: `DaemonSet numa/exporter`.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind.kind, self.name),
            None => write!(f, "{} {}", self.kind.kind, self.name),
        }
    }
}

/// As its key.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::DaemonSet;
    use k8s_openapi::api::core::v1::Namespace;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_typed_value_has_a_key() {
        let mut set = DaemonSet::default();
        set.metadata.name = Some("exporter".to_owned());
        set.metadata.namespace = Some("numa".to_owned());
        let object = Object::new(&set);
        assert_eq!(object.kind(), &ObjectKind::new("apps", "v1", "DaemonSet", "daemonsets"));
        assert_eq!((object.namespace(), object.name()), (Some("numa"), "exporter"));
        assert_eq!(object.body()["apiVersion"], "apps/v1");
        assert_eq!(object.to_string(), "DaemonSet numa/exporter");
        assert_eq!(object.labelled("a", "b").label("a"), Some("b"));
    }

    #[test]
    fn core_kinds_have_no_group() {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("numa".to_owned());
        let object = Object::new(&namespace);
        assert_eq!(object.kind().api_version(), "v1");
        assert_eq!(object.to_string(), "Namespace numa");
    }

    #[test]
    fn kinds_without_rust_types_make_objects() {
        let kind = ObjectKind::new(
            "security.openshift.io",
            "v1",
            "SecurityContextConstraints",
            "securitycontextconstraints",
        );
        let object = Object::from_value(kind, json!({ "metadata": { "name": "x" } })).unwrap();
        assert_eq!(object.body()["kind"], "SecurityContextConstraints");
        assert_eq!(object.kind().resource().api_version, "security.openshift.io/v1");
    }

    #[test]
    fn objects_need_a_name() {
        let error = Object::from_value(ObjectKind::of::<Namespace>(), json!({})).unwrap_err();
        assert_eq!(error.to_string(), "Namespace has no metadata.name");
    }
}
