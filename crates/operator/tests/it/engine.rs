//! The engine on a real API server: after any change by other clients our objects are as desired, and then at rest.

use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use objects::Object;
use objects::ObjectKey;
use objects::applier::Planned;
use objects::client::ApiServer;
use objects::equality::content;
use objects::last_applied::LastApplied;
use operator::cluster_state::{ClusterState, Environment, Image};
use operator::desired::{Controller, Desired, DesiredObject, MANAGED_BY, MANAGER};
use operator::plan::{PlanInputs, plan};
use operator::reconcile::metrics::Metrics;
use operator::reconcile::rules::Rules;
use operator::reconcile::{Applier, Change, ControllerSet, Outcome, Shared, applier};
use prometheus_client::registry::Registry;
use runtime::client::{Connection, Options};
use runtime::random::Random;
use serde_json::{Value, json};
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env::rig;
use testkit::proxy::Proxy;
use tokio_util::sync::CancellationToken;

#[path = "engine/wanted.rs"]
mod wanted;

use wanted::{NAMESPACE, edit, edits, owner};

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(60);
/// Random histories; each is a few edits of each object.
const SEEDS: u64 = 50;

/// An API server, what is wanted of it, and who makes it so.
struct Engine {
    _control: ControlPlane,
    proxy: Proxy,
    admin: Client,
    applier: Applier,
    last: LastApplied,
    wanted: Vec<DesiredObject>,
}

impl Engine {
    async fn start() -> Option<Self> {
        let rig = rig().ok()?;
        let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
        let proxy = Proxy::start(&control, control.process_group().dir()).await.unwrap();
        let options = Options { kubeconfig: Some(proxy.kubeconfig().to_owned()), ..Options::default() };
        let client = Connection::open(&options).await.unwrap().client_with_timeout(PATIENCE).unwrap();
        let admin = control.client().await.unwrap();
        let namespace = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } })).unwrap();
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(admin.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let cancel = CancellationToken::new();
        let api_server = ApiServer { client, manager: MANAGER, dry_run: false, patience: PATIENCE, cancel };
        let metrics = Metrics::register(&mut Registry::default());
        let applier = applier(api_server, Shared::new(ClusterState::new(environment())), metrics);
        let last = LastApplied::default();
        Some(Self { _control: control, proxy, admin, applier, last, wanted: wanted::all() })
    }

    /// What a watch would have told by now.
    async fn look(&self) {
        let all = join_all(self.wanted.iter().map(|wanted| self.get(&wanted.object))).await;
        self.applier.observer.shared.update(|cluster| {
            for (wanted, live) in self.wanted.iter().zip(all) {
                match live {
                    Some(live) => cluster.observed.insert(wanted.key(), live),
                    None => cluster.observed.remove(&wanted.key()),
                }
            }
            ControllerSet::new()
        });
    }

    async fn get(&self, object: &Object) -> Option<Value> {
        let found = api(&self.admin, object).get_opt(object.name()).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    fn plan(&self, desired: &Desired) -> Vec<Planned> {
        self.applier.observer.shared.read(|cluster| {
            let owners = [owner().uid].into();
            let last = &self.last;
            let inputs =
                PlanInputs { observed: &cluster.observed, owners: &owners, others_desire: &|_| false, last };
            plan(Controller::NumaResourcesOperator, desired, inputs)
        })
    }

    async fn round(&mut self, desired: &Desired) -> Outcome {
        let changes = self.plan(desired);
        self.applier.apply(changes, &mut self.last).await
    }

    fn desired(&self) -> Desired {
        Desired::Objects(self.wanted.clone())
    }

    /// All objects as they were seen last, without what others may note on them.
    fn state(&self) -> Vec<(ObjectKey, Value)> {
        self.applier.observer.shared.read(|cluster| {
            let state = self.wanted.iter().map(|wanted| {
                let live = cluster.observed.get(&wanted.key()).cloned().unwrap_or_default();
                (wanted.key(), stated(&content(&live), &wanted.object.body()["metadata"]))
            });
            state.collect()
        })
    }

    fn writes(&self) -> usize {
        self.proxy.seen().iter().filter(|seen| seen.is_write()).count()
    }

    /// As others see it, it is mended in one go, and then nothing is left to do.
    async fn mends(&mut self, case: &str, sound: &[(ObjectKey, Value)]) {
        self.look().await;
        let desired = self.desired();
        let done = self.round(&desired).await;
        assert_eq!(done.errors, Vec::<String>::new(), "{case}");
        self.look().await;
        for ((key, now), (_, was)) in self.state().into_iter().zip(sound) {
            assert_eq!(&now, was, "{case}: {key} after {:?}", done.changed);
        }
        let rest = self.plan(&desired);
        assert!(rest.is_empty(), "{case}: {rest:#?}");
        // What a restart would find.
        let fresh = std::mem::take(&mut self.last);
        let rest = self.plan(&desired);
        assert!(rest.is_empty(), "{case}, after a restart: {rest:#?}");
        self.last = fresh;
    }
}

