//! One session as a real kubelet's life: its start, then each step.
//!
//! In: a control plane, a session. Out: the answers. Never: two things at a time: each step waits for the kubelet's
//! decision, by watch, and an admitted pod's init containers end before the next step.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, GetParams, ListParams, PostParams, Request};
use kube::runtime::wait::await_condition;
use serde_json::{Map, Value, json};
use sim::admit::session::{Session, Step};
use sim::admit::verdict::{RejectedPod, Restarted, Started, Verdict};
use testkit::cri::{self, CriServer, State};
use testkit::kubelet::{Host, Kubelet, KubeletOptions};
use testkit::machine::Layout;
use testkit::oracle::Release;

use super::plugin::{self, DevicePlugin};
use super::pod::{self, AdmittedPod};
use super::{Kubelets, checkpoints};

/// How long one thing may take: far above what it takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(120);

/// The kubelet's counter of pods that it has rejected, by reason.
const REJECTIONS: &str = "kubelet_admission_rejections_total{";

/// The pods of a node without `maxPods`.
const MAX_PODS: u32 = 110;

/// A kubelet with its pods.
struct SessionRun<'a> {
    session: &'a Session,
    kubelet: Kubelet,
    cri: CriServer,
    plugin: Option<DevicePlugin>,
    client: Client,
    pods: Api<Pod>,
    /// In the order of admission.
    alive: Vec<AdmittedPod>,
    /// Counts what was done, for names and for turns.
    count: usize,
}

/// Runs a session on a new node of this name.
///
/// # Errors
/// When the rig fails: no answer says anything of the kubelet then.
pub(super) async fn run(kubelets: &Kubelets, name: &str, session: &Session) -> anyhow::Result<Vec<Value>> {
    plugin::check(&session.devices)?;
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    Api::all(kubelets.client.clone()).create(&PostParams::default(), &namespace).await?;
    let dir = kubelets.control.process_group().dir().join(name);
    std::fs::create_dir(&dir)?;
    let answers = match SessionRun::start(kubelets, name, &dir, session).await? {
        Err(refused) => vec![refused],
        Ok(mut life) => {
            let answers = Box::pin(life.steps()).await;
            let ended = life.end().await;
            ended.and(answers)?
        }
    };
    let nodes: Api<Node> = Api::all(kubelets.client.clone());
    let _ = nodes.delete(name, &DeleteParams::default()).await; // One that refused to start has none.
    std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    Ok(answers)
}

impl<'a> SessionRun<'a> {
    /// Starts the kubelet. The inner error is the answer of one that refuses.
    async fn start(
        kubelets: &Kubelets,
        name: &str,
        dir: &Path,
        session: &'a Session,
    ) -> anyhow::Result<Result<Self, Value>> {
        let host = Host::with_layout(dir, name, Layout::reported(&session.machine), None)?;
        let cri = CriServer::start(dir, cri::Options::default())?;
        let options = KubeletOptions {
            static_cpus: false,
            static_memory: false,
            reserved_cpus: String::new(),
            max_pods: MAX_PODS,
            config: configuration(session, kubelets.release)?,
            program: kubelets.program.clone(),
            ..KubeletOptions::default()
        };
        let kubelet = Kubelet::start(&kubelets.control, host, &options, cri.socket()).await?;
        if let Err(error) = kubelet.wait_ready().await {
            let refused = Started { ok: false, error: refusal(&kubelet).context(error)? };
            return Ok(Err(serde_json::to_value(refused)?));
        }
        let plugin = match &*session.devices {
            [] => None,
            devices => Some(DevicePlugin::start(&kubelet, devices).await?),
        };
        let pods = Api::namespaced(kubelets.client.clone(), name);
        let client = kubelets.client.clone();
        Ok(Ok(Self { session, kubelet, cri, plugin, client, pods, alive: Vec::new(), count: 0 }))
    }

    async fn steps(&mut self) -> anyhow::Result<Vec<Value>> {
        let mut answers = vec![serde_json::to_value(Started { ok: true, error: String::new() })?];
        for (at, step) in self.session.steps.iter().enumerate() {
            let answer = match step {
                Step::Admit { pod } => {
                    let later = &self.session.steps[at + 1..];
                    let ordered = later.iter().any(|step| matches!(step, Step::Restart { .. }));
                    serde_json::to_value(Box::pin(self.admit(pod, ordered)).await?)
                }
                Step::Resize { .. } => {
                    bail!("step {at}: the rig's container runtime has no cgroups to resize")
                }
                Step::Remove { uid } => self.remove(uid).await.map(|()| Ok(json!({ "ok": true })))?,
                Step::Restart { plugins } => serde_json::to_value(self.restart(*plugins).await?),
            }?;
            let is_gone = answer["ok"] == false;
            answers.push(answer);
            if is_gone {
                break;
            }
        }
        Ok(answers)
    }

