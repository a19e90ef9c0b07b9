//! Kubelets on different machines in one cluster, each with an exporter, and all that is seen of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use node::podresources::{self, Allocatable, PodResources};
use testkit::device_plugin::{DevicePlugin, Options, device};
use testkit::kubelet::KubeletOptions;
use testkit::machine::Layout;
use tokio::sync::watch;
use topology::fingerprint::Fingerprint;
use topology::resource::ResourceName;

use super::kinds::{KINDS, Kind};
use super::truth;
use crate::*;

/// Between looks at a kubelet that has not done yet what it will do. It answers 100 calls a second, the exporter's
/// included.
const PAUSE: Duration = Duration::from_millis(40);
/// How long a kubelet may take to refuse a pod whose first status did not say so.
const SECOND_THOUGHT: Duration = Duration::from_secs(10);

/// What became of a pod: nothing yet, or taken, or the reason why not.
type Fates = BTreeMap<String, Option<String>>;

/// All nodes.
pub(super) struct Fleet {
    kinds: Vec<usize>,
    plugins: Vec<Vec<DevicePlugin>>,
    kubelets: Vec<podresources::Client>,
    totals: Vec<BTreeMap<ResourceName, i64>>,
    layouts: Vec<Layout>,
    fates: watch::Receiver<Fates>,
    objects: watch::Receiver<BTreeMap<String, NodeResourceTopology>>,
    client: Client,
    _exporters: Vec<Exporter>,
    cluster: Cluster,
}

/// One node of it.
pub(super) struct Post<'a> {
    pub(super) kind: &'static Kind,
    pub(super) name: String,
    pub(super) totals: &'a BTreeMap<ResourceName, i64>,
    pub(super) pods: Api<Pod>,
    plugins: &'a [DevicePlugin],
    kubelet: &'a podresources::Client,
    layout: &'a Layout,
    fates: watch::Receiver<Fates>,
    objects: watch::Receiver<BTreeMap<String, NodeResourceTopology>>,
}

impl Fleet {
    /// A node of each of these kinds, exporters included.
    pub(super) async fn start(kinds: &[usize]) -> Option<Self> {
        let cluster = cluster(|builder| {
            kinds.iter().fold(builder, |builder, kind| {
                let kind = &KINDS[*kind];
                let options = KubeletOptions {
                    policy: kind.policy,
                    scope: kind.scope,
                    static_memory: kind.static_memory,
                    ..KubeletOptions::default()
                };
                builder.node((kind.machine)(), options)
            })
        });
        let cluster = cluster.await?;
        let client = cluster.client().await.unwrap();
        let mut fleet = Self {
            kinds: kinds.to_vec(),
            plugins: Vec::new(),
            kubelets: Vec::new(),
            totals: Vec::new(),
            layouts: Vec::new(),
            fates: fates(&client),
            objects: objects(&client),
            _exporters: (0..kinds.len()).map(|number| Exporter::start(&flags(&cluster, number))).collect(),
            client,
            cluster,
        };
        for (number, kind) in kinds.iter().enumerate() {
            fleet.furnish(number, &KINDS[*kind]).await;
        }
        for number in 0..kinds.len() {
            fleet.post(number).devices_told().await.unwrap();
        }
        Some(fleet)
    }

