use serde_json::{Value, json};

use super::*;

/// The smallest valid file, with one value replaced.
fn with(pointer: &str, value: Value) -> Spec {
    let mut document = json!({
        "cdiVersion": "1.1.0",
        "kind": "vendor.example/class",
        "annotations": {},
        "devices": [{"name": "a", "annotations": {}, "containerEdits": {
            "env": ["A=b"], "deviceNodes": [{"path": "/dev/a"}],
            "mounts": [{"hostPath": "/h", "containerPath": "/c"}],
            "hooks": [{"hookName": "poststop", "path": "/bin/h"}],
            "netDevices": [{"hostInterfaceName": "eth0", "name": "net0"}], "intelRdt": {}, "additionalGids": [0, 7]}}],
        "containerEdits": {},
    });
    match pointer.rsplit_once('/') {
        None => document = value,
        Some((parent, field)) => {
            let parent = document.pointer_mut(parent).expect("a place");
            match parent {
                Value::Object(fields) => drop(fields.insert(field.to_owned(), value)),
                _ => parent[field.parse::<usize>().unwrap()] = value,
            }
        }
    }
    serde_json::from_value(document).expect("a specification")
}

/// Checks the one finding after a replacement: severity, field, and words of the problem.
fn check_one(pointer: &str, value: Value, expected: Option<(Severity, &str, &str)>) {
    let findings = check(&with(pointer, value.clone()));
    match (findings.as_slice(), expected) {
        ([], None) => {}
        ([found], Some((severity, field, words))) => {
            assert_eq!((found.severity, &*found.field), (severity, field), "{pointer} {value}: {found}");
            assert!(found.problem.contains(words), "{pointer} {value}: {found}");
        }
        (found, _) => panic!("{pointer} {value}: {found:?}"),
    }
}

const EDITS: &str = "/devices/0/containerEdits";

fn error<'a>(field: &'a str, words: &'a str) -> Option<(Severity, &'a str, &'a str)> {
    Some((Severity::Error, field, words))
}

fn warning<'a>(field: &'a str, words: &'a str) -> Option<(Severity, &'a str, &'a str)> {
    Some((Severity::Warning, field, words))
}

#[test]
fn fields_of_the_file() {
    check_one("/cdiVersion", json!("1.1.0"), None);
    check_one("/cdiVersion", json!("v1.1.0"), None);
    check_one(
        "/cdiVersion",
        json!("1.0.0"),
        error("cdiVersion", "1.0.0 is too low: the fields in use need 1.1.0"),
    );
    check_one("/cdiVersion", json!(""), error("cdiVersion", "allowed are 0.3.0"));
    check_one("/kind", json!(""), error("kind", "<vendor>/<class>"));
    check_one("/kind", json!("1/c"), error("kind", "vendor \"1\" must begin with a letter"));
    check_one("/kind", json!("v/c/d"), error("kind", "class \"c/d\""));
    check_one("/kind", json!("V_x/c"), warning("kind", "DNS subdomain"));
    check_one("/kind", json!(format!("v/{}", "c".repeat(64))), warning("kind", "63"));
    check_one("/devices", json!([]), error("devices", "at least one"));
    check_one("/annotations", json!({"a.example/b": "any text", "B_c": ""}), None);
    check_one("/annotations", json!({"a/b/c": ""}), warning("annotations[\"a/b/c\"]", "DNS subdomain"));
    check_one(
        "/annotations",
        json!({"a": "x".repeat(MAX_ANNOTATIONS)}),
        warning("annotations", "262145 bytes"),
    );
    check_one("/containerEdits", json!({"env": ["x"]}), error("containerEdits.env[0]", "NAME=value"));
    let findings = check(&Spec::default());
    let fields: Vec<_> = findings.iter().map(|finding| &*finding.field).collect();
    assert_eq!(fields, ["cdiVersion", "kind", "devices"]);
    assert!(refusal(&Spec::default()).unwrap().ends_with("(and 2 more)"));
    assert_eq!(refusal(&with("/kind", json!("V_x/c"))), None, "warnings are no reason");
}

#[test]
fn devices() {
    let device = json!({"name": "a", "containerEdits": {"env": ["A=b"]}});
    let twice = json!([device, device]);
    check_one("/devices", twice, error("devices[1].name", "another device"));
    check_one("/devices/0/name", json!(""), error("devices[0].name", "must begin and end with"));
    check_one("/devices/0/name", json!("a:"), error("devices[0].name", "must begin and end with"));
    check_one("/devices/0/name", json!("0:a"), warning("devices[0].name", "colon"));
    check_one(
        "/devices/0/annotations",
        json!({"-": ""}),
        warning("devices[0].annotations[\"-\"]", "is not a key"),
    );
    check_one(EDITS, json!({}), error("devices[0].containerEdits", "is empty: one of env"));
    check_one(EDITS, json!({"additionalGids": [0]}), None);
    check_one(EDITS, json!({"intelRdt": {}}), None);
}