    /// Binds a pod to the node, and waits for the kubelet's decision. `ordered`: the kubelet will have to find out the
    /// order of its pods, by the second of their creation.
    async fn admit(&mut self, wanted: &Value, ordered: bool) -> anyhow::Result<Verdict> {
        if let Some(last) = self.alive.last().filter(|_| ordered) {
            another_second(last.created).await;
        }
        let uid = pod::uid(wanted);
        let bound = pod::bound(wanted, self.kubelet.name())?;
        let made = self.pods.create(&PostParams::default(), &bound).await.with_context(|| uid.to_owned())?;
        let admitted = pod::admitted(uid, &made);
        let decided = self.wait(&admitted.name, pod::is_decided).await?.context("the pod has gone")?;
        if let Some(rejection) = pod::rejection(uid, &decided) {
            self.forget(&admitted.name).await?;
            return Ok(rejection);
        }
        let names = pod::containers(&made);
        let (containers, whole) = checkpoints::holdings(self.kubelet.root_dir(), &admitted.real_uid, &names)?;
        // Memory of init containers is free once the others start.
        if !admitted.inits.is_empty() {
            self.started(&admitted).await?;
        }
        self.alive.push(admitted);
        Ok(Verdict { admitted: true, containers, pod: Some(whole), ..Verdict::default() })
    }

    /// A pod ends: by turns it is deleted, or its containers end. One that was rejected has gone before.
    async fn remove(&mut self, uid: &str) -> anyhow::Result<()> {
        let Some(at) = self.alive.iter().position(|pod| pod.uid == uid) else { return Ok(()) };
        let pod = self.alive.remove(at);
        self.count += 1;
        if self.count.is_multiple_of(2) {
            self.pods.delete(&pod.name, &DeleteParams::default()).await?;
            self.wait(&pod.name, |pod| pod.is_none()).await?;
            return Ok(());
        }
        self.started(&pod).await?;
        self.end_containers(&pod, &pod.apps);
        self.wait(&pod.name, pod::has_ended).await?;
        self.forget(&pod.name).await
    }

    /// The kubelet dies and starts again. Device plugins register after it has decided about its pods.
    async fn restart(&mut self, plugins_first: bool) -> anyhow::Result<Restarted> {
        if plugins_first && !self.session.devices.is_empty() {
            bail!(
                "no plugin can be certain to register before a kubelet admits its pods (\"plugins\": false)"
            );
        }
        for pod in &self.alive {
            self.started(pod).await?;
        }
        self.kubelet.stop();
        if let Some(plugin) = self.plugin.take() {
            plugin.stop().await?;
        }
        if let Err(error) = self.kubelet.restart().await {
            return Ok(Restarted { error: refusal(&self.kubelet).context(error)?, ..Restarted::default() });
        }
        // The status of pods that the first one comes after is written before that of the second.
        for _ in 0..2 {
            self.sentinel().await?;
        }
        let rejected = self.rejected().await?;
        if !self.session.devices.is_empty() {
            self.plugin = Some(DevicePlugin::start(&self.kubelet, &self.session.devices).await?);
        }
        Ok(Restarted { ok: true, error: String::new(), rejected })
    }

    /// Pods that were alive and are rejected now, by events: the status of a pod whose containers run on says nothing.
    async fn rejected(&mut self) -> anyhow::Result<Vec<RejectedPod>> {
        let count = self.rejections().await?;
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.kubelet.name());
        let begun = Instant::now();
        let rejected = loop {
            let listed = events.list(&ListParams::default()).await?;
            let of =
                |pod: &AdmittedPod| listed.items.iter().find_map(|event| pod::rejection_event(pod, event));
            let rejected: Vec<RejectedPod> = self.alive.iter().filter_map(of).collect();
            if rejected.len() == count {
                break rejected;
            }
            if begun.elapsed() > PATIENCE {
                bail!("{count} pods are rejected, and the events tell of {rejected:?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        for pod in std::mem::take(&mut self.alive) {
            if rejected.iter().any(|one| one.uid == pod.uid) {
                self.forget(&pod.name).await?;
            } else {
                self.alive.push(pod);
            }
        }
        Ok(rejected)
    }

    /// Pods that the kubelet has rejected since its start.
    async fn rejections(&self) -> anyhow::Result<usize> {
        let proxy = Request::new(format!("/api/v1/nodes/{}/proxy", self.kubelet.name()));
        let metrics = self.client.request_text(proxy.get("metrics", &GetParams::default())?).await?;
        let counts = metrics.lines().filter(|line| line.starts_with(REJECTIONS));
        let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok());
        Ok(counts.sum())
    }

