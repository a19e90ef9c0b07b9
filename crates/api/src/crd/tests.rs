use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;

use super::*;

mod reference;

/// Each definition with its file.
fn all() -> [(&'static str, &'static str, CustomResourceDefinition); 4] {
    [
        ("noderesourcetopologies", NRT_CRD_YAML, nrt_crd()),
        ("numaresourcesoperators", OPERATOR_CRD_YAML, operator_crd()),
        ("numaresourcesschedulers", SCHEDULER_CRD_YAML, scheduler_crd()),
        ("deviceconfigs", DEVICE_CONFIG_CRD_YAML, device_config_crd()),
    ]
}

/// The YAML as it should stand in the repository.
fn rendered(crd: &CustomResourceDefinition) -> String {
    let mut options = serde_saphyr::SerializerOptions::default();
    options.prefer_block_scalars = false;
    options.compact_list_indent = true;
    serde_saphyr::to_string_with_options(crd, options).unwrap()
}

/// `UPDATE_CRDS=1 cargo test -p api crd` writes the files anew.
#[test]
fn the_committed_yaml_is_fresh() {
    for (name, yaml, crd) in all() {
        if std::env::var_os("UPDATE_CRDS").is_some() {
            let path = format!("{}/crds/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
            std::fs::write(path, rendered(&crd)).unwrap();
        } else {
            let help = "run `UPDATE_CRDS=1 cargo test -p api crd` and commit the result";
            assert_eq!(yaml, rendered(&crd), "{name}: {help}");
        }
    }
}

#[test]
fn the_yaml_reads_back_as_the_definition() {
    for (name, yaml, crd) in all() {
        let read: CustomResourceDefinition = serde_saphyr::from_str(yaml).unwrap();
        assert!(read == crd, "{name}: YAML changed the definition on its way out and in again");
    }
}

/// Paths of all schema nodes that an API server could refuse or prune by: no type where one is needed, or a default.
fn flaws(props: &JSONSchemaProps, path: &str, flaws: &mut Vec<String>) {
    if props.type_.is_none() && props.x_kubernetes_int_or_string != Some(true) {
        flaws.push(format!("{path} has no type"));
    }
    if (props.default.is_some() && !path.ends_with(".spec.logLevel"))
        || props.title.is_some()
        || props.ref_path.is_some()
    {
        flaws.push(format!("{path} has a default, title or reference"));
    }
    if props.description.as_ref().is_none_or(|d| d.contains('\n')) && !path.ends_with(".metadata") {
        flaws.push(format!("{path} has no one-line description"));
    }
    for (name, property) in props.properties.iter().flatten() {
        self::flaws(property, &format!("{path}.{name}"), flaws);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &props.items
        && items.properties.is_some()
    {
        self::flaws(items, &format!("{path}[]"), flaws);
    }
    if props.any_of.as_ref().is_some_and(|_| props.x_kubernetes_int_or_string != Some(true))
        || props.one_of.is_some()
    {
        flaws.push(format!("{path} has alternatives"));
    }
    if props.nullable.is_some() && !path.ends_with(".lastTransitionTime") {
        flaws.push(format!("{path} may be null"));
    }
}

#[test]
fn every_field_is_typed_and_described() {
    for version in all().into_iter().flat_map(|(_, _, crd)| crd.spec.versions) {
        let schema = version.schema.and_then(|s| s.open_api_v3_schema).unwrap();
        let mut found = Vec::new();
        flaws(&schema, &version.name, &mut found);
        assert_eq!(found, Vec::<String>::new());
    }
}

#[test]
fn the_contract_with_the_peers_holds() {
    let crd = nrt_crd();
    let versions: Vec<_> = crd.spec.versions.iter().map(|v| (v.name.as_str(), v.served, v.storage)).collect();
    assert_eq!(versions, [("v1alpha1", true, false), ("v1alpha2", true, true)]);
    assert_eq!(crd.spec.names.short_names, Some(vec!["node-res-topo".to_owned()]));
    let required = |version: usize| {
        let schema = crd.spec.versions[version].schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref());
        schema.and_then(|s| s.required.clone()).unwrap()
    };
    assert_eq!(required(0), ["topologyPolicies", "zones"]);
    assert_eq!(required(1), ["zones"]);
}
