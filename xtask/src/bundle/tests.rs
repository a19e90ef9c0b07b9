use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use super::*;

fn source() -> Source {
    Source::new(None, "bundle:1")
}

fn documents(text: &str) -> Vec<Value> {
    runtime::yaml::read_many("a file", text, 100).unwrap()
}

/// The only document of a file.
fn document(tree: &Tree, path: &str) -> Value {
    let mut documents = documents(tree.get(path).unwrap_or_else(|| panic!("no {path}")));
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

fn csv() -> Value {
    let (bundle, _) = source().trees().unwrap();
    document(&bundle, "manifests/tholepin-operator.clusterserviceversion.yaml")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn committed_files_are_fresh() {
    check().unwrap();
}

/// What OLM runs is what the plain manifests run, and with their rights.
#[test]
fn the_bundle_says_the_same_as_the_plain_manifests() {
    let csv = csv();
    let install = &csv["spec"]["install"]["spec"];
    let plain: Vec<Value> =
        manifests::objects(&source().options).iter().map(|object| object.body().clone()).collect();
    let of_kind = |kind: &str| plain.iter().find(|object| object["kind"] == kind).unwrap();
    assert_eq!(install["deployments"][0]["spec"], of_kind("Deployment")["spec"]);
    assert_eq!(install["deployments"][0]["name"], of_kind("Deployment")["metadata"]["name"]);
    let rules = |value: &Value| -> Vec<PolicyRule> { serde_json::from_value(value.clone()).unwrap() };
    for platform in Platform::ALL {
        let api::rbac::Rules { cluster, namespaced, config_managed } = operator::rbac::rules(platform);
        let held = rules(&install["clusterPermissions"][0]["rules"]);
        assert_eq!(api::rbac::missing(&held, &cluster), [""; 0], "{platform}");
        assert_eq!(api::rbac::missing(&held, &config_managed), [""; 0], "{platform}");
        let held = rules(&install["permissions"][0]["rules"]);
        assert_eq!(api::rbac::missing(&held, &namespaced), [""; 0], "{platform}");
    }
    let account = &of_kind("Deployment")["spec"]["template"]["spec"]["serviceAccountName"];
    for permissions in ["clusterPermissions", "permissions"] {
        assert_eq!(&install[permissions][0]["serviceAccountName"], account);
    }
    // All the rest is in the bundle as it is, and nothing else.
    let (bundle, _) = source().trees().unwrap();
    let stood_for = ["ServiceAccount", "Namespace", "Deployment"];
    let access = ["numaresources-manager-role", "numaresources-manager-rolebinding"];
    for object in manifests::objects(&source().options) {
        let stands = stood_for.contains(&object.kind().kind.as_str()) || access.contains(&object.name());
        if !stands {
            let file = document(&bundle, &format!("manifests/{}", file_name(&object)));
            assert_eq!(file, without_namespace(object).body().clone());
        }
    }
}

/// What is shown of a kind has every field that its example asks for, and texts.
#[test]
fn every_field_of_the_examples_is_described() {
    let csv = csv();
    let examples: Vec<Value> =
        serde_json::from_str(csv["metadata"]["annotations"]["alm-examples"].as_str().unwrap()).unwrap();
    let owned = list(&csv["spec"]["customresourcedefinitions"]["owned"]);
    assert_eq!((examples.len(), owned.len()), (4, 4));
    for example in examples {
        let is = |owned: &&Value| {
            let api_version = format!("nodetopology.openshift.io/{}", owned["version"].as_str().unwrap());
            owned["kind"] == example["kind"] && example["apiVersion"] == api_version
        };
        let owned = owned.iter().find(is).unwrap_or_else(|| panic!("no owned kind for {example}"));
        for part in ["specDescriptors", "statusDescriptors"] {
            let described = list(&owned[part]);
            assert!(!described.is_empty(), "{}", owned["kind"]);
            let paths: BTreeSet<&str> =
                described.iter().map(|field| field["path"].as_str().unwrap()).collect();
            assert_eq!(paths.len(), described.len(), "a field is described twice");
            assert!(described.iter().all(|field| field["description"] != ""), "{described:?}");
            if part == "specDescriptors" {
                example["spec"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .for_each(|key| assert!(paths.contains(key.as_str())));
            }
        }
        assert_ne!(owned["description"], "");
    }
}

/// Without its images mirrored, a cluster without a way out cannot run it.
#[test]
fn all_images_are_named() {
    let source = Source::new(Some("registry.example/tholepin@sha256:0"), "registry.example/bundle:1");
    let (bundle, catalog) = source.trees().unwrap();
    let csv = document(&bundle, "manifests/tholepin-operator.clusterserviceversion.yaml");
    let related = json!([{ "name": "operator", "image": "registry.example/tholepin@sha256:0" }]);
    assert_eq!(csv["spec"]["relatedImages"], related);
    let container =
        &csv["spec"]["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example/tholepin@sha256:0");
    let text = catalog.get("tholepin-operator/catalog.yaml").unwrap();
    let images = &documents(text)[2]["relatedImages"];
    let images: Vec<&str> = list(images).iter().map(|image| image["image"].as_str().unwrap()).collect();
    assert_eq!(images, ["registry.example/bundle:1", "registry.example/tholepin@sha256:0"]);
}

/// What `opm validate` asks of a catalog, as far as ours can break it.
fn complaints(documents: &[Value]) -> Vec<String> {
    let of = |schema: &str| documents.iter().filter(|one| one["schema"] == schema).collect::<Vec<_>>();
    let mut complaints = Vec::new();
    let mut ask = |good: bool, complaint: String| complaints.extend((!good).then_some(complaint));
    let (packages, channels, bundles) = (of("olm.package"), of("olm.channel"), of("olm.bundle"));
    ask(packages.len() == 1, format!("{} packages", packages.len()));
    ask(packages.len() + channels.len() + bundles.len() == documents.len(), "unknown schema".to_owned());
    for package in &packages {
        let default = channels.iter().any(|channel| channel["name"] == package["defaultChannel"]);
        ask(default, "the default channel is not there".to_owned());
        ask(package["icon"]["mediatype"] == "image/svg+xml", "icon".to_owned());
    }
    let names: Vec<&Value> = bundles.iter().map(|bundle| &bundle["name"]).collect();
    for channel in &channels {
        ask(channel["package"] == packages[0]["name"], "channel of another package".to_owned());
        let entries = list(&channel["entries"]);
        let replaced = |name: &Value| entries.iter().any(|entry| entry["replaces"] == *name);
        let heads = entries.iter().filter(|entry| !replaced(&entry["name"])).count();
        ask(heads == 1, format!("{heads} heads"));
        for entry in entries {
            ask(names.contains(&&entry["name"]), format!("no bundle {}", entry["name"]));
        }
    }
    for bundle in &bundles {
        ask(bundle["package"] == packages[0]["name"], "bundle of another package".to_owned());
        ask(bundle["image"].as_str().is_some_and(|image| !image.is_empty()), "no image".to_owned());
        let listed = channels
            .iter()
            .any(|channel| list(&channel["entries"]).iter().any(|e| e["name"] == bundle["name"]));
        ask(listed, format!("{} is in no channel", bundle["name"]));
        let own: Vec<&Value> =
            list(&bundle["properties"]).iter().filter(|property| property["type"] == "olm.package").collect();
        ask(own.len() == 1, format!("{} times olm.package", own.len()));
        for property in own {
            let wanted =
                format!("{}.v{}", csv::PACKAGE, property["value"]["version"].as_str().unwrap_or_default());
            ask(bundle["name"] == wanted.as_str(), "name and version".to_owned());
            ask(property["value"]["packageName"] == bundle["package"], "packageName".to_owned());
        }
    }
    complaints
}

#[test]
fn the_catalog_is_one_that_olm_takes() {
    let (_, catalog) = source().trees().unwrap();
    let good = documents(catalog.get("tholepin-operator/catalog.yaml").unwrap());
    assert_eq!(complaints(&good), [""; 0]);
    // What is asked can be answered with no.
    for (path, value) in [
        ("/0/defaultChannel", json!("other")),
        ("/1/entries/0/name", json!("other")),
        ("/1/package", json!("other")),
        ("/2/package", json!("other")),
        ("/2/image", json!("")),
        ("/2/properties", json!([])),
        ("/2/name", json!("tholepin-operator.v9.9.9")),
    ] {
        let mut bad = Value::Array(good.clone());
        *bad.pointer_mut(path).unwrap() = value;
        assert_ne!(complaints(list(&bad)), [""; 0], "{path}");
    }
}

#[test]
fn labels_of_the_image_are_the_annotations() {
    let (bundle, _) = source().trees().unwrap();
    let annotations = document(&bundle, "metadata/annotations.yaml");
    let dockerfile = bundle.get("bundle.Dockerfile").unwrap();
    for (key, value) in package::labels() {
        assert_eq!(annotations["annotations"][key], value);
        assert!(dockerfile.contains(&format!("LABEL {key}={value}\n")), "{key}");
    }
}
