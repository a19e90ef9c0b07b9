use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn spec(value: Value) -> Spec {
    serde_json::from_value(value).unwrap()
}

fn minimal() -> Value {
    json!({"driverImage": "registry.example/drivers/acc-x.y", "driverVersion": "1.4.2", "allNodes": true})
}

#[test]
fn modules_are_named_within_kmms_limits() {
    let table = [
        ("hw", "acc", Some("acc-module")),
        ("hw", "a", Some("a-module")),
        // 41 together, and one more.
        ("hw", "a23456789b123456789c123456789d12", Some("a23456789b123456789c123456789d12-module")),
        ("hw", "a23456789b123456789c123456789d123", Some("a23456789b123456789c123456789d-59084c62")),
        // Dots would be read as the end of the namespace.
        ("hw", "acc.v1", Some("acc-v1-")),
        ("a23456789b123456789c123456789d1", "acc", Some("acc-module")),
        ("a23456789b123456789c123456789d1", "accel", Some("a-")),
        ("a23456789b123456789c123456789d12", "acc", None),
        ("a23456789b123456789c123456789d123456789e123456789", "acc", None),
    ];
    for (namespace, name, wanted) in table {
        let made = module_name(namespace, name);
        match wanted {
            Some(start) if start.ends_with('-') => {
                let made = made.unwrap();
                assert!(made.starts_with(start) && made.len() > start.len(), "{namespace}/{name}: {made}");
            }
            wanted => assert_eq!(made.as_deref(), wanted, "{namespace}/{name}"),
        }
    }
}

proptest! {
    #[test]
    fn a_name_is_legal_and_only_depends_on_the_object(
        namespace in "[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?",
        name in "[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?",
    ) {
        let made = module_name(&namespace, &name);
        prop_assert_eq!(&made, &module_name(&namespace, &name));
        prop_assert_eq!(made.is_some(), namespace.len() <= MAX_NAMESPACE);
        if let Some(made) = made {
            prop_assert!(made.len() + namespace.len() <= MAX_NAMES, "{}", made);
            prop_assert!(made.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{}", made);
            prop_assert!(!made.starts_with('-') && !made.ends_with('-'), "{}", made);
            prop_assert!(claim(&namespace, &made).len() <= 63);
            let label = crate::kmm::keys::version_schedule_pod(&namespace, &made);
            prop_assert!(label.split_once('/').unwrap().1.len() <= 63);
        }
    }

    #[test]
    fn names_that_begin_alike_differ(
        start in "[a-z]{40}", one in "[a-z0-9]{1,10}", other in "[a-z0-9]{1,10}",
    ) {
        let name = |end: &str| module_name("hw", &format!("{start}{end}"));
        prop_assert_eq!(one == other, name(&one) == name(&other));
    }
}

#[test]
fn what_is_left_open_is_filled_in_where_it_is_used() {
    let plain = spec(minimal());
    assert_eq!(plain.kernel_module().as_deref(), Some("acc_x_y"));
    assert_eq!(plain.dir_name(), "/opt");
    let [mapping] = plain.mappings().try_into().unwrap();
    assert_eq!(mapping.regexp.as_deref(), Some("^.+$"));
    assert_eq!(
        mapping.image.as_deref(),
        Some("registry.example/drivers/acc-x.y:1.4.2-${KERNEL_FULL_VERSION}")
    );
    let mut raw = minimal();
    raw["modprobe"] = json!({"rawArgs": {"load": ["a"], "unload": ["-r", "a"]}});
    assert_eq!(spec(raw).kernel_module(), None);
    let mut named = minimal();
    named["moduleName"] = "acc".into();
    assert_eq!(spec(named).kernel_module().as_deref(), Some("acc"));
}

#[test]
fn a_selector_wants_all_of_its_labels() {
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let node = labels(&[("a", "1"), ("b", "")]);
    let table = [
        (json!({"allNodes": true}), true),
        (json!({}), false),
        (json!({"nodeSelector": {}}), false),
        (json!({"nodeSelector": {"a": "1"}}), true),
        (json!({"nodeSelector": {"a": "1", "b": ""}}), true),
        (json!({"nodeSelector": {"a": "2"}}), false),
        (json!({"nodeSelector": {"c": ""}}), false),
    ];
    for (value, wanted) in table {
        assert_eq!(spec(value.clone()).selects(&node), wanted, "{value}");
    }
}

#[test]
fn at_least_one_node_may_be_upgraded() {
    let table = [
        (json!({}), 10, 1),
        (json!({"maxUnavailable": 3}), 10, 3),
        (json!({"maxUnavailable": 0}), 10, 1),
        (json!({"maxUnavailable": -1}), 10, 1),
        (json!({"maxUnavailable": "25%"}), 10, 2),
        (json!({"maxUnavailable": "1%"}), 10, 1),
        (json!({"maxUnavailable": "100%"}), 10, 10),
        (json!({"maxUnavailable": "1000%"}), 10, 10),
        (json!({"maxUnavailable": "many"}), 10, 1),
        (json!({"maxUnavailable": "50%"}), 0, 1),
    ];
    for (value, nodes, wanted) in table {
        let policy: UpgradePolicy = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(policy.unavailable_of(nodes), wanted, "{value} of {nodes}");
    }
}

#[test]
fn pods_have_ten_minutes_to_go_unless_it_is_said() {
    for (value, wanted) in [
        (json!({}), 600),
        (json!({"evictionTimeoutSeconds": 30}), 30),
        (json!({"evictionTimeoutSeconds": 0}), 1),
    ] {
        let policy: UpgradePolicy = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(policy.eviction_timeout().as_secs(), wanted, "{value}");
    }
}

#[test]
fn the_first_mapping_that_matches_counts() {
    let mappings: Vec<KernelMapping> = serde_json::from_value(json!([
        {"literal": "5.14.0-427.el9.x86_64", "image": "a:1"},
        {"regexp": r"\.el9(_\d+)?\.", "image": "b:1"},
        {"regexp": "^6\\.", "image": "c:1"},
    ]))
    .unwrap();
    let table = [
        ("5.14.0-427.el9.x86_64", Some(0)),
        ("5.14.0-427.el9.x86_64+", Some(0)),
        ("5.14.0-570.16.1.el9_6.aarch64", Some(1)),
        ("6.12.0-55.9.1.el10_0.x86_64", Some(2)),
        ("4.18.0-553.el8_10.x86_64", None),
        ("", None),
    ];
    for (kernel, wanted) in table {
        assert_eq!(first_match(&mappings, kernel), Ok(wanted), "{kernel}");
    }
    let broken = [KernelMapping { regexp: Some("(".to_owned()), ..KernelMapping::default() }];
    let error = first_match(&broken, "6").unwrap_err().to_string();
    assert!(error.starts_with("spec.kernelMappings[0].regexp \"(\" is no regular expression: "), "{error}");
}

#[test]
fn null_says_nothing() {
    let read: DeviceConfig =
        serde_json::from_value(json!({"metadata": {}, "spec": null, "status": null})).unwrap();
    assert_eq!(read, DeviceConfig::default());
    let read = spec(json!({"kernelMappings": null, "tolerations": null, "nodeSelector": null}));
    assert_eq!(read, Spec::default());
}