    /// Waits until the kubelet has decided about everything before, by a pod that it admits.
    async fn sentinel(&mut self) -> anyhow::Result<()> {
        self.count += 1;
        let name = format!("sentinel-{}", self.count);
        let bound = pod::sentinel(&name, self.kubelet.name())?;
        self.pods.create(&PostParams::default(), &bound).await?;
        self.wait(&name, pod::is_decided).await?;
        self.forget(&name).await
    }

    /// Waits until the containers of a pod run, and ends its init containers meanwhile.
    async fn started(&self, pod: &AdmittedPod) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !self.have_started(pod, &pod.apps) {
            self.end_containers(pod, &pod.inits);
            if begun.elapsed() > PATIENCE {
                let now = self.pods.get(&pod.name).await?;
                let status = serde_json::to_string(&now.status)?;
                bail!("the containers of {} do not start: {status}", pod.name);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Whether these containers have been started.
    fn have_started(&self, pod: &AdmittedPod, names: &[String]) -> bool {
        let snapshot = self.cri.snapshot();
        let started = |name: &String| {
            let sandbox = snapshot.pod(self.kubelet.name(), &pod.name)?;
            sandbox.container(name).filter(|container| container.state != State::Created)
        };
        names.iter().all(|name| started(name).is_some())
    }

    /// Ends those of these containers that run.
    fn end_containers(&self, pod: &AdmittedPod, names: &[String]) {
        let snapshot = self.cri.snapshot();
        let sandbox = snapshot.pod(self.kubelet.name(), &pod.name);
        for container in sandbox.iter().flat_map(|sandbox| &sandbox.containers) {
            if container.state == State::Running && names.contains(&container.name) {
                self.cri.end_container(&container.id, 0);
            }
        }
    }

    /// Waits until the pod, or its absence, is as wanted.
    async fn wait(&self, name: &str, wanted: fn(Option<&Pod>) -> bool) -> anyhow::Result<Option<Pod>> {
        let seen = tokio::time::timeout(PATIENCE, await_condition(self.pods.clone(), name, wanted)).await;
        Ok(seen.with_context(|| format!("{name}: the kubelet does nothing"))??)
    }

    /// Removes the object of a pod that the kubelet has done with.
    async fn forget(&self, name: &str) -> anyhow::Result<()> {
        match self.pods.delete(name, &DeleteParams::default().grace_period(0)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            done => done.map(drop).with_context(|| format!("deleting {name}")),
        }
    }

    /// Ends everything, and removes the pods.
    async fn end(self) -> anyhow::Result<()> {
        self.kubelet.stop();
        if let Some(plugin) = self.plugin {
            plugin.stop().await?;
        }
        let now = DeleteParams::default().grace_period(0);
        self.pods.delete_collection(&now, &ListParams::default()).await?;
        Ok(())
    }
}

/// The session's configuration over that of the rig; fields that only the rig states have the kubelet's defaults.
fn configuration(session: &Session, release: Release) -> anyhow::Result<Map<String, Value>> {
    let mut config = Map::new();
    config.insert("kubeReserved".to_owned(), json!({}));
    config.insert("evictionHard".to_owned(), json!({ "memory.available": "100Mi" }));
    // At each look the CPU manager takes back what ended pods hold, at a moment of its own.
    config.insert("cpuManagerReconcilePeriod".to_owned(), json!("24h"));
    config.extend(session.kubelet.as_object().context("a KubeletConfiguration is an object")?.clone());
    if release >= Release::V1_36 {
        // The kubelet takes a pod with resources for resized, looks for its cgroup, and panics: the rig makes none.
        let gates = config.entry("featureGates").or_insert_with(|| json!({}));
        gates["InPlacePodLevelResourcesVerticalScaling"] = json!(false);
    }
    Ok(config)
}

/// The last words of a kubelet that has ended; none while it runs.
fn refusal(kubelet: &Kubelet) -> Option<String> {
    kubelet.process().exit()?;
    let tail = kubelet.process().log_tail(200);
    let quoted = tail.lines().rev().find_map(|line| line.split_once(" err="));
    let Some((_, quoted)) = quoted else { return Some(tail) };
    // Go quotes as JSON does, but for rare characters.
    serde_json::from_str(quoted).ok().or_else(|| Some(quoted.to_owned()))
}

/// Waits until this second of Unix time has passed.
async fn another_second(second: i64) {
    let next = UNIX_EPOCH + Duration::from_secs(u64::try_from(second).unwrap_or(0) + 1);
    if let Ok(left) = next.duration_since(SystemTime::now()) {
        tokio::time::sleep(left).await;
    }
}