/// The same without labels and annotations of others, and without what is the API server's to give.
fn stated(body: &Value, ours: &Value) -> Value {
    let mut body = body.clone();
    let metadata = body["metadata"].as_object_mut().unwrap();
    for marks in ["labels", "annotations"] {
        let stated = |key: &str| ours[marks].get(key).is_some();
        if let Some(there) = metadata.get_mut(marks).and_then(Value::as_object_mut) {
            there.retain(|key, _| stated(key));
        }
        if metadata.get(marks).and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
            metadata.remove(marks);
        }
    }
    if let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|field, _| !matches!(field.as_str(), "clusterIP" | "clusterIPs"));
    }
    body
}

fn environment() -> Environment {
    Environment {
        platform: deployer::platform::Platform::Kubernetes,
        version: None,
        namespace: NAMESPACE.to_owned(),
        own: Image::default(),
        image: Image::default(),
        exporter_image_restricted: true,
        trusted_schedulers: None,
        forward_pool_conditions: false,
        api_server_ports: vec![6443],
        kubelet: None,
        api_server_cidrs: Vec::new(),
        kubelet_root_mount: false,
        only_own_scheduler: false,
    }
}

fn api(client: &Client, object: &Object) -> Api<DynamicObject> {
    let resource = object.kind().resource();
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// The way another client writes.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// As `kubectl edit`.
    Merge,
    /// As clients in Go.
    Replace,
    /// As another controller that applies, and insists.
    Apply,
}

/// Another client's write; returns whether the API server accepted it.
async fn write(client: &Client, object: &Object, live: &Value, edited: &Value, way: Way) -> bool {
    let api = api(client, object);
    let manager = Some("eve".to_owned());
    let result = match way {
        Way::Merge => {
            let params = PatchParams { field_manager: manager, ..PatchParams::default() };
            let patch = runtime::status::merge_patch(live, edited).unwrap_or_else(|| json!({}));
            api.patch(object.name(), &params, &Patch::Merge(patch)).await
        }
        Way::Replace => {
            let params = PostParams { field_manager: manager, ..PostParams::default() };
            api.replace(object.name(), &params, &serde_json::from_value(edited.clone()).unwrap()).await
        }
        Way::Apply => {
            let mut body = edited.clone();
            for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"] {
                body["metadata"].as_object_mut().unwrap().remove(field);
            }
            body.as_object_mut().unwrap().remove("status");
            api.patch(object.name(), &PatchParams::apply("eve").force(), &Patch::Apply(body)).await
        }
    };
    match result {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => false,
        Err(error) => panic!("{object}: {error}"),
    }
}

