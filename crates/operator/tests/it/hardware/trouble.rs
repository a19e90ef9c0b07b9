//! The ways KMM can go wrong (K2, K4, K10, K12 to K14, K17 to K22 of our own): what users are told, that the API server
//! is not asked too often, and that it recovers.

use std::time::Duration;

use fakes::kmm;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy as Policy, ValidatingAdmissionPolicyBinding as Binding,
};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testkit::proxy::Fault;
use tokio::time::Instant;

use super::super::rig::{PATIENCE, until};
use super::case::{CLAIM, Case, count, is, is_ready, plain, problem, says};
use super::lab::{Lab, play};

#[test]
fn k02_a_missing_image_is_named() {
    play("k02", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k02", 2).await;
        case.kmm.script(|script| {
            script.missing.insert("acc:1.0".to_owned());
        });
        case.ask("acc", &json!({})).await;
        let now =
            case.until("acc", "it says so", |config| is(config, "Ready", "False", "ImageNotAvailable")).await;
        let module = case.module("acc").await.unwrap();
        assert_eq!(module["status"]["moduleLoader"]["desiredNumber"], json!(null), "KMM says nothing of it");
        assert!(says(&now, "Ready").unwrap()[2].contains("registry.example/drivers/acc:1.0-5.14"), "{now:#}");
        case.until("acc", "degraded", |config| is(config, "Degraded", "True", "ImageNotAvailable")).await;
        case.kmm.script(|script| script.missing.clear());
        case.until_ready("acc", 2).await;
        case.end().await;
    });
}

/// The driver is there and the plugin is not: that is under way for a while, and then a failure.
#[test]
fn k18_a_device_plugin_that_never_starts_is_a_failure() {
    play("k18", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k18", 2).await;
        let node = case.node(1);
        case.kmm.script(|script| {
            script.unready.insert(node.clone());
        });
        let plugin =
            json!({ "image": "registry.example/acc-plugin:1", "resourceNames": ["example.com/acc"] });
        case.ask("acc", &json!({ "devicePlugin": plugin })).await;
        let now = case
            .until("acc", "a failure", |config| is(config, "Degraded", "True", "DevicePluginNotReady"))
            .await;
        assert_eq!((count(&now, "ready"), &now["status"]["phase"]), (2, &json!("Degraded")), "{now:#}");
        assert!(says(&now, "Ready").unwrap()[2].contains(&node), "{now:#}");
        case.kmm.script(|script| script.unready.clear());
        case.until_ready("acc", 2).await;
        case.end().await;
    });
}

#[test]
fn k04_a_node_without_the_driver_is_named() {
    play("k04", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k04", 3).await;
        let node = case.node(1);
        case.kmm.script(|script| {
            script.stuck.insert(node.clone());
            script.workers = true;
        });
        case.ask("acc", &json!({})).await;
        let now = case.until("acc", "degraded", |config| is(config, "Degraded", "True", "")).await;
        assert_eq!((count(&now, "ready"), problem(&now, &node)), (2, Some("NotLoaded")), "{now:#}");
        assert!(says(&now, "Degraded").unwrap()[2].contains(&node), "{now:#}");
        assert_eq!(now["status"]["phase"], "Degraded");
        case.kmm.script(|script| script.stuck.clear());
        case.until_ready("acc", 3).await;
        case.end().await;
    });
}

#[test]
fn k10_a_driver_that_does_not_unload_keeps_its_deviceconfig_and_is_named() {
    play("k10", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k10", 3).await;
        case.ask("acc", &json!({})).await;
        case.until_ready("acc", 3).await;
        let node = case.node(2);
        case.kmm.script(|script| {
            script.stuck.insert(node.clone());
        });
        case.delete("acc").await;
        let stuck = |config: &serde_json::Value| {
            let all = config["status"]["problems"].as_array().map_or(0, Vec::len);
            all == 1 && problem(config, &node) == Some("StillLoaded")
        };
        let now = case.until("acc", "it says where", stuck).await;
        assert!(says(&now, "Ready").unwrap()[2].contains(&node), "{now:#}");
        case.until("acc", "stuck", |config| is(config, "Degraded", "True", "DeletionStuck")).await;
        assert!(case.module("acc").await.is_some());
        case.kmm.script(|script| script.stuck.clear());
        case.until_gone("acc").await;
        case.end().await;
    });
}

