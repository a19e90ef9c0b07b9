//! Arbitrary specifications.

use cdi::{ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    // Includes what other YAML readers take for numbers, booleans, null or structure.
    prop_oneof![
        "[a-z]{1,6}",
        "~|null|true|no|0x1f|1e3|12:30|- a|\\{\\}|#c|'|\"|a: b",
        ".{1,8}",
        "[\u{7f}-\u{a0}\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}\\t\\\\/]{1,3}"
    ]
}

fn path() -> impl Strategy<Value = String> {
    text().prop_map(|text| format!("/{text}"))
}

fn variables() -> impl Strategy<Value = Vec<String>> {
    vec(("[A-Z]{1,4}", text()).prop_map(|(name, value)| format!("{name}={value}")), 0..3)
}

fn node() -> impl Strategy<Value = DeviceNode> {
    let kind = prop_oneof![Just(""), Just("b"), Just("c"), Just("u"), Just("p")];
    let numbers =
        (option::of(0..i64::MAX), option::of(0..99_i64), option::of(any::<u32>()), option::of(any::<u32>()));
    let permissions = prop_oneof![Just(""), Just("rw"), Just("m"), Just("none")];
    (path(), option::of(path()), kind, permissions, numbers, option::of(0..0o7777_u32)).prop_map(
        |(path, host_path, kind, permissions, (major, minor, uid, gid), file_mode)| DeviceNode {
            path,
            host_path: host_path.unwrap_or_default(),
            r#type: kind.to_owned(),
            major,
            minor,
            file_mode,
            permissions: permissions.to_owned(),
            uid,
            gid,
        },
    )
}

fn mount() -> impl Strategy<Value = Mount> {
    (path(), path(), vec(text(), 0..3), option::of(text())).prop_map(
        |(host_path, container_path, options, kind)| Mount {
            host_path,
            container_path,
            options,
            r#type: kind.unwrap_or_default(),
        },
    )
}

fn hook() -> impl Strategy<Value = Hook> {
    let name = proptest::sample::select(cdi::check::HOOKS.to_vec());
    (name, path(), vec(text(), 0..3), variables(), option::of(1..i64::MAX)).prop_map(
        |(name, path, args, env, timeout)| Hook { hook_name: name.to_owned(), path, args, env, timeout },
    )
}

fn rdt() -> impl Strategy<Value = IntelRdt> {
    ("[a-z]{0,4}", "[a-z]{0,4}", vec(text(), 0..2), any::<bool>()).prop_map(
        |(clos_id, l3_cache_schema, schemata, enable_monitoring)| IntelRdt {
            clos_id,
            l3_cache_schema,
            mem_bw_schema: String::new(),
            schemata,
            enable_monitoring,
        },
    )
}

prop_compose! {
    fn edits()(
        env in variables(),
        device_nodes in vec(node(), 0..3),
        net in option::of((text(), text())),
        hooks in vec(hook(), 0..2),
        mounts in vec(mount(), 0..2),
        intel_rdt in option::of(rdt()),
        additional_gids in vec(any::<u32>(), 0..2),
    ) -> ContainerEdits {
        let net_devices =
            net.map(|(host_interface_name, name)| NetDevice { host_interface_name, name }).into_iter().collect();
        ContainerEdits { env, device_nodes, net_devices, hooks, mounts, intel_rdt, additional_gids }
    }
}

prop_compose! {
    /// A specification that runtimes accept.
    pub(crate) fn spec()(
        class in "[a-z]([a-z._-]{0,4}[a-z0-9])?",
        devices in btree_map("[a-z0-9]([a-z._:-]{0,4}[a-z0-9])?", edits(), 1..4),
        annotations in btree_map("[a-z]{1,4}", text(), 0..2),
        container_edits in edits(),
    ) -> Spec {
        let mut devices: Vec<_> = devices.into_iter().map(|(name, edits)| Device::new(name, edits)).collect();
        for device in devices.iter_mut().filter(|device| device.container_edits.is_empty()) {
            device.container_edits.env.push("A=".to_owned());
        }
        let kind = format!("vendor.example/{class}");
        let spec = Spec { kind, annotations, devices, container_edits, ..Spec::default() };
        spec.with_lowest_version()
    }
}

proptest! {
    #[test]
    fn written_specifications_read_back_equal(spec in spec()) {
        prop_assert_eq!(cdi::check::refusal(&spec), None);
        let json = cdi::file::render(&spec).unwrap();
        prop_assert_eq!(&cdi::file::parse("json", &json).unwrap(), &spec, "{}", json);
        let yaml = runtime::yaml::write(&spec).unwrap();
        prop_assert_eq!(&cdi::file::parse("yaml", &yaml).unwrap(), &spec, "{}", yaml);
    }

    #[test]
    fn a_lower_version_is_refused(spec in spec()) {
        let minimum = cdi::Version::minimum(&spec);
        for version in cdi::Version::ALL {
            let spec = Spec { cdi_version: version.to_string(), ..spec.clone() };
            prop_assert_eq!(cdi::check::refusal(&spec).is_some(), version < minimum, "{}", version);
        }
    }

    #[test]
    fn garbage_never_panics(
        text in "\\PC{0,200}", spec in spec(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let _ = cdi::file::parse("garbage", &text).map(|spec| cdi::check::check(&spec));
        let mut bytes = cdi::file::render(&spec).unwrap().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(spec) = cdi::file::parse("almost", &text) {
            let findings = cdi::check::check(&spec);
            prop_assert!(findings.iter().all(|finding| !finding.problem.is_empty()));
        }
    }
}

/// Checks that a text is refused, with words of the reason.
fn refused(text: &str, words: &str) {
    let error = cdi::file::parse("vendor.json", text).expect_err(text).to_string();
    assert!(error.starts_with("vendor.json: ") && error.contains(words), "{text}: {error}");
}

#[test]
fn reading_is_strict() {
    refused(r#"{"cdiVersion": "0.3.0", "kinds": "v/c"}"#, "unknown field `kinds`, expected one of");
    refused("devices: [{containerEdits: {deviceNodes: [{hostpath: /dev/x}]}}]", "unknown field `hostpath`");
    refused("containerEdits: {intelRdt: {enableCMT: true}}", "unknown field `enableCMT`");
    refused("kind: v/a\nkind: v/b", "duplicate");
    refused("devices: {}", "");
    refused("containerEdits: {additionalGids: [-1]}", "");
    refused("containerEdits: {additionalGids: [4294967296]}", "");
    refused("[]", "");
    refused("just text", "");
    refused(&format!("devices: {}", "[".repeat(100_000)), "");
    refused("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "");
}

#[test]
fn empty_required_fields_are_found() {
    for (text, field) in [
        ("devices: [null]", "devices[0].name"),
        ("containerEdits: {deviceNodes: [null]}", "containerEdits.deviceNodes[0].path"),
        ("containerEdits: {hooks: [{}]}", "containerEdits.hooks[0].hookName"),
        ("containerEdits: {env: ['']}", "containerEdits.env[0]"),
    ] {
        let findings = cdi::check::check(&cdi::file::parse("vendor.json", text).unwrap());
        assert!(findings.iter().any(|finding| finding.field == field), "{text}: {findings:?}");
    }
}
