//! What a device plugin's account needs for resource claims.
//!
//! In: an account. Out: the account, its rights, and what ties each pod of it to the slices of its own node; the rules stand beside the
//! plugin's code. Never: the plugin itself, or its namespace: its devices are somebody's own.

use super::Error;
use super::access::{Account, cluster_role};
use objects::Object;

/// The usual namespace.
pub const NAMESPACE: &str = "tholepin";
/// The usual name of the account.
pub const ACCOUNT: &str = "tholepin-device-plugin";

/// All of it, in the order in which it is made. Names of what belongs to the cluster have namespace and account in them: there may be
/// several plugins.
///
/// # Errors
/// When an object has no text form; which cannot be.
pub fn objects(account: Account<'_>) -> Result<Vec<Object>, Error> {
    let role = format!("tholepin-resource-claims.{}.{}", account.namespace, account.name);
    let (policy, binding) = deviceplugin::dra::policy::admission_policy(account.namespace, account.name);
    Ok(vec![
        Object::new(&account.object())?,
        // First what limits the rights, then the rights.
        Object::new(&policy)?,
        Object::new(&binding)?,
        Object::new(&cluster_role(&role, deviceplugin::dra::rbac::rules()))?,
        Object::new(&account.with_cluster_role(&role))?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_may_write_slices_of_its_own_node_only() {
        let account = Account { namespace: "devices", name: "nic" };
        let objects = objects(account).unwrap();
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
