//! Objects of DeviceConfigs, within the limits of KMM.

use serde_json::{Value, json};

use super::*;

fn config(spec: Value) -> Config {
    let body = json!({
        "metadata": { "name": "acc", "namespace": "hw", "uid": "u1" },
        "spec": spec,
    });
    Config::of(serde_json::from_value(body).unwrap())
}

fn plain() -> Value {
    json!({ "driverImage": "registry.example/drivers/acc-net", "driverVersion": "1.4.2", "nodeSelector": { "a": "b" } })
}

fn with(more: Value) -> Config {
    let mut spec = plain();
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    config(spec)
}

fn environment(openshift: bool) -> Environment {
    Environment { openshift, image: "registry.example/tholepin:1".to_owned() }
}

fn made(config: &Config) -> Value {
    let object_names = ObjectNames::of(config).unwrap();
    let desired = Desired { config, names: &object_names, environment: &environment(false) };
    desired.module("v1beta1").body().clone()
}

#[test]
fn a_minimal_config_gives_a_minimal_module() {
    let wanted = json!({
        "apiVersion": "kmm.sigs.x-k8s.io/v1beta1",
        "kind": "Module",
        "metadata": {
            "name": "acc-module",
            "namespace": "hw",
            "labels": { "app.kubernetes.io/managed-by": "tholepin-operator", "hardware.tholepin.dev/deviceconfig": "acc" },
        },
        "spec": {
            "selector": { "hardware.tholepin.dev/driver": "hw.acc-module" },
            "tolerations": [{ "key": CORDON_TAINT, "operator": "Exists", "effect": "NoSchedule" }],
            "moduleLoader": {
                "serviceAccountName": "acc-module-loader",
                "container": {
                    "version": "1.4.2",
                    "modprobe": { "moduleName": "acc_net" },
                    "kernelMappings": [{
                        "regexp": "^.+$",
                        "containerImage": "registry.example/drivers/acc-net:1.4.2-${KERNEL_FULL_VERSION}",
                    }],
                },
            },
        },
    });
    assert_eq!(made(&config(plain())), wanted);
}

#[test]
fn fields_of_the_spec_are_passed_on() {
    let body = made(&with(json!({
        "moduleName": "acc",
        "imagePullPolicy": "Always",
        "imagePullSecret": { "name": "pull" },
        "imageRebuildTriggerGeneration": 3,
        "serviceAccountName": "mine",
        "registryTLS": { "insecure": true },
        "inTreeModulesToRemove": ["old"],
        "tolerations": [{ "operator": "Exists" }],
        "kernelMappings": [{ "literal": "6.1.0-1", "image": "r/a:1", "inTreeModulesToRemove": ["older"] }, { "regexp": "el9" }],
        "modprobe": { "parameters": ["x=1"], "dirName": "/drivers", "firmwarePath": "/firmware", "args": { "load": ["-v"] } },
        "build": { "dockerfileConfigMap": { "name": "df" } },
    })));
    let container = &body["spec"]["moduleLoader"]["container"];
    for (pointer, wanted) in [
        ("/kernelMappings/0/literal", json!("6.1.0-1")),
        ("/kernelMappings/0/containerImage", json!("r/a:1")),
        ("/kernelMappings/0/inTreeModulesToRemove", json!(["older"])),
        (
            "/kernelMappings/1/containerImage",
            json!("registry.example/drivers/acc-net:1.4.2-${KERNEL_FULL_VERSION}"),
        ),
        ("/imagePullPolicy", json!("Always")),
        ("/registryTLS/insecure", json!(true)),
        ("/inTreeModulesToRemove", json!(["old"])),
        (
            "/modprobe",
            json!({ "moduleName": "acc", "parameters": ["x=1"], "dirName": "/drivers", "firmwarePath": "/firmware", "args": { "load": ["-v"] } }),
        ),
        ("/build/dockerfileConfigMap/name", json!("df")),
    ] {
        assert_eq!(container.pointer(pointer), Some(&wanted), "{pointer}: {container:#}");
    }
    assert_eq!(body["spec"]["imageRepoSecret"], json!({ "name": "pull" }));
    assert_eq!(body["spec"]["imageRebuildTriggerGeneration"], 3);
    assert_eq!(body["spec"]["moduleLoader"]["serviceAccountName"], "mine");
    assert_eq!(body["spec"]["tolerations"][0], json!({ "operator": "Exists" }));
}