#[test]
fn k12_refusals_of_kmm_are_reported_and_retried_slowly() {
    play("k12", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k12", 1).await;
        let text = "no driver is let in today";
        kmm::refuse(&case.client(), text).await.unwrap();
        let asked = |lab: &Lab| lab.proxy.count("PATCH", "/namespaces/k12/modules/");
        let began = Instant::now();
        case.ask("acc", &json!({})).await;
        let now =
            case.until("acc", "it says so", |config| is(config, "Errored", "True", "ModuleFailed")).await;
        assert!(says(&now, "Errored").unwrap()[2].contains(text), "{now:#}");
        assert!(is(&now, "Ready", "False", "Errored"));
        // Each wait is longer than the one before; so few of them fit into any time.
        let third = async || asked(case.lab) >= 3;
        until("it is tried again", third).await;
        let (elapsed, tries) = (began.elapsed(), asked(case.lab));
        assert!(tries <= 3 + elapsed.as_secs() as usize, "{tries} times in {elapsed:?}");
        let events = case.events("acc").await;
        let told: Vec<_> = events.iter().filter(|(reason, _)| reason == "ModuleFailed").collect();
        assert!(told.len() == 1 && told[0].1 == 1, "told once: {events:?}");
        kmm::allow(&case.client()).await.unwrap();
        let now = case.until_ready("acc", 1).await;
        assert!(is_ready(&now));
        println!("k12: refused {tries} times in {elapsed:?}, ready {:?} after the first", began.elapsed());
        case.end().await;
    });
}

#[test]
fn k13_missing_kmm_is_reported_and_awaited() {
    play("k13", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k13", 1).await;
        kmm::uninstall(&case.client()).await.unwrap();
        let definitions =
            super::lab::objects(&case.client(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", None);
        until("KMM is away", async || {
            definitions.get_opt("modules.kmm.sigs.x-k8s.io").await.unwrap().is_none()
        })
        .await;
        case.ask("acc", &json!({})).await;
        let now =
            case.until("acc", "it says so", |config| is(config, "Errored", "True", "KMMNotInstalled")).await;
        assert!(is(&now, "Ready", "False", "Errored"));
        assert!(case.lab.is_healthy().await, "the operator is not ill");
        // Its absence is no reason to ask for it all the time.
        let writes = case.lab.quiet().await;
        let asked = case.lab.proxy.count("", "kmm.sigs.x-k8s.io");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let again = case.lab.proxy.count("", "kmm.sigs.x-k8s.io") - asked;
        assert!(again <= 10 && case.lab.writes() == writes, "{again} questions in a second");
        kmm::install(&case.client()).await.unwrap();
        case.until_ready("acc", 1).await;
        // It is taken away, and has a driver to unload before: who goes meanwhile waits for that.
        let node = case.node(0);
        case.kmm.script(|script| {
            script.stuck.insert(node.clone());
        });
        let modules = "modules.kmm.sigs.x-k8s.io";
        let _ = definitions.delete(modules, &DeleteParams::default()).await.unwrap();
        let now = case
            .until("acc", "it says so", |config| {
                is(config, "Errored", "True", "KMMNotInstalled")
                    && says(config, "Errored").is_some_and(|[.., why]| why.contains("taken away"))
            })
            .await;
        assert!(!is_ready(&now));
        case.delete("acc").await;
        case.until("acc", "deleting", |config| is(config, "Progressing", "True", "Deleting")).await;
        case.lab.quiet().await;
        assert!(case.module("acc").await.is_some() && case.label(&node, CLAIM).await.is_some());
        let accounts = super::lab::objects(&case.client(), "v1", "ServiceAccount", Some(case.name));
        assert!(accounts.get_opt("acc-module-loader").await.unwrap().is_some(), "unloading needs it");
        case.kmm.script(|script| script.stuck.clear());
        case.until_gone("acc").await;
        until("KMM is away", async || definitions.get_opt(modules).await.unwrap().is_none()).await;
        kmm::install(&case.client()).await.unwrap();
        case.end().await;
    });
}

#[test]
fn k14_a_module_of_another_owner_stays() {
    play("k14", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k14", 1).await;
        let theirs = json!({
            "apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "Module",
            "metadata": { "name": "acc-module", "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "0123", "controller": true,
            }] },
            "spec": { "selector": { "nobody": "has-this" } },
        });
        let params = PostParams::default();
        let made = case.modules().create(&params, &serde_json::from_value(theirs).unwrap()).await.unwrap();
        case.kmm.settled(PATIENCE).await.unwrap();
        case.ask("acc", &json!({})).await;
        let now =
            case.until("acc", "it says so", |config| is(config, "Errored", "True", "ForeignModule")).await;
        assert!(says(&now, "Errored").unwrap()[2].contains("theirs"), "{now:#}");
        case.lab.quiet().await;
        let left = case.module("acc").await.unwrap();
        assert_eq!(left["spec"], plain(made)["spec"]);
        // Our own deletion does not take it along.
        case.delete("acc").await;
        case.until_gone("acc").await;
        assert!(
            case.module("acc").await.is_some_and(|module| module["metadata"]["deletionTimestamp"].is_null())
        );
        case.ask("acc", &json!({})).await;
        case.until("acc", "it says so", |config| is(config, "Errored", "True", "ForeignModule")).await;
        let _ = case.modules().delete("acc-module", &DeleteParams::default()).await.unwrap();
        case.until_ready("acc", 1).await;
        case.end().await;
    });
}

