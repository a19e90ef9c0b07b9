//! docs/api-reference.md, from the schemas: what stands there is what the API server knows.

use std::fmt::Write as _;

use super::*;

/// What was written by hand ends here.
const MARK: &str = "<!-- What follows is written by `UPDATE_DOCS=1 cargo test -p api reference`. -->\n";

#[test]
fn the_reference_is_fresh() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api-reference.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, found) = text.split_once(MARK).unwrap();
    let wanted = reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{MARK}{wanted}")).unwrap();
        return;
    }
    assert_eq!(found, wanted, "UPDATE_DOCS=1 writes it anew");
}

fn reference() -> String {
    let mut text = String::new();
    for crd in [operator_crd(), scheduler_crd(), device_config_crd()] {
        let version = crd.spec.versions.iter().find(|version| version.storage).unwrap();
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).unwrap();
        let names = &crd.spec.names;
        let short = names.short_names.as_ref().unwrap()[0].as_str();
        writeln!(text, "\n## {}\n\n{}", names.kind, schema.description.as_ref().unwrap()).unwrap();
        let versions: Vec<String> =
            crd.spec.versions.iter().map(|version| format!("`{}`", version.name)).collect();
        let versions = match versions.as_slice() {
            [only] => format!("version {only}"),
            several => format!("versions {} (the last one is stored)", several.join(" and ")),
        };
        writeln!(
            text,
            "\nResource `{}`, short name `{short}`, group `{}`, {versions}, scope {}.",
            names.plural, crd.spec.group, crd.spec.scope,
        )
        .unwrap();
        for part in ["spec", "status"] {
            let schema = &schema.properties.as_ref().unwrap()[part];
            writeln!(text, "\n### {part} of {}\n", names.kind).unwrap();
            text +=
                "| field | type | default | allowed, or what is said | meaning |\n|---|---|---|---|---|\n";
            rows(part, schema, &mut text);
        }
    }
    text
}

/// A row for each field below `path`.
fn rows(path: &str, schema: &JSONSchemaProps, text: &mut String) {
    for (name, field) in schema.properties.iter().flatten() {
        let required = schema.required.as_ref().is_some_and(|required| required.contains(name));
        row(&format!("{path}.{name}"), field, required, text);
    }
}

fn row(path: &str, schema: &JSONSchemaProps, required: bool, text: &mut String) {
    let described = schema.description.clone().unwrap_or_default();
    let (meaning, default) = without_default(&described);
    let default =
        schema.default.as_ref().map_or(default, |default| format!("`{}`", default.0.as_str().unwrap()));
    let default = if required { "required".to_owned() } else { default };
    let again = path.starts_with("status.") && path.ends_with(".config");
    let meaning = if again {
        format!("{meaning} Its fields are those of `spec.nodeGroups[].config`.")
    } else {
        meaning
    };
    let cell = |text: &str| text.replace('|', "\\|");
    let cells = [format!("`{path}`"), type_of(schema), default, allowed(schema), meaning];
    writeln!(text, "| {} |", cells.map(|text| cell(&text)).join(" | ")).unwrap();
    if again {
        return;
    }
    rows(path, schema, text);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        rows(&format!("{path}[]"), items, text);
    }
}

/// The description, and what it says of the default.
fn without_default(description: &str) -> (String, String) {
    let Some((before, after)) = description.split_once("Default: ") else {
        return (description.to_owned(), String::new());
    };
    let (default, rest) = after.split_once(". ").unwrap_or((after.trim_end_matches('.'), ""));
    (format!("{before}{rest}").trim().to_owned(), default.to_owned())
}

fn type_of(schema: &JSONSchemaProps) -> String {
    let name = schema.type_.as_deref().unwrap_or_default();
    match (name, &schema.items) {
        ("array", Some(JSONSchemaPropsOrArray::Schema(items))) => format!("list of {}", type_of(items)),
        ("object", _) if schema.additional_properties.is_some() => "map of string".to_owned(),
        ("", _) if schema.x_kubernetes_int_or_string == Some(true) => "number or string".to_owned(),
        ("string", _) if schema.format.as_deref() == Some("date-time") => "time".to_owned(),
        _ => name.to_owned(),
    }
}

/// Values and bounds, and the rules in the words of the refusal; those of a list's items are its own.
fn allowed(schema: &JSONSchemaProps) -> String {
    let mut all = Vec::new();
    if let Some(values) = &schema.enum_ {
        let value = |value: &serde_json::Value| {
            value.as_str().filter(|text| !text.is_empty()).unwrap_or("\"\"").to_owned()
        };
        all.push(values.iter().map(|json| format!("`{}`", value(&json.0))).collect::<Vec<_>>().join(", "));
    }
    all.extend(schema.minimum.map(|minimum| format!("at least {minimum}")));
    all.extend(schema.maximum.map(|maximum| format!("at most {maximum}")));
    all.extend(schema.max_length.map(|length| format!("at most {length} characters")));
    all.extend(schema.max_items.map(|items| format!("at most {items} items")));
    let mut rules = |schema: &JSONSchemaProps| {
        all.extend(
            schema
                .x_kubernetes_validations
                .iter()
                .flatten()
                .filter_map(|rule| rule.message.as_ref())
                .map(|said| format!("\"{said}\"")),
        );
    };
    rules(schema);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        rules(items);
    }
    all.join("; ")
}