    async fn furnish(&mut self, number: usize, kind: &Kind) {
        let node = &self.cluster.nodes()[number];
        let mut plugins = Vec::new();
        for (resource, zones) in kind.devices {
            let devices = zones.iter().enumerate().map(|(n, zones)| device(&format!("d{n}"), zones));
            let plugin = DevicePlugin::start(node.kubelet(), resource, devices, Options::default()).unwrap();
            plugin.registered(1).await.unwrap();
            plugins.push(plugin);
        }
        self.plugins.push(plugins);
        let patience = Duration::from_secs(10);
        self.kubelets.push(podresources::Client::new(&node.podresources_socket(), patience).unwrap());
        self.layouts.push((kind.machine)().layout().unwrap());
        let node = Api::<Node>::all(self.client.clone()).get(node.name()).await.unwrap();
        let total = |(name, amount): (String, k8s_openapi::apimachinery::pkg::api::resource::Quantity)| {
            let counted = matches!(name.as_str(), "cpu" | "memory" | "hugepages-2Mi");
            let name = ResourceName::new(&name).unwrap();
            let amount = topology::quantity::Quantity::parse(&amount.0).unwrap();
            counted.then(|| (name, api::convert::amount_available(name, amount)))
        };
        let allocatable = node.status.unwrap().allocatable.unwrap();
        self.totals.push(allocatable.into_iter().filter_map(total).collect());
    }

    /// One of the nodes, by its place among the kinds.
    pub(super) fn post(&self, place: usize) -> Post<'_> {
        Post {
            kind: &KINDS[self.kinds[place]],
            name: format!("node-{place}"),
            totals: &self.totals[place],
            pods: Api::default_namespaced(self.client.clone()),
            plugins: &self.plugins[place],
            kubelet: &self.kubelets[place],
            layout: &self.layouts[place],
            fates: self.fates.clone(),
            objects: self.objects.clone(),
        }
    }
}

impl Post<'_> {
    pub(super) async fn create(&self, pod: &Pod) -> Result<Pod, String> {
        self.pods.create(&PostParams::default(), pod).await.map_err(|error| error.to_string())
    }

    /// Waits until the kubelet has decided: `None` is yes, else its reason. One that is expected to refuse is given a
    /// little longer to say so: the kubelet's housekeeping can start on a pod that is in the middle of admission, and
    /// then the first status is that of a pod that waits, before that of one that is refused.
    pub(super) async fn admitted(&self, name: &str, expected: bool) -> Result<Option<String>, String> {
        let mut fates = self.fates.clone();
        let decided = timeout(PATIENCE, fates.wait_for(|fates| fates.contains_key(name))).await;
        decided.map_err(|_| format!("{name} was not decided about"))?.unwrap();
        if !expected {
            let refused = |fates: &Fates| fates[name].is_some();
            // If it never comes the pod was taken, and the caller will complain.
            let _ = timeout(SECOND_THOUGHT, fates.wait_for(refused)).await;
        }
        let fate = fates.borrow()[name].clone();
        Ok(fate)
    }

    /// Waits until the kubelet's pods are as wanted and the object is about them, and then checks it.
    pub(super) async fn settled(
        &self,
        wanted: impl Fn(&[PodResources]) -> bool,
    ) -> Result<(NodeResourceTopology, Vec<PodResources>), String> {
        let began = Instant::now();
        let allocatable = self.allocatable().await?;
        let mut pods = self.listed().await?;
        loop {
            let nrt = self.objects.borrow().get(&self.name).cloned();
            let again = self.listed().await?;
            let same = again == pods;
            pods = again;
            let signed = pods.iter().filter(|pod| pod.holds_something_local());
            let signed = Fingerprint::of_names(signed.map(|pod| (pod.namespace.as_str(), pod.name.as_str())));
            if let Some(nrt) =
                nrt.filter(|nrt| same && wanted(&pods) && fingerprint(nrt) == signed.to_string())
            {
                let difference = truth::difference(self.layout, &allocatable, &pods, &nrt)
                    .or_else(|| truth::holdings_differ(self.layout, &allocatable, &pods, &nrt));
                return match difference {
                    None => Ok((nrt, pods)),
                    Some(difference) => Err(format!("{difference}\n  kubelet: {pods:?}")),
                };
            }
            if began.elapsed() > PATIENCE {
                let shown = self.objects.borrow().get(&self.name).map(super::show_all);
                return Err(format!("not settled: {shown:?}\n  kubelet: {pods:?}"));
            }
            sleep(PAUSE).await;
        }
    }

    async fn listed(&self) -> Result<Vec<PodResources>, String> {
        let mut pods = unhurried(async || self.kubelet.list().await).await?;
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        for container in pods.iter_mut().flat_map(|pod| &mut pod.containers) {
            container.memory.sort_by_key(|block| (block.resource, block.zones.clone()));
            container.devices.sort_by_key(|devices| (devices.resource, devices.zones.clone()));
        }
        Ok(pods)
    }

    async fn allocatable(&self) -> Result<Allocatable, String> {
        unhurried(async || self.kubelet.allocatable().await).await
    }

    /// Turns the health of one of all devices.
    pub(super) fn toggle(&self, number: u64) {
        let all =
            self.plugins.iter().flat_map(|plugin| plugin.devices().into_iter().map(move |d| (plugin, d)));
        let all: Vec<_> = all.collect();
        if let Some((plugin, device)) = all.get((number as usize).checked_rem(all.len()).unwrap_or(0)) {
            plugin.set_health(&device.id, !device.healthy);
        }
    }

    /// Makes all devices well.
    pub(super) fn heal(&self) {
        for plugin in self.plugins {
            plugin.devices().iter().for_each(|device| plugin.set_health(&device.id, true));
        }
    }

    /// Waits until the kubelet knows the devices as they are, and the object says so. Pods stay as they are.
    pub(super) async fn devices_told(&self) -> Result<(), String> {
        let well: usize = self.plugins.iter().map(|p| p.devices().iter().filter(|d| d.healthy).count()).sum();
        let began = Instant::now();
        loop {
            let allocatable = self.allocatable().await?;
            let mut known: Vec<_> = allocatable
                .devices
                .iter()
                .flat_map(|d| d.ids.iter().map(move |id| (d.resource, id)))
                .collect();
            known.sort_unstable();
            known.dedup();
            let pods = self.listed().await?;
            let nrt = self.objects.borrow().get(&self.name).cloned();
            let difference = nrt.map(|nrt| {
                truth::difference(self.layout, &allocatable, &pods, &nrt)
                    .or_else(|| truth::unaligned_differs(&allocatable, &pods, &nrt))
            });
            if known.len() == well && difference == Some(None) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{well} devices are well, {known:?} known; {difference:?}"));
            }
            sleep(PAUSE).await;
        }
    }
}

