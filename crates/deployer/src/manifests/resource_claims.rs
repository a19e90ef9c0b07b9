//! The permissions of a device plugin that serves resource claims.
//!
//! In: a service account. Out: the account, its role, and the policy that restricts each pod to the ResourceSlices of
//! its own node; the rules stand beside the plugin's code. Never: the plugin or its namespace, which belong to the
//! user.

use super::access::{ServiceAccountRef, cluster_role};
use objects::Object;

/// The default namespace.
pub const NAMESPACE: &str = "tholepin";
/// The default name of the account.
pub const ACCOUNT: &str = "tholepin-device-plugin";

/// All objects, in the order of installation. The names of cluster-scoped objects contain namespace and account,
/// because there may be several plugins.
#[must_use]
pub fn objects(account: ServiceAccountRef<'_>) -> Vec<Object> {
    let role = format!("tholepin-resource-claims.{}.{}", account.namespace, account.name);
    let (policy, binding) = deviceplugin::dra::policy::admission_policy(account.namespace, account.name);
    vec![
        Object::new(&account.object()),
        // The policy precedes the role that it restricts.
        Object::new(&policy),
        Object::new(&binding),
        Object::new(&cluster_role(&role, deviceplugin::dra::rbac::rules())),
        Object::new(&account.with_cluster_role(&role)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_may_write_slices_of_its_own_node_only() {
        let account = ServiceAccountRef { namespace: "devices", name: "nic" };
        let objects = objects(account);
        let all: Vec<String> = objects.iter().map(ToString::to_string).collect();
        assert_eq!(
            all,
            [
                "ServiceAccount devices/nic",
                "ValidatingAdmissionPolicy tholepin-resource-claims-own-node.devices.nic",
                "ValidatingAdmissionPolicyBinding tholepin-resource-claims-own-node.devices.nic",
                "ClusterRole tholepin-resource-claims.devices.nic",
                "ClusterRoleBinding tholepin-resource-claims.devices.nic",
            ]
        );
        let text = crate::manifests::text::render_objects(&objects).unwrap();
        assert!(text.contains(&format!("request.userInfo.username == '{}'", account.user())), "{text}");
    }
}
