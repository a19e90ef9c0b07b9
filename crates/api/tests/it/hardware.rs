//! Validation of DeviceConfigs by a real API server, with its messages; the check in Rust gives the same ones.

use std::collections::BTreeSet;

use api::crd::{DEVICE_CONFIG_CRD_YAML, device_config_crd};
use api::hardware::{DeviceConfig, GROUP, KIND, PLURAL, SHORT_NAME, VERSION, check, policy};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};

use account_policies::the_account_writes_its_own_only;
use policies::{namespaces_hold_a_module, selectors_can_be_restricted};

use crate::install;
use crate::rules::the_committed_yaml_changes_nothing;

#[path = "hardware/account.rs"]
mod account_policies;
#[path = "hardware/dra.rs"]
mod dra;
#[path = "hardware/policies.rs"]
mod policies;

fn objects(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL);
    Api::namespaced_with(client.clone(), namespace, &resource)
}

fn object(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND,
        "metadata": {"namespace": namespace, "name": name}, "spec": spec,
    })
}

/// The API server's response to a dry-run creation of an object.
async fn verdict(client: &Client, object: &Value) -> Result<Value, String> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    let body = serde_json::from_value(object.clone()).unwrap();
    match objects(client, namespace).create(&dry, &body).await {
        Ok(made) => Ok(made.data["spec"].clone()),
        Err(kube::Error::Api(status)) if status.code == 422 => Err(status.message),
        Err(error) => panic!("{object}: {error}"),
    }
}

#[tokio::test]
async fn the_api_server_takes_what_makes_sense_only() {
    let Ok(rig) = testkit::env::rig() else { return };
    let plane = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = plane.client().await.unwrap();
    let crd = device_config_crd();
    assert_eq!(install(&client, &crd).await, Vec::<String>::new());
    the_committed_yaml_changes_nothing(
        &client,
        "deviceconfigs.hardware.tholepin.dev",
        DEVICE_CONFIG_CRD_YAML,
    )
    .await;
    let mut heard = String::new();
    for (spec, wants) in table() {
        let object = object("default", "acc", &spec);
        let said = verdict(&client, &object).await;
        let found: Vec<String> = problems(&object);
        match (&said, wants) {
            (Ok(_), "") => assert_eq!(found, Vec::<String>::new(), "{spec}"),
            (Err(message), wants) if !wants.is_empty() && message.contains(wants) => {
                assert!(
                    found.iter().any(|problem| problem.contains(wants)),
                    "{spec}: {wants:?} not in {found:?}"
                );
            }
            _ => panic!("{spec}: {said:?} instead of {wants:?}"),
        }
        heard += &said.err().unwrap_or_default();
    }
    for (spec, wants) in by_schema() {
        let said = verdict(&client, &object("default", "acc", &spec)).await.unwrap_err();
        assert!(said.contains(wants), "{spec}: {said} instead of {wants:?}");
    }
    names_become_labels(&client, &mut heard).await;
    let unheard: Vec<_> = words(&crd_spec(&crd)).into_iter().filter(|words| !heard.contains(words)).collect();
    assert_eq!(unheard, Vec::<String>::new(), "rules that no row of the table breaks");
    nothing_is_lost(&client).await;
    columns_are_shown(&client).await;
    namespaces_hold_a_module(&client).await;
    selectors_can_be_restricted(&client).await;
    the_account_writes_its_own_only(&plane, &client).await;
}

/// The check for API servers without rules.
fn problems(object: &Value) -> Vec<String> {
    let read: DeviceConfig = serde_json::from_value(object.clone()).unwrap();
    check(&read).iter().map(ToString::to_string).collect()
}

fn crd_spec(
    crd: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
) -> JSONSchemaProps {
    let schema = crd.spec.versions[0].schema.as_ref().unwrap();
    schema.open_api_v3_schema.clone().unwrap()
}

/// The messages of all rules below a field.
fn words(schema: &JSONSchemaProps) -> BTreeSet<String> {
    let own = schema.x_kubernetes_validations.iter().flatten().filter_map(|rule| rule.message.clone());
    let mut all: BTreeSet<String> = own.collect();
    for below in schema.properties.iter().flatten().map(|(_, schema)| schema) {
        all.extend(words(below));
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        all.extend(words(items));
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        all.extend(words(values));
    }
    all
}