/// Asks the kubelet again when it says that it is asked too often.
async fn unhurried<T>(mut ask: impl AsyncFnMut() -> Result<T, podresources::Error>) -> Result<T, String> {
    loop {
        match ask().await {
            Err(error) if error.to_string().contains("rate limit") => sleep(PAUSE).await,
            answer => return answer.map_err(|error| error.to_string()),
        }
    }
}

/// Follows what becomes of all pods. None of ours fails later than at its admission.
fn fates(client: &Client) -> watch::Receiver<Fates> {
    let api = Api::<Pod>::all(client.clone());
    let (sender, receiver) = watch::channel(Fates::new());
    tokio::spawn(async move {
        let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) = event else { continue };
            let status = pod.status.unwrap_or_default();
            let refused =
                (status.phase.as_deref() == Some("Failed")).then(|| status.reason.unwrap_or_default());
            if let Some(name) = pod.metadata.name
                && status.start_time.is_some()
            {
                sender.send_modify(|fates| drop(fates.insert(name, refused)));
            }
        }
    });
    receiver
}

/// Follows all objects.
fn objects(client: &Client) -> watch::Receiver<BTreeMap<String, NodeResourceTopology>> {
    let (sender, receiver) = watch::channel(BTreeMap::new());
    let mut states = states(client);
    tokio::spawn(async move {
        while let Some((_, nrt)) = states.recv().await {
            sender.send_modify(|all| drop(all.insert(nrt.metadata.name.clone().unwrap_or_default(), nrt)));
        }
    });
    receiver
}
