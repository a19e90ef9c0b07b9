use std::collections::BTreeSet;

use api::numaresources::keys;
use api::numaresources::operator::PodExclude;
use api::rbac::{covers, missing};
use deployer::manifests::meta;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::*;
use crate::desired::{Desired, DesiredObject, Treatment};
use crate::manifests::samples;
use crate::world::{Image, KubeletConfig, KubeletSettings, MachineConfigPool, Node, Place, World};
use crate::{kubeletconfig, numaresourcesoperator, numaresourcesscheduler, watch};

#[test]
fn what_is_granted_is_held() {
    let granted = granted();
    for platform in Platform::ALL {
        let held = rules(platform);
        let namespaced = [held.cluster.clone(), held.namespaced.clone()].concat();
        assert_eq!(missing(&held.cluster, &granted.cluster), Vec::<String>::new(), "{platform}");
        assert_eq!(missing(&namespaced, &granted.namespaced), Vec::<String>::new(), "{platform}");
    }
}

#[test]
fn each_platform_gets_what_it_has() {
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

/// Nothing is allowed by a wildcard, nothing to secrets, and nobody else's roles can be changed.
#[test]
fn it_is_not_an_administrator() {
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

/// A cluster in which all of it is asked for that can be: our own exporter or another one, our own scheduler or the Go plugin's.
fn world(platform: Platform, others: bool) -> World {
    let image = |name: &str| Image { name: name.to_owned(), pull_policy: String::new() };
    let mut world = World::new(Place {
        platform,
        version: if platform == Platform::Kubernetes { "v1.36.3" } else { "4.20.1" }.parse().ok(),
        namespace: "numaresources".to_owned(),
        own: image("example.com/tholepin:1"),
        image: image("example.com/tholepin:1"),
        exporter_image_restricted: false,
        trusted_schedulers: None,
        forward_pool_conditions: false,
        api_server_ports: vec![6443],
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
    world.pools.insert("worker".to_owned(), pool);
    world.kubelet_configs.insert(
        "worker".to_owned(),
        KubeletConfig {
            pool_selector: Some(selector("pools.operator.machineconfiguration.openshift.io/worker", "")),
            payload: Some(Ok(KubeletSettings { policy: Some("restricted".to_owned()), scope: None })),
            ..KubeletConfig::default()
        },
    );
    let label = |name: &str| (format!("node-role.kubernetes.io/{name}").into(), "".into());
    let labels = [label("control-plane"), label("worker")].into();
    world.nodes.insert("node-0".to_owned(), Node { labels, ready: true, ..Node::default() });
    let mut operator = samples::numa_resources_operator(platform);
    operator.metadata.uid = Some("1".to_owned());
    operator.spec.pod_excludes = vec![PodExclude { namespace: "a".to_owned(), name: "*".to_owned() }];
    let custom = meta::labels([(keys::SELINUX_POLICY, keys::CUSTOM)]);
    operator.spec.node_groups.iter_mut().for_each(|group| group.annotations.clone_from(&custom));
    let mut scheduler = samples::numa_resources_scheduler();
    scheduler.metadata.uid = Some("2".to_owned());
    if others {
        operator.spec.image_spec = "example.com/rte:1".to_owned();
        scheduler.spec.image_spec = "example.com/scheduler:1".to_owned();
    }
    world.operators.insert(OPERATOR.to_owned(), operator);
    world.schedulers.insert(SCHEDULER.to_owned(), scheduler);
    world
}

/// Whatever the controllers want, the operator may look at it, make, change and remove it; and grant what is in it.
#[test]
fn what_is_wanted_may_be_made() {
    for platform in Platform::ALL {
        let held = rules(platform);
        let namespaced = [held.cluster.clone(), held.namespaced.clone()].concat();
        let mut kinds = BTreeSet::new();
        for others in [false, true] {
            let world = world(platform, others);
            for wanted in
                [numaresourcesoperator::desired, numaresourcesscheduler::desired, kubeletconfig::desired]
            {
                let Desired::Objects(objects) = wanted(&world) else {
                    panic!("{platform}: nothing is wanted")
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

/// Whatever is watched may be listed and watched, in the place and by the name it is.
#[test]
fn what_is_watched_may_be_watched() {
    for platform in Platform::ALL {
        let held = rules(platform);
        let place = world(platform, false).place;
        for watch in watch::all(&place) {
            let verbs = ["list", "watch"];
            let (group, plural) = (&watch.kind.group, watch.kind.plural.as_str());
            let needed = if watch.name.is_empty() {
                rule(group, &[plural], &verbs)
            } else {
                rule_for(group, &[plural], &watch.name, &verbs)
            };
            let held = match watch.namespace.as_deref() {
                None => &held.cluster,
                Some(CONFIG_MANAGED) => &held.config_managed,
                Some(_) => &held.namespaced,
            };
            assert_eq!(missing(held, &[needed]), [""; 0], "{platform}: {watch:?}");
        }
    }
}