/// A valid spec with some fields replaced; `null` removes a field.
fn with(fields: &Value) -> Value {
    let mut spec = json!({
        "driverImage": "registry.example/drivers/acc", "driverVersion": "1.4.2", "nodeSelector": {"acc": "true"},
    });
    for (name, value) in fields.as_object().unwrap() {
        if value.is_null() {
            spec.as_object_mut().unwrap().remove(name);
        } else {
            spec[name] = value.clone();
        }
    }
    spec
}

/// Every field, with valid values.
fn whole() -> Value {
    let secret = json!({"name": "s"});
    let build = json!({
        "dockerfileConfigMap": {"name": "d"}, "buildArgs": [{"name": "A", "value": "b"}], "secrets": [secret],
        "baseImageRegistryTLS": {"insecure": true}, "selector": {"builder": ""},
    });
    let sign = json!({
        "keySecret": secret, "certSecret": secret, "unsignedImage": "registry.example/acc@sha256:ab",
        "unsignedImageRegistryTLS": {"insecureSkipTLSVerify": true}, "filesToSign": ["/drv/lib/modules/${KERNEL_FULL_VERSION}/*.ko"],
    });
    json!({
        "driverImage": "registry.example:5000/drivers/acc", "driverVersion": "1.4.2", "nodeSelector": {"example.com/acc": "true", "b": ""},
        "moduleName": "acc", "kernelMappings": [
            {"literal": "5.14.0-427.el9.x86_64", "image": "registry.example/acc:1-${KERNEL_XYZ}", "build": build, "sign": sign,
             "registryTLS": {"insecure": true}, "inTreeModulesToRemove": ["acc_old"]},
            {"regexp": "^6\\."},
        ],
        "modprobe": {
            "parameters": ["a=1"], "args": {"load": ["-v"], "unload": ["-v"]}, "dirName": "/drv", "firmwarePath": "/drv/firmware",
            "modulesLoadingOrder": ["acc", "acc_core"],
        },
        "inTreeModulesToRemove": ["acc_old"], "imagePullPolicy": "Always", "imagePullSecret": secret,
        "registryTLS": {"insecureSkipTLSVerify": true}, "build": build, "sign": sign,
        "tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
                        {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}, {"operator": "Exists"}],
        "serviceAccountName": "loader",
        "devicePlugin": {
            "image": "registry.example/plugin:1", "imagePullPolicy": "Never", "command": ["/plugin"], "args": ["-v"],
            "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}}],
            "resources": {"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "10m"}},
            "initContainer": {
                "image": "registry.example/prepare:1", "imagePullPolicy": "Always", "command": ["/prepare"], "args": ["-v"],
                "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": "1"}}, "volumeMounts": [{"name": "a", "mountPath": "/acc"}],
            },
            "resourceNames": ["vendor.example/acc"], "driverNames": ["acc.vendor.example"], "serviceAccountName": "plugin", "automountServiceAccountToken": false,
            "volumes": [{"name": "a", "hostPath": {"path": "/var/run/acc", "type": "DirectoryOrCreate"}},
                        {"name": "b", "configMap": {"name": "c", "items": [{"key": "k", "path": "p", "mode": 256}]}},
                        {"name": "c", "secret": {"secretName": "s", "defaultMode": 256}}, {"name": "d", "emptyDir": {"medium": "Memory"}}],
            "volumeMounts": [{"name": "a", "mountPath": "/acc", "readOnly": true, "subPath": "x", "mountPropagation": "None"}],
        },
        "upgradePolicy": {"maxUnavailable": "25%", "podsUsingDevices": "Evict", "paused": true, "evictionTimeoutSeconds": 60},
    })
}

/// Fields and the message of the refusal; empty for a valid object.
fn table() -> Vec<(Value, &'static str)> {
    let mut rows = vec![(whole(), ""), (dra::whole_with_dra(), "")];
    let parts = [
        images(),
        selectors(),
        mappings(),
        loading(),
        signing(),
        tolerations(),
        plugins(),
        dra::drivers(),
        upgrades(),
    ];
    rows.extend(parts.into_iter().flatten().map(|(fields, wants)| (with(&fields), wants)));
    rows
}

