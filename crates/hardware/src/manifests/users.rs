//! Roles of people for DeviceConfigs.
//!
//! In: nothing. Out: ClusterRoles. Never: a binding, which the cluster's administrator makes; an aggregation into the
//! roles `edit` and `admin`, since a DeviceConfig loads code into the kernel of nodes.

use api::hardware::{GROUP, PLURAL};
use api::rbac::rule;
use deployer::manifests::access::cluster_role;
use deployer::manifests::meta::labels;
use k8s_openapi::api::rbac::v1::ClusterRole;

/// The role that may change DeviceConfigs.
pub const EDITOR: &str = "deviceconfig-editor-role";
/// The role that may read DeviceConfigs.
pub const VIEWER: &str = "deviceconfig-viewer-role";

/// The editor role, and the viewer role, which is aggregated into the role `view`.
#[must_use]
pub fn roles() -> [ClusterRole; 2] {
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let status = || rule(GROUP, &[&format!("{PLURAL}/status")], &["get"]);
    let editor = cluster_role(EDITOR, vec![rule(GROUP, &[PLURAL], &all), status()]);
    let mut viewer = cluster_role(VIEWER, vec![rule(GROUP, &[PLURAL], &["get", "list", "watch"]), status()]);
    viewer.metadata.labels = Some(labels([("rbac.authorization.k8s.io/aggregate-to-view", "true")]));
    [editor, viewer]
}
