//! The controller of DeviceConfigs alone on OpenShift: it finds out where it is, lets the pods of a Module be
//! privileged, and serves metrics as the cluster wants TLS to be, all of it with the rights of its account.

use deployer::platform::Platform;
use fakes::kmm;
use fakes::openshift::{self, tls_profile};
use hardware::module;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use testkit::{env, net};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::rig::{control, tholepin, until};
use super::super::scenario::Scenario;
use super::lab;
use super::within_rights::{PLAYED, note_all};

#[test]
fn alone_on_openshift_it_has_the_rights_and_the_clusters_tls() {
    let scenario = Scenario::begin(&PLAYED);
    let Ok(rig) = env::rig() else { return };
    let Some(program) = tholepin() else { return };
    net::private(async |network| {
        // It is ready when it knows where it is, and may do what it has to.
        let mut lab = lab::start(&rig, &control(&network, true), program, Platform::OpenShift).await;
        let (admin, metrics) = (lab.admin.clone(), lab.metrics);
        let speaks = async || speaks_tls12(metrics).await == Some(true);
        until("the usual profile", speaks).await;

        let space: Namespace = serde_json::from_value(json!({ "metadata": { "name": "hw" } })).unwrap();
        Api::all(admin.clone()).create(&PostParams::default(), &space).await.unwrap();
        let body = json!({
            "apiVersion": "hardware.tholepin.dev/v1alpha1", "kind": "DeviceConfig",
            "metadata": { "name": "acc", "namespace": "hw" },
            "spec": {
                "driverImage": "registry.example/drivers/acc", "driverVersion": "1.0", "nodeSelector": { "acc": "1" },
                "devicePlugin": { "image": "registry.example/acc-plugin:1", "resourceNames": ["example.com/acc"] },
            },
        });
        let configs = lab::configs(&admin, Some("hw"));
        configs.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        let modules = kmm::api(&admin, "Module", Some("hw"));
        until("a Module", async || modules.get_opt("acc-module").await.unwrap().is_some()).await;
        let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), "hw");
        let binding = bindings.get("acc-module-scc").await.unwrap();
        assert_eq!(binding.role_ref.name, module::SCC_ROLE);
        let names = binding.subjects.iter().flatten().map(|subject| subject.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["acc-module-loader", "acc-module-plugin"]);
        let _ = configs.delete("acc", &DeleteParams::background()).await.unwrap();
        until("it is gone", async || configs.get_opt("acc").await.unwrap().is_none()).await;
        assert!(bindings.get_opt("acc-module-scc").await.unwrap().is_none(), "nothing is left");

        openshift::make(&admin, &tls_profile(Some("Modern"))).await.unwrap();
        until("nothing before TLS 1.3", async || speaks_tls12(metrics).await == Some(false)).await;
        openshift::make(&admin, &tls_profile(None)).await.unwrap();
        until("the usual profile again", speaks).await;
        lab.stop().await;
        note_all(scenario, &lab.control).await;
    })
    .unwrap();
}

/// Whether a server answers to TLS 1.2 with a greeting of its own, or with an alert.
async fn speaks_tls12(port: u16) -> Option<bool> {
    let suites = [0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x2c, 0xc0, 0x30];
    let groups = [0, 0x0a, 0, 6, 0, 4, 0, 0x1d, 0, 0x17];
    let signatures = [0, 0x0d, 0, 10, 0, 8, 4, 3, 5, 3, 8, 4, 4, 1];
    let extensions = [&groups[..], &signatures].concat();
    let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
    let body = [&[3, 3][..], &[7; 32], &[0], &sized(&suites), &[1, 0], &sized(&extensions)].concat();
    let hello = [&[1, 0][..], &sized(&body)].concat();
    let record = [&[0x16, 3, 1][..], &sized(&hello)].concat();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    stream.write_all(&record).await.ok()?;
    Some(stream.read_u8().await.ok()? == 0x16)
}