fn images() -> Vec<(Value, &'static str)> {
    let image = |text: &str| json!({"driverImage": text});
    let version = |text: &str| json!({"driverVersion": text});
    let repository = "driverImage must be the repository";
    let legal = "driverVersion must be part of an image's tag";
    vec![
        (image("acc"), ""),
        (image("localhost:5000/a/b__c/d-e.f"), ""),
        (image("Registry.example/acc"), ""),
        (image("registry.example/drivers/acc:1.4.2"), "driverImage must have no tag"),
        (image("acc:1"), "driverImage must have no tag"),
        (image("registry.example:5000"), "driverImage must have no tag"),
        (image("registry.example/acc@sha256:0123"), "driverImage must have no digest"),
        (image("registry.example/acc:1@sha256:0123"), "driverImage must have no digest"),
        (image(""), repository),
        (image("registry.example/Drivers/acc"), repository),
        (image("registry.example//acc"), repository),
        (image("https://registry.example/acc"), repository),
        (image("registry.example/acc/"), repository),
        (image("a b"), repository),
        (image("r.example/a.b/c_d/e__f/g--h"), ""),
        (image("r..example/acc"), repository),
        (image("drivers/a..b"), repository),
        (image("drivers/a._b"), repository),
        (image("drivers/a___b"), repository),
        (version("v1.4.2-rc_1"), ""),
        (version(&"1".repeat(63)), ""),
        (version(""), legal),
        (version("1.4+2"), legal),
        (version("-1"), legal),
        (version("1."), legal),
        (version("1:4"), legal),
    ]
}

fn selectors() -> Vec<(Value, &'static str)> {
    let selector = |labels: Value| json!({"nodeSelector": labels});
    let both = "exactly one of nodeSelector and allNodes: true";
    vec![
        (json!({"nodeSelector": null, "allNodes": true}), ""),
        (json!({"allNodes": false}), ""),
        (selector(json!({"feature.node.kubernetes.io/pci-1200_1da3.present": "true", "empty": ""})), ""),
        (json!({"allNodes": true}), both),
        (json!({"nodeSelector": null}), both),
        (json!({"nodeSelector": null, "allNodes": false}), both),
        (selector(json!({})), "nodeSelector must have at least one label"),
        (selector(json!({"a b": ""})), "each key must be a label's"),
        (selector(json!({"Example.com/a": ""})), "each key must be a label's"),
        (selector(json!({"/a": ""})), "each key must be a label's"),
        (selector(json!({"a".repeat(64): ""})), "each key must be a label's"),
        (selector(json!({format!("{}/a", "a.".repeat(126) + "a"): ""})), ""),
        (selector(json!({format!("{}/a", "a.".repeat(126) + "ab"): ""})), "each key must be a label's"),
        (selector(json!({"a": "b c"})), "each value must be a label's"),
        (selector(json!({"a": "-"})), "each value must be a label's"),
    ]
}

fn mappings() -> Vec<(Value, &'static str)> {
    let mapping = |mapping: Value| json!({"kernelMappings": [mapping]});
    let exact = "a kernel mapping must have exactly one of literal and regexp";
    let image = "must be an image with its tag or digest";
    vec![
        (mapping(json!({"literal": "6.1.0-9-amd64"})), ""),
        (
            mapping(
                json!({"regexp": "^.*\\.el\\d_?\\d?\\..*$", "image": "r.example/a:1-${KERNEL_FULL_VERSION}"}),
            ),
            "",
        ),
        (mapping(json!({})), exact),
        (mapping(json!({"image": "r.example/a:1"})), exact),
        (mapping(json!({"literal": "6", "regexp": "6"})), exact),
        (mapping(json!({"literal": ""})), "literal must be the version of a kernel"),
        (mapping(json!({"literal": "6 1"})), "literal must be the version of a kernel"),
        (mapping(json!({"regexp": ""})), "regexp must be a regular expression"),
        (mapping(json!({"regexp": "^6", "image": "r.example/a"})), image),
        (mapping(json!({"regexp": "^6", "image": "r.example:5000/a"})), image),
        (mapping(json!({"regexp": "^6", "image": ""})), image),
        (
            mapping(json!({"regexp": "^6", "inTreeModulesToRemove": ["a b"]})),
            "each must be a kernel module's name",
        ),
    ]
}

