//! What pods may do to their node: as little as their namespace, and OpenShift's constraints, say; and these say no
//! more than pods need.

use super::*;

/// What the level `restricted` of the Pod Security Standards forbids and a pod does.
fn against_restricted(spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let kinds = ["configMap", "downwardAPI", "emptyDir", "projected", "secret", "persistentVolumeClaim"];
    for volume in list(&spec["volumes"]) {
        let fields = volume.as_object().unwrap();
        if !fields.keys().all(|field| field == "name" || kinds.contains(&field.as_str())) {
            found.push(format!("volume {}", volume["name"]));
        }
    }
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec[field] == true {
            found.push(field.to_owned());
        }
    }
    for container in list(&spec["containers"]) {
        let own = &container["securityContext"];
        let either =
            |field: &str| if own[field].is_null() { &spec["securityContext"][field] } else { &own[field] };
        let checks = [
            ("allowPrivilegeEscalation", own["allowPrivilegeEscalation"] == false),
            ("capabilities", own["capabilities"] == serde_json::json!({ "drop": ["ALL"] })),
            ("privileged", own["privileged"] != true),
            ("runAsNonRoot", *either("runAsNonRoot") == true),
            ("runAsUser", *either("runAsUser") != 0),
            ("seccompProfile", either("seccompProfile")["type"] == "RuntimeDefault"),
        ];
        found.extend(checks.iter().filter(|(_, good)| !good).map(|(field, _)| (*field).to_owned()));
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn namespaces_allow_what_their_pods_need_and_no_more() {
    for Case { name, objects, .. } in everything() {
        for namespace in of_kind(objects, "Namespace") {
            let label = |mode: &str| namespace.label(&format!("pod-security.kubernetes.io/{mode}")).unwrap();
            assert_eq!((label("audit"), label("warn")), (label("enforce"), label("enforce")));
            let own = workloads(objects);
            let own = own.iter().filter(|(workload, _)| workload.namespace() == Some(namespace.name()));
            for (workload, template) in own {
                let against = against_restricted(&template["spec"]);
                if label("enforce") == "restricted" {
                    assert_eq!(against, Vec::<String>::new(), "{name}: {workload}");
                } else {
                    let allowed = ["runAsNonRoot", "runAsUser"];
                    let (roots, volumes): (Vec<_>, Vec<_>) =
                        against.iter().partition(|what| allowed.contains(&what.as_str()));
                    // Only directories of the node make a namespace a privileged one.
                    assert!(volumes.iter().all(|what| what.starts_with("volume ")), "{name}: {against:?}");
                    assert!(!volumes.is_empty() && roots.len() == 2, "{name}: {workload}: {against:?}");
                }
            }
        }
    }
}

/// Our containers cannot write anything of the node, and nothing of their own.
#[test]
fn ours_write_nothing() {
    for Case { name, objects, .. } in everything() {
        for (workload, template) in workloads(objects) {
            if !workload.name().starts_with("tholepin") {
                continue;
            }
            for container in list(&template["spec"]["containers"]) {
                assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{name}");
                let mounts = list(&container["volumeMounts"]);
                assert!(mounts.iter().all(|mount| mount["readOnly"] == true), "{name}: {mounts:?}");
            }
        }
    }
}

/// Admission on OpenShift as far as these constraints and pods use it.
fn refusals(constraints: &Value, template: &Value, account: &str) -> Vec<String> {
    let spec = &template["spec"];
    let mut found = Vec::new();
    if !list(&constraints["users"]).iter().any(|user| user == account) {
        found.push(format!("not for {account}"));
    }
    let kinds = list(&constraints["volumes"]);
    for volume in list(&spec["volumes"]).iter().flat_map(|volume| volume.as_object().unwrap().keys()) {
        if volume != "name" && !kinds.iter().any(|kind| kind == volume || kind == "*") {
            found.push(format!("volumes of kind {volume}"));
        }
    }
    let hosts = list(&spec["volumes"]).iter().any(|volume| !volume["hostPath"].is_null());
    if hosts && constraints["allowHostDirVolumePlugin"] != true {
        found.push("directories of the node".to_owned());
    }
    for container in list(&spec["containers"]) {
        let own = &container["securityContext"];
        let must = &constraints["seLinuxContext"]["seLinuxOptions"];
        if !own["seLinuxOptions"].is_null() && own["seLinuxOptions"] != *must {
            found.push(format!("{} instead of {must}", own["seLinuxOptions"]));
        }
        if constraints["readOnlyRootFilesystem"] == true && own["readOnlyRootFilesystem"] != true {
            found.push("a root directory to write".to_owned());
        }
        if own["capabilities"]["drop"] != constraints["requiredDropCapabilities"] {
            found.push("capabilities".to_owned());
        }
        if own["seccompProfile"]["type"] != "RuntimeDefault" {
            found.push("seccomp".to_owned());
        }
    }
    found
}

#[test]
fn openshift_admits_the_pods_by_the_constraints_they_name() {
    for Case { name, options, objects } in everything() {
        let named = by_name(objects);
        let constraints = of_kind(objects, "SecurityContextConstraints");
        assert_eq!(constraints.len(), usize::from(options.platform.is_openshift()), "{name}");
        for (workload, template) in workloads(objects) {
            let required = &template["metadata"]["annotations"]["openshift.io/required-scc"];
            assert_eq!(required.is_null(), !options.platform.is_openshift(), "{name}: {workload}");
            match required.as_str() {
                None => {}
                Some("restricted-v2") => {
                    // It gives each namespace user ids of its own and refuses others.
                    let containers = list(&template["spec"]["containers"]);
                    assert!(containers.iter().all(|c| c["securityContext"]["runAsUser"].is_null()), "{name}");
                }
                Some(own) => {
                    let constraints = named[&format!("SecurityContextConstraints {own}")];
                    let (namespace, account) =
                        (workload.namespace().unwrap(), text(&template["spec"]["serviceAccountName"]));
                    let account = format!("system:serviceaccount:{namespace}:{account}");
                    let refused = refusals(constraints.body(), template, &account);
                    assert_eq!(refused, Vec::<String>::new(), "{name}: {workload}");
                }
            }
        }
    }
}
