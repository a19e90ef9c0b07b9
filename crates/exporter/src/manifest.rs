//! `manifests/access.yaml`: what an administrator applies so that exporters may do their work and nothing else.
//!
//! The file is written from [`crate::rbac`] and [`crate::policy`] (`UPDATE_MANIFESTS=1 cargo test -p exporter manifest`), so it
//! cannot say something else than the tests on the rig have tried.

use std::path::Path;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use crate::rbac::{Needs, Rules, rules};
use crate::settings::{Mode, OwnerKind};

const NAMESPACE: &str = "tholepin";
const ACCOUNT: &str = "tholepin-exporter";

fn named(namespace: Option<&str>) -> ObjectMeta {
    let (name, namespace) = (Some(ACCOUNT.to_owned()), namespace.map(str::to_owned));
    ObjectMeta { name, namespace, ..ObjectMeta::default() }
}

fn reference(kind: &str) -> RoleRef {
    let api_group = Some("rbac.authorization.k8s.io".to_owned());
    RoleRef { api_group, kind: kind.to_owned(), name: ACCOUNT.to_owned() }
}

fn documents() -> String {
    let needs = Needs { mode: Some(Mode::Patch), owner: OwnerKind::Node, conditions: true, configz: false };
    let Rules { cluster, namespaced } = rules(needs, NAMESPACE);
    let kind = "ServiceAccount".to_owned();
    let (name, namespace) = (ACCOUNT.to_owned(), Some(NAMESPACE.to_owned()));
    let subjects = Some(vec![Subject { kind, name, namespace, api_group: None }]);
    let space = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
    let (policy, binding) = crate::policy::admission_policy(NAMESPACE, ACCOUNT);
    let own = Some(NAMESPACE);
    [
        yaml(&Namespace { metadata: space, ..Namespace::default() }),
        yaml(&ServiceAccount { metadata: named(own), ..ServiceAccount::default() }),
        yaml(&ClusterRole { metadata: named(None), rules: Some(cluster), aggregation_rule: None }),
        yaml(&ClusterRoleBinding {
            metadata: named(None),
            role_ref: reference("ClusterRole"),
            subjects: subjects.clone(),
        }),
        yaml(&Role { metadata: named(own), rules: Some(namespaced) }),
        yaml(&RoleBinding { metadata: named(own), role_ref: reference("Role"), subjects }),
        yaml(&policy),
        yaml(&binding),
    ]
    .join("---\n")
}

fn yaml<T: Serialize>(object: &T) -> String {
    runtime::yaml::write(object).unwrap()
}

#[test]
fn the_file_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/access.yaml");
    let wanted = documents();
    if std::env::var_os("UPDATE_MANIFESTS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, wanted, "{}: UPDATE_MANIFESTS=1 writes it anew", path.display());
}
