use std::collections::BTreeSet;

use api::numaresources::Kubelets;
use api::numaresources::keys;
use api::numaresources::operator::PodExclude;
use api::rbac::{covers, missing};
use deployer::manifests::meta;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::*;
use crate::cluster_state::{
    ClusterState, Environment, Image, KubeletConfig, KubeletSettings, MachineConfigPool, Node,
};
use crate::desired::{Desired, DesiredObject, Treatment};
use crate::manifests::samples;
use crate::watch::{self, Selection};
use crate::{kubeletconfig, numaresourcesoperator, numaresourcesscheduler};

#[test]
fn granted_rights_are_held() {
    let granted = operand_rules();
    for platform in Platform::ALL {
        let held = rules(platform);
        let namespaced = [held.cluster.clone(), held.namespaced.clone()].concat();
        assert_eq!(missing(&held.cluster, &granted.cluster), Vec::<String>::new(), "{platform}");
        assert_eq!(missing(&namespaced, &granted.namespaced), Vec::<String>::new(), "{platform}");
    }
}

#[test]
fn rules_name_only_kinds_of_the_platform() {
    let groups = |platform| {
        let rules = rules(platform).cluster.into_iter().flat_map(|rule| rule.api_groups.unwrap_or_default());
        rules.collect::<std::collections::BTreeSet<_>>()
    };
    for (platform, machine, security) in [
        (Platform::Kubernetes, false, false),
        (Platform::OpenShift, true, true),
        (Platform::HyperShift, false, true),
    ] {
        let groups = groups(platform);
        assert_eq!(groups.contains(MACHINE), machine, "{platform}");
        assert_eq!(groups.contains("security.openshift.io"), security, "{platform}");
    }
}

#[test]
fn olm_gets_the_rules_of_all() {
    let all = everywhere();
    for platform in Platform::ALL {
        let Rules { cluster, namespaced, config_managed } = rules(platform);
        assert!(covers(&all.cluster, &cluster) && covers(&all.cluster, &config_managed), "{platform}");
        assert!(covers(&all.namespaced, &namespaced), "{platform}");
    }
}

/// What only other schedulers need is in a role of its own.
#[test]
fn rights_of_other_schedulers_are_apart() {
    for rules in Platform::ALL.map(rules).into_iter().chain([everywhere()]) {
        for (group, resource, verb) in
            [("", "persistentvolumes", "update"), ("", "persistentvolumeclaims", "update")]
        {
            let right = [rule(group, &[resource], &[verb])];
            assert!(!covers(&rules.cluster, &right) && covers(&other_schedulers(), &right), "{resource}");
        }
    }
}

/// There is no wildcard, no access to secrets, and no change of other roles.
#[test]
fn rules_have_no_wildcards_secrets_or_other_roles() {
    let Rules { cluster, namespaced, .. } = everywhere();
    for rule in cluster.iter().chain(&namespaced) {
        let words = [rule.api_groups.as_deref(), rule.resources.as_deref(), Some(&rule.verbs)];
        let words: Vec<&String> = words.into_iter().flatten().flatten().collect();
        for forbidden in ["*", "secrets", "escalate", "bind", "impersonate", "pods/exec", "nodes/proxy"] {
            assert!(words.iter().all(|word| *word != forbidden), "{rule:?}");
        }
        let roles = rule.resources.iter().flatten().any(|resource| resource.contains("role"));
        let changes = rule.verbs.iter().any(|verb| ["patch", "update", "delete"].contains(&verb.as_str()));
        assert!(!roles || !changes || rule.resource_names.is_some(), "{rule:?}");
    }
}

