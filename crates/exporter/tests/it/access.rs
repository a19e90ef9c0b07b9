//! With what rights the exporter works: its own list, and the roles made for the exporters it replaces; and that no
//! exporter can touch another node's object.

use exporter::policy::admission_policy;
use exporter::rbac::{self, Needs};
use exporter::settings::{Mode, OwnerKind, PodName, Publishing};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use testkit::account::Account;

use super::garbage::{AFTER, BEFORE, Rig};
use super::*;

pub(super) const OBJECT: &str = "node-0";
pub(super) const PATCHING: Publishing =
    Publishing { mode: Mode::Patch, resync: None, owner: OwnerKind::Node, timing: false };

/// `resources: verbs` as a rule; of the NRT's group if that is what it is about.
pub(super) fn rule(text: &str) -> PolicyRule {
    let (resource, verbs) = text.split_once(": ").unwrap();
    let group = if resource == api::nrt::PLURAL { api::nrt::GROUP } else { "" };
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.split(' ').map(str::to_owned).collect(),
        ..PolicyRule::default()
    }
}

/// Creates the object of a node without a kubelet.
pub(super) async fn make_node(client: &Client) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(OBJECT.to_owned());
    Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap()
}

/// Requests about objects of the kind (or whatever else `about` selects) that the API server has counted.
pub(super) async fn counted(client: &Client, about: &[&str]) -> u64 {
    let request = kube::core::Request::new("").get("metrics", &kube::api::GetParams::default()).unwrap();
    let text = client.request_text(request).await.unwrap();
    let matches = |line: &&str| {
        line.starts_with("apiserver_request_total{") && about.iter().all(|part| line.contains(part))
    };
    text.lines().filter(matches).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// A role, the exporter's settings with it, and how many refusals are allowed until a verb works.
struct Case {
    name: &'static str,
    cluster: Vec<PolicyRule>,
    namespaced: Vec<PolicyRule>,
    publishing: Publishing,
    owner: &'static str,
    refusals: u64,
}

fn cases() -> Vec<Case> {
    let ours = |name, mode, owner| {
        let needs = Needs { mode: Some(mode), owner, conditions: true, configz: false };
        let rules = rbac::rules(needs, name);
        let owner = if needs.owner == OwnerKind::Node { "Node" } else { "Namespace" };
        let publishing = Publishing { mode, owner: needs.owner, ..PATCHING };
        Case { name, cluster: rules.cluster, namespaced: rules.namespaced, publishing, owner, refusals: 0 }
    };
    let rules = |texts: &[&str]| texts.iter().map(|text| rule(text)).collect::<Vec<_>>();
    let peers = |name, cluster: &[&str], namespaced: &[&str], publishing, owner, refusals| {
        let (cluster, namespaced) = (rules(cluster), rules(namespaced));
        Case { name, cluster, namespaced, publishing, owner, refusals }
    };
    let nfd = Publishing { mode: Mode::Apply, owner: OwnerKind::Namespace, ..PATCHING };
    let with_resync = Publishing { resync: Some(10), ..PATCHING };
    let status = ["pods: get", "pods/status: update"];
    vec![
        ours("ours-patch", Mode::Patch, OwnerKind::Node),
        ours("ours-update", Mode::Update, OwnerKind::Namespace),
        ours("ours-apply", Mode::Apply, OwnerKind::Node),
        // Refused: watching, the Node, patching pods.
        peers(
            "rte",
            &[
                "noderesourcetopologies: create update patch get list",
                "pods: get",
                "pods/status: update",
                "nodes: list watch",
            ],
            &[],
            with_resync,
            "Node",
            3,
        ),
        // As before, and patching.
        peers(
            "operator",
            &["noderesourcetopologies: create update get list", "nodes: list watch"],
            &status,
            with_resync,
            "Node",
            4,
        ),
        // Watching, reading.
        peers(
            "nfd",
            &[
                "noderesourcetopologies: create patch",
                "nodes: get list",
                "namespaces: get",
                "pods: get list watch",
            ],
            &[],
            nfd,
            "Namespace",
            // Its own manifests have no conditions: reading the pod works, writing it is refused both ways.
            4,
        ),
        // Watching, the namespace, applying.
        peers("deployed-nfd", &["noderesourcetopologies: create get update"], &status, nfd, "none", 4),
    ]
}

/// The object comes, follows the pods, comes back when it is deleted, keeps what is foreign and has the right owner.
#[tokio::test]
async fn every_role_there_is_suffices() {
    let Some(rig) = Rig::start().await else { return };
    let node = make_node(&rig.client).await;
    let nrts = Api::<NodeResourceTopology>::all(rig.client.clone());
    for case in cases() {
        eprintln!("role: {}", case.name);
        let account = Account::create(&rig.control, case.name, "exporter").await.unwrap();
        account.allow(case.cluster.clone(), case.namespaced.clone()).await.unwrap();
        let pod = account.pod("us", OBJECT).await.unwrap();
        let mut settings = settings(&rig.flags);
        settings.publishing = Some(case.publishing);
        settings.kubeconfig = Some(account.kubeconfig(Some(&pod)).await.unwrap());
        settings.readiness = Some(PodName { namespace: case.name.to_owned(), name: "us".to_owned() });

        let before = counted(&rig.client, &["code=\"403\""]).await;
        rig.kubelet.hands_out(&[1]);
        let exporter = Exporter::with(settings);
        let first = shows(&rig.client, "cpu", BEFORE).await;
        let space = Api::<Namespace>::all(rig.client.clone()).get(case.name).await.unwrap();
        let owner = match case.owner {
            "Node" => vec![("Node".to_owned(), node.uid().unwrap())],
            "Namespace" => vec![("Namespace".to_owned(), space.uid().unwrap())],
            _ => vec![],
        };
        assert_eq!(owners(&first), owner, "{}", case.name);

        let theirs = json!({ "metadata": { "labels": { "theirs": "kept" } } });
        nrts.patch(OBJECT, &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
        rig.kubelet.hands_out(&[5]);
        let then = shows(&rig.client, "cpu", AFTER).await;
        assert_eq!((then.labels()["theirs"].as_str(), then.uid()), ("kept", first.uid()), "{}", case.name);
        assert_eq!(owners(&then), owner, "{}", case.name);

        if case.refusals > 0 {
            // Looking again and again, by whatever verb, changes nothing.
            let looks = async || counted(&rig.client, &["noderesourcetopologies"]).await;
            let now = looks().await;
            until("two looks", async || (looks().await >= now + 2).then_some(())).await;
            let still = nrts.get(OBJECT).await.unwrap();
            assert_eq!(still.resource_version(), then.resource_version(), "{}", case.name);
        }
        nrts.delete(OBJECT, &DeleteParams::default()).await.unwrap();
        let again = async || nrts.get_opt(OBJECT).await.unwrap().filter(|nrt| nrt.uid() != first.uid());
        let again = until("the object is there again", again).await;
        assert_eq!((show(&again, "cpu").as_str(), owners(&again)), (AFTER, owner), "{}", case.name);
        exporter.stop().await;
        let refusals = counted(&rig.client, &["code=\"403\""]).await - before;
        assert!(refusals <= case.refusals, "{}: {refusals} refusals", case.name);
        nrts.delete(OBJECT, &DeleteParams::default()).await.unwrap();
    }
}

/// Kind and UID of each owner.
pub(super) fn owners(nrt: &NodeResourceTopology) -> Vec<(String, String)> {
    nrt.owner_references().iter().map(|owner| (owner.kind.clone(), owner.uid.clone())).collect()
}

/// Requests that the policy may refuse, each with its outcome.
async fn tries(client: &Client, object: &str) -> Vec<(&'static str, bool)> {
    let nrts = Api::<NodeResourceTopology>::all(client.clone());
    let mut fresh = NodeResourceTopology::default();
    fresh.metadata.name = Some(object.to_owned());
    let refused = |error: &kube::Error| runtime::client::is_forbidden(error);
    let mut tried = Vec::new();
    // Only so that there is something to refuse; whether it worked is asked again below.
    let _ = nrts.create(&PostParams::default(), &fresh).await;
    let annotated = json!({ "metadata": { "annotations": { "touched": "1" } } });
    let patched = nrts.patch(object, &PatchParams::default(), &Patch::Merge(&annotated)).await;
    tried.push(("patch", outcome(patched, refused)));
    let applied = nrts.patch(object, &PatchParams::apply("another").force(), &Patch::Apply(&fresh)).await;
    tried.push(("apply", outcome(applied, refused)));
    let mut there = nrts.get(object).await.unwrap();
    there.metadata.annotations = Some([("put".to_owned(), "1".to_owned())].into());
    tried.push(("update", outcome(nrts.replace(object, &PostParams::default(), &there).await, refused)));
    let selected = ListParams::default().fields(&format!("metadata.name={object}"));
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    tried.push(("deletecollection", outcome(nrts.delete_collection(&dry, &selected).await, refused)));
    tried.push(("delete", outcome(nrts.delete(object, &DeleteParams::default()).await, refused)));
    tried
}

/// Whether it worked; the only other thing that may happen is a refusal.
fn outcome<T>(result: kube::Result<T>, refused: impl Fn(&kube::Error) -> bool) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => {
            assert!(refused(&error), "{error}");
            false
        }
    }
}

