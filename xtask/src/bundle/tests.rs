use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use super::*;

fn documents(text: &str) -> Vec<Value> {
    runtime::yaml::read_many("a file", text, 100).unwrap()
}

/// The only document of a file.
fn document(tree: &Tree, path: &str) -> Value {
    let mut documents = documents(tree.get(path).unwrap_or_else(|| panic!("no {path}")));
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

fn csv(source: &Source) -> Value {
    let path = format!("manifests/{}.clusterserviceversion.yaml", source.package.name);
    document(&source.bundle().unwrap(), &path)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn committed_files_are_fresh() {
    check().unwrap();
}

/// What OLM creates for each package in its namespace, and what users begin with, as objects for an API server.
pub(crate) fn installed() -> Vec<Value> {
    defaults().iter().flat_map(|source| [made_by_olm(source), examples(&csv(source))].concat()).collect()
}

fn made_by_olm(source: &Source) -> Vec<Value> {
    let csv = csv(source);
    let install = &csv["spec"]["install"]["spec"];
    let role = |kind: &str, permissions: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": { "name": format!("{}-by-olm", source.package.name) },
            "rules": install[permissions][0]["rules"],
        })
    };
    let deployment = &install["deployments"][0];
    let mut made = vec![
        role("ClusterRole", "clusterPermissions"),
        role("Role", "permissions"),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": deployment["name"], "labels": deployment["label"] },
            "spec": deployment["spec"],
        }),
    ];
    made.extend(source.objects().iter().map(|object| object.body().clone()));
    for object in &mut made {
        if object["kind"] != "ClusterRole" && object["kind"] != "CustomResourceDefinition" {
            object["metadata"]["namespace"] = source.options.namespace.clone().into();
        }
    }
    made
}

fn examples(csv: &Value) -> Vec<Value> {
    serde_json::from_str(csv["metadata"]["annotations"]["alm-examples"].as_str().unwrap()).unwrap()
}