/// A cluster in which all features are requested, with our own images or with others.
fn cluster(platform: Platform, others: bool) -> ClusterState {
    let image = |name: &str| Image { name: name.to_owned(), pull_policy: String::new() };
    let mut cluster = ClusterState::new(Environment {
        platform,
        version: if platform == Platform::Kubernetes { "v1.36.3" } else { "4.20.1" }.parse().ok(),
        namespace: "numaresources".to_owned(),
        own: image("example.com/tholepin:1"),
        image: image("example.com/tholepin:1"),
        exporter_image_restricted: false,
        trusted_schedulers: None,
        forward_pool_conditions: false,
        api_server_ports: vec![6443],
        kubelet: None,
        api_server_cidrs: Vec::new(),
        kubelet_root_mount: false,
        only_own_scheduler: false,
    });
    let selector = |key: &str, value: &str| LabelSelector {
        match_labels: Some(meta::labels([(key, value)])),
        ..LabelSelector::default()
    };
    let pool = MachineConfigPool {
        labels: meta::labels([("pools.operator.machineconfiguration.openshift.io/worker", "")]),
        machine_config_selector: Some(selector("machineconfiguration.openshift.io/role", "worker")),
        node_selector: Some(selector("node-role.kubernetes.io/worker", "")),
        ..MachineConfigPool::default()
    };
    cluster.pools.insert("worker".to_owned(), pool);
    cluster.kubelet_configs.insert(
        "worker".to_owned(),
        KubeletConfig {
            pool_selector: Some(selector("pools.operator.machineconfiguration.openshift.io/worker", "")),
            payload: Some(Ok(KubeletSettings { policy: Some("restricted".to_owned()), scope: None })),
            ..KubeletConfig::default()
        },
    );
    let label = |name: &str| (format!("node-role.kubernetes.io/{name}").into(), "".into());
    let labels = [label("control-plane"), label("worker")].into();
    cluster.nodes.insert("node-0".to_owned(), Node { labels, ready: true, ..Node::default() });
    let mut operator = samples::numa_resources_operator(platform);
    operator.metadata.uid = Some("1".to_owned());
    operator.spec.pod_excludes = vec![PodExclude { namespace: "a".to_owned(), name: "*".to_owned() }];
    let custom = meta::labels([(keys::SELINUX_POLICY, keys::CUSTOM)]);
    operator.spec.node_groups.iter_mut().for_each(|group| group.annotations.clone_from(&custom));
    // Exporters that ask their kubelets need the most.
    let k3s = Kubelets { distribution: Some("k3s".to_owned()), ..Kubelets::default() };
    operator.spec.kubelet = (platform == Platform::Kubernetes).then_some(k3s);
    let mut scheduler = samples::numa_resources_scheduler();
    scheduler.metadata.uid = Some("2".to_owned());
    if others {
        operator.spec.image_spec = "example.com/rte:1".to_owned();
        scheduler.spec.image_spec = "example.com/scheduler:1".to_owned();
    }
    cluster.operators.insert(OPERATOR.to_owned(), operator);
    cluster.schedulers.insert(SCHEDULER.to_owned(), scheduler);
    cluster
}

/// The operator may read, make, change and delete every desired object, and grant the rights in it.
#[test]
fn desired_objects_may_be_made() {
    for platform in Platform::ALL {
        let mut kinds = BTreeSet::new();
        for others in [false, true] {
            let mut held = rules(platform);
            if others {
                held.cluster.extend(other_schedulers());
            }
            let namespaced = [held.cluster.clone(), held.namespaced.clone()].concat();
            let cluster = cluster(platform, others);
            for wanted in
                [numaresourcesoperator::desired, numaresourcesscheduler::desired, kubeletconfig::desired]
            {
                let Desired::Objects(objects) = wanted(&cluster) else {
                    panic!("{platform}: nothing is desired")
                };
                for DesiredObject { object, treatment } in objects {
                    kinds.insert(object.kind().kind.clone());
                    let held = if object.namespace().is_some() { &namespaced } else { &held.cluster };
                    let kind = object.kind();
                    let mut verbs = vec!["get", "list", "watch", "create", "patch", "delete"];
                    verbs.retain(|verb| *verb != "delete" || treatment != Treatment::Share);
                    let needed = if kind.kind == "CustomResourceDefinition" {
                        vec![rule_for(&kind.group, &[&kind.plural], object.name(), &verbs)]
                    } else {
                        vec![
                            rule(&kind.group, &[&kind.plural], &["list", "watch"]),
                            rule_for(&kind.group, &[&kind.plural], object.name(), &verbs),
                        ]
                    };
                    assert_eq!(missing(held, &needed), [""; 0], "{platform}: {object}");
                    if kind.kind.ends_with("Role") {
                        let given: Vec<PolicyRule> =
                            serde_json::from_value(object.body()["rules"].clone()).unwrap();
                        assert_eq!(missing(held, &given), [""; 0], "{platform}: {object}");
                    }
                }
            }
        }
        assert!(kinds.len() > 9, "{kinds:?}");
    }
}

/// Every watched kind may be listed and watched, in the namespace and by the name it is watched with.
#[test]
fn every_watch_is_allowed() {
    for platform in Platform::ALL {
        let held = rules(platform);
        let environment = cluster(platform, false).environment;
        for watch in watch::all(platform) {
            let verbs = ["list", "watch"];
            let [group, _, _, plural] = watch.kind;
            let needed = match watch.selection {
                Selection::Name(name) => rule_for(group, &[plural], name, &verbs),
                _ => rule(group, &[plural], &verbs),
            };
            let held = match watch.namespace(&environment) {
                None => &held.cluster,
                Some(CONFIG_MANAGED) => &held.config_managed,
                Some(_) => &held.namespaced,
            };
            assert_eq!(missing(held, &[needed]), [""; 0], "{platform}: {watch:?}");
        }
    }
}
