//! The ways KMM can go with a driver that is asked for and nothing goes wrong with (K1, K3, K5 to K9, K15, K23 and K24
//! of our own): what users are told, and in which order things happen.

use std::collections::{BTreeMap, BTreeSet};

use fakes::kmm::{self, Stage};
use hardware::cluster_state::CORDON_TAINT;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::proxy::Fault;

use super::super::rig::{PATIENCE, until};
use super::case::{CLAIM, Case, DEVICE, KERNEL, count, is, is_ready, problem, says};
use super::history::History;
use super::lab::{Lab, play};

/// How many scenarios there are: calls of [`play`], [`super::whole`], [`super::openshift`] and one of
/// [`super::claims`].
pub(crate) const SCENARIOS: usize = 31;

#[test]
fn k01_a_driver_is_loaded_and_reported() {
    play("k01", async |lab: &mut Lab| {
        let case = Case::begin_with(lab, "k01", 3, Stage::S0).await;
        case.ask("acc", &json!({})).await;
        for stage in [Stage::S0, Stage::S1, Stage::S2, Stage::S3, Stage::S4] {
            case.kmm.script(|script| script.up_to = stage);
            case.kmm.settled(PATIENCE).await.unwrap();
            let now = case.until("acc", "progressing", |config| is(config, "Progressing", "True", "")).await;
            assert!(
                is(&now, "Ready", "False", "") && now["status"]["phase"] == "Progressing",
                "{stage:?}: {now:#}"
            );
        }
        for stage in [Stage::S5, Stage::S6, Stage::S7] {
            case.kmm.script(|script| script.up_to = stage);
            case.kmm.settled(PATIENCE).await.unwrap();
        }
        let now = case.until_ready("acc", 3).await;
        assert_eq!(
            now["status"]["nodes"],
            json!({
                "matching": 3, "claimed": 3, "desired": 3, "available": 3, "ready": 3, "updated": 3,
                "unsupported": 0, "maintenance": 0, "waiting": 0,
            })
        );
        assert_eq!(now["status"]["module"], json!({ "name": "acc-module", "version": "1.0" }));
        assert_eq!([&now["status"]["driverVersion"], &now["status"]["phase"]], ["1.0", "Ready"]);
        for condition in ["NodeSelectorValid", "DevicePluginReady", "Upgradeable"] {
            assert!(is(&now, condition, "True", ""), "{condition}: {now:#}");
        }
        assert_eq!(now["metadata"]["finalizers"], json!(["hardware.tholepin.dev/deviceconfig"]));
        let module = case.module("acc").await.unwrap();
        assert_eq!(
            module["spec"]["selector"],
            json!({ CLAIM: "k01.acc-module" }),
            "the claim and nothing else"
        );
        assert!(module["metadata"]["ownerReferences"].is_null(), "the garbage collector waits for no pods");
        // Each is reported once; then no process acts, another one neither.
        let events = case.events("acc").await;
        let reconciled = events.iter().filter(|(reason, _)| reason == "Reconciled");
        assert_eq!(reconciled.map(|(_, count)| *count).collect::<Vec<_>>(), [1], "{events:?}");
        let writes = case.lab.quiet().await;
        case.lab.stop().await;
        case.lab.operate().await;
        let listed = case.lab.proxy.count("", "/deviceconfigs");
        case.set_label(&case.node(0), "of-no-interest", "1".into()).await;
        assert_eq!(case.lab.quiet().await, writes, "{:?}", case.lab.last_writes());
        assert!(listed > 0, "it has looked");
        assert!(is_ready(&case.get("acc").await.unwrap()));
        let metrics = async || case.lab.metrics("tholepin_deviceconfig_ready").await;
        assert_eq!(metrics().await, [r#"tholepin_deviceconfig_ready{namespace="k01",name="acc"} 1"#]);
        case.delete("acc").await;
        case.until_gone("acc").await;
        until("its metrics go with it", async || metrics().await.is_empty()).await;
        case.end().await;
    });
}

#[test]
fn k03_a_kernel_without_an_image_is_named_and_blocks_no_other() {
    play("k03", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k03", 2).await;
        case.add_node("k03-odd", "6.8.0-31-generic").await;
        case.ask("acc", &json!({ "kernelMappings": [{ "regexp": "[.]el9" }] })).await;
        let now = case.until_ready("acc", 2).await;
        assert_eq!((count(&now, "desired"), count(&now, "unsupported"), count(&now, "matching")), (2, 1, 3));
        assert_eq!(now["status"]["kernelsWithoutMapping"], json!(["6.8.0-31-generic"]));
        assert_eq!(problem(&now, "k03-odd"), Some("UnsupportedKernel"));
        // It gets another kernel.
        let status = json!({ "status": { "nodeInfo": { "kernelVersion": KERNEL, "bootID": "2" } } });
        let nodes = super::lab::objects(&case.client(), "v1", "Node", None);
        nodes.patch_status("k03-odd", &Default::default(), &kube::api::Patch::Merge(status)).await.unwrap();
        let now = case.until_ready("acc", 3).await;
        assert!(now["status"]["kernelsWithoutMapping"].is_null() && problem(&now, "k03-odd").is_none());
        case.end().await;
    });
}

#[test]
fn k05a_a_slow_reboot_dips_and_recovers() {
    play("k05a", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k05a", 3).await;
        case.ask("acc", &json!({})).await;
        case.until_ready("acc", 3).await;
        let node = case.node(1);
        kmm::ready(&case.client(), &node, false).await.unwrap();
        let now = case
            .until("acc", "it dips", |config| {
                count(config, "ready") == 2 && count(config, "maintenance") == 1
            })
            .await;
        assert!(problem(&now, &node).is_some(), "{now:#}");
        kmm::reboot(&case.client(), &node, "2").await.unwrap();
        kmm::ready(&case.client(), &node, true).await.unwrap();
        case.until_ready("acc", 3).await;
        assert_eq!(boot(&case, &node).await, "2");
        case.end().await;
    });
}