fn loading() -> Vec<(Value, &'static str)> {
    let modprobe = |modprobe: Value| json!({"moduleName": "acc", "modprobe": modprobe});
    let raw = |raw: Value| json!({"modprobe": {"rawArgs": raw}});
    let order = |names: Value| modprobe(json!({"modulesLoadingOrder": names}));
    let long = format!("registry.example/{}", "a".repeat(56));
    let folder = "must be a folder in the image";
    vec![
        (json!({"moduleName": "he-sample_module2"}), ""),
        (json!({"moduleName": "a.ko"}), "moduleName must be a kernel module's"),
        (json!({"moduleName": ""}), "moduleName must be a kernel module's"),
        (json!({"driverImage": long}), "the last part of driverImage is too long"),
        (json!({"driverImage": long, "moduleName": "a"}), ""),
        (json!({"driverImage": long, "modprobe": {"rawArgs": {"load": ["a"], "unload": ["-r", "a"]}}}), ""),
        (
            raw(json!({"load": ["a"]})),
            "modprobe.rawArgs must have at least one argument in load and in unload",
        ),
        (
            json!({"moduleName": "a", "modprobe": {"rawArgs": {"load": ["a"], "unload": ["a"]}}}),
            "moduleName and modprobe.rawArgs exclude each other",
        ),
        (
            json!({"modprobe": {"parameters": ["a=1"], "rawArgs": {"load": ["a"], "unload": ["a"]}}}),
            "modprobe.rawArgs are all arguments",
        ),
        (modprobe(json!({"dirName": "opt"})), folder),
        (modprobe(json!({"dirName": "/opt/"})), folder),
        (modprobe(json!({"dirName": "/opt/../etc"})), folder),
        (modprobe(json!({"firmwarePath": "firmware"})), "firmwarePath must be a folder in the image"),
        (order(json!(["acc", "core"])), ""),
        (order(json!(["acc"])), "modulesLoadingOrder must have at least two modules"),
        (order(json!(["acc", "b", "b"])), "modulesLoadingOrder must have at least two modules, each once"),
        (order(json!(["acc", "b c"])), "each must be a kernel module's name"),
        (order(json!(["core", "acc"])), "modulesLoadingOrder must begin with moduleName"),
        (
            json!({"modprobe": {"modulesLoadingOrder": ["acc", "core"]}}),
            "modulesLoadingOrder must begin with moduleName, which has to be set",
        ),
        (json!({"inTreeModulesToRemove": ["a", ""]}), "each must be a kernel module's name"),
    ]
}

fn signing() -> Vec<(Value, &'static str)> {
    let signed = |fields: Value| {
        let mut sign =
            json!({"keySecret": {"name": "k"}, "certSecret": {"name": "c"}, "filesToSign": ["/opt/a.ko"]});
        for (name, value) in fields.as_object().unwrap() {
            sign[name] = value.clone();
        }
        sign
    };
    let image = json!({"unsignedImage": "r.example/a:1"});
    let build = json!({"dockerfileConfigMap": {"name": "d"}});
    let files = |files: Value| json!({"build": build, "sign": signed(json!({"filesToSign": files}))});
    let mapped = |sign: Value| json!({"kernelMappings": [{"regexp": ".", "sign": sign}]});
    vec![
        (json!({"sign": signed(image.clone())}), ""),
        (json!({"sign": signed(json!({})), "build": build}), ""),
        (json!({"sign": signed(json!({}))}), "sign must say what is signed"),
        (mapped(signed(json!({}))), "sign must say what is signed"),
        (mapped(signed(image)), ""),
        (json!({"sign": signed(json!({"unsignedImage": "a"}))}), "must be an image with its tag or digest"),
        (files(json!([])), "filesToSign must name at least one file"),
        (files(json!(["/drv/a.ko"])), "sign.filesToSign must be below modprobe.dirName"),
        (files(json!(["/optional/a.ko"])), "sign.filesToSign must be below modprobe.dirName"),
        (
            mapped(signed(json!({"unsignedImage": "a:1", "filesToSign": ["/a.ko"]}))),
            "sign.filesToSign must be below modprobe.dirName",
        ),
    ]
}

fn tolerations() -> Vec<(Value, &'static str)> {
    let toleration = |toleration: Value| json!({"tolerations": [toleration]});
    let operator = "operator must be Exists or Equal, and with Exists there is no value";
    vec![
        (toleration(json!({"key": "a"})), ""),
        (toleration(json!({})), "without a key the operator must be Exists"),
        (toleration(json!({"operator": "Equal", "value": "b"})), "without a key the operator must be Exists"),
        (toleration(json!({"key": "a b"})), "key must be a taint's"),
        (toleration(json!({"key": format!("{}/a", "a.".repeat(126) + "a")})), ""),
        (toleration(json!({"key": format!("{}/a", "a.".repeat(126) + "ab")})), "key must be a taint's"),
        (toleration(json!({"key": "a", "operator": "Gt", "value": "1"})), operator),
        (toleration(json!({"key": "a", "operator": "Exists", "value": "b"})), operator),
        (toleration(json!({"key": "a", "value": "b c"})), operator),
        (toleration(json!({"key": "a", "effect": "Never"})), "effect must be NoSchedule"),
        (
            toleration(json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1})),
            "tolerationSeconds needs effect",
        ),
    ]
}

