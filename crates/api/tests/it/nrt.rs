//! The NodeResourceTopology CRD on a real API server, with objects of both versions; a configuration of a real
//! scheduler.

use api::crd::{NRT_CRD_YAML, nrt_crd};
use api::nrt::{Amount, Attribute, Cost, NodeResourceTopology, Resource, Zone, v1alpha1};
use api::schedulerconfig::SchedulerConfig;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::Program;

use crate::install;

const NAME: &str = "noderesourcetopologies.topology.node.k8s.io";

fn sample(name: &str) -> NodeResourceTopology {
    let resource = |name: &str, amount: &str| Resource {
        name: name.to_owned(),
        capacity: Amount::from(amount),
        allocatable: Amount::from(amount),
        available: Amount::from("0"),
    };
    let mut nrt = NodeResourceTopology {
        zones: vec![Zone {
            name: "node-0".to_owned(),
            kind: "Node".to_owned(),
            costs: vec![Cost { name: "node-0".to_owned(), value: 10 }],
            resources: vec![resource("cpu", "16"), resource("memory", "33503891456")],
            ..Zone::default()
        }],
        attributes: vec![Attribute {
            name: "topologyManagerPolicy".to_owned(),
            value: "restricted".to_owned(),
        }],
        ..NodeResourceTopology::default()
    };
    nrt.metadata.name = Some(name.to_owned());
    nrt
}

#[tokio::test]
async fn the_api_server_takes_the_crd_and_its_objects() {
    let Ok(rig) = testkit::env::rig() else { return };
    let plane = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = plane.client().await.unwrap();

    assert_eq!(install(&client, &nrt_crd()).await, Vec::<String>::new());
    the_committed_yaml_changes_nothing(&client).await;
    columns_are_shown(&client).await;
    objects_round_trip(&client).await;
    versions_are_views_of_one_object(&client).await;
    numbers_and_texts_are_both_amounts(&client).await;
    bad_objects_are_refused(&client).await;
    the_stock_schedulers_defaults_are_ours(&plane);
}

/// Applying the YAML over the installed definition is a no-op: same generation afterwards.
async fn the_committed_yaml_changes_nothing(client: &Client) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let before = crds.get(NAME).await.unwrap();
    let yaml: Value = serde_saphyr::from_str(NRT_CRD_YAML).unwrap();
    let after = crds.patch(NAME, &PatchParams::apply("it").force(), &Patch::Apply(&yaml)).await.unwrap();
    assert_eq!(before.metadata.generation, after.metadata.generation);
    assert_eq!(before.spec, after.spec);
}

/// `kubectl get` shows what the kubelet aligns; what a report lacks is empty.
async fn columns_are_shown(client: &Client) {
    let nrts = Api::<NodeResourceTopology>::all(client.clone());
    let mut full = sample("full");
    full.attributes.push(Attribute { name: "topologyManagerScope".to_owned(), value: "pod".to_owned() });
    full.topology_policies.push("RestrictedPodLevel".to_owned());
    let bare = NodeResourceTopology { attributes: Vec::new(), ..sample("none") };
    for object in [&full, &bare] {
        nrts.create(&PostParams::default(), object).await.unwrap();
    }
    let table = [
        (
            "v1alpha1",
            vec!["Name", "Policy", "Age"],
            [vec![json!("full"), json!("RestrictedPodLevel")], vec![json!("none"), Value::Null]],
        ),
        (
            "v1alpha2",
            vec!["Name", "Policy", "Scope", "Age"],
            [
                vec![json!("full"), json!("restricted"), json!("pod")],
                vec![json!("none"), Value::Null, Value::Null],
            ],
        ),
    ];
    for (version, names, rows) in table {
        let path = format!("/apis/topology.node.k8s.io/{version}/noderesourcetopologies");
        let got = crate::table(client, &path).await;
        let columns = got["columnDefinitions"].as_array().unwrap();
        let shown: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
        assert_eq!(shown, names, "{version}");
        for (number, wanted) in rows.into_iter().enumerate() {
            let cells = got["rows"][number]["cells"].as_array().unwrap();
            assert_eq!(&cells[..wanted.len()], wanted, "{version}");
        }
    }
    for object in [full, bare] {
        let _ = nrts.delete(&object.metadata.name.unwrap(), &DeleteParams::default()).await.unwrap();
    }
}