#[test]
fn k05b_a_fast_reboot_is_seen_by_the_boot_alone() {
    play("k05b", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k05b", 3).await;
        case.ask("acc", &json!({})).await;
        case.until_ready("acc", 3).await;
        // Its own count comes after what nodes say.
        case.kmm.settled(super::super::rig::PATIENCE).await.unwrap();
        let node = case.node(2);
        case.kmm.script(|script| {
            script.stuck.insert(node.clone());
        });
        kmm::reboot(&case.client(), &node, "2").await.unwrap();
        let now = case.until("acc", "it dips", |config| count(config, "ready") == 2).await;
        assert!(!is_ready(&now) && problem(&now, &node).is_some(), "{now:#}");
        // KMM itself says nothing of it.
        case.kmm.settled(PATIENCE).await.unwrap();
        let module = case.module("acc").await.unwrap();
        assert_eq!(module["status"]["moduleLoader"]["availableNumber"], 3);
        assert!(case.label(&node, &case.of("acc").ready()).await.is_some());
        case.kmm.script(|script| script.stuck.clear());
        case.until_ready("acc", 3).await;
        assert_eq!(boot(&case, &node).await, "2");
        case.end().await;
    });
}

async fn boot(case: &Case<'_>, node: &str) -> String {
    let nmc = kmm::api(&case.client(), "NodeModulesConfig", None).get(node).await.unwrap();
    nmc.data["status"]["modules"][0]["bootId"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn k06_a_cordon_is_maintenance_and_no_failure() {
    play("k06", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k06", 3).await;
        case.ask("acc", &json!({})).await;
        case.until_ready("acc", 3).await;
        let node = case.node(0);
        kmm::cordon(&case.client(), &node, true).await.unwrap();
        let now = case.until("acc", "maintenance", |config| count(config, "maintenance") == 1).await;
        assert_eq!((count(&now, "claimed"), count(&now, "desired")), (3, 2));
        assert_eq!(problem(&now, &node), Some("Maintenance"));
        case.kmm.settled(PATIENCE).await.unwrap();
        let now = case.until_ready("acc", 2).await;
        assert!(is(&now, "Errored", "False", "") && is(&now, "Degraded", "False", ""), "no failure");
        assert!(case.label(&node, &case.of("acc").ready()).await.is_none(), "it is unloaded meanwhile");
        kmm::cordon(&case.client(), &node, false).await.unwrap();
        case.until_ready("acc", 3).await;
        // A user who wants to keep the driver states it.
        let toleration = json!([{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule" }]);
        case.change("acc", &json!({ "tolerations": toleration })).await;
        case.until_ready("acc", 3).await;
        kmm::cordon(&case.client(), &node, true).await.unwrap();
        case.kmm.settled(PATIENCE).await.unwrap();
        case.lab.quiet().await;
        assert_eq!(count(&case.until_ready("acc", 3).await, "maintenance"), 0);
        case.end().await;
    });
}

#[test]
fn k07_a_node_that_is_no_longer_asked_for_is_given_back() {
    play("k07", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k07", 3).await;
        case.ask("acc", &with_device(&json!({}))).await;
        case.until_ready("acc", 3).await;
        let (free, used) = (case.node(0), case.node(1));
        case.use_device("user", &used).await;
        for node in [&free, &used] {
            case.set_label(node, "set", "other".into()).await;
        }
        let now = case
            .until("acc", "one is free", |config| {
                count(config, "claimed") == 2 && count(config, "matching") == 1
            })
            .await;
        assert_eq!(count(&now, "waiting"), 1, "{now:#}");
        assert!(says(&now, "Ready").unwrap()[2].contains(&used), "it says which: {now:#}");
        let of = case.of("acc");
        for key in [CLAIM.to_owned(), of.version_module()] {
            assert_eq!(case.label(&free, &key).await, None, "{key}");
            assert!(case.label(&used, &key).await.is_some(), "{key}");
        }
        until("unloaded", async || case.label(&free, &of.ready()).await.is_none()).await;
        assert!(
            case.label(&used, &of.ready()).await.is_some(),
            "its driver stays as long as its devices are used"
        );
        case.leave_device("user").await;
        case.until_ready("acc", 1).await;
        until("unloaded", async || case.label(&used, &of.ready()).await.is_none()).await;
        for node in [&free, &used] {
            case.set_label(node, "set", case.name.into()).await;
        }
        case.until_ready("acc", 3).await;
        case.end().await;
    });
}

/// A device plugin whose resource is known.
fn with_device(more: &Value) -> Value {
    let mut spec =
        json!({ "devicePlugin": { "image": "registry.example/acc-plugin:1", "resourceNames": [DEVICE] } });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    spec
}

#[test]
fn k08_a_new_version_comes_to_one_node_after_the_other() {
    play("k08", async |lab: &mut Lab| {
        let mut case = Case::begin(lab, "k08", 4).await;
        case.ask("acc", &with_device(&json!({}))).await;
        case.until_ready("acc", 4).await;
        let (of, used) = (case.of("acc"), case.node(1));
        let history = History::begin(&case.client()).await;
        case.change("acc", &json!({ "upgradePolicy": { "paused": true }, "driverVersion": "2.0" })).await;
        let now = case.until("acc", "paused", |config| is(config, "Progressing", "True", "Paused")).await;
        assert_eq!((count(&now, "ready"), count(&now, "updated")), (0, 0), "{now:#}");
        assert!(is(&now, "Upgradeable", "False", "Paused"));
        case.use_device("user", &used).await;
        case.change("acc", &json!({ "upgradePolicy": { "paused": false } })).await;
        let now = case.until("acc", "all but one", |config| count(config, "ready") == 3).await;
        let now = if count(&now, "waiting") == 1 {
            now
        } else {
            case.until("acc", "one waits", |config| count(config, "waiting") == 1).await
        };
        assert_eq!(problem(&now, &used), Some("PodsUseDevices"));
        assert_eq!(case.label(&used, &of.version_ready()).await.as_deref(), Some("1.0"));
        let told = async |case: &Case<'_>, reason: &str| {
            case.events("acc").await.iter().find(|(told, _)| told == reason).map(|(_, count)| *count)
        };
        assert_eq!(told(&case, "Upgraded").await, None, "one node is missing");
        // Another process ends it than began it.
        case.lab.stop().await;
        case.lab.operate().await;
        case.leave_device("user").await;
        let now = case.until_ready("acc", 4).await;
        assert_eq!(now["status"]["driverVersion"], "2.0");
        until("it is told that it goes on", async || told(&case, "Upgrading").await.is_some()).await;
        until("it is told that all have it", async || told(&case, "Upgraded").await == Some(1)).await;
        let most = history.end().await.most_without(&of.ready(), CLAIM);
        assert_eq!(most, 1, "nodes without their driver at a time");
        // Back, two at a time, and those who use devices have to go.
        case.use_device("user", &used).await;
        let policy =
            json!({ "maxUnavailable": "50%", "podsUsingDevices": "Evict", "evictionTimeoutSeconds": 600 });
        let history = History::begin(&case.client()).await;
        case.change("acc", &json!({ "driverVersion": "1.0", "upgradePolicy": policy })).await;
        let evicted = async || {
            let pods = super::lab::objects(&case.client(), "v1", "Pod", Some(case.name));
            pods.get_opt("user").await.unwrap().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
        };
        until("evicted", evicted).await;
        not_gone(&mut case, &used).await;
        assert_eq!(case.lab.proxy.count("POST", "/namespaces/k08/pods/user/eviction"), 1, "asked once");
        case.leave_device("user").await;
        case.until_ready("acc", 4).await;
        assert!((1..=2).contains(&history.end().await.most_without(&of.ready(), CLAIM)));
        case.end().await;
    });
}

/// A pod that was asked to go and is still there is told of when its time is over, whichever program asked it.
async fn not_gone(case: &mut Case<'_>, node: &str) {
    let nodes = super::lab::objects(&case.client(), "v1", "Node", None);
    let mut taints = nodes.get(node).await.unwrap().data["spec"]["taints"].clone();
    let taint = taints.as_array_mut().unwrap().iter_mut().find(|taint| taint["key"] == CORDON_TAINT).unwrap();
    assert!(taint["timeAdded"].is_string(), "{taint}");
    case.until("acc", "it waits", |config| problem(config, node) == Some("PodsUseDevices")).await;
    case.lab.stop().await;
    taint["timeAdded"] = "2026-01-01T00:00:00Z".into();
    let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
    nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
    case.lab.operate().await;
    let now = case.until("acc", "told", |config| is(config, "Degraded", "True", "EvictionTimeout")).await;
    assert!(says(&now, "Degraded").unwrap()[2].contains(&format!("k08/user on {node}")), "{now:#}");
    assert_eq!(problem(&now, node), Some("EvictionTimeout"));
    let told = async || case.events("acc").await.iter().any(|(reason, _)| reason == "EvictionTimeout");
    until("an Event", told).await;
}

#[test]
fn k09_a_deviceconfig_goes_after_its_module() {
    play("k09", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k09", 2).await;
        case.ask("acc", &with_device(&json!({}))).await;
        case.until_ready("acc", 2).await;
        let history = History::begin(&case.client()).await;
        case.kmm.script(|script| script.stuck.extend([case.node(0), case.node(1)]));
        case.use_device("user", &case.node(1)).await;
        case.delete("acc").await;
        // A pod with a device is named, and keeps it until it ends.
        let now =
            case.until("acc", "it waits", |config| is(config, "Progressing", "True", "WaitingForPods")).await;
        let who = format!("{} by k09/user", case.node(1));
        assert!(
            is(&now, "Ready", "False", "Deleting") && says(&now, "Ready").unwrap()[2].contains(&who),
            "{now:#}"
        );
        assert_eq!(problem(&now, &case.node(1)), Some("PodsUseDevices"));
        let is_told = async || case.events("acc").await.iter().any(|(reason, _)| reason == "WaitingForPods");
        until("that is told", is_told).await;
        case.lab.quiet().await;
        assert!(case.module("acc").await.unwrap()["metadata"]["deletionTimestamp"].is_null());
        // No pod comes to a free node any more, so that there is an end.
        assert_eq!(
            [case.has_cordon_taint(&case.node(0)).await, case.has_cordon_taint(&case.node(1)).await],
            [true, false]
        );
        case.leave_device("user").await;
        let now = case.until("acc", "deleting", |config| is(config, "Progressing", "True", "Deleting")).await;
        assert!(now["status"]["phase"] == "Deleting" && now["metadata"]["finalizers"].is_array());
        let accounts = super::lab::objects(&case.client(), "v1", "ServiceAccount", Some(case.name));
        case.lab.quiet().await;
        let loader = accounts.get_opt("acc-module-loader").await.unwrap();
        assert!(loader.is_some(), "unloading needs it");
        assert_eq!(
            [case.has_cordon_taint(&case.node(0)).await, case.has_cordon_taint(&case.node(1)).await],
            [true, true]
        );
        case.kmm.script(|script| script.stuck.clear());
        case.until_gone("acc").await;
        let history = history.end().await;
        let gone =
            |kind: &str| history.deletion(kind, case.name).unwrap_or_else(|| panic!("{kind} is not gone"));
        assert!(gone("Module") < gone("DeviceConfig"));
        assert!(accounts.get_opt("acc-module-loader").await.unwrap().is_none());
        // A user creates it again under the same name.
        case.ask("acc", &json!({ "driverVersion": "3.0" })).await;
        case.until_ready("acc", 2).await;
        case.end().await;
    });
}

#[test]
fn k11_a_module_that_another_client_changes_is_repaired() {
    play("k11", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k11", 2).await;
        case.ask("acc", &json!({})).await;
        case.until_ready("acc", 2).await;
        let wanted = case.module("acc").await.unwrap();
        // As an earlier version of ours had it, and a backup from another cluster still has.
        let owner = json!({
            "apiVersion": "hardware.tholepin.dev/v1alpha1", "kind": "DeviceConfig", "name": "acc", "uid": "before",
            "controller": true, "blockOwnerDeletion": true,
        });
        let spoiled = json!({
            "metadata": {
                "labels": { "app.kubernetes.io/managed-by": "nobody" }, "annotations": { "theirs": "1" },
                "ownerReferences": [owner],
            },
            "spec": {
                "selector": { "set": "k11", CLAIM: "another" },
                "imageRebuildTriggerGeneration": 7,
                "moduleLoader": { "container": { "kernelMappings": [{ "regexp": "x", "containerImage": "x:1" }] } },
            },
        });
        case.edit_module("acc", &spoiled).await;
        until("made good", async || {
            let now = case.module("acc").await.unwrap();
            now["spec"]["selector"] == wanted["spec"]["selector"]
                && now["spec"]["moduleLoader"] == wanted["spec"]["moduleLoader"]
                && now["metadata"]["labels"] == wanted["metadata"]["labels"]
                && now["metadata"]["ownerReferences"].is_null()
        })
        .await;
        let now = case.module("acc").await.unwrap();
        assert_eq!(now["spec"]["imageRebuildTriggerGeneration"], 7, "what we do not state stays");
        assert_eq!(now["metadata"]["annotations"]["theirs"], "1");
        case.until_ready("acc", 2).await;
        let uid = now["metadata"]["uid"].clone();
        let _ = case.modules().delete(&case.of("acc").name, &DeleteParams::background()).await.unwrap();
        until("made again", async || {
            case.module("acc").await.is_some_and(|module| module["metadata"]["uid"] != uid)
        })
        .await;
        case.until_ready("acc", 2).await;
        case.end().await;
    });
}

