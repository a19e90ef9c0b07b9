//! The permissions of `tholepin web`, and of its readers.
//!
//! In: nothing. Out: rules of ClusterRoles. Never: a permission to write.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// Rules of the ClusterRole of the server on this machine: to follow the cluster.
#[must_use]
pub fn server() -> Vec<PolicyRule> {
    scheduler::rbac::observer()
}

/// Further rules of a server that others reach: to ask who reads, and whether they may ([`runtime::delegated_auth`]).
#[must_use]
pub fn reviews() -> Vec<PolicyRule> {
    scheduler::rbac::reviews()
}

/// Rules of the ClusterRole of readers: to get the data. Its path is none below `/api/`: Kubernetes lets every account
/// get those (ClusterRole `system:discovery`).
#[must_use]
pub fn reader() -> Vec<PolicyRule> {
    vec![PolicyRule {
        non_resource_urls: Some(vec!["/view/v1/*".to_owned()]),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written() {
        let verbs = || server().into_iter().chain(reader()).flat_map(|rule| rule.verbs);
        assert!(verbs().all(|verb| ["get", "list", "watch"].contains(&verb.as_str())));
        assert_eq!(api::rbac::show(&reviews()), "tokenreviews: create; subjectaccessreviews: create");
    }
}
