use proptest::prelude::*;

use super::*;

/// A configuration of one resource, with these lines instead of a list of one device.
fn resource(lines: &str) -> String {
    let discovery = if lines.contains("discovery:") {
        ""
    } else {
        "  discovery: {list: {devices: {\"*\": [{id: a}]}}}\n"
    };
    format!("version: v1alpha1\nresources:\n- name: example.com/nic\n{discovery}{lines}")
}

#[test]
fn a_full_configuration_is_read() {
    let text = r#"
version: v1alpha1
resources:
- name: example.com/nic
  discovery:
    pci: {vendors: ["8086"], classes: ["0200"], nodes: none}
  health: {recoverAfter: 1m, recoverAtMost: 1h}
  sharing: {replicas: 4, onePerContainer: true}
  allocation: {policy: spread}
  cdi: {mode: annotation, kind: example.com/card}
  container:
    envs: {A: b}
    mounts: [{hostPath: /opt/nic, readOnly: true}]
    deviceNodes: [/dev/ctl]
    permissions: rwm
  preStart: {command: [/bin/reset, "{id}"], timeout: 5s}
- name: example.com/acc
  discovery: {directory: {path: /dev, prefix: acc, zones: {acc0: [1]}}}
- name: example.com/file
  discovery: {file: {path: /etc/devices/x.yaml}}
"#;
    let config = Config::parse("x", text).unwrap();
    let [nic, acc, file] = config.resources.as_slice() else { unreachable!("three resources") };
    assert_eq!((nic.health.recover_after, nic.replicas()), (Duration::from_secs(60), 4));
    assert_eq!(
        (nic.allocation.policy, nic.cdi.mode, nic.cdi_kind()),
        (Policy::Spread, CdiMode::Annotation, "example.com/card")
    );
    assert_eq!(acc.health, HealthPolicy::default());
    assert_eq!((acc.replicas(), acc.cdi_kind()), (1, "example.com/acc"));
    assert_eq!(file.discovery.file.as_ref().unwrap().path, Path::new("/etc/devices/x.yaml"));
}

#[track_caller]
fn refuses(text: &str, wants: &[&str]) {
    let error = Config::parse("file.yaml", text).unwrap_err().to_string();
    for want in wants {
        assert!(error.contains(want), "{error:?} does not say {want:?}");
    }
    assert!(error.starts_with("file.yaml: ") && !error.contains('\n'), "{error:?}");
}