#[test]
fn k15_another_image_under_the_same_version_is_progress() {
    play("k15", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k15", 2).await;
        case.ask("acc", &with_device(&json!({}))).await;
        case.until_ready("acc", 2).await;
        let node = case.node(1);
        case.use_device("user", &case.node(0)).await;
        let image = "registry.example/drivers/acc:rebuilt-${KERNEL_FULL_VERSION}";
        let mapping = json!([{ "regexp": "^.+$", "image": image }]);
        case.change("acc", &json!({ "kernelMappings": mapping })).await;
        // All nodes at once would get it, so it waits for those who use devices.
        let now =
            case.until("acc", "it waits", |config| is(config, "Ready", "False", "WaitingForPods")).await;
        assert!(says(&now, "Ready").unwrap()[2].contains(&case.node(0)), "{now:#}");
        case.kmm.script(|script| {
            script.stuck.insert(node.clone());
        });
        case.leave_device("user").await;
        let now = case
            .until("acc", "progressing", |config| {
                is(config, "Progressing", "True", "") && count(config, "ready") == 1
            })
            .await;
        assert!(!is_ready(&now));
        case.kmm.script(|script| script.stuck.clear());
        case.until_ready("acc", 2).await;
        let nmc = kmm::api(&case.client(), "NodeModulesConfig", None).get(&node).await.unwrap();
        let loaded = &nmc.data["status"]["modules"][0]["config"]["containerImage"];
        assert_eq!(loaded, &format!("registry.example/drivers/acc:rebuilt-{KERNEL}"));
        // Other parameters, which KMM does not get round to for a while: labels and entries stay as they are.
        let history = History::begin(&case.client()).await;
        case.kmm.script(|script| script.up_to = Stage::S3);
        case.change("acc", &json!({ "modprobe": { "parameters": ["x=1"] } })).await;
        let is_told =
            |config: &Value| config["status"]["observedGeneration"] == config["metadata"]["generation"];
        let now = case.until("acc", "it is told", is_told).await;
        assert!(is(&now, "Ready", "False", "") && count(&now, "ready") == 0, "{now:#}");
        case.kmm.settled(PATIENCE).await.unwrap();
        case.lab.quiet().await;
        assert!(!is_ready(&case.get("acc").await.unwrap()), "KMM has done nothing");
        case.kmm.script(|script| script.up_to = Stage::S8);
        case.until_ready("acc", 2).await;
        assert_eq!(history.end().await.ready_too_early(), [""; 0]);
        // What is no longer said is a change too.
        case.use_device("user", &case.node(0)).await;
        case.lab.quiet().await;
        case.change("acc", &json!({ "modprobe": null })).await;
        case.until("acc", "it waits", |config| is(config, "Ready", "False", "WaitingForPods")).await;
        let loaded = async || {
            let nmc = kmm::api(&case.client(), "NodeModulesConfig", None).get(&node).await.unwrap();
            nmc.data["status"]["modules"][0]["config"]["modprobe"].clone()
        };
        assert_eq!(loaded().await["parameters"], json!(["x=1"]));
        case.leave_device("user").await;
        until("loaded without", async || {
            let now = loaded().await;
            now.is_object() && now["parameters"].is_null()
        })
        .await;
        case.until_ready("acc", 2).await;
        case.end().await;
    });
}

