//! Containers as processes, workloads by the stock controllers, probes by the kubelet, rights by the API server.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use testkit::cluster::Cluster;
use testkit::cri::{Image, Images};
use testkit::machine::Machine;
use testkit::{env, net};

#[test]
fn a_daemon_set_runs_as_processes_that_see_their_nodes() {
    let Ok(rig) = env::rig() else { return };
    net::private(async |network| {
        let images = Images::new().with("tools:1", Image::tools());
        let machines = [2, 4].map(|zones| Machine::new().zones(zones).cpus_per_zone(8));
        let began = Instant::now();
        let cluster =
            Cluster::builder().machines(machines).installable(network, images).start(&rig).await.unwrap();
        println!("cluster up in {:?}", began.elapsed());
        let client = cluster.client().await.unwrap();
        let sets: Api<DaemonSet> = Api::default_namespaced(client.clone());
        let script = "cat /host-sys/devices/system/node/online; ls /host-kubelet/config.yaml; exec sleep 1000";
        let set = serde_json::from_value(json!({
            "metadata": { "name": "look" },
            "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": {
                "metadata": { "labels": { "a": "b" } },
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "main", "image": "tools:1", "command": ["sh", "-c", script],
                        "volumeMounts": [
                            { "name": "sys", "mountPath": "/host-sys", "readOnly": true },
                            { "name": "kubelet", "mountPath": "/host-kubelet" },
                        ],
                    }],
                    "volumes": [
                        { "name": "sys", "hostPath": { "path": "/sys", "type": "Directory" } },
                        { "name": "kubelet", "hostPath": { "path": "/var/lib/kubelet", "type": "Directory" } },
                    ],
                },
            } },
        }))
        .unwrap();
        let began = Instant::now();
        sets.create(&PostParams::default(), &set).await.unwrap();
        let ready = await_condition(sets.clone(), "look", |set: Option<&DaemonSet>| {
            set.and_then(|set| set.status.as_ref()).is_some_and(|status| status.number_ready == 2)
        });
        tokio::time::timeout(Duration::from_secs(60), ready).await.unwrap().unwrap();
        println!("pods ready in {:?}", began.elapsed());
        let pods: Api<Pod> = Api::default_namespaced(client);
        for pod in pods.list(&Default::default()).await.unwrap() {
            let node = pod.spec.as_ref().unwrap().node_name.as_deref().unwrap();
            let zones = if node == "node-0" { "0-1" } else { "0-3" };
            let said = cluster.logs("default", &pod.name_any(), "").await.unwrap();
            assert_eq!(said, format!("{zones}\n/host-kubelet/config.yaml\n"), "{node}");
        }
        let denied: Vec<_> = cluster.denied().unwrap().iter().map(ToString::to_string).collect();
        assert!(denied.is_empty(), "{denied:#?}");
    })
    .unwrap();
}
