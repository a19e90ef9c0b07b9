use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::json;

use super::*;
use crate::devices::views::SliceView;

/// A device of the driver `d.example`.
fn device() -> SliceView {
    let slice = json!({
        "metadata": { "name": "s" },
        "spec": {
            "driver": "d.example", "pool": { "name": "p", "generation": 1, "resourceSliceCount": 1 }, "allNodes": true,
            "devices": [{
                "name": "0",
                "attributes": {
                    "model": { "string": "A100" }, "index": { "int": 3 }, "ecc": { "bool": true },
                    "version": { "version": "1.10.0-rc.1" }, "other.example/numa": { "int": 1 },
                },
                "capacity": { "memory": { "value": "40Gi" }, "other.example/cores": { "value": "108" } },
            }],
        },
    });
    let slice: ResourceSlice = serde_json::from_value(slice).unwrap();
    SliceView::read(&slice)
}

fn selects(text: &str) -> Result<bool, String> {
    let slice = device();
    let selected = Selector::new(text).selects("d.example", &slice.devices[0]);
    selected.map_err(|error| error.to_string())
}

#[test]
fn expressions_select_devices() {
    for (text, wanted) in [
        (r#"device.driver == "d.example""#, true),
        (r#"device.driver == 'x' || device.attributes["d.example"].model == "A100""#, true),
        (
            r#"device.attributes["d.example"].model.startsWith("A") && device.attributes["d.example"].index >= 3"#,
            true,
        ),
        (r#"device.attributes["d.example"].index in [1, 2]"#, false),
        (r#"device.attributes["other.example"].numa == 1"#, true),
        (r#"device.attributes["other.example"]["numa"] + 1 == 2"#, true),
        (r#"device.attributes["d.example"].ecc"#, true),
        (r#"!device.attributes["d.example"].ecc"#, false),
        // Domains that the device does not have are empty.
        (r#"has(device.attributes["none.example"].x)"#, false),
        (r#"has(device.attributes["d.example"].model)"#, true),
        (r#""none.example" in device.attributes"#, false),
        (r#""d.example" in device.attributes && "model" in device.attributes["d.example"]"#, true),
        (r#"device.attributes["none.example"].size() == 0"#, true),
        (r#"device.attributes["d.example"].exists(name, name == "model")"#, true),
        (r#"device.attributes.all(domain, domain.endsWith(".example"))"#, true),
        (r#"device.capacity["d.example"].memory.compareTo(quantity("40Gi")) == 0"#, true),
        (r#"device.capacity["d.example"].memory.isGreaterThan(quantity("39Gi"))"#, true),
        (r#"device.capacity["d.example"].memory.isLessThan(quantity("40Gi"))"#, false),
        (r#"device.capacity["other.example"].cores.asInteger() == 108"#, true),
        (r#"device.capacity["d.example"].memory.sub(quantity("8Gi")) == quantity("32Gi")"#, true),
        (r#"device.attributes["d.example"].version.isLessThan(semver("1.10.0"))"#, true),
        (r#"device.attributes["d.example"].version.major() == 1"#, true),
        (r#"device.attributes["d.example"].version.compareTo(semver("1.9.9")) == 1"#, true),
        (r#"cel.bind(a, device.attributes["d.example"], a.ecc && a.index == 3)"#, true),
        (r#"device.attributes["d.example"].model.matches("^A[0-9]+$")"#, true),
        (r#"device.allowMultipleAllocations"#, false),
        (r#"[1, 2, 3].filter(x, x > 1).map(x, x * 2) == [4, 6]"#, true),
        (r#"[1, 2].exists_one(x, x == 2)"#, true),
        (r#"(device.attributes["d.example"].index > 2 ? "big" : "small") == "big""#, true),
        (r#"{"a": 1}["a"] == 1 && 7 % 4 == 3 && -(2) == -2 && 1.5 < 2.0 && "a" + "b" == "ab""#, true),
        (r#"1 == 1.0 && "1" != dyn(1)"#, true),
        // One side alone decides, also where the other has no value.
        (r#"device.attributes["d.example"].none == 1 || true"#, true),
        (r#"false && device.attributes["d.example"].none == 1"#, false),
        (r#"["none", "index"].exists(k, device.attributes["d.example"][k] == 3)"#, true),
    ] {
        assert_eq!(selects(text), Ok(wanted), "{text}");
    }
}

#[test]
fn what_has_no_value_is_told() {
    for (text, wanted) in [
        (r#"device.attributes["d.example"].none == 1"#, "CEL runtime error: no such key: none"),
        (r#"device.attributes["none.example"].x"#, "CEL runtime error: no such key: x"),
        (r#"device.attributes["d.example"].model > 1"#, "CEL runtime error: no such overload"),
        (
            r#"[1, 2].all(x, device.attributes["d.example"].none == x)"#,
            "CEL runtime error: no such key: none",
        ),
        ("1 / 0 == 1", "CEL runtime error: division by zero"),
        (
            r#"device.attributes["d.example"].model"#,
            "CEL runtime error: CEL result of type string could not be converted to bool: \
             unsupported native conversion from string to 'bool'",
        ),
        ("devices.driver", "CEL compile error: compilation failed: undeclared reference to 'devices'"),
        ("device.drivers", "CEL compile error: compilation failed: undeclared reference to 'drivers'"),
        ("device.driver.shout()", "CEL compile error: compilation failed: undeclared reference to 'shout'"),
    ] {
        let error = selects(text).unwrap_err();
        let wanted = wanted.replace("undeclared reference to 'drivers'", "undefined field 'drivers'");
        assert_eq!(error, wanted, "{text}");
    }
    assert!(selects("device.").unwrap_err().starts_with("CEL compile error: compilation failed: "));
}

/// Expressions that would take long, much memory or a deep stack end early.
#[test]
fn evaluations_are_bounded() {
    let thread = std::thread::Builder::new().stack_size(32 << 20);
    thread.spawn(long_expressions_end).unwrap().join().unwrap();
}

fn long_expressions_end() {
    let list = format!("[{}]", vec!["1"; 300].join(", "));
    let nested = format!("{list}.all(a, {list}.all(b, {list}.all(c, a == b && b == c)))");
    assert!(selects(&nested).unwrap_err().contains("too long"));
    let list = format!("[{}]", vec!["1"; 100].join(", "));
    let nested = format!("{list}.all(a, {list}.all(b, {list}.all(c, a == b && b == c)))");
    assert!(selects(&nested).unwrap_err().contains("cost limit exceeded"), "{:?}", selects(&nested));
    let doubled = (0..40).fold("x".to_owned(), |inner, _| format!("cel.bind(x, x + x, {inner})"));
    let doubled = format!("cel.bind(x, 'abcdefghij', {doubled}) == ''");
    assert!(selects(&doubled).is_err());
    let chain = format!("{} == 0", vec!["1"; 390].join(" + "));
    assert_eq!(selects(&chain), Ok(false));
    let deep = format!("{}true{}", "(".repeat(200), ")".repeat(200));
    assert!(selects(&deep).unwrap_err().starts_with("CEL compile error"));
}