/// Two ask for the same nodes: the first keeps them, both are told, and when it goes the other gets them.
#[test]
fn k16_the_first_claim_of_a_node_stays_and_both_are_told() {
    play("k16", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k16", 3).await;
        case.set_label(&case.node(2), "also", "1".into()).await;
        case.add_node("k16-free", KERNEL).await;
        case.set_label("k16-free", "set", "k16-none".into()).await;
        case.set_label("k16-free", "also", "1".into()).await;
        case.ask("first", &json!({})).await;
        case.until_ready("first", 3).await;
        let history = History::begin(&case.client()).await;
        case.ask("second", &json!({ "nodeSelector": { "also": "1" } })).await;
        let second = case.until("second", "it has the free one", |config| count(config, "ready") == 1).await;
        assert!(is(&second, "NodeSelectorValid", "False", "ConflictingNodeSelector"), "{second:#}");
        let first =
            case.until("first", "it is told", |config| config["status"]["conflicts"][0]["won"] == true).await;
        assert!(is_ready(&first), "whoever has the nodes is not disturbed");
        for (config, other, won) in [(&first, "second", true), (&second, "first", false)] {
            assert_eq!(
                config["status"]["conflicts"],
                json!([{
                    "namespace": "k16", "name": other, "nodes": [case.node(2)], "count": 1, "won": won,
                }])
            );
        }
        case.delete("first").await;
        case.until_gone("first").await;
        let second = case.until_ready("second", 2).await;
        assert!(is(&second, "NodeSelectorValid", "True", "") && second["status"]["conflicts"].is_null());
        let events = case.events("second").await;
        let told = |reason: &str| events.iter().any(|(told, _)| told == reason);
        assert!(told("ConflictingNodeSelector") && told("Reconciled"), "{events:?}");
        assert_eq!(history.end().await.in_two_modules(), BTreeMap::<String, BTreeSet<String>>::new());
        case.end().await;
    });
}

