//! What refers to something refers to something that is there.

use std::collections::BTreeSet;

use super::*;
use crate::images::Images;

/// Kinds that belong to the cluster.
const CLUSTER: [&str; 9] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "MachineConfig",
    "Namespace",
    "SecurityContextConstraints",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "PriorityClass",
];

#[test]
fn every_object_is_in_a_namespace_that_is_made_and_is_there_once() {
    for Case { name, objects, .. } in everything() {
        assert_eq!(by_name(objects).len(), objects.len(), "{name}");
        for object in objects {
            let belongs = CLUSTER.contains(&object.kind().kind.as_str());
            assert_eq!(object.namespace().is_none(), belongs, "{name}: {object}");
            let Some(namespace) = object.namespace() else { continue };
            let made = of_kind(objects, "Namespace").iter().any(|made| made.name() == namespace);
            assert!(made || namespace == "kube-system", "{name}: {object}");
        }
    }
}

#[test]
fn what_is_referred_to_comes_first() {
    for Case { name, options, objects } in everything() {
        let place = |wanted: &str| objects.iter().position(|object| object.to_string() == wanted);
        for (at, object) in objects.iter().enumerate() {
            let namespace = object.namespace().map(|namespace| format!("Namespace {namespace}"));
            if let Some(found) = namespace.and_then(|namespace| place(&namespace)) {
                assert!(found < at, "{name}: {object} is before its namespace");
            }
        }
        let last = |part: &Part| part.objects().last().unwrap().kind().kind.clone();
        let parts = parts(options, &[Component::Exporter, Component::Scheduler]).unwrap();
        assert_eq!(
            (last(&parts[0]).as_str(), last(&parts[1]).as_str()),
            ("DaemonSet", "Deployment"),
            "{name}"
        );
    }
}

#[test]
fn bindings_bind_a_role_that_is_there_to_an_account_that_is_there() {
    for Case { name, objects, .. } in everything() {
        let named = by_name(objects);
        let mut bound = BTreeSet::new();
        for binding in objects.iter().filter(|object| object.kind().kind.ends_with("RoleBinding")) {
            let reference = &binding.body()["roleRef"];
            let (kind, role) = (text(&reference["kind"]), text(&reference["name"]));
            let wanted = match binding.namespace().filter(|_| kind == "Role") {
                Some(namespace) => format!("Role {namespace}/{role}"),
                None => format!("ClusterRole {role}"),
            };
            let foreign = wanted == "Role kube-system/extension-apiserver-authentication-reader";
            assert!(foreign || named.contains_key(&wanted), "{name}: {binding} binds {wanted}");
            bound.insert(wanted);
            let subjects = list(&binding.body()["subjects"]);
            assert_eq!(subjects.len(), 1, "{name}: {binding}");
            for subject in subjects {
                let account =
                    format!("ServiceAccount {}/{}", text(&subject["namespace"]), text(&subject["name"]));
                let foreign = account == "ServiceAccount openshift-monitoring/prometheus-k8s";
                assert!(foreign || named.contains_key(&account), "{name}: {binding} binds to {account}");
            }
        }
        for role in objects.iter().filter(|object| object.kind().kind.ends_with("Role")) {
            assert!(bound.contains(&role.to_string()), "{name}: no binding has {role}");
        }
    }
}

#[test]
fn pods_have_their_account_their_volumes_and_their_configuration() {
    for Case { name, objects, .. } in everything() {
        let named = by_name(objects);
        for (workload, template) in workloads(objects) {
            let namespace = workload.namespace().unwrap();
            let spec = &template["spec"];
            let account = format!("ServiceAccount {namespace}/{}", text(&spec["serviceAccountName"]));
            assert!(named.contains_key(&account), "{name}: {workload} runs as {account}");
            let volumes: BTreeSet<&str> =
                list(&spec["volumes"]).iter().map(|volume| text(&volume["name"])).collect();
            let mounted: BTreeSet<&str> = list(&spec["containers"])
                .iter()
                .flat_map(|container| list(&container["volumeMounts"]))
                .map(|mount| text(&mount["name"]))
                .collect();
            assert_eq!(volumes, mounted, "{name}: {workload}");
            for map in list(&spec["volumes"]).iter().filter_map(|volume| volume["configMap"]["name"].as_str())
            {
                assert!(named.contains_key(&format!("ConfigMap {namespace}/{map}")), "{name}: {map}");
            }
        }
    }
}

