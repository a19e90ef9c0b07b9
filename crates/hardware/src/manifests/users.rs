//! What people may be allowed to do with DeviceConfigs.
//!
//! In: nothing. Out: ClusterRoles. Never: a binding: who gets them is the cluster's business; nor a way into the roles
//! `edit` and `admin`: a DeviceConfig loads code into the kernel of nodes, a right that editing a namespace must not
//! bring.

use api::hardware::{GROUP, PLURAL};
use api::rbac::rule;
use deployer::manifests::access::cluster_role;
use deployer::manifests::meta::labels;
use k8s_openapi::api::rbac::v1::ClusterRole;

/// Of those who bring drivers to nodes.
pub const EDITOR: &str = "deviceconfig-editor-role";
/// Of those who look.
pub const VIEWER: &str = "deviceconfig-viewer-role";

/// A role that may change DeviceConfigs, and one that may look at them; the latter is part of the role `view`.
#[must_use]
pub fn roles() -> [ClusterRole; 2] {
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let status = || rule(GROUP, &[&format!("{PLURAL}/status")], &["get"]);
    let editor = cluster_role(EDITOR, vec![rule(GROUP, &[PLURAL], &all), status()]);
    let mut viewer = cluster_role(VIEWER, vec![rule(GROUP, &[PLURAL], &["get", "list", "watch"]), status()]);
    viewer.metadata.labels = Some(labels([("rbac.authorization.k8s.io/aggregate-to-view", "true")]));
    [editor, viewer]
}