#[test]
fn a_device_plugin_is_from_a_vendor_or_ours() {
    let vendor = made(&with(json!({ "devicePlugin": {
        "image": "registry.example/plugin:1", "args": ["-x"], "resourceNames": ["example.com/acc"], "serviceAccountName": "theirs",
    } })));
    let plugin = &vendor["spec"]["devicePlugin"];
    assert_eq!(plugin["serviceAccountName"], "theirs");
    assert_eq!(plugin["container"]["args"], json!(["-x"]));
    assert_eq!(plugin["container"]["env"][0]["name"], "NODE_NAME");
    assert_eq!(
        plugin["volumes"],
        json!([{ "name": "cdi", "hostPath": { "path": "/var/run/cdi", "type": "DirectoryOrCreate" } }])
    );
    let config = |name: &str| {
        with(json!({ "devicePlugin": { "config": {
        "version": "v1alpha1", "resources": [{ "name": name, "discovery": {} }],
    } } }))
    };
    let ours = made(&config("example.com/acc"));
    let container = &ours["spec"]["devicePlugin"]["container"];
    assert_eq!(container["image"], "registry.example/tholepin:1");
    assert_eq!(container["command"], json!(["/tholepin", "device-plugin"]));
    assert_eq!(container["args"], json!(["--config", "/etc/tholepin/device-plugin/1.4.2.yaml"]));
    let volumes = &ours["spec"]["devicePlugin"]["volumes"];
    assert_eq!(volumes[1], json!({ "name": "dev", "hostPath": { "path": "/dev", "type": "Directory" } }));
    assert_eq!(container["volumeMounts"][1], json!({ "name": "dev", "mountPath": "/dev" }));
    assert_eq!(volumes[2]["configMap"]["name"], "acc-module-plugin");
    let hash = |body: &Value| body["spec"]["devicePlugin"]["container"]["env"][1].clone();
    assert_eq!(hash(&ours)["name"], device_plugin::HASH);
    assert_ne!(
        hash(&ours),
        hash(&made(&config("example.com/other"))),
        "another configuration makes other pods"
    );
    // Names of volumes of the user are avoided.
    let theirs = ["config", "config-1"].map(|name| json!({ "name": name, "emptyDir": {} }));
    let mut more = config("example.com/acc");
    more.object.spec.device_plugin.as_mut().unwrap().volumes = serde_json::from_value(json!(theirs)).unwrap();
    let plugin = &made(&more)["spec"]["devicePlugin"];
    let volumes = plugin["volumes"].as_array().unwrap();
    let names: Vec<&str> = volumes.iter().filter_map(|volume| volume["name"].as_str()).collect();
    assert_eq!(names, ["config", "config-1", "cdi", "dev", "config-2"]);
    assert_eq!(volumes[4]["configMap"]["name"], "acc-module-plugin");
    assert_eq!(plugin["container"]["volumeMounts"][2]["name"], "config-2");
    assert_eq!(config("example.com/acc").device_names().into_iter().collect::<Vec<_>>(), ["example.com/acc"]);
}

