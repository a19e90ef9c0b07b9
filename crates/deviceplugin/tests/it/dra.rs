//! Resource claims: the real scheduler allocates, the real kubelet asks, and containers get names of the Container
//! Device Interface.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use deviceplugin::config::Config;
use deviceplugin::dra;
use deviceplugin::settings::ConfigSource;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimStatus, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use node::draplugin::wire::dra_plugin_client::DraPluginClient;
use node::draplugin::{SocketPaths, wire};
use serde_json::{Value, json};
use testkit::account::Account;
use testkit::cri::ContainerView;
use tokio::time::{Instant, sleep};
use tonic::Code;
use tonic::transport::Channel;

use crate::faults::{ask, send_garbage, send_oversized_status};
use crate::rig::{NIC, PATIENCE, Rig, Running, channel, entry, listed, replace, run, until};

const DRIVER: &str = "devices.example.com";

/// The name of a device of [`NIC`] in slices.
fn nic(id: &str) -> String {
    dra::slice_devices::name(NIC, id)
}

/// A node whose devices are offered by claims, with a scheduler that allocates them.
struct Claims {
    rig: Rig,
    kubeconfig: PathBuf,
    /// The port of the plugin's health and metrics.
    port: u16,
}

impl Claims {
    async fn start() -> Option<Self> {
        let rig = Box::pin(Rig::with(|builder| builder.scheduler(true).controller_manager(true))).await?;
        // The account has the rules next to the code, and no more.
        let account = Account::create(rig.cluster.control(), "devices", "plugin").await.unwrap();
        account.allow(dra::rbac::rules(), Vec::new()).await.unwrap();
        let (policy, binding) = dra::policy::admission_policy("devices", "plugin");
        Api::all(rig.client.clone()).create(&PostParams::default(), &policy).await.unwrap();
        Api::all(rig.client.clone()).create(&PostParams::default(), &binding).await.unwrap();
        let pod = account.pod("plugin", "node-0").await.unwrap();
        let kubeconfig = account.kubeconfig(Some(&pod)).await.unwrap();
        let class = json!({"metadata": {"name": "nic"}, "spec": {"selectors": [{"cel": {"expression":
            format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].resource == '{NIC}'")}}]}});
        let class: DeviceClass = serde_json::from_value(class).unwrap();
        Api::all(rig.client.clone()).create(&PostParams::default(), &class).await.unwrap();
        Some(Self { rig, kubeconfig, port: testkit::port::free().unwrap() })
    }

    /// Starts the plugin with these devices.
    fn plugin(&self, devices: &[&str]) -> Running {
        let config = Config::parse("test", &listed(NIC, devices, "")).unwrap();
        self.plugin_of(ConfigSource::Flags(config))
    }

    fn plugin_of(&self, source: ConfigSource) -> Running {
        let root = self.rig.cluster.nodes()[0].kubelet().root_dir();
        let mut settings = self.rig.settings(source);
        settings.http = Some((Ipv4Addr::LOCALHOST, self.port).into());
        settings.dra = Some(dra::Settings {
            driver: DRIVER.to_owned(),
            node: "node-0".to_owned(),
            kubeconfig: Some(self.kubeconfig.clone()),
            plugins: root.join("plugins"),
            registry: root.join("plugins_registry"),
            cdi_dir: self.rig.cdi_dir(),
            orphaned_after: Duration::from_secs(2),
        });
        run(settings)
    }

    /// Waits until the plugin reports that the kubelet has registered everything: the kubelet retries a failed
    /// preparation only after a minute.
    async fn registered(&self) {
        until("ready", async || ask(self.port, "/readyz").await?.ends_with("ok").then_some(())).await;
    }

    /// Waits until a metric of the plugin is above zero.
    async fn counted(&self, metric: &str) {
        until(metric, async || {
            let metrics = ask(self.port, "/metrics").await?;
            let value =
                metrics.lines().find_map(|line| line.strip_prefix(metric)?.trim().parse::<f64>().ok());
            (value? > 0.0).then_some(())
        })
        .await;
    }

    /// The sockets of the driver: for registration, and for claims.
    fn sockets(&self) -> [PathBuf; 2] {
        let root = self.rig.cluster.nodes()[0].kubelet().root_dir();
        let paths = SocketPaths {
            driver: DRIVER.to_owned(),
            plugins: root.join("plugins"),
            registry: self.rig.registry(),
        };
        [paths.registration().path(), paths.socket()]
    }

    async fn slices(&self) -> Vec<ResourceSlice> {
        let api = Api::<ResourceSlice>::all(self.rig.client.clone());
        api.list(&ListParams::default()).await.unwrap().items
    }

    /// Waits until these devices are offered, as `id zone`; returns the pool's generation.
    async fn offered(&self, wanted: &[&str]) -> i64 {
        let wanted: Vec<_> = wanted.iter().map(|device| (NIC, *device)).collect();
        self.offered_of(&wanted).await
    }

    /// Like `offered`, with the resource of each device.
    async fn offered_of(&self, wanted: &[(&str, &str)]) -> i64 {
        let named = |(resource, device): &(&str, &str)| {
            let (id, zone) = device.split_once(' ').unwrap();
            format!("{} {zone}", dra::slice_devices::name(resource, id))
        };
        let named: BTreeSet<_> = wanted.iter().map(named).collect();
        until(&format!("{wanted:?} in slices"), async || {
            let slices = self.slices().await;
            let mut found = BTreeSet::new();
            for device in slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten()) {
                let zone = device.attributes.as_ref().and_then(|all| all.get(dra::slice_devices::NUMA_NODE));
                let zone = zone.and_then(|zone| zone.int).map_or("-".to_owned(), |zone| zone.to_string());
                found.insert(format!("{} {zone}", device.name));
            }
            let generation = slices.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or_default();
            (found == named).then_some(generation)
        })
        .await
    }

    /// Creates a claim of one device in this zone, and a pod that uses it.
    async fn pod(&self, name: &str, zone: u32) {
        let environment = format!("device.attributes['resource.kubernetes.io'].numaNode == {zone}");
        let exactly = json!({"deviceClassName": "nic", "selectors": [{"cel": {"expression": environment}}]});
        self.pod_of(name, json!([{"name": "nic", "exactly": exactly}]), &[None]).await;
    }

    /// Creates a claim with these requests, and a pod with a container for each of `used`: the request that it names,
    /// or none for the whole claim.
    async fn pod_of(&self, name: &str, requests: Value, used: &[Option<&str>]) {
        let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}});
        let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
        self.claims().create(&PostParams::default(), &claim).await.unwrap();
        let container = |(index, request): (usize, &Option<&str>)| {
            let mut claim = json!({"name": "nic"});
            if let Some(request) = request {
                claim["request"] = json!(request);
            }
            let name = ["c", "d", "e"][index];
            let resources = json!({"claims": [claim]});
            json!({"name": name, "image": "nobody", "imagePullPolicy": "IfNotPresent", "resources": resources})
        };
        let containers: Vec<_> = used.iter().enumerate().map(container).collect();
        let pod = json!({"metadata": {"name": name}, "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "resourceClaims": [{"name": "nic", "resourceClaimName": name}], "containers": containers}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.rig.pods().create(&PostParams::default(), &pod).await.unwrap();
    }

    /// Waits until a pod runs. A kubelet that has just started may ask before it has found the driver, and retries only
    /// after a minute or more, so this takes longer than anything else.
    async fn runs(&self, name: &str) {
        let began = Instant::now();
        while self.rig.state(name).await.0 != "Running" {
            assert!(began.elapsed() < 4 * PATIENCE, "{name}: {:?}", self.rig.state(name).await);
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn claims(&self) -> Api<ResourceClaim> {
        Api::default_namespaced(self.rig.client.clone())
    }

    async fn uid(&self, claim: &str) -> String {
        self.claims().get(claim).await.unwrap().metadata.uid.unwrap()
    }

    /// The device names that the runtime got for a pod's first container.
    fn cdi_names(&self, pod: &str) -> Option<Vec<String>> {
        Some(self.container(pod, "c")?.cdi_devices)
    }

    /// A container as the runtime got it.
    fn container(&self, pod: &str, name: &str) -> Option<ContainerView> {
        let snapshot = self.rig.cluster.nodes()[0].cri().snapshot();
        snapshot.pod("default", pod)?.container(name).cloned()
    }

    /// The UIDs in files of claims, without the device plugin's own file.
    fn files(&self) -> BTreeSet<String> {
        let kind = dra::kind_of(DRIVER).unwrap();
        cdi::file::transient_ids(&self.rig.cdi_dir(), &kind).unwrap().into_iter().collect()
    }

    async fn delete(&self, name: &str) {
        self.rig.pods().delete(name, &DeleteParams::default()).await.unwrap();
        until(&format!("{name} gone"), async || {
            self.rig.pods().get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
        self.claims().delete(name, &DeleteParams::default()).await.unwrap();
        until(&format!("claim {name} gone"), async || {
            self.claims().get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn claims_work_from_class_to_container_through_restarts() {
    let Some(claims) = Claims::start().await else { return };
    let plugin = claims.plugin(&["a 0", "b 1", "!c 0"]);
    let first = claims.offered(&["a 0", "b 1"]).await;
    let slice = claims.slices().await.remove(0);
    let owner = slice.metadata.owner_references.unwrap().remove(0);
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str(), slice.spec.node_name.as_deref()),
        ("Node", "node-0", Some("node-0"))
    );

    claims.registered().await;
    claims.pod("one", 1).await;
    claims.runs("one").await;
    let uid = claims.uid("one").await;
    let name = format!("{DRIVER}/claim={uid}-{}", nic("b"));
    assert_eq!(claims.cdi_names("one"), Some(vec![name.clone()]));
    assert_eq!(claims.files(), BTreeSet::from([uid.clone()]));
    // The name that the runtime got can be resolved.
    let registry = cdi::Registry::read(&[claims.rig.cdi_dir()]);
    assert!(
        registry.device(&name.parse().unwrap()).is_some() && !registry.has_errors(),
        "{:?}",
        registry.findings
    );

    // The kubelet restarts: it removes all slices, finds the driver again, and prepares again where it has to.
    claims.rig.cluster.nodes()[0].kubelet().restart().await.unwrap();
    until("slices written again", async || (claims.offered(&["a 0", "b 1"]).await > first).then_some(()))
        .await;
    claims.pod("two", 0).await;
    claims.runs("two").await;

    // The plugin restarts, with one device in use removed and one added.
    plugin.stop().await;
    let plugin = claims.plugin(&["a 0", "!b 1", "d 0"]);
    claims.offered(&["a 0", "d 0"]).await;
    assert_eq!(claims.files().len(), 2);
    claims.registered().await;
    claims.pod("three", 0).await;
    claims.runs("three").await;
    let uid = claims.uid("three").await;
    assert_eq!(claims.cdi_names("three"), Some(vec![format!("{DRIVER}/claim={uid}-{}", nic("d"))]));

    for pod in ["one", "two", "three"] {
        claims.delete(pod).await;
    }
    until("files of claims gone", async || claims.files().is_empty().then_some(())).await;
    claims.offered(&["a 0", "d 0"]).await;
    for what in ["prepared", "unprepared", "slices_written"] {
        claims.counted(&format!("tholepin_device_plugin_dra_{what}_total{{result=\"ok\"}}")).await;
    }

    // The plugin ends for good: the kubelet removes the slices.
    plugin.stop().await;
    until("slices gone", async || claims.slices().await.is_empty().then_some(())).await;
}

/// The scheduler writes `<request>/<subrequest>` where a request has alternatives; containers name the request.
#[tokio::test]
async fn each_container_gets_the_devices_of_the_request_it_names() {
    let Some(claims) = Claims::start().await else { return };
    let device = |id: &str, zone: u32| format!("{{id: {id}, numanode: {zone}, envs: {{CARD: {id}}}}}");
    let devices = [device("a", 0), device("b", 1), device("c", 1)].join(", ");
    let list = format!("- name: {NIC}\n  discovery: {{list: {{devices: {{\"*\": [{devices}]}}}}}}\n");
    let config = Config::parse("test", &format!("version: v1alpha1\nresources:\n{list}")).unwrap();
    let plugin = claims.plugin_of(ConfigSource::Flags(config));
    claims.offered(&["a 0", "b 1", "c 1"]).await;
    claims.registered().await;
    let at = |zone: u32| {
        let environment = format!("device.attributes['resource.kubernetes.io'].numaNode == {zone}");
        json!([{"cel": {"expression": environment}}])
    };
    let many = json!({"name": "many", "deviceClassName": "nic", "count": 5});
    let small = json!({"name": "small", "deviceClassName": "nic", "selectors": at(0)});
    let two = json!({"deviceClassName": "nic", "count": 2, "selectors": at(1)});
    let requests =
        json!([{"name": "first", "firstAvailable": [many, small]}, {"name": "second", "exactly": two}]);
    claims.pod_of("one", requests, &[Some("first"), Some("second"), None]).await;
    claims.runs("one").await;
    let result = claims.claims().get("one").await.unwrap().status.unwrap().allocation.unwrap();
    let results = result.devices.unwrap().results.unwrap();
    assert!(results.iter().any(|result| result.request == "first/small"), "{results:?}");
    let uid = claims.uid("one").await;
    for (name, wanted, cards) in [
        ("c", &["a"][..], &["a"][..]),
        ("d", &["b", "c"], &["b,c"]),
        // One value of each request, of which the runtime keeps one.
        ("e", &["a", "b", "c"], &["a", "b,c"]),
    ] {
        let wanted: BTreeSet<_> =
            wanted.iter().map(|id| format!("{DRIVER}/claim={uid}-{}", nic(id))).collect();
        let container = claims.container("one", name).unwrap();
        let card = claims.rig.variables(&container).remove("CARD").unwrap();
        assert!(cards.contains(&&*card), "{name}: {card}");
        let names: BTreeSet<_> = container.cdi_devices.into_iter().collect();
        assert_eq!(names, wanted, "{name}");
    }
    plugin.stop().await;
}

/// Asks the plugin to prepare a claim, as a kubelet would; returns the runtime's names, or the error.
async fn prepare(
    kubelet: &mut DraPluginClient<Channel>,
    name: &str,
    uid: &str,
) -> Result<Vec<String>, String> {
    let claims =
        vec![wire::Claim { namespace: "default".to_owned(), uid: uid.to_owned(), name: name.to_owned() }];
    let request = wire::NodePrepareResourcesRequest { claims };
    let mut answer = kubelet.node_prepare_resources(request).await.unwrap().into_inner().claims;
    let one = answer.remove(uid).expect("an answer for each claim");
    if one.error.is_empty() {
        Ok(one.devices.into_iter().flat_map(|device| device.cdi_device_ids).collect())
    } else {
        Err(one.error)
    }
}

#[tokio::test]
async fn prepared_claims_stay_and_no_device_is_in_two_claims() {
    let Some(claims) = Claims::start().await else { return };
    let plugin = claims.plugin(&["a 0", "b 1"]);
    claims.offered(&["a 0", "b 1"]).await;
    claims.registered().await;
    let kind = dra::kind_of(DRIVER).unwrap();
    // A file as the first versions wrote it: with another name, and without resource and id.
    let write = |uid: &str, claim: &str, device: &str| {
        let edits = cdi::ContainerEdits { env: vec!["A=b".to_owned()], ..cdi::ContainerEdits::default() };
        let mut described = cdi::Device::new(format!("{uid}-{device}"), edits);
        described.annotations.insert(dra::claim_file::DEVICE.to_owned(), device.to_owned());
        let mut spec = cdi::Spec::new(&kind, vec![described]);
        spec.annotations.insert(dra::claim_file::CLAIM.to_owned(), claim.to_owned());
        let file = cdi::FileName::transient(&kind, uid).unwrap();
        cdi::file::write(&claims.rig.cdi_dir(), &file, &spec).unwrap();
    };
    // A claim with another device does not matter.
    write("elsewhere", "default/elsewhere", "nic-b");
    claims.pod("one", 0).await;
    claims.runs("one").await;
    let uid = claims.uid("one").await;
    assert_eq!(claims.files(), [uid.clone(), "elsewhere".to_owned()].into_iter().collect::<BTreeSet<_>>());

    // A repeated call changes nothing, and neither does garbage.
    let root = claims.rig.cluster.nodes()[0].kubelet().root_dir();
    let mut kubelet =
        DraPluginClient::new(channel(&root.join("plugins").join(DRIVER).join("dra.sock")).await);
    let name = format!("{DRIVER}/claim={uid}-{}", nic("a"));
    let file = claims.rig.cdi_dir().join(cdi::FileName::transient(&kind, &uid).unwrap().as_str());
    let before = std::fs::metadata(&file).unwrap().modified().unwrap();
    assert_eq!(prepare(&mut kubelet, "one", &uid).await, Ok(vec![name]));
    for (claim, uid, words) in [
        ("one", "another", "it was created again"),
        ("none", &*uid, "no longer exists"),
        ("one", "../../one", "UID \"../../one\" of a claim: allowed are"),
        ("../one", &*uid, "name \"../one\" of a claim: allowed are"),
        ("one", "", "allowed are"),
    ] {
        let error = prepare(&mut kubelet, claim, uid).await.unwrap_err();
        assert!(error.contains(words), "{claim} {uid}: {error}");
    }
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), before, "not written again");
    assert_eq!(claims.files().len(), 2);

    // A claim is allocated a device that another claim still holds.
    let mut claim = claims.claims().get("one").await.unwrap();
    claim.metadata = ObjectMeta { name: Some("two".to_owned()), ..ObjectMeta::default() };
    let status = claim.status.take();
    let mut made = claims.claims().create(&PostParams::default(), &claim).await.unwrap();
    made.status = status.map(|status| ResourceClaimStatus { reserved_for: None, ..status });
    let made = claims.claims().replace_status("two", &PostParams::default(), &made).await.unwrap();
    let two = made.metadata.uid.unwrap();
    let error = prepare(&mut kubelet, "two", &two).await.unwrap_err();
    let words = format!("device {} of claim default/two is still held by claim default/one", nic("a"));
    assert!(error.starts_with(&words), "{error}");
    claims.delete("one").await;
    until("given back", async || (!claims.files().contains(&uid)).then_some(())).await;
    // Left over from a kubelet that forgot it, or a pod that was deleted by force and still ends: unknown for a while.
    write("left-over", "default/long-gone", "nic-a");
    let error = prepare(&mut kubelet, "two", &two).await.unwrap_err();
    assert!(error.contains("claim default/long-gone, which was deleted"), "{error}");
    let names = vec![format!("{DRIVER}/claim={two}-{}", nic("a"))];
    until("ready", async || (prepare(&mut kubelet, "two", &two).await.as_ref() == Ok(&names)).then_some(()))
        .await;
    assert_eq!(claims.files(), [two.clone(), "elsewhere".to_owned()].into_iter().collect::<BTreeSet<_>>());
    let given_back =
        wire::Claim { namespace: "default".to_owned(), uid: two.clone(), name: "two".to_owned() };
    claims.counted("tholepin_device_plugin_dra_prepared_total{result=\"error\"}").await;
    for _ in 0..2 {
        let request = wire::NodeUnprepareResourcesRequest { claims: vec![given_back.clone()] };
        let answer = kubelet.node_unprepare_resources(request).await.unwrap().into_inner().claims;
        assert_eq!(answer[&two].error, "");
    }
    assert_eq!(claims.files().len(), 1);
    plugin.stop().await;
}

/// The driver registers only when devices are known; when the last device is gone, no slices are left.
#[tokio::test]
async fn the_driver_registers_when_devices_are_known_and_offers_none_when_there_are_none() {
    let Some(claims) = Claims::start().await else { return };
    let config = claims.rig.path("devices.yaml");
    let [dev, elsewhere] = ["dev", "elsewhere"].map(|name| claims.rig.path(name));
    let folder = |resource: &str, dev: &Path| {
        let folder = format!("{{path: {}, prefix: acc, anyFile: true, zones: {{acc0: [0]}}}}", dev.display());
        format!("version: v1alpha1\nresources:\n- name: {resource}\n  discovery: {{directory: {folder}}}\n")
    };
    let make = |dev: &Path| {
        std::fs::create_dir(dev).unwrap();
        std::fs::write(dev.join("acc0"), "").unwrap();
    };
    replace(&config, &folder(NIC, &dev));
    let plugin = claims.plugin_of(ConfigSource::File(config.clone()));
    claims.counted(&format!("tholepin_device_plugin_look_failures_total{{resource=\"{NIC}\"}}")).await;
    assert!(claims.sockets().iter().all(|socket| !socket.exists()));
    make(&dev);
    claims.offered(&["acc0 0"]).await;
    claims.registered().await;

    // Another resource whose devices are not found: the inventory is empty.
    replace(&config, &folder("example.com/other", &elsewhere));
    until("no slices", async || claims.slices().await.is_empty().then_some(())).await;
    make(&elsewhere);
    claims.offered_of(&[("example.com/other", "acc0 0")]).await;
    plugin.stop().await;
}

/// An allocated device stays allocated when the same id appears in another resource of the same class.
#[tokio::test]
async fn an_allocated_device_stays_allocated_when_a_namesake_appears() {
    let Some(claims) = Claims::start().await else { return };
    let config = claims.rig.path("devices.yaml");
    replace(&config, &listed(NIC, &["a 0"], ""));
    let plugin = claims.plugin_of(ConfigSource::File(config.clone()));
    let before = claims.offered(&["a 0"]).await;
    claims.registered().await;
    claims.pod("one", 0).await;
    claims.runs("one").await;
    let namesake = "other.example.com/nic";
    replace(&config, &format!("{}{}", listed(NIC, &["a 0"], ""), entry(namesake, &["a 0"], "")));
    let after = claims.offered_of(&[(NIC, "a 0"), (namesake, "a 0")]).await;
    assert!(after > before);
    claims.pod("two", 0).await;
    let reason = claims.rig.unschedulable("two").await;
    assert!(reason.contains("cannot allocate all claims"), "{reason}");
    // The new device is free.
    let other = format!("device.attributes['{DRIVER}'].resource == '{namesake}'");
    let class =
        json!({"metadata": {"name": "other"}, "spec": {"selectors": [{"cel": {"expression": other}}]}});
    let class: DeviceClass = serde_json::from_value(class).unwrap();
    Api::all(claims.rig.client.clone()).create(&PostParams::default(), &class).await.unwrap();
    let requests = json!([{"name": "nic", "exactly": {"deviceClassName": "other"}}]);
    claims.pod_of("three", requests, &[None]).await;
    claims.runs("three").await;
    plugin.stop().await;
}

/// The node's object is deleted and created again: slices belong to the new one and are not removed.
#[tokio::test]
async fn slices_belong_to_the_current_node_object() {
    let Some(claims) = Claims::start().await else { return };
    let plugin = claims.plugin(&["a 0"]);
    let first = claims.offered(&["a 0"]).await;
    let nodes = Api::<Node>::all(claims.rig.client.clone());
    let mut node = nodes.get("node-0").await.unwrap();
    nodes.delete("node-0", &DeleteParams::default()).await.unwrap();
    (node.metadata.uid, node.metadata.resource_version) = (None, None);
    let node = nodes.create(&PostParams::default(), &node).await.unwrap();
    let owners = async || {
        let slices = claims.slices().await;
        slices
            .iter()
            .flat_map(|slice| slice.owner_references())
            .map(|owner| owner.uid.clone())
            .collect::<Vec<_>>()
    };
    until("the new node's slice", async || (owners().await == [node.metadata.uid.clone()?]).then_some(()))
        .await;
    let made = claims.slices().await.remove(0);
    assert!(made.spec.pool.generation > first);
    // A slice owned by a node that does not exist is collected; ours is still there then.
    let mut stray = made.clone();
    stray.metadata = ObjectMeta { name: Some("stray".to_owned()), ..ObjectMeta::default() };
    stray.spec.driver = "other.example.com".to_owned();
    let mut owner = made.owner_references()[0].clone();
    owner.uid = "no-such-node".to_owned();
    stray.metadata.owner_references = Some(vec![owner]);
    let slices = Api::<ResourceSlice>::all(claims.rig.client.clone());
    slices.create(&PostParams::default(), &stray).await.unwrap();
    until("collected", async || slices.get_opt("stray").await.unwrap().is_none().then_some(())).await;
    assert_eq!(slices.get(&made.name_any()).await.unwrap().uid(), made.uid());
    plugin.stop().await;
}

/// Neither another process of the same driver nor a folder that vanishes ends the driver.
#[tokio::test]
async fn a_second_process_waits_and_a_missing_folder_is_retried() {
    let Some(claims) = Claims::start().await else { return };
    let plugin = claims.plugin(&["a 0"]);
    claims.registered().await;
    let [registration, _] = claims.sockets();
    let before = std::fs::metadata(&registration).unwrap().modified().unwrap();
    let second = Claims { port: testkit::port::free().unwrap(), ..claims };
    let waiting = second.plugin(&["a 0"]);
    until("the second process waits", async || {
        ask(second.port, "/readyz").await?.contains("another process serves").then_some(())
    })
    .await;
    assert_eq!(std::fs::metadata(&registration).unwrap().modified().unwrap(), before);
    plugin.stop().await;
    second.registered().await;

    let registry = second.rig.registry();
    let aside = registry.with_extension("aside");
    std::fs::rename(&registry, &aside).unwrap();
    until("the missing folder is reported", async || {
        ask(second.port, "/readyz").await?.contains("No such file or directory").then_some(())
    })
    .await;
    std::fs::rename(&aside, &registry).unwrap();
    // The kubelet does not watch a folder any more that was moved; a restarted one does.
    second.rig.cluster.nodes()[0].kubelet().restart().await.unwrap();
    second.registered().await;
    second.rig.offers(NIC, 1).await;
    waiting.stop().await;
}

/// Without the API server there are no claims, but devices are served.
#[tokio::test]
async fn the_device_plugin_serves_while_claims_cannot_be() {
    let Some(mut claims) = Claims::start().await else { return };
    let later = claims.rig.path("kubeconfig");
    let kubeconfig = std::mem::replace(&mut claims.kubeconfig, later.clone());
    let plugin = claims.plugin(&["a 0"]);
    claims.rig.offers(NIC, 1).await;
    until("the reason is reported", async || {
        ask(claims.port, "/readyz").await?.contains(&later.display().to_string()).then_some(())
    })
    .await;
    assert!(claims.sockets().iter().all(|socket| !socket.exists()));
    claims.rig.pod("with-a-device", &[(NIC, 1)]).await;
    claims.rig.runs("with-a-device").await;
    claims.rig.let_go("with-a-device").await;
    std::fs::copy(kubeconfig, later).unwrap();
    claims.registered().await;
    claims.offered(&["a 0"]).await;
    plugin.stop().await;
}

/// RBAC alone would let any plugin write any slice.
#[tokio::test]
async fn a_plugin_writes_the_slices_of_its_own_node_only() {
    let Some(claims) = Claims::start().await else { return };
    let account = Account::of(claims.rig.cluster.control(), "devices", "plugin").await.unwrap();
    let there = account.pod("there", "node-1").await.unwrap();
    let open = async |pod: Option<&Pod>| {
        let kubeconfig = account.kubeconfig(pod).await.unwrap();
        let options = runtime::client::Options { kubeconfig: Some(kubeconfig), ..Default::default() };
        let connection = runtime::client::Connection::open(&options).await.unwrap();
        Api::<ResourceSlice>::all(connection.client_with_timeout(PATIENCE).unwrap())
    };
    let own = open(Some(&account.pods().get("plugin").await.unwrap())).await;
    let (other, homeless) = (open(Some(&there)).await, open(None).await);
    let slice = |name: &str, environment: serde_json::Value| {
        let mut slice = json!({"metadata": {"name": name}, "spec": {"driver": DRIVER, "devices": [],
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}}});
        slice["spec"].as_object_mut().unwrap().extend(environment.as_object().unwrap().clone());
        serde_json::from_value::<ResourceSlice>(slice).unwrap()
    };
    let (params, here) = (PostParams::default(), slice("here", json!({"nodeName": "node-0"})));
    let refused = |error: kube::Error| {
        assert!(runtime::client::is_forbidden(&error), "{error}");
        error.to_string()
    };
    // The policy takes effect a moment after its creation.
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let refusal = until("the policy is in force", async || other.create(&dry, &here).await.err()).await;
    let words = "a device plugin may write the ResourceSlices of its own node only: this one is on node-1, \
                 the object is of node-0";
    assert!(refused(refusal).contains(words));
    // Slices of no single node, or of all nodes.
    let everywhere = slice("everywhere", json!({"allNodes": true}));
    refused(own.create(&params, &everywhere).await.unwrap_err());

    let made = own.create(&params, &here).await.unwrap();
    for writer in [&other, &homeless] {
        refused(writer.create(&params, &slice("more", json!({"nodeName": "node-0"}))).await.unwrap_err());
        refused(writer.replace("here", &params, &made).await.unwrap_err());
        refused(writer.delete("here", &DeleteParams::default()).await.unwrap_err());
    }
    own.replace("here", &params, &made).await.unwrap();
    own.delete("here", &DeleteParams::default()).await.unwrap();
    other.create(&params, &slice("there", json!({"nodeName": "node-1"}))).await.unwrap();
    // The policy does not apply to other accounts.
    let admin = Api::<ResourceSlice>::all(claims.rig.client.clone());
    admin.delete("there", &DeleteParams::default()).await.unwrap();
}

/// Whatever arrives on the driver's sockets, the kubelet is served as before.
#[tokio::test]
async fn garbage_on_the_drivers_sockets_is_harmless() {
    let Some(claims) = Claims::start().await else { return };
    let plugin = claims.plugin(&["a 0"]);
    claims.offered(&["a 0"]).await;
    claims.registered().await;
    let [registration, service] = claims.sockets();
    let silent = [send_garbage(&registration).await, send_garbage(&service).await];
    assert_eq!(send_oversized_status(&registration).await, Code::OutOfRange);
    let mut kubelet = DraPluginClient::new(channel(&service).await).max_encoding_message_size(usize::MAX);
    let claim = wire::Claim { namespace: "x".repeat(50), uid: "y".repeat(50), name: "z".repeat(50) };
    let request = wire::NodePrepareResourcesRequest { claims: vec![claim; 50_000] };
    assert_eq!(kubelet.node_prepare_resources(request).await.unwrap_err().code(), Code::OutOfRange);
    let (uid, name) = ("z".repeat(1_000), "y".repeat(500_000));
    let error = prepare(&mut kubelet, &name, &uid).await.unwrap_err();
    assert!(error.contains("of a claim: allowed are") && error.len() < 500, "{} bytes", error.len());
    claims.pod("one", 0).await;
    claims.runs("one").await;
    drop(silent);
    plugin.stop().await;
}
