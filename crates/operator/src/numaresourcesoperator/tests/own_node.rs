//! The policy that ties exporters to their nodes, where tokens name their node.

use super::*;

#[test]
fn exporters_are_tied_to_their_nodes_or_a_warning_says_why_not() {
    for (platform, version, tied) in [
        (Platform::Kubernetes, "v1.32.0", true),
        (Platform::Kubernetes, "v1.31.9", false),
        (Platform::OpenShift, "4.19.0", true),
        (Platform::OpenShift, "4.18.30", false),
        (Platform::HyperShift, "4.18.30", false),
    ] {
        let mut cluster = cluster(platform);
        cluster.environment.version = version.parse().ok();
        ask(&mut cluster, &one_group(&json!({})));
        let of_policy = |name: &&String| name.contains("ValidatingAdmission");
        let count = names(&cluster).iter().filter(of_policy).count();
        assert_eq!(count, if tied { 2 } else { 0 }, "{platform} {version}");
        let warnings = (RULES.warnings)(&cluster);
        assert_eq!(warnings.is_empty(), tied, "{platform} {version}: {warnings:?}");
        for warning in warnings {
            assert_eq!(warning.reason, "ExportersNotTiedToNodes");
            assert!(
                warning.message.starts_with(&format!("{platform} {version} is older than Kubernetes 1.32"))
            );
        }
    }
}

#[test]
fn the_policy_is_about_the_exporters_account() {
    let mut cluster = cluster(Platform::Kubernetes);
    ask(&mut cluster, &one_group(&json!({})));
    let body = |kind: &str| {
        let found = wanted(&cluster).into_iter().find(|one| one.object.kind().kind == kind);
        found.unwrap().object.body().clone()
    };
    let condition = &body("ValidatingAdmissionPolicy")["spec"]["matchConditions"][0]["expression"];
    assert_eq!(condition, "request.userInfo.username == 'system:serviceaccount:numaresources:rte'");
    let binding = body("ValidatingAdmissionPolicyBinding");
    assert_eq!(binding["spec"]["policyName"], "numaresources-exporter-own-node");
}
