//! Group, version, kind and plural of the types: what Kubernetes clients need to build URLs.
//!
//! In: names. Out: `k8s_openapi::Resource` and `k8s_openapi::Metadata` for a type with a field `metadata`. kube
//! implements its own `Resource` for every such type, so clients take these types although this crate does not depend
//! on kube.

/// Implements the traits of k8s-openapi: type, scope, group, version, group and version together, kind, plural.
macro_rules! kind {
    ($type:ty, $scope:ident, $group:expr, $version:expr, $api_version:expr, $kind:expr, $plural:expr) => {
        impl k8s_openapi::Resource for $type {
            const API_VERSION: &'static str = $api_version;
            const GROUP: &'static str = $group;
            const KIND: &'static str = $kind;
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::$scope;
        }

        impl k8s_openapi::Metadata for $type {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use kind;