/// What the definition of DeviceConfigs cannot see, a policy that comes with it does: there is no room for a Module's
/// name.
#[test]
fn k17_a_namespace_without_room_for_a_module_is_refused() {
    play("k17", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k17-a-namespace-with-a-name-of-37-long", 1).await;
        let body = serde_json::from_value(case.config("acc", &json!({}))).unwrap();
        let all = super::lab::configs(&case.client(), Some(case.name));
        // The API server hears of policies a moment after they were made.
        let params = PostParams { dry_run: true, ..PostParams::default() };
        until("refused", async || {
            let answer = all.create(&params, &body).await.err().map(|error| error.to_string());
            answer.is_some_and(|answer| answer.contains("at most 31 characters"))
        })
        .await;
        case.end().await;
    });
}

/// It says why it is still there, and asks ever less often.
#[test]
fn k19_failed_cleanup_is_reported_and_retried_slowly() {
    play("k19", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k19", 1).await;
        case.ask("acc", &json!({})).await;
        case.until_ready("acc", 1).await;
        let account = "/namespaces/k19/serviceaccounts/acc-module-loader";
        case.lab.proxy.fail("DELETE", account, u32::MAX, Fault::Status(403));
        let began = Instant::now();
        case.delete("acc").await;
        let now =
            case.until("acc", "it says so", |config| is(config, "Errored", "True", "WriteFailed")).await;
        assert!(
            says(&now, "Errored").unwrap()[2].contains("ServiceAccount k19/acc-module-loader"),
            "{now:#}"
        );
        let asked = |lab: &Lab| lab.proxy.count("DELETE", account);
        until("it is tried again", async || asked(case.lab) >= 3).await;
        let (elapsed, tries) = (began.elapsed(), asked(case.lab));
        assert!(tries <= 3 + elapsed.as_secs() as usize, "{tries} times in {elapsed:?}");
        assert!(case.get("acc").await.is_some(), "the finalizer is the last to go");
        case.lab.proxy.heal();
        case.until_gone("acc").await;
        case.end().await;
    });
}

/// Nothing is made that no program would delete again.
#[test]
fn k20_without_its_finalizer_there_is_no_module() {
    play("k20", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k20", 1).await;
        case.lab.proxy.fail("PATCH", "/deviceconfigs/acc?", u32::MAX, Fault::Status(403));
        case.ask("acc", &json!({})).await;
        let now =
            case.until("acc", "it says so", |config| is(config, "Errored", "True", "WriteFailed")).await;
        assert!(says(&now, "Errored").unwrap()[2].contains("finalizer of DeviceConfig k20/acc"), "{now:#}");
        case.lab.quiet().await;
        let made = ["serviceaccounts", "modules"]
            .map(|plural| case.lab.proxy.count("WRITE", &format!("/namespaces/k20/{plural}")));
        assert_eq!(made, [0, 0], "{:?}", case.lab.last_writes());
        assert_eq!(case.label(&case.node(0), CLAIM).await, None);
        case.lab.proxy.heal();
        case.until_ready("acc", 1).await;
        case.end().await;
    });
}