/// One change of an object by another client; returns its name, if the API server accepted it.
async fn meddle(client: &Client, object: &Object, random: &mut Random) -> Option<String> {
    let live = serde_json::to_value(api(client, object).get_opt(object.name()).await.unwrap()?).unwrap();
    let mut edited = live.clone();
    let way = [Way::Merge, Way::Replace, Way::Apply][pick(random, 3)];
    let edits = edits(&object.kind().kind);
    let is_shared = object.kind().kind == "CustomResourceDefinition";
    let what = match pick(random, 12) {
        0 => {
            edited["metadata"]["labels"].as_object_mut().unwrap().remove(MANAGED_BY);
            "label removed".to_owned()
        }
        1 => {
            edited["metadata"]["labels"]["app.example.com/more"] = "x".into();
            edited["metadata"]["annotations"]["app.example.com/more"] = "x".into();
            "labels added".to_owned()
        }
        2 if !is_shared => {
            edited["metadata"]["ownerReferences"] = json!([
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "eve", "uid": "e", "controller": true },
            ]);
            "references replaced".to_owned()
        }
        3 if !is_shared => {
            edited["metadata"].as_object_mut().unwrap().remove("ownerReferences");
            "references removed".to_owned()
        }
        4 => {
            let patch = json!({ "metadata": { "managedFields": [{}] } });
            let patch = Patch::Merge(patch);
            api(client, object).patch(object.name(), &PatchParams::default(), &patch).await.unwrap();
            return Some("claims forgotten".to_owned());
        }
        5 if !is_shared => {
            api(client, object).delete(object.name(), &DeleteParams::default()).await.unwrap();
            return Some("deleted".to_owned());
        }
        6 if object.kind().kind == "Deployment" => {
            let params = PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
            let patch = Patch::Merge(json!({ "spec": { "replicas": pick(random, 9) } }));
            api(client, object).patch_scale(object.name(), &params, &patch).await.unwrap();
            return Some("scaled".to_owned());
        }
        _ => {
            let change = &edits[pick(random, edits.len())];
            if !edit(&mut edited, change) {
                return None;
            }
            format!("{change:?}")
        }
    };
    write(client, object, &live, &edited, way).await.then(|| format!("{way:?} {what}"))
}