/// Devices get another name with another version: the plugin of the one before reads on what it was started with.
#[test]
fn k23_each_version_of_a_driver_has_its_plugins_configuration() {
    play("k23", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k23", 2).await;
        let offering = |name: &str| {
            let found = json!({ "directory": { "path": "/dev", "prefix": "acc" } });
            json!({ "config": { "version": "v1alpha1", "resources": [{ "name": name, "discovery": found }] } })
        };
        case.ask("acc", &json!({ "devicePlugin": offering(DEVICE) })).await;
        case.until_ready("acc", 2).await;
        let maps = super::lab::objects(&case.client(), "v1", "ConfigMap", Some(case.name));
        let files = async || maps.get("acc-module-plugin").await.unwrap().data["data"].clone();
        let first = files().await;
        let next = json!({
            "driverVersion": "2.0", "devicePlugin": offering("example.com/other"), "upgradePolicy": { "paused": true },
        });
        case.change("acc", &next).await;
        case.until("acc", "paused", |config| is(config, "Progressing", "True", "Paused")).await;
        // The process that knows them was not there before.
        case.lab.stop().await;
        case.lab.operate().await;
        case.lab.quiet().await;
        let both = files().await;
        assert_eq!(both["1.0.yaml"], first["1.0.yaml"]);
        assert!(both["2.0.yaml"].as_str().unwrap().contains("example.com/other"), "{both:#}");
        let args = &case.module("acc").await.unwrap()["spec"]["devicePlugin"]["container"]["args"];
        assert_eq!(*args, json!(["--config", "/etc/tholepin/device-plugin/2.0.yaml"]));
        case.change("acc", &json!({ "upgradePolicy": { "paused": false } })).await;
        case.until_ready("acc", 2).await;
        until("nobody reads the first any more", async || files().await["1.0.yaml"].is_null()).await;
        assert_eq!(files().await["2.0.yaml"], both["2.0.yaml"]);
        case.end().await;
    });
}