/// What OLM runs is what the plain manifests run, and with their rights.
#[test]
fn the_bundles_say_the_same_as_the_plain_manifests() {
    for source in defaults() {
        let csv = csv(&source);
        let install = &csv["spec"]["install"]["spec"];
        let plain: Vec<Value> =
            (source.package.objects)(&source.options).iter().map(|object| object.body().clone()).collect();
        let of_kind = |kind: &str| plain.iter().find(|object| object["kind"] == kind).unwrap();
        assert_eq!(install["deployments"][0]["spec"], of_kind("Deployment")["spec"]);
        assert_eq!(install["deployments"][0]["name"], of_kind("Deployment")["metadata"]["name"]);
        let rules = |value: &Value| -> Vec<PolicyRule> { serde_json::from_value(value.clone()).unwrap() };
        for platform in Platform::ALL {
            let api::rbac::Rules { cluster, namespaced, config_managed } =
                (source.package.rules_on)(platform);
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
    }
}

/// What the CSV and OLM stand for, and what OLM refuses, by hand. All the rest is in the bundle as it is.
#[test]
fn nothing_is_left_out_of_a_bundle_but_this() {
    let numa: &[&str] = &[
        "Namespace numaresources",
        "ServiceAccount numaresources-controller-manager",
        "ClusterRole numaresources-manager-role",
        "ClusterRoleBinding numaresources-manager-rolebinding",
        "Role numaresources-manager-role",
        "RoleBinding numaresources-manager-rolebinding",
        "ValidatingAdmissionPolicy numaresources-operator-machine-configs",
        "ValidatingAdmissionPolicyBinding numaresources-operator-machine-configs",
        "Deployment numaresources-controller-manager",
    ];
    let hardware: &[&str] = &[
        "Namespace tholepin-hardware",
        "ServiceAccount tholepin-hardware-controller",
        "ClusterRole tholepin-hardware-controller",
        "ClusterRoleBinding tholepin-hardware-controller",
        "Role tholepin-hardware-controller",
        "RoleBinding tholepin-hardware-controller",
        "ValidatingAdmissionPolicy tholepin-deviceconfig-names",
        "ValidatingAdmissionPolicyBinding tholepin-deviceconfig-names",
        "ValidatingAdmissionPolicy tholepin-hardware-own-objects",
        "ValidatingAdmissionPolicyBinding tholepin-hardware-own-objects",
        "ValidatingAdmissionPolicy tholepin-hardware-own-node-fields",
        "ValidatingAdmissionPolicyBinding tholepin-hardware-own-node-fields",
        "Deployment tholepin-hardware-controller",
    ];
    for (source, wanted) in defaults().iter().zip([numa, hardware]) {
        let bundle = source.bundle().unwrap();
        let mut left_out = BTreeSet::new();
        for object in (source.package.objects)(&source.options) {
            let path = format!("manifests/{}", file_name(&object));
            let name = format!("{} {}", object.kind().kind, object.name());
            if bundle.has(&path) {
                assert_eq!(document(&bundle, &path), without_namespace(object).body().clone());
            } else {
                left_out.insert(name);
            }
        }
        let wanted: BTreeSet<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(left_out, wanted, "{}", source.package.name);
    }
}

/// OLM refuses a definition that two packages own, and an owned one that is not in the bundle.
#[test]
fn each_definition_has_one_owner() {
    let mut all = BTreeMap::new();
    for source in defaults() {
        let csv = csv(&source);
        let definitions = &csv["spec"]["customresourcedefinitions"];
        let owned: BTreeSet<String> = list(&definitions["owned"])
            .iter()
            .map(|owned| owned["name"].as_str().unwrap().to_owned())
            .collect();
        let is = |object: &Object| object.kind().kind == "CustomResourceDefinition";
        let there = source.objects().into_iter().filter(is);
        let there: BTreeSet<String> = there.map(|object| object.name().to_owned()).collect();
        assert_eq!(owned, there);
        // The operators run without the definitions of others.
        assert_eq!(definitions["required"], Value::Null);
        for name in owned {
            if let Some(other) = all.insert(name.clone(), source.package.name) {
                panic!("{name} is owned by {other} and {}", source.package.name);
            }
        }
    }
    let wanted = [
        ("deviceconfigs.hardware.tholepin.dev", "tholepin-hardware-operator"),
        ("numaresourcesoperators.nodetopology.openshift.io", "tholepin-operator"),
        ("numaresourcesschedulers.nodetopology.openshift.io", "tholepin-operator"),
    ];
    assert!(all.iter().map(|(name, package)| (name.as_str(), *package)).eq(wanted), "{all:?}");
}

/// The operator of DeviceConfigs watches all namespaces, that of NUMA resources makes operands in its own.
#[test]
fn install_modes_are_what_the_operators_do() {
    let modes = [
        ("tholepin-operator", ["OwnNamespace", "SingleNamespace"].as_slice()),
        ("tholepin-hardware-operator", &["AllNamespaces"]),
    ];
    for (source, (name, wanted)) in defaults().iter().zip(modes) {
        assert_eq!(source.package.name, name);
        let csv = csv(source);
        let modes = list(&csv["spec"]["installModes"]);
        assert_eq!(modes.len(), 4);
        let supported = modes.iter().filter(|mode| mode["supported"] == true);
        let supported: Vec<&str> = supported.map(|mode| mode["type"].as_str().unwrap()).collect();
        assert_eq!(supported, wanted);
    }
}

/// What is shown of a kind has every field that its example asks for, and texts.
#[test]
fn every_field_of_the_examples_is_described() {
    for (source, kinds) in defaults().iter().zip([4, 1]) {
        let csv = csv(source);
        let examples = examples(&csv);
        let owned = list(&csv["spec"]["customresourcedefinitions"]["owned"]);
        assert_eq!((examples.len(), owned.len()), (kinds, kinds));
        examples.iter().for_each(|example| is_described(example, owned));
    }
}

fn is_described(example: &Value, owned: &[Value]) {
    assert!(example["status"].is_null(), "{example}");
    let is = |owned: &&Value| {
        let (_, group) = owned["name"].as_str().unwrap().split_once('.').unwrap();
        let api_version = format!("{group}/{}", owned["version"].as_str().unwrap());
        owned["kind"] == example["kind"] && example["apiVersion"] == api_version
    };
    let owned = owned.iter().find(is).unwrap_or_else(|| panic!("no owned kind for {example}"));
    for part in ["specDescriptors", "statusDescriptors"] {
        let described = list(&owned[part]);
        assert!(!described.is_empty(), "{}", owned["kind"]);
        let paths: BTreeSet<&str> = described.iter().map(|field| field["path"].as_str().unwrap()).collect();
        assert_eq!(paths.len(), described.len(), "a field is described twice");
        assert!(described.iter().all(|field| field["description"] != ""), "{described:?}");
        if part == "specDescriptors" {
            example["spec"].as_object().unwrap().keys().for_each(|key| assert!(paths.contains(key.as_str())));
        }
    }
    assert_ne!(owned["description"], "");
}

/// Without its images mirrored, a cluster without a way out cannot run it.
#[test]
fn all_images_are_named() {
    for package in package::ALL {
        let source =
            Source::new(package, Some("registry.example/tholepin@sha256:0"), "registry.example/bundle:1");
        let csv = csv(&source);
        let related = json!([{ "name": "operator", "image": "registry.example/tholepin@sha256:0" }]);
        assert_eq!(csv["spec"]["relatedImages"], related);
        let container =
            &csv["spec"]["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "registry.example/tholepin@sha256:0");
        let catalog = catalog(&[source]).unwrap();
        let text = catalog.get(&format!("{}/catalog.yaml", package.name)).unwrap();
        let images = &documents(text)[2]["relatedImages"];
        let images: Vec<&str> = list(images).iter().map(|image| image["image"].as_str().unwrap()).collect();
        assert_eq!(images, ["registry.example/bundle:1", "registry.example/tholepin@sha256:0"]);
    }
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
            let wanted = format!(
                "{}.v{}",
                bundle["package"].as_str().unwrap_or_default(),
                property["value"]["version"].as_str().unwrap_or_default()
            );
            ask(bundle["name"] == wanted.as_str(), "name and version".to_owned());
            ask(property["value"]["packageName"] == bundle["package"], "packageName".to_owned());
        }
    }
    complaints
}

