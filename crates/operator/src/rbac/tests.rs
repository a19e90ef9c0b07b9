use super::*;

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