/// A pod whose binding no watch has reported keeps its device: the API server is asked again before the Module goes.
#[test]
fn k24_deletion_waits_for_pods_that_are_being_bound() {
    play("k24", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k24", 1).await;
        case.ask("acc", &with_device(&json!({}))).await;
        case.until_ready("acc", 1).await;
        let pods = || case.lab.proxy.count("WATCH", "/api/v1/pods?");
        let before = pods();
        case.lab.proxy.fail("WATCH", "/api/v1/pods?", u32::MAX, Fault::Late);
        case.lab.proxy.drop_watches();
        until("it hears of no pods", async || pods() > before).await;
        let node = case.node(0);
        case.use_device("user", &node).await;
        case.delete("acc").await;
        let now =
            case.until("acc", "it waits", |config| is(config, "Progressing", "True", "WaitingForPods")).await;
        assert!(says(&now, "Ready").unwrap()[2].contains(&format!("{node} by k24/user")), "{now:#}");
        case.lab.quiet().await;
        assert!(case.module("acc").await.unwrap()["metadata"]["deletionTimestamp"].is_null());
        assert!(case.has_cordon_taint(&node).await, "nobody comes after it");
        case.lab.proxy.heal();
        case.leave_device("user").await;
        case.until_gone("acc").await;
        case.end().await;
    });
}