fn plugins() -> Vec<(Value, &'static str)> {
    let plugin = |fields: Value| {
        let mut plugin = json!({"image": "r.example/p:1", "resourceNames": ["a.example/b"]});
        for (name, value) in fields.as_object().unwrap() {
            plugin[name] = value.clone();
        }
        json!({"devicePlugin": plugin})
    };
    let volume = |volume: Value| plugin(json!({"volumes": [volume]}));
    let path = |path: &str| volume(json!({"name": "a", "hostPath": {"path": path}}));
    let resource = |name: &str| plugin(json!({"resourceNames": [name]}));
    let driver = |name: &str| plugin(json!({"driverNames": [name]}));
    let config =
        json!({"version": "v1alpha1", "resources": [{"name": "a.example/b", "anything": {"at": ["all"]}}]});
    let extended = "each must be the name of an extended resource";
    let mount =
        |mount: Value| plugin(json!({"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [mount]}));
    let ours =
        |path: &str| plugin(json!({"config": config, "volumeMounts": [{"name": "cdi", "mountPath": path}]}));
    let configured = |config: Value| json!({"devicePlugin": {"config": config}});
    let version = "devicePlugin.config.version must be v1alpha1";
    let resources = "devicePlugin.config.resources must have at least one entry";
    let volumes = "volumeMounts[].name must be that of an entry of devicePlugin.volumes";
    let reserved = "volumeMounts[].mountPath must be outside of /etc/tholepin/device-plugin";
    let known = "devicePlugin.resourceNames, or driverNames, must name what a vendor's plugin offers";
    let named = "each must be the name of a driver of resource claims (DRA), a DNS subdomain";
    let places = "hostPath.path must be below /dev, /sys, /var, /opt or /run";
    vec![
        (plugin(json!({})), ""),
        (plugin(json!({"resources": {"limits": {"cpu": 1}}})), ""),
        (json!({"devicePlugin": {"config": config, "args": ["-v", "4"]}}), ""),
        (json!({"devicePlugin": {}}), "devicePlugin must have config"),
        (json!({"devicePlugin": {"image": "r.example/p:1"}}), known),
        (
            json!({"devicePlugin": {"image": "r.example/p:1"}, "upgradePolicy": {"podsUsingDevices": "Evict"}}),
            known,
        ),
        (
            json!({"devicePlugin": {"image": "r.example/p:1"}, "upgradePolicy": {"podsUsingDevices": "Ignore"}}),
            "",
        ),
        (plugin(json!({"resourceNames": []})), known),
        (plugin(json!({"resourceNames": null, "driverNames": []})), known),
        (plugin(json!({"resourceNames": null, "driverNames": ["acc.example"]})), ""),
        (plugin(json!({"config": config, "command": ["/x"]})), "devicePlugin.command is a vendor's plugin's"),
        (resource("a.example/b"), ""),
        (resource("mykubernetes.io/b"), ""),
        (resource("b"), extended),
        (resource("kubernetes.io/b"), extended),
        (resource("node.kubernetes.io/b"), extended),
        (resource("requests.a.example/b"), extended),
        (driver("acc"), ""),
        (driver("Acc.vendor-1.example"), ""),
        (driver(""), named),
        (driver("vendor.example/acc"), named),
        (driver("acc..example"), named),
        (driver("acc_1.example"), named),
        (driver(".example"), named),
        (path("/dev"), ""),
        (path("/var/run/cdi"), ""),
        (path("/etc/cdi"), places),
        (path("/devious"), places),
        (path("/dev/../etc"), places),
        (configured(json!({"resources": [{"name": "a.example/b"}]})), version),
        (configured(json!({"version": "v1", "resources": [{"name": "a.example/b"}]})), version),
        (configured(json!({"version": "v1alpha1"})), resources),
        (configured(json!({"version": "v1alpha1", "resources": []})), resources),
        (configured(json!({"version": "v1alpha1", "resources": [{}]})), resources),
        (configured(json!({"version": "v1alpha1", "resources": [{"name": "kubernetes.io/b"}]})), resources),
        (mount(json!({"name": "a", "mountPath": "/a"})), ""),
        (mount(json!({"name": "cdi", "mountPath": "/a"})), ""),
        (mount(json!({"name": "b", "mountPath": "/a"})), volumes),
        (plugin(json!({"volumeMounts": [{"name": "a", "mountPath": "/a"}]})), volumes),
        (
            plugin(
                json!({"initContainer": {"image": "a:1", "volumeMounts": [{"name": "cdi", "mountPath": "/a"}]}}),
            ),
            "",
        ),
        (
            plugin(
                json!({"initContainer": {"image": "a:1", "volumeMounts": [{"name": "a", "mountPath": "/a"}]}}),
            ),
            volumes,
        ),
        (mount(json!({"name": "a", "mountPath": "/etc/tholepin/device-plugin"})), ""),
        (ours("/etc/tholepin/device-plugins"), ""),
        (ours("/etc/tholepin/device-plugin"), reserved),
        (ours("/etc/tholepin/device-plugin/config.yaml"), reserved),
        (volume(json!({"name": "a"})), "a volume must be exactly one of"),
        (
            volume(json!({"name": "a", "emptyDir": {}, "hostPath": {"path": "/dev"}})),
            "a volume must be exactly one of",
        ),
    ]
}

fn upgrades() -> Vec<(Value, &'static str)> {
    let most = |value: Value| json!({"upgradePolicy": {"maxUnavailable": value}});
    let words = "maxUnavailable must be a number of at least 1 or a percentage";
    vec![
        (json!({"upgradePolicy": {}}), ""),
        (most(json!(3)), ""),
        (most(json!("100%")), ""),
        (most(json!(0)), words),
        (most(json!("0%")), words),
        (most(json!("101%")), words),
        (most(json!("many")), words),
        (
            json!({"build": {"dockerfileConfigMap": {"name": "d"}, "selector": {"a b": ""}}}),
            "each key must be a label's",
        ),
    ]
}

/// Refusals by types and limits, which need no CEL.
fn by_schema() -> Vec<(Value, &'static str)> {
    let twice = |entry: &Value| json!([entry, entry]);
    let plugin = |fields: &Value| {
        let mut plugin = json!({"image": "a:1", "resourceNames": ["a.example/b"]});
        plugin.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        with(&json!({"devicePlugin": plugin}))
    };
    vec![
        (Value::Null, "spec: Required value"),
        (with(&json!({"driverImage": null})), "spec.driverImage: Required value"),
        (with(&json!({"driverVersion": null})), "spec.driverVersion: Required value"),
        (with(&json!({"driverVersion": "1".repeat(64)})), "spec.driverVersion: Too long"),
        (with(&json!({"driverImage": "a".repeat(201)})), "spec.driverImage: Too long"),
        (with(&json!({"imagePullPolicy": "Sometimes"})), "spec.imagePullPolicy: Unsupported value"),
        (
            with(&json!({"upgradePolicy": {"podsUsingDevices": "Kill"}})),
            "spec.upgradePolicy.podsUsingDevices: Unsupported value",
        ),
        // A limit above any real configuration.
        (
            with(&json!({"upgradePolicy": {"maxUnavailable": 3_000_000_000_i64}})),
            "spec.upgradePolicy.maxUnavailable: Invalid value",
        ),
        (with(&json!({"build": {}})), "spec.build.dockerfileConfigMap: Required value"),
        (
            with(&json!({"devicePlugin": {"image": "a:1", "initContainer": {}}})),
            "spec.devicePlugin.initContainer.image: Required value",
        ),
        (with(&json!({"dra": {"image": "a:1"}})), "spec.dra.driverName: Required value"),
        (with(&json!({"dra": {"driverName": "a"}})), "spec.dra.image: Required value"),
        (
            with(
                &json!({"dra": {"driverName": "a", "image": "a:1", "deviceClasses": twice(&json!({"name": "a"}))}}),
            ),
            "deviceClasses[1]: Duplicate value",
        ),
        (
            with(&json!({"sign": {"filesToSign": ["/opt/a"], "unsignedImage": "a:1"}})),
            "spec.sign.certSecret: Required value",
        ),
        (with(&json!({"modprobe": {"args": {"load": []}}})), "spec.modprobe.args.load"),
        (
            with(&json!({"devicePlugin": {"image": "a:1", "volumes": [{"hostPath": {"path": "/dev"}}]}})),
            "name: Required value",
        ),
        (
            plugin(&json!({"volumeMounts": twice(&json!({"name": "cdi", "mountPath": "/a"}))})),
            "volumeMounts[1]: Duplicate value",
        ),
        (
            plugin(
                &json!({"initContainer": {"image": "a:1", "volumeMounts": twice(&json!({"name": "cdi", "mountPath": "/a"}))}}),
            ),
            "initContainer.volumeMounts[1]: Duplicate value",
        ),
        (
            plugin(&json!({"volumes": twice(&json!({"name": "a", "emptyDir": {}}))})),
            "volumes[1]: Duplicate value",
        ),
        // Go quotes the value in its own way, so the text is not compared.
        (with(&json!({"kernelMappings": [{"regexp": "("}]})), "missing closing )"),
    ]
}

async fn names_become_labels(client: &Client, heard: &mut String) {
    let dots = object("default", "acc.v1", &with(&json!({})));
    assert!(verdict(client, &dots).await.is_ok() && problems(&dots).is_empty());
    let long = object("default", &"a".repeat(64), &with(&json!({})));
    let said = verdict(client, &long).await.unwrap_err();
    assert!(said.contains("metadata.name must have at most 63 characters"), "{said}");
    assert!(
        problems(&long)[0].starts_with("metadata.name: metadata.name must have"),
        "{:?}",
        problems(&long)
    );
    *heard += &said;
    let bad = with(&json!({"kernelMappings": [{"regexp": "("}]}));
    let found = problems(&object("default", "acc", &bad));
    assert!(found[0].starts_with("spec.kernelMappings[0].regexp: regexp must be"), "{found:?}");
}

/// The API server prunes and defaults nothing that these types write.
async fn nothing_is_lost(client: &Client) {
    let kept = verdict(client, &object("default", "acc", &whole())).await.unwrap();
    assert_eq!(kept, whole());
    let read: DeviceConfig = serde_json::from_value(object("default", "acc", &whole())).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap()["spec"], whole());
}

/// The table that `kubectl get` requests.
async fn columns_are_shown(client: &Client) {
    let api = objects(client, "default");
    let body = serde_json::from_value(object("default", "acc", &with(&json!({})))).unwrap();
    api.create(&PostParams::default(), &body).await.unwrap();
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "so", "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let status = json!({
        "observedGeneration": 1, "phase": "Progressing", "module": {"name": "acc-module", "version": "1.4.2"}, "driverVersion": "1.4.2",
        "nodes": {"matching": 4, "claimed": 3, "desired": 2, "available": 2, "ready": 1, "updated": 1, "unsupported": 1, "maintenance": 0, "waiting": 0},
        "problems": [{"node": "n", "reason": "Slow", "message": "x"}], "kernelsWithoutMapping": ["6.1"],
        "conflicts": [{"namespace": "a", "name": "b", "nodes": ["n"], "count": 1, "won": true}],
        "conditions": [condition("Ready", "False", "Loading"), condition("Errored", "False", "Ready")],
    });
    let patch = Patch::Merge(json!({"status": status}));
    let stored = api.patch_status("acc", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(stored.data["status"], status);
    let read: DeviceConfig = serde_json::from_value(serde_json::to_value(&stored).unwrap()).unwrap();
    assert_eq!(serde_json::to_value(&read.status).unwrap(), status);
    let path = format!("/apis/{GROUP}/{VERSION}/{PLURAL}");
    let table = crate::table(client, &path).await;
    let columns = table["columnDefinitions"].as_array().unwrap();
    let names: Vec<_> = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["Name", "Ready", "Phase", "Reason", "Version", "Desired", "Available", "Age", "Module", "Message"]
    );
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..4], ["acc", "False", "Progressing", "Loading"]);
    assert_eq!(cells[4..7], [json!("1.4.2"), json!(2), json!(2)]);
    assert_eq!(cells[8..], ["acc-module", "so"]);
    let kinds = client.list_api_group_resources(&format!("{GROUP}/{VERSION}")).await.unwrap();
    let kind = kinds.resources.iter().find(|resource| resource.name == PLURAL).unwrap();
    assert_eq!(kind.short_names.as_deref(), Some(&[SHORT_NAME.to_owned()][..]));
    assert_eq!(kind.categories.as_deref(), Some(&["tholepin".to_owned()][..]));
}
