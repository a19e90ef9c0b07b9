//! The operator's service account and its rights.
//!
//! In: [`Options`]. Out: account, roles and bindings. Never: a rule of its own; those are in [`crate::rbac`].

use deployer::manifests::access::{cluster_role, role};
use deployer::options::Scheduler;
use objects::Object;

use super::Options;
use crate::rbac::{self, CONFIG_MANAGED};

/// The name of the operator's ClusterRole and Roles.
pub const ROLE: &str = "numaresources-manager-role";
/// The name of their bindings.
pub const BINDING: &str = "numaresources-manager-rolebinding";

/// The name of the ClusterRole with what another scheduler than the operator's own needs, and of its binding. Unbound,
/// no account has these rights.
pub const OTHER_SCHEDULERS: &str = "numaresources-manager-other-schedulers";

/// The objects, in the order in which they are made.
#[must_use]
pub fn objects(options: &Options) -> Vec<Object> {
    let account = super::account(options);
    let rules = rbac::rules(options.common.platform);
    let mut bound = account.with_cluster_role(ROLE);
    bound.metadata.name = Some(BINDING.to_owned());
    let mut objects = vec![
        Object::new(&account.object()),
        Object::new(&cluster_role(ROLE, rules.cluster)),
        Object::new(&bound),
        Object::new(&role(&options.namespace, ROLE, rules.namespaced)),
        Object::new(&account.with_role(&options.namespace, BINDING, ROLE)),
    ];
    objects.push(Object::new(&cluster_role(OTHER_SCHEDULERS, rbac::other_schedulers())));
    if options.common.scheduler.kind == Scheduler::Plugin {
        objects.push(Object::new(&account.with_cluster_role(OTHER_SCHEDULERS)));
    }
    if !rules.config_managed.is_empty() {
        objects.push(Object::new(&role(CONFIG_MANAGED, ROLE, rules.config_managed)));
        objects.push(Object::new(&account.with_role(CONFIG_MANAGED, BINDING, ROLE)));
    }
    objects
}