/// The finalizer is removed by hand while a driver does not unload: the rest waits for the Module, without calls
/// meanwhile.
#[test]
fn k21_leftovers_of_a_deviceconfig_wait_for_its_module() {
    play("k21", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k21", 1).await;
        case.ask("acc", &json!({})).await;
        case.until_ready("acc", 1).await;
        let node = case.node(0);
        case.kmm.script(|script| {
            script.stuck.insert(node.clone());
        });
        case.delete("acc").await;
        case.until("acc", "deleting", |config| is(config, "Progressing", "True", "Deleting")).await;
        let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let configs = super::lab::configs(&case.client(), Some(case.name));
        configs.patch("acc", &PatchParams::default(), &none).await.unwrap();
        case.until_gone("acc").await;
        case.lab.quiet().await;
        let asked = || case.lab.proxy.count("GET", "/namespaces/k21/");
        let before = asked();
        for number in 0..20 {
            case.set_label(&node, "of-no-interest", number.to_string().into()).await;
        }
        case.lab.quiet().await;
        assert_eq!(asked(), before);
        let said = case.lab.log_tail();
        let early = said.lines().filter(|line| line.contains("cleaned up") && line.contains("k21"));
        assert_eq!(early.collect::<Vec<_>>(), [""; 0]);
        assert!(case.label(&node, CLAIM).await.is_some() && case.module("acc").await.is_some());
        case.kmm.script(|script| script.stuck.clear());
        until("all is gone", async || case.left().await.is_empty()).await;
        case.end().await;
    });
}

/// A policy's refusal has the code of a patch that lost a race, and is none: it is reported, without a loop of calls.
#[test]
fn k22_a_forbidden_change_of_a_node_is_reported_and_retried_slowly() {
    play("k22", async |lab: &mut Lab| {
        let case = Case::begin(lab, "k22", 1).await;
        let node = case.node(0);
        let nodes = super::lab::objects(&case.client(), "v1", "Node", None);
        let steps = json!([{ "op": "test", "path": "/metadata/name", "value": "another" }]);
        let outrun = Patch::<()>::Json(serde_json::from_value(steps).unwrap());
        let Err(kube::Error::Api(answer)) = nodes.patch(&node, &PatchParams::default(), &outrun).await else {
            panic!("it is another")
        };
        let text = "the server rejected our request due to an error in our request";
        assert_eq!((answer.code, answer.message.as_str()), (422, text), "{answer:?}");
        let (policies, bindings): (Api<Policy>, Api<Binding>) =
            (Api::all(case.client()), Api::all(case.client()));
        let (policy, binding) = no_drivers_on(&node);
        policies.create(&PostParams::default(), &policy).await.unwrap();
        bindings.create(&PostParams::default(), &binding).await.unwrap();
        let claimed = Patch::Merge(json!({ "metadata": { "labels": { CLAIM: "any" } } }));
        let trial = PatchParams { dry_run: true, ..PatchParams::default() };
        until("the policy is heard of", async || {
            let answer = nodes.patch(&node, &trial, &claimed).await;
            answer.is_err_and(|error| matches!(error, kube::Error::Api(status) if status.code == 422))
        })
        .await;
        let began = Instant::now();
        case.ask("acc", &json!({})).await;
        let now =
            case.until("acc", "it says so", |config| is(config, "Errored", "True", "WriteFailed")).await;
        assert!(says(&now, "Errored").unwrap()[2].contains("not this one"), "{now:#}");
        let asked = || case.lab.proxy.count("PATCH", &format!("/nodes/{node}"));
        until("it is tried again", async || asked() >= 3).await;
        let (elapsed, tries) = (began.elapsed(), asked());
        assert!(tries <= 3 + elapsed.as_secs() as usize, "{tries} times in {elapsed:?}");
        let _ = bindings.delete("k22", &DeleteParams::default()).await.unwrap();
        let _ = policies.delete("k22", &DeleteParams::default()).await.unwrap();
        case.until_ready("acc", 1).await;
        case.end().await;
    });
}

/// A policy that refuses all claims of this node, without a reason.
fn no_drivers_on(node: &str) -> (Policy, Binding) {
    let policy = json!({
        "metadata": { "name": "k22" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["UPDATE"],
            }] },
            "validations": [{
                "expression": format!("object.metadata.name != '{node}' || !('{CLAIM}' in object.metadata.labels)"),
                "message": "not this one",
            }],
        },
    });
    let binding = json!({ "metadata": { "name": "k22" }, "spec": { "policyName": "k22", "validationActions": ["Deny"] } });
    (serde_json::from_value(policy).unwrap(), serde_json::from_value(binding).unwrap())
}
