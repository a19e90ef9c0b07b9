use std::time::Duration;

use fakes::kmm::labels::{GROUP, ModuleName, VERSION};
use fakes::kmm::{self, Kmm, Script, Stage};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, ValidationDirective};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::rig;

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(60);
const KERNEL: &str = "5.14.0-427.13.1.el9_4.x86_64";

/// A Module as a good operator writes it, with one mistake.
fn module(spoil: impl FnOnce(&mut Value)) -> Value {
    let mut module = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Module",
        "metadata": { "name": "acc-module", "namespace": "hw" },
        "spec": {
            "selector": { "has": "acc" },
            "tolerations": [{ "key": "a.example/b", "operator": "Exists", "effect": "NoSchedule" }],
            "imageRepoSecret": { "name": "acc-pull" },
            "moduleLoader": {
                "serviceAccountName": "acc-loader",
                "container": {
                    "version": "1.4.2",
                    "imagePullPolicy": "IfNotPresent",
                    "modprobe": { "moduleName": "acc", "parameters": ["a=1"] },
                    "kernelMappings": [{
                        "regexp": "^.+$",
                        "containerImage": "registry.example/acc:1.4.2-${KERNEL_FULL_VERSION}",
                    }],
                },
            },
            "devicePlugin": {
                "serviceAccountName": "acc-plugin",
                "container": {
                    "image": "registry.example/acc-plugin:1.4.2",
                    "env": [{ "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }],
                    "volumeMounts": [{ "name": "cdi", "mountPath": "/var/run/cdi" }],
                },
                "volumes": [{ "name": "cdi", "hostPath": { "path": "/var/run/cdi", "type": "DirectoryOrCreate" } }],
            },
        },
    });
    spoil(&mut module);
    module
}

async fn apply(client: &Client, module: &Value) -> Result<Value, String> {
    let params = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("x").force()
    };
    let name = module["metadata"]["name"].as_str().unwrap();
    let done = kmm::api(client, "Module", Some("hw")).patch(name, &params, &Patch::Apply(module)).await;
    done.map(|object| serde_json::to_value(object).unwrap()).map_err(|error| error.to_string())
}

async fn namespace(client: &Client) {
    let space: Namespace = serde_json::from_value(json!({ "metadata": { "name": "hw" } })).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &space).await.unwrap();
}