const VERBS: [&str; 5] = ["patch", "apply", "update", "deletecollection", "delete"];

#[tokio::test]
async fn an_exporter_writes_the_object_of_its_own_node_only() {
    let Some(rig) = Rig::start().await else { return };
    make_node(&rig.client).await;
    let account = Account::create(&rig.control, "numa", "exporter").await.unwrap();
    let all = "noderesourcetopologies: get list watch create patch update delete deletecollection";
    account.allow(vec![rule(all), rbac::owner_node()], rbac::conditions().to_vec()).await.unwrap();
    let (here, there) =
        (account.pod("here", OBJECT).await.unwrap(), account.pod("there", "node-1").await.unwrap());
    let open = async |pod: Option<&Pod>| {
        let kubeconfig = account.kubeconfig(pod).await.unwrap();
        let options = runtime::client::Options { kubeconfig: Some(kubeconfig), ..Default::default() };
        let connection = runtime::client::Connection::open(&options).await.unwrap();
        connection.client_with_timeout(PATIENCE).unwrap()
    };
    let (own, other, homeless) = (open(Some(&here)).await, open(Some(&there)).await, open(None).await);
    let nrts = Api::<NodeResourceTopology>::all(rig.client.clone());
    let mut fresh = NodeResourceTopology::default();
    fresh.metadata.name = Some(OBJECT.to_owned());

    let condition =
        Patch::Strategic(json!({ "status": { "conditions": [{ "type": "Tried", "status": "True" }] } }));
    let tells_pod = async |client: &Client, pod: &str| {
        let pods = Api::<Pod>::namespaced(client.clone(), "numa");
        let told = pods.patch_status(pod, &PatchParams::default(), &condition).await;
        outcome(told, runtime::client::is_forbidden)
    };
    // Roles alone would let any exporter do anything with any object, and tell any pod anything.
    assert!(tells_pod(&own, "there").await);
    for client in [&own, &other, &homeless] {
        assert_eq!(tries(client, OBJECT).await, VERBS.map(|verb| (verb, true)));
    }
    let (policy, binding) = admission_policy("numa", "exporter");
    Api::all(rig.client.clone()).create(&PostParams::default(), &policy).await.unwrap();
    Api::all(rig.client.clone()).create(&PostParams::default(), &binding).await.unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let refusal = async || {
        let nrts = Api::<NodeResourceTopology>::all(other.clone());
        nrts.create(&dry, &fresh).await.err()
    };
    let refusal = until("the policy is in force", refusal).await;
    assert!(runtime::client::is_forbidden(&refusal), "{refusal}");
    let message = "an exporter may write the NodeResourceTopology of its own node only: this one is on node-1, the object \
                   is of node-0";
    assert!(refusal.to_string().contains(message), "{refusal}");

    assert_eq!(tries(&own, OBJECT).await, VERBS.map(|verb| (verb, true)), "its own");
    for (name, client) in [("of another node", &other), ("of no node", &homeless)] {
        let mine = Api::<NodeResourceTopology>::all(client.clone());
        let created = mine.create(&PostParams::default(), &fresh).await;
        assert!(!outcome(created, runtime::client::is_forbidden), "create, {name}");
        let applied = mine.patch(OBJECT, &PatchParams::apply("x"), &Patch::Apply(&fresh)).await;
        assert!(!outcome(applied, runtime::client::is_forbidden), "create by apply, {name}");
        nrts.create(&PostParams::default(), &fresh).await.unwrap();
        let before = nrts.get(OBJECT).await.unwrap();
        assert_eq!(tries(client, OBJECT).await, VERBS.map(|verb| (verb, false)), "{name}");
        assert_eq!(nrts.get(OBJECT).await.unwrap(), before, "{name}");
        nrts.delete(OBJECT, &DeleteParams::default()).await.unwrap();
    }
    assert_eq!(tries(&rig.client, OBJECT).await, VERBS.map(|verb| (verb, true)), "administrators");
    let told =
        [tells_pod(&own, "here").await, tells_pod(&own, "there").await, tells_pod(&homeless, "here").await];
    assert_eq!(told, [true, false, false]);
    assert!(tells_pod(&rig.client, "there").await, "administrators");

    // And the exporter itself lives with it.
    let mut settings = settings(&rig.flags);
    settings.publishing = Some(PATCHING);
    settings.kubeconfig = Some(account.kubeconfig(Some(&here)).await.unwrap());
    let exporter = Exporter::with(settings);
    shows(&rig.client, "cpu", BEFORE).await;
    rig.kubelet.hands_out(&[5]);
    shows(&rig.client, "cpu", AFTER).await;
    exporter.stop().await;
}
