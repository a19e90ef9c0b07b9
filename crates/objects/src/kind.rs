//! Kinds of Kubernetes objects, as values.
//!
//! In: a typed resource, or the four words that name a kind. Out: the paths of a dynamic client, without discovery.
//! Never: a call.

use kube::core::{ApiResource, GroupVersionKind};

/// A kind of object, and the path under which the API server serves it.
///
/// ```
/// use objects::ObjectKind;
/// use k8s_openapi::api::apps::v1::DaemonSet;
///
/// let kind = ObjectKind::of::<DaemonSet>();
/// assert_eq!(kind, ObjectKind::new("apps", "v1", "DaemonSet", "daemonsets"));
/// assert_eq!(kind.api_version(), "apps/v1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKind {
    /// API group; empty for the core group.
    pub group: String,
    /// API version without the group, such as `v1`.
    pub version: String,
    /// The kind, such as `DaemonSet`.
    pub kind: String,
    /// The resource's name in paths, such as `daemonsets`.
    pub plural: String,
}

impl ObjectKind {
    /// The kind of a Rust type.
    #[must_use]
    pub fn of<K: kube::Resource<DynamicType = ()>>() -> Self {
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
        }
    }

    /// A kind without a Rust type.
    #[must_use]
    pub fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        [group, version, kind, plural].into()
    }

    /// The value of `apiVersion`: group and version, or the version alone for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The same as the dynamic type of kube's clients.
    #[must_use]
    pub fn resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        ApiResource::from_gvk_with_plural(&kind, &self.plural)
    }

    /// Group and kind, for a `match`.
    #[must_use]
    pub fn group_kind(&self) -> (&str, &str) {
        (&self.group, &self.kind)
    }

    /// Whether its objects run pods: DaemonSets and Deployments.
    #[must_use]
    pub fn is_workload(&self) -> bool {
        matches!(self.group_kind(), ("apps", "DaemonSet" | "Deployment"))
    }
}

/// Group, version, kind and plural, as tables of kinds state them.
impl From<[&str; 4]> for ObjectKind {
    fn from(words: [&str; 4]) -> Self {
        let [group, version, kind, plural] = words.map(str::to_owned);
        Self { group, version, kind, plural }
    }
}