#[tokio::test]
async fn kmm_refuses_what_its_schema_and_its_webhook_refuse() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    namespace(&client).await;
    kmm::install(&client).await.unwrap();
    kmm::watch_over(&client).await.unwrap();
    type Spoil = fn(&mut Value);
    let wrong: [(Spoil, &str); 22] = [
        (|m| drop(m["spec"].as_object_mut().unwrap().remove("selector")), "selector: Required"),
        (|m| m["spec"]["selecter"] = json!({}), "selecter"),
        (
            |m| m["spec"]["dra"] = json!({ "driverName": "d", "container": { "image": "i:1" } }),
            "exclude each other",
        ),
        (|m| m["spec"]["moduleLoader"]["container"]["kernelMappings"] = json!([]), "at least 1"),
        (|m| m["spec"]["moduleLoader"]["container"]["modprobe"] = Value::Null, "modprobe"),
        (
            |m| drop(m["spec"]["devicePlugin"]["container"].as_object_mut().unwrap().remove("image")),
            "image: Required",
        ),
        (|m| m["metadata"]["name"] = "a-name-with-a-number-of-characters-of-40".into(), "41 characters"),
        (|m| m["spec"]["devicePlugin"]["volumes"][0]["hostPath"]["path"] = "/etc/cdi".into(), "host paths"),
        (
            |m| m["spec"]["devicePlugin"]["volumes"][0]["hostPath"]["path"] = "/dev/../etc".into(),
            "host paths",
        ),
        (|m| m["spec"]["devicePlugin"]["volumes"][0]["hostPath"]["path"] = "/devious".into(), "host paths"),
        (|m| m["spec"]["tolerations"] = json!([{ "operator": "Equal", "value": "x" }]), "toleration"),
        (
            |m| m["spec"]["tolerations"] = json!([{ "key": "k", "operator": "Exists", "value": "x" }]),
            "toleration",
        ),
        (|m| mapping(m, json!({ "regexp": ".", "containerImage": "" })), "needs a containerImage"),
        (|m| mapping(m, json!({ "regexp": ".", "containerImage": "registry" })), "tag or a digest"),
        (
            |m| mapping(m, json!({ "regexp": ".", "literal": "l", "containerImage": "i:1" })),
            "literal or regexp",
        ),
        (|m| mapping(m, json!({ "containerImage": "i:1" })), "literal or regexp"),
        (|m| mapping(m, json!({ "regexp": "(", "containerImage": "i:1" })), "error parsing regexp"),
        (|m| modprobe(m, json!({ "dirName": "/opt" })), "moduleName or rawArgs"),
        (
            |m| modprobe(m, json!({ "moduleName": "a", "rawArgs": { "load": ["a"], "unload": ["a"] } })),
            "moduleName or rawArgs",
        ),
        (
            |m| modprobe(m, json!({ "moduleName": "a", "modulesLoadingOrder": ["b", "a"] })),
            "begins with moduleName",
        ),
        (
            |m| {
                m["spec"]["moduleLoader"]["container"]["sign"] = json!({
                    "keySecret": { "name": "k" }, "certSecret": { "name": "c" }, "filesToSign": ["/srv/a.ko"],
                })
            },
            "under modprobe.dirName",
        ),
        (
            |m| {
                m["spec"]["moduleLoader"]["container"]["inTreeModulesToRemove"] = json!(["a"]);
                m["spec"]["moduleLoader"]["container"]["kernelMappings"][0]["inTreeModuleToRemove"] =
                    "b".into();
            },
            "inTreeModuleToRemove",
        ),
    ];
    for (spoil, wanted) in wrong {
        let module = module(spoil);
        let answer = apply(&client, &module).await.expect_err(wanted);
        assert!(answer.contains(wanted), "{wanted}: {answer}");
    }
    let made = apply(&client, &module(|_| ())).await.unwrap();
    assert_eq!(made["spec"]["moduleLoader"]["container"]["modprobe"]["dirName"], "/opt");
    let without =
        module(|m| drop(m["spec"]["moduleLoader"]["container"].as_object_mut().unwrap().remove("version")));
    assert!(apply(&client, &without).await.unwrap_err().contains("neither added nor removed"));
    kmm::refuse(&client, "the test wants it so").await.unwrap();
    let changed = module(|m| m["spec"]["selector"]["and"] = "more".into());
    let answer = apply(&client, &changed).await.unwrap_err();
    assert!(answer.contains("the test wants it so") && answer.contains("Forbidden"), "{answer}");
    kmm::allow(&client).await.unwrap();
    apply(&client, &changed).await.unwrap();
}

fn mapping(module: &mut Value, mapping: Value) {
    module["spec"]["moduleLoader"]["container"]["kernelMappings"] = json!([mapping]);
}

fn modprobe(module: &mut Value, modprobe: Value) {
    module["spec"]["moduleLoader"]["container"]["modprobe"] = modprobe;
}

async fn account(client: &Client, name: &str) {
    let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    Api::namespaced(client.clone(), "hw").create(&PostParams::default(), &account).await.unwrap();
}

async fn label(client: &Client, node: &str, key: &str) -> Option<String> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.get(node).await.unwrap().labels().get(key).cloned()
}