#[test]
fn edits_of_a_container() {
    let at = |field: &str| format!("devices[0].containerEdits.{field}");
    let put = |field: &str| format!("{EDITS}/{field}");
    check_one(&put("env/0"), json!("A="), None);
    check_one(&put("env/0"), json!("=b"), error(&at("env[0]"), "\"=b\" must be NAME=value"));
    check_one(&put("deviceNodes/0/path"), json!(""), error(&at("deviceNodes[0].path"), "must be given"));
    check_one(&put("deviceNodes/0/path"), json!("dev"), warning(&at("deviceNodes[0].path"), "absolute"));
    check_one(
        &put("deviceNodes/0/hostPath"),
        json!("dev"),
        warning(&at("deviceNodes[0].hostPath"), "absolute"),
    );
    check_one(&put("deviceNodes/0/major"), json!(-1), warning(&at("deviceNodes[0].major"), "negative"));
    for (kind, good) in
        [("", true), ("b", true), ("c", true), ("u", true), ("p", true), ("bc", false), ("d", false)]
    {
        let field = at("deviceNodes[0].type");
        check_one(
            &put("deviceNodes/0/type"),
            json!(kind),
            if good { None } else { error(&field, "is none of b") },
        );
    }
    for (permissions, good) in
        [("", true), ("r", true), ("mwr", true), ("none", true), ("rx", false), ("nonew", false)]
    {
        let (field, put) = (at("deviceNodes[0].permissions"), put("deviceNodes/0/permissions"));
        check_one(&put, json!(permissions), if good { None } else { error(&field, "only r, w, m") });
    }
    check_one(&put("mounts/0/hostPath"), json!(""), error(&at("mounts[0].hostPath"), "must be given"));
    check_one(&put("mounts/0/hostPath"), json!("tmpfs"), None);
    check_one(
        &put("mounts/0/containerPath"),
        json!(""),
        error(&at("mounts[0].containerPath"), "must be given"),
    );
    check_one(
        &put("mounts/0/containerPath"),
        json!("c"),
        warning(&at("mounts[0].containerPath"), "absolute"),
    );
}

#[test]
fn hooks_interfaces_and_classes_of_service() {
    let at = |field: &str| format!("devices[0].containerEdits.{field}");
    let put = |field: &str| format!("{EDITS}/{field}");
    for name in HOOKS {
        check_one(&put("hooks/0/hookName"), json!(name), None);
    }
    check_one(&put("hooks/0/hookName"), json!("preStart"), error(&at("hooks[0].hookName"), "poststop"));
    check_one(&put("hooks/0/path"), json!(""), error(&at("hooks[0].path"), "must be given"));
    check_one(&put("hooks/0/path"), json!("h"), warning(&at("hooks[0].path"), "absolute"));
    check_one(&put("hooks/0/env"), json!(["A=b", "c"]), error(&at("hooks[0].env[1]"), "NAME=value"));
    check_one(&put("hooks/0/timeout"), json!(0), warning(&at("hooks[0].timeout"), "more than 0"));
    check_one(&put("hooks/0/timeout"), json!(1), None);
    let nets = |names: &[[&str; 2]]| {
        json!(
            names
                .iter()
                .map(|[host, name]| json!({"hostInterfaceName": host, "name": name}))
                .collect::<Vec<_>>()
        )
    };
    check_one(&put("netDevices"), nets(&[["a", "b"], ["b", "a"]]), None);
    check_one(
        &put("netDevices"),
        nets(&[["", "b"]]),
        error(&at("netDevices[0].hostInterfaceName"), "must be given"),
    );
    check_one(&put("netDevices"), nets(&[["a", ""]]), error(&at("netDevices[0].name"), "must be given"));
    check_one(
        &put("netDevices"),
        nets(&[["a", "b"], ["a", "c"]]),
        error(&at("netDevices[1].hostInterfaceName"), "another"),
    );
    check_one(
        &put("netDevices"),
        nets(&[["a", "b"], ["c", "b"]]),
        error(&at("netDevices[1].name"), "another"),
    );
    for (id, good) in
        [("", true), ("/", true), ("gold", true), (".", false), ("..", false), ("a/b", false), ("a\n", false)]
    {
        let field = at("intelRdt.closID");
        check_one(&put("intelRdt/closID"), json!(id), if good { None } else { error(&field, "file name") });
    }
    check_one(&put("intelRdt/closID"), json!("x".repeat(4096)), error(&at("intelRdt.closID"), "file name"));
}