#[test]
fn selectors_select_the_pods_they_are_about() {
    for Case { name, objects, .. } in everything() {
        let pods: Vec<(&str, &Value)> = workloads(objects)
            .into_iter()
            .map(|(workload, template)| (workload.namespace().unwrap(), &template["metadata"]["labels"]))
            .collect();
        for (workload, template) in workloads(objects) {
            let selector = &workload.body()["spec"]["selector"];
            assert!(selects(selector, &template["metadata"]["labels"]), "{name}: {workload}");
        }
        for (kind, field) in [("NetworkPolicy", "podSelector"), ("PodDisruptionBudget", "selector")] {
            for object in of_kind(objects, kind) {
                let selector = &object.body()["spec"][field];
                let selected = |(namespace, labels): &&(&str, &Value)| {
                    Some(*namespace) == object.namespace() && selects(selector, labels)
                };
                assert_eq!(pods.iter().filter(selected).count(), 1, "{name}: {object}");
            }
        }
    }
}

#[test]
fn every_pod_is_held_to_what_it_may_talk_to() {
    for Case { name, options, objects } in everything() {
        let policies = of_kind(objects, "NetworkPolicy");
        for (workload, template) in workloads(objects) {
            let own = policies.iter().filter(|policy| {
                let selector = &policy.body()["spec"]["podSelector"];
                policy.namespace() == workload.namespace()
                    && selects(selector, &template["metadata"]["labels"])
            });
            let types: BTreeSet<&str> =
                own.flat_map(|policy| list(&policy.body()["spec"]["policyTypes"])).map(text).collect();
            // The peer has none for NFD.
            let nfd = options.updater.kind == Updater::Nfd && workload.kind().kind == "DaemonSet";
            let held = options.network_policies && !nfd;
            let wanted = if held { vec!["Egress", "Ingress"] } else { Vec::new() };
            assert_eq!(types.into_iter().collect::<Vec<_>>(), wanted, "{name}: {workload}");
        }
    }
}

#[test]
fn all_images_are_those_of_the_options() {
    for Case { name, options, .. } in everything() {
        let mut options = options.clone();
        options.images = Images::default().mirrored("mirror.example");
        options.pull_secrets = vec!["credentials".to_owned()];
        for (workload, template) in workloads(&objects(&options)) {
            let spec = &template["spec"];
            for container in list(&spec["containers"]) {
                let image = text(&container["image"]);
                assert!(image.starts_with("mirror.example/"), "{name}: {workload}: {image}");
            }
            assert_eq!(text(&spec["imagePullSecrets"][0]["name"]), "credentials", "{name}: {workload}");
        }
    }
}

#[test]
fn monitors_select_pods_that_have_their_port() {
    let mut seen = 0;
    for Case { name, objects, .. } in everything() {
        for monitor in of_kind(objects, "PodMonitor") {
            let spec = &monitor.body()["spec"];
            let near = workloads(objects);
            let mut pods = near.iter().filter(|(workload, template)| {
                workload.namespace() == monitor.namespace()
                    && selects(&spec["selector"], &template["metadata"]["labels"])
            });
            let (_, template) = pods.next().unwrap_or_else(|| panic!("{name}: {monitor} selects nothing"));
            assert!(pods.next().is_none(), "{name}: {monitor} selects pods of several workloads");
            let ports = list(&template["spec"]["containers"][0]["ports"]);
            for endpoint in list(&spec["podMetricsEndpoints"]) {
                assert!(ports.iter().any(|port| port["name"] == endpoint["port"]), "{name}: {monitor}");
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{seen}");
}