#[test]
fn mistakes_name_the_field_and_what_is_allowed() {
    refuses("version: v1\nresources: []\n", &["version", "\"v1\"", "allowed is v1alpha1"]);
    refuses("version: v1alpha1\nresources: []\n", &["resources", "allowed are 1 to 64"]);
    refuses("resources: []\n", &["version"]);
    let table: &[(&str, &[&str])] = &[
        ("  colour: red\n", &["unknown field \"resources.0.colour\""]),
        ("  discovery: {}\n", &["resources[0].discovery: 0 kinds", "list, file, pci, directory"]),
        ("  discovery: {file: {path: /a}, pci: {vendors: [\"8086\"]}}\n", &["discovery: 2 kinds"]),
        ("  discovery: {file: {path: a}}\n", &["discovery.file.path: \"a\"", "absolute"]),
        ("  discovery: {file: {path: /a/../b}}\n", &["discovery.file.path", "without .."]),
        ("  discovery: {pci: {}}\n", &["discovery.pci", "at least one"]),
        (
            "  discovery: {pci: {vendors: [\"80865\"]}}\n",
            &["discovery.pci.vendors: \"80865\"", "4 hexadecimal digits"],
        ),
        ("  discovery: {pci: {classes: [\"020\"]}}\n", &["classes: \"020\"", "2 or 4 or 6"]),
        ("  discovery: {pci: {addresses: [\"3b:00.0\"]}}\n", &["addresses: \"3b:00.0\"", "0000:3b:00.0"]),
        ("  discovery: {directory: {path: /dev}}\n", &["discovery.directory.prefix", "is required for /dev"]),
        ("  discovery: {directory: {path: /x, prefix: a/b}}\n", &["prefix", "beginnings of file names"]),
        (
            "  discovery: {list: {devices: {n: [{id: a}, {id: a}]}}}\n",
            &["discovery.list", "\"n\"", "\"a\" is listed twice"],
        ),
        ("  discovery: {list: {devices: {n: [{numanode: 1}]}}}\n", &["a device without id"]),
        (
            "  discovery: {list: {devices: {n: [{id: a, numanode: 1, numanodes: [2]}]}}}\n",
            &["one of the two"],
        ),
        ("  discovery: {list: {devices: {n: [{id: a, numanode: 99999999999}]}}}\n", &["-1 (none) to"]),
        ("  discovery: {list: {devices: {n: [{id: a, numanode: -7}]}}}\n", &["numanode -7", "-1 (none) to"]),
        ("  discovery: {list: {devices: {n: [{id: a, envs: {\"A=B\": c}}]}}}\n", &["a: variable \"A=B\""]),
        ("  sharing: {replicas: 1}\n", &["sharing.replicas: 1", "2 to 16384"]),
        ("  allocation: {policy: best}\n", &["best", "packed", "spread"]),
        ("  cdi: {mode: both}\n", &["both", "off", "field", "annotation"]),
        ("  cdi: {mode: field, kind: nic}\n", &["cdi.kind"]),
        ("  health: {recoverAfter: soon}\n", &["soon"]),
        ("  health: {recoverAfter: -1s}\n", &["0s and more"]),
        ("  health: {recoverAfter: 1h}\n", &["health.recoverAtMost", "3600s and more"]),
        ("  health: {checkEvery: 1ms}\n", &["health.checkEvery", "100ms to 1h"]),
        ("  container: {permissions: rx}\n", &["container.permissions: \"rx\"", "r, w, m"]),
        ("  container: {permissions: rr}\n", &["container.permissions"]),
        ("  container: {mounts: [{hostPath: a}]}\n", &["container.mounts.hostPath"]),
        ("  container: {envs: {\"A=B\": c}}\n", &["container.envs"]),
        ("  preStart: {}\n", &["preStart", "exactly one of command, reset"]),
        ("  preStart: {reset: x}\n", &["preStart", "absolute"]),
        ("  preStart: {reset: /x, timeout: 31s}\n", &["preStart.timeout", "at most 30s"]),
    ];
    for (lines, wants) in table {
        refuses(&resource(lines), wants);
    }
    let twice = resource("") + "- name: example.com/nic\n  discovery: {file: {path: /a}}\n";
    refuses(&twice, &["resources[1].name", "listed twice"]);
    let kinds = resource("  cdi: {mode: field}\n")
        + "- name: example.com/b\n  discovery: {file: {path: /a}}\n  cdi: {mode: field, kind: example.com/nic}\n";
    refuses(&kinds, &["resources[1].cdi.kind", "used by another resource"]);
    // Different kinds with the same file name.
    let file = resource("  cdi: {mode: field, kind: a.b-c/d}\n")
        + "- name: example.com/b\n  discovery: {file: {path: /a}}\n  cdi: {mode: field, kind: a.b/c-d}\n";
    refuses(&file, &["resources[1].cdi.kind", "a.b-c-d.json", "used by another resource"]);
    let long = format!("  cdi: {{mode: field, kind: {}.b/{}}}\n", ["a"; 100].join("."), "c".repeat(63));
    refuses(&resource(&long), &["resources[0].cdi.kind", "255"]);
}

#[test]
fn resource_names_follow_the_kubelets_rule() {
    for good in ["a.b/c", "vendor.example/gpu", "x/Y_z.1-2", "a-b.c/d"] {
        assert_eq!(resource_name(good), Ok(()), "{good}");
    }
    let long = format!("a.b/{}", "c".repeat(64));
    for bad in [
        "",
        "cpu",
        "/c",
        "a.b/",
        "A.b/c",
        "a..b/c",
        "-a.b/c",
        "a.b/-c",
        "a.b/c-",
        "a.b/c d",
        "a.b/c/d",
        "kubernetes.io/x",
        "x.kubernetes.io/y",
        "requests.a.b/c",
        &long,
    ] {
        assert!(resource_name(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn garbage_yields_one_line_errors(text in "\\PC{0,200}", lines in "( {0,4}[a-z:{}\\[\\]\"0-9-]{0,20}\n){0,12}") {
        for text in [text, resource(&lines), lines] {
            if let Err(error) = Config::parse("file.yaml", &text) {
                prop_assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
}