async fn set(client: &Client, node: &str, key: &str, value: Value) {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = json!({ "metadata": { "labels": { key: value } } });
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// The kinds come while it already watches; by itself it loads, upgrades and unloads, up to a stage.
#[tokio::test]
async fn a_module_is_loaded_upgraded_and_unloaded() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    let fake = Kmm::start_with(&client, Script { up_to: Stage::S4, workers: true, ..Script::default() });
    namespace(&client).await;
    account(&client, "acc-loader").await;
    for name in ["n1", "n2"] {
        kmm::node(&client, name, KERNEL, &[("has", "acc")]).await.unwrap();
    }
    kmm::install(&client).await.unwrap();
    let of = ModuleName::new("hw", "acc-module");
    for node in ["n1", "n2"] {
        set(&client, node, &of.version_module(), "1.4.2".into()).await;
    }
    apply(&client, &module(|_| ())).await.unwrap();
    let module_is = async || kmm::api(&client, "Module", Some("hw")).get_opt("acc-module").await.unwrap();
    fake.settled(PATIENCE).await.unwrap();
    let status = module_is().await.unwrap().data["status"].clone();
    assert_eq!(status, json!({ "moduleLoader": { "nodesMatchingSelectorNumber": 2, "desiredNumber": 2 } }));
    fake.script(|script| script.up_to = Stage::S8);
    fake.settled(PATIENCE).await.unwrap();
    let status = module_is().await.unwrap().data["status"].clone();
    let all = json!({ "nodesMatchingSelectorNumber": 2, "desiredNumber": 2, "availableNumber": 2 });
    assert_eq!(status, json!({ "moduleLoader": all, "devicePlugin": all }));
    let nmc = kmm::api(&client, "NodeModulesConfig", None).get("n1").await.unwrap();
    let (spec, status) = (&nmc.data["spec"]["modules"][0], &nmc.data["status"]["modules"][0]);
    assert_eq!(spec["config"], status["config"]);
    assert_eq!(spec["config"]["containerImage"], format!("registry.example/acc:1.4.2-{KERNEL}"));
    assert_eq!([&status["bootId"], &status["version"]], ["n1-boot-1", "1.4.2"]);
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let loaded = events.list(&Default::default()).await.unwrap();
    let loaded = loaded.iter().filter(|event| event.reason.as_deref() == Some("ModuleLoaded"));
    assert_eq!(loaded.count(), 2);

    let next = module(|m| {
        m["spec"]["moduleLoader"]["container"]["version"] = "1.5".into();
        mapping(m, json!({ "regexp": "^5", "containerImage": "registry.example/acc:1.5-$KERNEL_VERSION" }));
    });
    apply(&client, &next).await.unwrap();
    set(&client, "n2", &of.version_module(), "1.5".into()).await;
    fake.settled(PATIENCE).await.unwrap();
    for (node, version) in [("n1", "1.4.2"), ("n2", "1.5")] {
        assert_eq!(label(&client, node, &of.version_ready()).await.as_deref(), Some(version), "{node}");
    }
    fake.script(|script| {
        script.stuck.insert("n1".to_owned());
    });
    kmm::api(&client, "Module", Some("hw")).delete("acc-module", &DeleteParams::default()).await.unwrap();
    fake.settled(PATIENCE).await.unwrap();
    assert!(module_is().await.is_some(), "n1 still has it");
    assert!(
        label(&client, "n1", &of.ready()).await.is_some()
            && label(&client, "n2", &of.ready()).await.is_none()
    );
    fake.script(|script| script.stuck.clear());
    fake.settled(PATIENCE).await.unwrap();
    assert!(module_is().await.is_none());
    assert_eq!(fake.unloaded_in_use(), [""; 0]);
    assert!(fake.writes().iter().any(|write| write.contains("K9 finalizer")));
    kmm::uninstall(&client).await.unwrap();
}

/// A step at a time, each of which can be looked at.
#[tokio::test]
async fn steps_are_taken_one_by_one() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    let fake = Kmm::paused(&client);
    assert_eq!(fake.step().await.unwrap(), None, "kinds that are not there have no objects");
    kmm::install(&client).await.unwrap();
    namespace(&client).await;
    kmm::node(&client, "n1", KERNEL, &[("has", "acc")]).await.unwrap();
    let plain = module(|m| {
        m["spec"].as_object_mut().unwrap().remove("devicePlugin");
        m["spec"]["moduleLoader"].as_object_mut().unwrap().remove("serviceAccountName");
        m["spec"]["moduleLoader"]["container"].as_object_mut().unwrap().remove("version");
    });
    apply(&client, &plain).await.unwrap();
    let mut stages = Vec::new();
    while let Some(step) = fake.step().await.unwrap() {
        stages.push(step.split_once(": ").unwrap().1[..2].to_owned());
    }
    assert_eq!(stages, ["S1", "S1", "S2", "S3", "S3", "S4", "S5", "S6", "S2"], "all counters come last");
}
