//! Checks of manifests in the order in which they are made: each reference leads to an object that is there.

use serde_json::Value;

/// Checks that each object refers only to objects that are made, and made before it. Accounts are in `namespace`;
/// `existing` are namespaces of the cluster's own.
///
/// # Panics
/// When a reference leads nowhere.
#[track_caller]
pub fn check_references<'o>(
    objects: impl IntoIterator<Item = &'o Value>,
    namespace: &str,
    existing: &[&str],
) {
    let objects: Vec<&Value> = objects.into_iter().collect();
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let position = |kind: &str, name: &Value| {
        let position =
            objects.iter().position(|object| object["kind"] == kind && object["metadata"]["name"] == *name);
        assert!(position.is_some(), "no {kind} {name}");
        position
    };
    for (at, object) in objects.iter().enumerate() {
        let (kind, name) = (object["kind"].as_str().unwrap_or_default(), &object["metadata"]["name"]);
        if kind == "ValidatingAdmissionPolicyBinding" {
            let policy = position("ValidatingAdmissionPolicy", &object["spec"]["policyName"]);
            assert!(policy < Some(at), "{kind} {name}");
        } else if kind.ends_with("Binding") {
            let role = &object["roleRef"];
            assert!(
                position(role["kind"].as_str().expect("a kind"), &role["name"]) < Some(at),
                "{kind} {name}"
            );
            let subjects = object["subjects"].as_array().expect("subjects");
            for subject in subjects.iter().filter(|subject| subject["name"] != "prometheus-k8s") {
                assert!(position("ServiceAccount", &subject["name"]) < Some(at), "{kind} {name}");
                assert_eq!(subject["namespace"], namespace, "{kind} {name}");
            }
        }
        let needed = object["metadata"]["namespace"].as_str().filter(|name| !existing.contains(name));
        assert!(
            needed.is_none_or(|needed| position("Namespace", &needed.into()) < Some(at)),
            "{kind} {name}"
        );
    }
    let deployment = of_kind("Deployment").next().expect("a Deployment");
    let template = &deployment["spec"]["template"];
    position("ServiceAccount", &template["spec"]["serviceAccountName"]);
    let labels = &template["metadata"]["labels"];
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(&of_kind("Service").next().expect("a Service")["spec"]["selector"], labels);
    for policy in of_kind("NetworkPolicy") {
        assert_eq!(&policy["spec"]["podSelector"]["matchLabels"], labels, "{policy}");
    }
}