#[test]
fn the_catalog_is_one_that_olm_takes() {
    let catalog = catalog(&defaults()).unwrap();
    let dockerfile = catalog.get("catalog.Dockerfile").unwrap();
    for package in package::ALL {
        let good = documents(catalog.get(&format!("{}/catalog.yaml", package.name)).unwrap());
        assert_eq!(complaints(&good), [""; 0]);
        assert_eq!(good[0]["name"], package.name);
        assert!(dockerfile.contains(&format!("\nCOPY {0} /configs/{0}\n", package.name)));
        // What is asked can be answered with no.
        for (path, value) in [
            ("/0/defaultChannel", json!("other")),
            ("/1/entries/0/name", json!("other")),
            ("/1/package", json!("other")),
            ("/2/package", json!("other")),
            ("/2/image", json!("")),
            ("/2/properties", json!([])),
            ("/2/name", json!(format!("{}.v9.9.9", package.name))),
        ] {
            let mut bad = Value::Array(good.clone());
            *bad.pointer_mut(path).unwrap() = value;
            assert_ne!(complaints(list(&bad)), [""; 0], "{path}");
        }
    }
}

/// The catalog names the API of each package, which OLM resolves dependencies by.
#[test]
fn the_catalog_names_what_is_owned() {
    let catalog = catalog(&defaults()).unwrap();
    for source in defaults() {
        let csv = csv(&source);
        let documents = documents(catalog.get(&format!("{}/catalog.yaml", source.package.name)).unwrap());
        let properties = list(&documents[2]["properties"]).iter();
        let provided: Vec<String> = properties
            .filter(|property| property["type"] == "olm.gvk")
            .map(|property| {
                let text = |field: &str| property["value"][field].as_str().unwrap().to_owned();
                format!("{}/{} {}", text("group"), text("version"), text("kind"))
            })
            .collect();
        let examples = examples(&csv);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let wanted: BTreeSet<String> = examples
            .iter()
            .map(|example| format!("{} {}", text(&example["apiVersion"]), text(&example["kind"])))
            .collect();
        assert_eq!(provided.into_iter().collect::<BTreeSet<_>>(), wanted);
    }
}

#[test]
fn labels_of_the_image_are_the_annotations() {
    for (source, image) in defaults().iter().zip([NUMA_IMAGE, HARDWARE_IMAGE]) {
        let bundle = source.bundle().unwrap();
        let annotations = Annotations::read(bundle.get("metadata/annotations.yaml").unwrap()).unwrap();
        let dockerfile = bundle.get("bundle.Dockerfile").unwrap();
        let labels = annotations.labels();
        assert_eq!(labels.len(), 8);
        for (key, value) in labels {
            assert!(dockerfile.contains(&format!("LABEL {key}={value}\n")), "{key}");
        }
        assert_eq!(dockerfile.matches("LABEL ").count(), 8);
        assert_eq!(format!("{}:{}", annotations.image().unwrap(), csv::VERSION), image);
    }
}
