//! A pod leaves while the scheduler hears of nothing, and the kubelet would reject the one that comes.

use k8s_openapi::api::core::v1::{Container, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use testkit::proxy::{Fault, Proxy};

use crate::cluster::{PATIENCE, Running, create, eventually, pod, pods, refusal};
use crate::whole_loop::{exporting, runs};

/// A pod whose container of 6 CPUs has to keep the 2 of its init container.
fn with_init_container(name: &str) -> Pod {
    let container = |pod: Pod| pod.spec.unwrap().containers.remove(0);
    let (mut whole, init) = (pod(name, 6), container(pod(name, 2)));
    let command = Some(vec!["exit".to_owned(), "0".to_owned()]);
    let init = Container { name: "init".to_owned(), command, ..init };
    whole.spec.as_mut().unwrap().init_containers = Some(vec![init]);
    whole
}

async fn cordon(client: &Client, node: &str, unschedulable: bool) {
    let spec = Patch::Merge(json!({"spec": {"unschedulable": unschedulable}}));
    Api::<Node>::all(client.clone()).patch(node, &PatchParams::default(), &spec).await.unwrap();
}

/// Two pods fill the lower zone. Once one of them has left, an init container goes there, where its pod does not fit.
#[tokio::test(flavor = "multi_thread")]
async fn a_binding_is_not_sent_once_a_pod_has_left_on_which_it_relies() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (cluster, client, _guard) = exporting(&rig, 1).await;
    let node = cluster.nodes()[0].name();
    let proxy = Proxy::start(cluster.control(), cluster.control().process_group().dir()).await.unwrap();
    let _scheduler = Running::start(proxy.kubeconfig(), &["--leader-elect=false"]);
    for (name, cpus) in [("leaves", 4), ("stays", 3)] {
        create(&client, &pod(name, cpus)).await;
        eventually(name, async || runs(&client, name).await).await;
    }

    // What is refused was seen, and all pods before it.
    cordon(&client, node, true).await;
    create(&client, &with_init_container("comes")).await;
    eventually("a refusal", async || refusal(&client, "comes").await).await;
    for path in ["/pods", "/noderesourcetopologies"] {
        proxy.fail("WATCH", path, u32::MAX, Fault::Late);
    }
    proxy.drop_watches();
    pods(&client).delete("leaves", &DeleteParams::default()).await.unwrap();
    eventually("the end", async || pods(&client).get_opt("leaves").await.ok()?.is_none().then_some(())).await;
    cordon(&client, node, false).await;
    // The second look comes after the first has been answered.
    proxy.wait_for("GET", "/pods/leaves", 2, PATIENCE).await.unwrap();
    assert_eq!(proxy.count("POST", "/pods/comes/binding"), 0);

    proxy.heal();
    let misfit =
        async || refusal(&client, "comes").await.filter(|why| why.contains("cannot align container"));
    eventually("a refusal for the zones", misfit).await;
    pods(&client).delete("stays", &DeleteParams::default()).await.unwrap();
    eventually("comes", async || runs(&client, "comes").await).await;
}
