//! Whether what manifests refer to is there, for tests of them.

use deployer::object::Object;
use serde_json::Value;

pub(crate) fn of_kind<'o>(objects: &'o [Object], kind: &str) -> Vec<&'o Object> {
    objects.iter().filter(|object| object.sort().kind == kind).collect()
}

/// What each object refers to is made, and made before it. Accounts are in `namespace`; `there` are namespaces of the cluster's own.
#[track_caller]
pub(crate) fn check(objects: &[Object], namespace: &str, there: &[&str]) {
    let place = |kind: &str, name: &Value| {
        let is = |object: &Object| object.sort().kind == kind && *name == object.name();
        objects.iter().position(is).unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    for (at, object) in objects.iter().enumerate() {
        let body = object.body();
        if object.sort().kind == "ValidatingAdmissionPolicyBinding" {
            assert!(place("ValidatingAdmissionPolicy", &body["spec"]["policyName"]) < at, "{object}");
        } else if object.sort().kind.ends_with("Binding") {
            let role = &body["roleRef"];
            assert!(place(role["kind"].as_str().unwrap(), &role["name"]) < at, "{object}");
            let subjects = body["subjects"].as_array().unwrap();
            for subject in subjects.iter().filter(|subject| subject["name"] != "prometheus-k8s") {
                assert!(place("ServiceAccount", &subject["name"]) < at, "{object}");
                assert_eq!(subject["namespace"], namespace, "{object}");
            }
        }
        let needed = object.namespace().filter(|name| !there.contains(name));
        assert!(needed.is_none_or(|name| place("Namespace", &name.into()) < at), "{object}");
    }
    let deployment = of_kind(objects, "Deployment")[0].body();
    let template = &deployment["spec"]["template"];
    place("ServiceAccount", &template["spec"]["serviceAccountName"]);
    let labels = &template["metadata"]["labels"];
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(&of_kind(objects, "Service")[0].body()["spec"]["selector"], labels);
    for policy in of_kind(objects, "NetworkPolicy") {
        assert_eq!(&policy.body()["spec"]["podSelector"]["matchLabels"], labels, "{policy}");
    }
}
