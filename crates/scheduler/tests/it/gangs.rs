//! Gangs before a real API server that serves PodGroups: placed whole or not at all, by us as by kube-scheduler, where
//! zones do not count; and with kubelets, where they do, also when the leader is killed among a gang's bindings.

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::proxy::{Fault, Proxy};

use crate::cluster::{PATIENCE, Running, create, delete, eventually, fake_node, node_of, pod, pods, refusal};
use crate::faults::{BINDING, Process};
use crate::whole_loop::{exporting_with, runs};

const GATES: &str = "--feature-gates=GenericWorkload=true,GangScheduling=true";
const OURS: &str = "topo-aware-scheduler";
const STOCK: &str = "default-scheduler";
/// Pods of a gang that fills the four zones of 7 or 8 CPUs of two nodes, by 3 CPUs each.
const MEMBERS: usize = 8;

/// A configuration with these plugins beside the default ones.
fn config(plugins: &[&str]) -> String {
    let enabled: Vec<Value> = plugins.iter().map(|name| json!({"name": name})).collect();
    let plugins = json!({"multiPoint": {"enabled": enabled}});
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "profiles": [{"schedulerName": OURS, "plugins": plugins}],
    })
    .to_string()
}

/// A control plane that serves PodGroups.
fn with_groups() -> ControlPlaneOptions {
    let flags = [GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"];
    let api_server_flags = flags.map(str::to_owned).to_vec();
    ControlPlaneOptions { api_server_flags, ..ControlPlaneOptions::default() }
}

/// A kubeconfig with the rights of a scheduler, and no others.
async fn account(control: &ControlPlane, client: &Client) -> std::path::PathBuf {
    let params = PostParams::default();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "kube-system");
    let name = "gangs";
    let metadata = json!({"name": name});
    let object = serde_json::from_value(json!({"metadata": metadata})).unwrap();
    accounts.create(&params, &object).await.unwrap();
    let role = json!({"metadata": metadata, "rules": scheduler::rbac::cluster()});
    let roles: Api<ClusterRole> = Api::all(client.clone());
    roles.create(&params, &serde_json::from_value(role).unwrap()).await.unwrap();
    let binding = json!({
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": name}],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    bindings.create(&params, &serde_json::from_value(binding).unwrap()).await.unwrap();
    let made = accounts.create_token_request(name, &params, &TokenRequest::default()).await.unwrap();
    control.kubeconfig_with_token(name, &made.status.unwrap().token.unwrap()).unwrap()
}

async fn group(client: &Client, name: &str, min_count: u32) {
    let groups: Api<PodGroup> = Api::default_namespaced(client.clone());
    let object = json!({
        "metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}},
    });
    groups.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// The condition of a group: status and reason.
async fn condition(client: &Client, name: &str) -> Option<(String, String)> {
    let groups: Api<PodGroup> = Api::default_namespaced(client.clone());
    let conditions = groups.get(name).await.unwrap().status?.conditions?;
    let scheduled = conditions.into_iter().find(|condition| condition.type_ == "PodGroupScheduled")?;
    Some((scheduled.status, scheduled.reason))
}

fn names_of(group: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{group}-{at}")).collect()
}

async fn create_in(client: &Client, group: &str, mut pod: Pod) {
    let spec = pod.spec.as_mut().unwrap();
    spec.scheduling_group = serde_json::from_value(json!({"podGroupName": group})).unwrap();
    create(client, &pod).await;
}

/// Pods of a group for the node of their scheduler. Returns their names.
async fn members(client: &Client, scheduler: &str, group: &str, count: usize, cpus: u32) -> Vec<String> {
    let names = names_of(group, count);
    for name in &names {
        let cpus = cpus.to_string();
        let amounts = [("cpu", cpus.as_str()), ("memory", "64Mi")];
        let mut pod: Pod = testkit::load::guaranteed_pod(name, scheduler, amounts);
        let selector = [("of".to_owned(), scheduler.to_owned())].into();
        pod.spec.as_mut().unwrap().node_selector = Some(selector);
        create_in(client, group, pod).await;
    }
    names
}

async fn all_bound(client: &Client, names: &[String]) {
    for name in names {
        eventually(name, async || node_of(client, name).await).await;
    }
}

/// The refusals of all these pods, without what is said of claims and preemption, in order.
async fn refusals(client: &Client, names: &[String]) -> Vec<String> {
    let mut texts = Vec::new();
    for name in names {
        let text = eventually(name, async || refusal(client, name).await).await;
        texts.push(text.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned());
    }
    texts.sort();
    texts
}

/// The same objects for a scheduler with one node of 16 CPUs. Returns what was seen of them.
async fn story(client: &Client, scheduler: &str) -> Vec<String> {
    let named = |name: &str| format!("{scheduler}-{name}");
    let mut seen = Vec::new();
    // It has too few pods until the end.
    let (few, fits, waits) = (named("few"), named("fits"), named("waits"));
    group(client, &few, 2).await;
    let few_pods = members(client, scheduler, &few, 1, 1).await;
    group(client, &fits, 4).await;
    let fitting = members(client, scheduler, &fits, 4, 3).await;
    all_bound(client, &fitting).await;
    let is_scheduled =
        async |name: &str| condition(client, name).await.filter(|(status, _)| status == "True");
    seen.push(format!("{:?}", eventually("the condition", async || is_scheduled(&fits).await).await));

    // The group comes after its pods. Two of them would fit.
    let waiting = members(client, scheduler, &waits, 3, 2).await;
    group(client, &waits, 3).await;
    seen.extend(refusals(client, &waiting).await);
    seen.push(format!("{:?}", eventually("the condition", async || condition(client, &waits).await).await));
    for name in &waiting {
        assert_eq!(node_of(client, name).await, None, "{name}");
    }
    delete(client, &fitting[0]).await;
    all_bound(client, &waiting).await;
    seen.push(format!("{:?}", eventually("the condition", async || is_scheduled(&waits).await).await));
    let silent = pods(client).get(&few_pods[0]).await.unwrap();
    seen.push(format!("{:?}", silent.status.unwrap().conditions));
    assert_eq!(silent.spec.unwrap().node_name, None);
    assert_eq!(condition(client, &few).await, None);
    seen.iter().map(|text| text.replace(scheduler, "S")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn gangs_are_placed_whole_or_not_at_all_as_by_kube_scheduler() {
    let Ok(rig) = testkit::env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &with_groups()).await.unwrap();
    let client = control.client().await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    for scheduler in [OURS, STOCK] {
        fake_node(&client, scheduler).await;
        let labels = json!({"metadata": {"labels": {"of": scheduler}}});
        nodes.patch(scheduler, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, config(&["GangScheduling"])).unwrap();
    let config = format!("--config={}", file.display());
    let scheduler = Running::start(&account(&control, &client).await, &[&config]);
    let _stock = control.start_scheduler_with(&[GATES.to_owned()]).await.unwrap();

    let (ours, stock) = tokio::join!(story(&client, OURS), story(&client, STOCK));
    assert_eq!(ours, stock);
    assert!(ours.iter().any(|text| text.contains("Insufficient cpu")), "{ours:?}");
    assert!(ours.iter().any(|text| text.contains("waiting for minCount pods")), "{ours:?}");
    scheduler.stop().await;
}

/// Only the first bindings of a gang get to the API server, and then the leader is killed. The next one binds the rest
/// of the gang before a more important pod that came meanwhile, and the kubelets take all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_is_whole_after_a_leader_was_killed_among_its_bindings() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (cluster, client, _guard) = exporting_with(&rig, 2, with_groups()).await;
    let dir = cluster.control().process_group().dir();
    let proxy = Proxy::start(cluster.control(), dir).await.unwrap();
    let config = dir.join("gangs.yaml");
    std::fs::write(&config, self::config(&["GangScheduling", "NodeResourceTopologyMatch"])).unwrap();
    let class = json!({"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"});
    let classes: Api<PriorityClass> = Api::all(client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    let mut later = pod("later", 3);
    later.spec.as_mut().unwrap().priority_class_name = Some("high".to_owned());
    let all_pods = async || pods(&client).list(&ListParams::default()).await.unwrap().items;
    for stored in [1, MEMBERS - 1] {
        let name = format!("gang-{stored}");
        let before = proxy.count("POST", BINDING);
        let leader = Process::configured(proxy.kubeconfig(), &config);
        proxy.fail_after(stored as u32, "POST", BINDING, u32::MAX, Fault::Silence);
        group(&client, &name, MEMBERS as u32).await;
        let members = names_of(&name, MEMBERS);
        for member in &members {
            create_in(&client, &name, pod(member, 3)).await;
        }
        proxy.wait_for("POST", BINDING, before + stored + 1, PATIENCE).await.unwrap();
        eventually("what is stored", async || {
            let pods = all_pods().await;
            let bound = pods.iter().filter(|pod| pod.spec.as_ref().unwrap().node_name.is_some());
            (bound.count() == stored).then_some(())
        })
        .await;
        leader.kill();
        proxy.heal();

        create(&client, &later).await;
        let next = Process::configured(proxy.kubeconfig(), &config);
        for member in &members {
            eventually(member, async || runs(&client, member).await).await;
        }
        eventually("the later pod is refused", async || refusal(&client, "later").await).await;
        next.kill();
        for name in members.iter().map(String::as_str).chain(["later"]) {
            delete(&client, name).await;
        }
        eventually("gone", async || all_pods().await.is_empty().then_some(())).await;
    }
}