fn pick(random: &mut Random, below: usize) -> usize {
    usize::try_from(random.bits() % u64::try_from(below).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_other_clients_are_repaired_in_one_reconcile() {
    // S013, U011, U013, B-10, B-18.
    let Some(mut engine) = Engine::start().await else { return };
    let desired = engine.desired();
    let done = engine.round(&desired).await;
    assert_eq!(done.errors, Vec::<String>::new());
    assert!(done.changed.iter().all(|(_, change)| *change == Change::Created), "{:?}", done.changed);
    assert_eq!(done.changed.len(), engine.wanted.len());
    assert_eq!(engine.writes(), engine.wanted.len(), "one write for each object");
    engine.look().await;
    let sound = engine.state();
    engine.mends("nothing happened", &sound).await;
    // Each edit alone, in each way.
    for wanted in engine.wanted.clone() {
        for change in edits(&wanted.object.kind().kind) {
            for way in [Way::Merge, Way::Replace, Way::Apply] {
                let live = engine.get(&wanted.object).await.unwrap();
                let mut edited = live.clone();
                if edit(&mut edited, &change)
                    && write(&engine.admin, &wanted.object, &live, &edited, way).await
                {
                    engine.mends(&format!("{} {change:?} {way:?}", wanted.object), &sound).await;
                }
            }
        }
    }
    for seed in 1..=SEEDS {
        let mut random = Random::seeded(seed);
        let mut case = format!("seed {seed}");
        for _ in 0..=pick(&mut random, 5) {
            let wanted = engine.wanted[pick(&mut random, engine.wanted.len())].clone();
            if let Some(what) = meddle(&engine.admin, &wanted.object, &mut random).await {
                case += &format!("; {}: {what}", wanted.object);
            }
        }
        engine.mends(&case, &sound).await;
    }
}

/// How often a controller has looked.
fn looks(registry: &Registry, controller: Controller) -> u64 {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let name = format!("tholepin_operator_reconciles_total{{controller=\"{}\"}} ", controller.name());
    text.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().unwrap())
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < end, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_reconciles_after_changes_only() {
    // U011.
    let Some(engine) = Engine::start().await else { return };
    let all = || wanted::all().len();
    let mut registry = Registry::default();
    let client = engine.applier.api_server.client.clone();
    let (recorder, writer) = runtime::events::channel(client.clone(), "engine", &mut registry);
    drop(writer);
    let shared = engine.applier.observer.shared.clone();
    let loops = operator::reconcile::Engine::new(shared.clone(), client, recorder, &mut registry);
    let loops = loops.with_rules(|controller| match controller {
        Controller::NumaResourcesOperator => {
            let desired = |_: &ClusterState| Desired::Objects(wanted::all());
            Rules { desired, status: |_, _, _| Vec::new(), ..Rules::of(controller) }
        }
        // A ConfigMap that is not desired would be deleted.
        other => Rules { desired: |_| Desired::Keep, ..Rules::of(other) },
    });
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let task = tokio::spawn(async move { loops.run(stop).await });
    let known = || shared.read(|cluster| cluster.observed.iter().count());
    let ours = Controller::NumaResourcesOperator;
    until("all are there", || known() == all() && looks(&registry, ours) == 1).await;
    assert_eq!(engine.writes(), all());
    // News that is none.
    let set = engine.wanted.iter().find(|wanted| wanted.key().kind.kind == "DaemonSet").unwrap();
    shared.observe(set.key(), engine.get(&set.object).await.unwrap());
    // Damage, and what is left to do after it was mended.
    let live = engine.get(&set.object).await.unwrap();
    let mut edited = live.clone();
    edited["spec"]["template"]["spec"]["hostNetwork"] = true.into();
    assert!(write(&engine.admin, &set.object, &live, &edited, Way::Merge).await);
    shared.observe(set.key(), engine.get(&set.object).await.unwrap());
    until("it was looked at again", || looks(&registry, ours) == 2).await;
    assert_eq!(
        engine.get(&set.object).await.unwrap()["spec"]["template"]["spec"]["hostNetwork"],
        Value::Null
    );
    assert_eq!(engine.writes(), all() + 2, "others' claims are taken, and what is wanted is applied");
    shared.observe(set.key(), engine.get(&set.object).await.unwrap());
    shared.queue().extend(Controller::ALL);
    until("it was woken", || looks(&registry, ours) == 3).await;
    assert_eq!(engine.writes(), all() + 2, "nothing is left to do");
    cancel.cancel();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_of_the_api_server_are_no_difference() {
    let Some(mut engine) = Engine::start().await else { return };
    // It leaves out what is false, and writes amounts its own way; so it never says what is wanted.
    let set = engine.wanted.iter_mut().find(|wanted| wanted.key().kind.kind == "DaemonSet").unwrap();
    let mut body = set.object.body().clone();
    body["spec"]["template"]["spec"]["hostNetwork"] = false.into();
    body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000m".into();
    set.object = Object::from_value(set.object.kind().clone(), body).unwrap();
    engine.wanted = vec![set.clone()];
    let desired = engine.desired();
    // how often it was written so far, what was done to it
    for (writes, actions) in [(2, &[Change::Created][..]), (2, &[])] {
        let done = engine.round(&desired).await;
        engine.look().await;
        let got: Vec<Change> = done.changed.iter().map(|(_, change)| *change).collect();
        assert_eq!((engine.writes(), got.as_slice(), done.errors.len()), (writes, actions, 0));
    }
    engine.last = LastApplied::default();
    let done = engine.round(&desired).await;
    assert_eq!((engine.writes(), done), (3, Outcome::default()), "after a restart it is tried once more");
    // Damage is still seen.
    let live = engine.get(&engine.wanted[0].object).await.unwrap();
    let mut edited = live.clone();
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = "other".into();
    assert!(write(&engine.admin, &engine.wanted[0].object, &live, &edited, Way::Merge).await);
    engine.look().await;
    assert_eq!(engine.round(&desired).await.changed.len(), 1);
    engine.look().await;
    assert!(engine.plan(&desired).is_empty());
}