async fn objects_round_trip(client: &Client) {
    let nrts = Api::<NodeResourceTopology>::all(client.clone());
    let sent = sample("node-a");
    let created = nrts.create(&PostParams::default(), &sent).await.unwrap();
    let read = nrts.get("node-a").await.unwrap();
    assert_eq!(created, read);
    assert_eq!((&read.zones, &read.attributes), (&sent.zones, &sent.attributes));
    assert_eq!(nrts.list(&ListParams::default()).await.unwrap().items, [read]);

    let applied =
        nrts.patch("node-b", &PatchParams::apply("it"), &Patch::Apply(&sample("node-b"))).await.unwrap();
    assert_eq!(applied.zones, sent.zones);
    nrts.delete("node-b", &DeleteParams::default()).await.unwrap();
}

async fn versions_are_views_of_one_object(client: &Client) {
    let new = Api::<NodeResourceTopology>::all(client.clone());
    let old = Api::<v1alpha1::NodeResourceTopology>::all(client.clone());
    let sent = v1alpha1::NodeResourceTopology {
        topology_policies: vec!["SingleNUMANodePodLevel".to_owned()],
        zones: sample("node-c").zones,
        metadata: sample("node-c").metadata,
    };
    let created = old.create(&PostParams::default(), &sent).await.unwrap();
    assert_eq!((&created.topology_policies, &created.zones), (&sent.topology_policies, &sent.zones));
    let seen = new.get("node-c").await.unwrap();
    assert_eq!((&seen.topology_policies, &seen.zones), (&sent.topology_policies, &sent.zones));
    assert_eq!(NodeResourceTopology::from(old.get("node-c").await.unwrap()).zones, seen.zones);
}

async fn numbers_and_texts_are_both_amounts(client: &Client) {
    let resource = ApiResource::erase::<NodeResourceTopology>(&());
    let raw = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let object = json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": "node-d"},
        "zones": [{"name": "node-0", "type": "Node", "resources": [
            {"name": "cpu", "capacity": 4, "allocatable": "4", "available": "2500m"},
        ]}],
    });
    raw.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let read = Api::<NodeResourceTopology>::all(client.clone()).get("node-d").await.unwrap();
    let (topology, warnings) = api::convert::node_topology(&read).unwrap();
    assert_eq!(warnings, []);
    let cpu = topology.zones[0].resources[0];
    assert_eq!((cpu.capacity, cpu.allocatable, cpu.available), (4000, 4000, 2500));
}

async fn bad_objects_are_refused(client: &Client) {
    let nrts = Api::<NodeResourceTopology>::all(client.clone());
    let mut bad = sample("node-e");
    bad.zones[0].resources[0].available = Amount::from("lots");
    let error = nrts.create(&PostParams::default(), &bad).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!(status.code, 422);
    assert!(status.message.contains("zones[0].resources[0].available"), "{}", status.message);
}

/// kube-scheduler writes out its configuration from a minimal file, with every default and the arguments of every
/// in-tree plugin. This crate must read all of it, with the same result.
fn the_stock_schedulers_defaults_are_ours(plane: &ControlPlane) {
    let file = |name: &str| plane.process_group().dir().join(name);
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    let body = format!("clientConnection: {{kubeconfig: {:?}}}\n", plane.kubeconfig());
    std::fs::write(file("scheduler.yaml"), format!("{head}{body}")).unwrap();
    let output = std::process::Command::new(plane.binaries().path(Program::Scheduler))
        .arg(format!("--config={}", file("scheduler.yaml").display()))
        .arg(format!("--write-config-to={}", file("defaulted.yaml").display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let mut config =
        SchedulerConfig::parse(&std::fs::read_to_string(file("defaulted.yaml")).unwrap()).unwrap();
    let mut defaults = SchedulerConfig::default();
    defaults.client_connection.kubeconfig = plane.kubeconfig().display().to_string();
    assert_eq!(config.percentage_of_nodes_to_score.take(), Some(0));
    let profile = &mut config.profiles[0];
    assert!(
        profile.plugins.enables("NodeResourcesFit") && profile.other_args.contains_key("DefaultPreemption")
    );
    (profile.plugins, profile.other_args) = Default::default();
    assert_eq!(config, defaults);
}