#[test]
fn volumes_of_the_user_for_device_nodes_are_kept() {
    let of = |more: Value| {
        let mut plugin = json!({ "config": { "version": "v1alpha1", "resources": [] } });
        json_patch::merge(&mut plugin, &more);
        made(&with(json!({ "devicePlugin": plugin })))["spec"]["devicePlugin"].clone()
    };
    let named = |plugin: &Value| -> Vec<String> {
        let all = plugin["volumes"].as_array().unwrap().iter();
        all.map(|volume| volume["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(named(&of(json!({}))), ["cdi", "dev", "config"]);
    let own = json!([{ "name": "dev", "hostPath": { "path": "/dev/acc" } }]);
    let kept = of(json!({ "volumes": own, "volumeMounts": [{ "name": "dev", "mountPath": "/dev/acc" }] }));
    assert_eq!(named(&kept), ["dev", "cdi", "dev-1", "config"]);
    let own = json!([{ "name": "all", "hostPath": { "path": "/dev" } }]);
    let kept = of(json!({ "volumes": own, "volumeMounts": [{ "name": "all", "mountPath": "/dev" }] }));
    assert_eq!(named(&kept), ["all", "cdi", "config"]);
    for (name, read_only) in [("mine", None), ("cdi", Some(true))] {
        let own = json!([{ "name": "mine", "hostPath": { "path": "/var/run/cdi" } }]);
        let mount = json!({ "name": name, "mountPath": "/var/run/cdi", "readOnly": read_only });
        let kept = of(json!({ "volumes": own, "volumeMounts": [mount] }));
        let mounts = kept["container"]["volumeMounts"].as_array().unwrap().iter();
        let there: Vec<&str> = mounts
            .filter(|mount| mount["mountPath"] == "/var/run/cdi")
            .map(|mount| mount["name"].as_str().unwrap())
            .collect();
        assert_eq!(there, [name], "mounted once");
    }
}

#[test]
fn an_init_container_is_passed_on() {
    let body = made(&with(json!({ "devicePlugin": {
        "image": "r/p:1",
        "initContainer": {
            "image": "r/prepare:1", "imagePullPolicy": "Always", "command": ["/prepare"], "args": ["-x"],
            "volumeMounts": [{ "name": "cdi", "mountPath": "/cdi" }],
        },
    } })));
    let mut made = body["spec"]["devicePlugin"]["initContainer"].clone();
    assert_eq!(made["env"][0]["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
    made.as_object_mut().unwrap().remove("env");
    let wanted = json!({
        "image": "r/prepare:1", "imagePullPolicy": "Always", "command": ["/prepare"], "args": ["-x"],
        "volumeMounts": [{ "name": "cdi", "mountPath": "/cdi" }],
    });
    assert_eq!(made, wanted);
}

#[test]
fn a_dra_driver_is_passed_on() {
    let classes = json!([{
        "name": "acc",
        "selectors": [{ "cel": { "expression": "device.driver == 'acc.example'" } }],
        "config": [{ "opaque": { "driver": "acc.example", "parameters": { "mode": "x" } } }],
    }]);
    let given = json!({
        "driverName": "acc.example", "image": "r/driver:1", "imagePullPolicy": "Always", "command": ["/driver"],
        "args": ["-x"], "env": [{ "name": "A", "value": "b" }], "automountServiceAccountToken": true,
        "volumes": [{ "name": "dev", "hostPath": { "path": "/dev" } }],
        "volumeMounts": [{ "name": "dev", "mountPath": "/dev" }], "deviceClasses": classes,
    });
    let config = with(json!({ "dra": given }));
    let wanted = json!({
        "driverName": "acc.example",
        "serviceAccountName": "acc-module-plugin",
        "automountServiceAccountToken": true,
        "container": {
            "image": "r/driver:1", "imagePullPolicy": "Always", "command": ["/driver"], "args": ["-x"],
            "env": [{ "name": "A", "value": "b" }], "volumeMounts": [{ "name": "dev", "mountPath": "/dev" }],
        },
        "volumes": [{ "name": "dev", "hostPath": { "path": "/dev" } }],
        "deviceClasses": classes,
    });
    let body = made(&config);
    assert_eq!(body["spec"]["dra"], wanted);
    assert!(body["spec"]["devicePlugin"].is_null());
    assert_eq!(config.problems, Vec::<String>::new());
    assert_eq!(config.device_names().into_iter().collect::<Vec<_>>(), ["acc.example"]);
    let named =
        with(json!({ "dra": { "driverName": "a", "image": "r/d:1", "serviceAccountName": "theirs" } }));
    assert_eq!(made(&named)["spec"]["dra"]["serviceAccountName"], "theirs");
}

#[test]
fn dependencies_have_no_owner_and_can_be_found() {
    let check = |config: &Config, openshift: bool, wanted: &[&str]| {
        let object_names = ObjectNames::of(config).unwrap();
        let desired = Desired { config, names: &object_names, environment: &environment(openshift) };
        let all = desired.dependencies(false);
        let shown: Vec<String> =
            all.iter().map(|one| format!("{} {}", one.kind().kind, one.name())).collect();
        assert_eq!(shown, wanted);
        let findable = possible_dependencies(&object_names, &environment(openshift));
        for object in &all {
            assert!(object.body()["metadata"]["ownerReferences"].is_null());
            assert_eq!(object.body()["metadata"]["labels"]["hardware.tholepin.dev/deviceconfig"], "acc");
            let there = |(kind, id): &(ObjectKind, Id)| kind == object.kind() && id.name == object.name();
            assert!(findable.iter().any(there), "{}", object.name());
        }
    };
    let ours = with(json!({ "devicePlugin": { "config": { "version": "v1alpha1", "resources": [] } } }));
    check(&config(plain()), false, &["ServiceAccount acc-module-loader"]);
    let both = ["ServiceAccount acc-module-loader", "ServiceAccount acc-module-plugin"];
    check(&ours, false, &[both.as_slice(), &["ConfigMap acc-module-plugin"]].concat());
    check(
        &ours,
        true,
        &[both.as_slice(), &["RoleBinding acc-module-scc", "ConfigMap acc-module-plugin"]].concat(),
    );
    check(&with(json!({ "serviceAccountName": "mine" })), true, &[]);
    let dra = |more: Value| {
        let mut driver = json!({ "driverName": "a", "image": "r/d:1" });
        json_patch::merge(&mut driver, &more);
        with(json!({ "serviceAccountName": "mine", "dra": driver }))
    };
    check(&dra(json!({})), true, &["ServiceAccount acc-module-plugin", "RoleBinding acc-module-scc"]);
    check(&dra(json!({ "serviceAccountName": "theirs" })), true, &[]);
}

#[test]
fn our_plugin_has_a_token_for_resource_claims_alone() {
    let token = |args: Value| {
        let resources = json!([{ "name": "example.com/acc", "discovery": {} }]);
        let plugin = json!({ "config": { "version": "v1alpha1", "resources": resources }, "args": args });
        made(&with(json!({ "devicePlugin": plugin })))["spec"]["devicePlugin"]["automountServiceAccountToken"]
            .clone()
    };
    assert_eq!(token(json!([])), false);
    assert_eq!(token(json!(["--dra"])), Value::Null);
}
