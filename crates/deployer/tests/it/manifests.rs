//! What a real API server makes of every manifest: strictly read, without a warning, and each as it was written.

use deployer::manifests::parts;
use deployer::options::{Options, SccVersion, Scheduler, Updater};
use deployer::part::{Component, Part};
use deployer::platform::Platform;
use fakes::openshift::{Flavour, install};
use kube::Client;
use kube::api::{Patch, PatchParams, ValidationDirective};
use kube::client::Body;
use kube::core::{DynamicObject, Request, Resource as _};
use objects::Object;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::rig;

/// Applies an object as the server would, or only as if; `Err`: a refusal or a warning, in words.
async fn apply(client: &Client, object: &Object, dry_run: bool) -> Result<(), String> {
    let resource = object.kind().resource();
    let path = DynamicObject::url_path(&resource, object.namespace());
    let params = PatchParams {
        dry_run,
        force: true,
        field_manager: Some("test".to_owned()),
        field_validation: Some(ValidationDirective::Strict),
    };
    let request = Request::new(path).patch(object.name(), &params, &Patch::Apply(object.body())).unwrap();
    let response = client.send(request.map(Body::from)).await.map_err(|error| error.to_string())?;
    let warnings = response.headers().get_all("warning");
    let warnings: Vec<String> = warnings.iter().map(|w| w.to_str().unwrap().to_owned()).collect();
    let status = response.status();
    if status.is_success() && warnings.is_empty() {
        return Ok(());
    }
    let body = response.into_body().collect_bytes().await.unwrap_or_default();
    let body = String::from_utf8_lossy(&body).into_owned();
    Err(format!("{object}: {status} {warnings:?} {}", if status.is_success() { "" } else { &body }))
}

/// Every choice that makes other kinds or fields.
fn variants(platform: Platform, version: &str) -> Vec<Options> {
    let mut all = Vec::new();
    for updater in [Updater::Tholepin, Updater::Rte, Updater::Nfd] {
        for scheduler in [Scheduler::Tholepin, Scheduler::Plugin] {
            let mut options =
                Options { platform, version: Some(version.parse().unwrap()), ..Options::default() };
            options.updater.kind = updater;
            options.scheduler.kind = scheduler;
            all.push(options.clone());
            options.updater.config = Some("a: b\n".to_owned());
            options.critical_quota = true;
            options.updater.scc = SccVersion::V1;
            options.updater.cri_hooks = true;
            options.pull_secrets = vec!["credentials".to_owned()];
            options.scheduler.replicas = 3;
            all.push(options);
        }
    }
    all
}

#[tokio::test]
async fn the_api_server_takes_every_manifest_without_a_word() {
    let Ok(rig) = rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    let mut wrong = Vec::new();
    for (platform, flavour, version) in [
        (Platform::Kubernetes, None, "v1.36.3"),
        (Platform::HyperShift, Some(Flavour::HyperShift), "4.20.1"),
        (Platform::OpenShift, Some(Flavour::OpenShift), "4.20.1"),
    ] {
        if let Some(flavour) = flavour {
            install(&client, flavour, version).await.unwrap();
        }
        for options in variants(platform, version) {
            let parts = parts(&options, &Component::ALL).unwrap();
            let objects: Vec<&Object> = parts.iter().flat_map(Part::objects).collect();
            for object in objects {
                // What is in a namespace can be tried only once the namespace is there.
                let real = object.kind().kind == "Namespace";
                let result = apply(&client, object, !real).await;
                wrong.extend(result.err().map(|error| format!("{platform}: {error}")));
            }
        }
    }
    what_is_wrong_is_found(&client).await;
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A field that does not exist is refused, and a pod that its namespace does not allow is warned about.
async fn what_is_wrong_is_found(client: &Client) {
    let parts = parts(&Options::default(), &Component::ALL).unwrap();
    let workload = |at: usize| parts[at].objects().last().unwrap();
    let (exporter, scheduler) = (workload(1), workload(2));
    let mut body = scheduler.body().clone();
    body["spec"]["template"]["spec"]["nonsense"] = true.into();
    let object = Object::from_value(scheduler.kind().clone(), body).unwrap();
    assert!(apply(client, &object, true).await.unwrap_err().contains("nonsense"));

    let mut body = exporter.body().clone();
    body["metadata"]["namespace"] = scheduler.namespace().unwrap().into();
    let object = Object::from_value(exporter.kind().clone(), body).unwrap();
    let error = apply(client, &object, true).await.unwrap_err();
    assert!(error.contains("would violate PodSecurity"), "{error}");
}
