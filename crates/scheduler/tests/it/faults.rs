//! Faults between the scheduler and the API server: every pod gets a place where its kubelet takes it, once.
//!
//! The pods of each case fill two nodes to the last zone, so one that is counted twice or forgotten waits for ever or
//! is lost. `FAULT_ROUNDS=20` repeats all cases.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use testkit::cluster::Cluster;
use testkit::proxy::{Fault, Proxy};
use testkit::wall_clock::WallClock;

use crate::cluster::{PATIENCE, Running, create, delete, eventually, node_of, pod, pods, refusal};
use crate::whole_loop::exporting;

/// Four zones of 7 or 8 CPUs, with two pods of 3 CPUs each.
const PODS: usize = 8;
/// The end of the path of a binding.
pub(crate) const BINDING: &str = "/binding";
const ALONE: &[&str] = &["--leader-elect=false"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    TooManyRequests,
    ServerErrors,
    ExpiredWatches,
    GapsInWatches,
    KilledBeforeTheAnswer,
    EventsTwice,
    SlowServer,
    LateBinding,
    OrderlyEnd,
    LostLease,
    ClockJumps,
}

const CASES: [Case; 11] = [
    Case::TooManyRequests,
    Case::ServerErrors,
    Case::ExpiredWatches,
    Case::GapsInWatches,
    Case::KilledBeforeTheAnswer,
    Case::EventsTwice,
    Case::SlowServer,
    Case::LateBinding,
    Case::OrderlyEnd,
    Case::LostLease,
    Case::ClockJumps,
];

/// The variables with the kubeconfig and the configuration of [`scheduler_process`].
const KUBECONFIG: &str = "FAULTS_KUBECONFIG";
const CONFIG: &str = "FAULTS_CONFIG";

/// A scheduler in a process of its own: SIGKILL ends it, also when it is dropped.
pub(crate) struct Process(Child);

impl Process {
    fn start(kubeconfig: &Path, clock: Option<&WallClock>) -> Self {
        let variables = clock.map(WallClock::variables).into_iter().flatten();
        Self(Self::command(kubeconfig).envs(variables).spawn().unwrap())
    }

    /// Starts one with a KubeSchedulerConfiguration.
    pub(crate) fn configured(kubeconfig: &Path, config: &Path) -> Self {
        Self(Self::command(kubeconfig).env(CONFIG, config).spawn().unwrap())
    }

    fn command(kubeconfig: &Path) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "faults::scheduler_process", "--ignored", "--nocapture"]);
        command.env(KUBECONFIG, kubeconfig);
        command
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        let status = self.0.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "it ended by itself");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of another test"]
async fn scheduler_process() {
    let Some(kubeconfig) = std::env::var_os(KUBECONFIG) else { return };
    let config = std::env::var(CONFIG).ok().map(|file| format!("--config={file}"));
    let flags: Vec<&str> = ALONE.iter().copied().chain(config.as_deref()).collect();
    Running::start(Path::new(&kubeconfig), &flags).ended().await.unwrap();
}

/// A cluster, and a scheduler behind the proxy.
struct Rig {
    client: Client,
    cluster: Cluster,
    proxy: Proxy,
    scheduler: Option<Running>,
}

impl Rig {
    /// Starts another scheduler in place of the one that runs, which ends at once.
    fn restart(&mut self, flags: &[&str]) {
        self.scheduler = None;
        self.scheduler = Some(Running::start(self.proxy.kubeconfig(), flags));
    }

    async fn create(&self, names: &[String]) {
        for name in names {
            create(&self.client, &pod(name, 3)).await;
        }
    }

    /// Creates the pods while the fault is there.
    async fn strike(&mut self, case: Case, names: &[String]) {
        let proxy = &self.proxy;
        match case {
            Case::TooManyRequests => proxy.fail("POST", BINDING, 6, Fault::TooMany(1)),
            Case::ServerErrors => {
                for status in [500, 503, 504] {
                    proxy.fail("POST", BINDING, 2, Fault::Status(status));
                }
                proxy.fail("GET", "/pods/", 2, Fault::Status(503));
            }
            Case::ExpiredWatches => {
                self.create(&names[..PODS / 2]).await;
                proxy.expire_watches();
                return self.create(&names[PODS / 2..]).await;
            }
            Case::GapsInWatches => {
                proxy.fail("WATCH", "", 6, Fault::Status(503));
                self.create(&names[..PODS / 2]).await;
                proxy.drop_watches();
                return self.create(&names[PODS / 2..]).await;
            }
            Case::KilledBeforeTheAnswer => {
                self.scheduler = None;
                let process = Process::start(proxy.kubeconfig(), None);
                let before = proxy.count("POST", BINDING);
                proxy.fail("POST", BINDING, 2, Fault::Mute);
                self.create(names).await;
                proxy.wait_for("POST", BINDING, before + 2, PATIENCE).await.unwrap();
                process.kill();
                return self.restart(ALONE);
            }
            Case::EventsTwice => {
                proxy.fail("WATCH", "", u32::MAX, Fault::Twice);
                self.restart(ALONE);
            }
            Case::SlowServer => proxy.fail("", "/api", u32::MAX, Fault::Slow(400)),
            Case::LateBinding => {
                let before = proxy.count("POST", BINDING);
                proxy.fail("POST", BINDING, 1, Fault::Late);
                self.create(names).await;
                // One too many, which must not get the room of the pod whose binding is late.
                let extra = ["extra".to_owned()];
                self.create(&extra).await;
                proxy.wait_for("POST", BINDING, before + PODS + 1, PATIENCE).await.unwrap();
                proxy.heal();
                eventually("the pod too many waits", async || refusal(&self.client, "extra").await).await;
                return delete(&self.client, "extra").await;
            }
            Case::OrderlyEnd => {
                let before = proxy.count("POST", BINDING);
                proxy.fail("POST", BINDING, 2, Fault::Slow(500));
                self.create(names).await;
                proxy.wait_for("POST", BINDING, before + 2, PATIENCE).await.unwrap();
                self.scheduler.take().unwrap().stop().await;
                let pods = pods(&self.client).list(&ListParams::default()).await.unwrap();
                let bound = pods.items.iter().filter(|pod| pod.spec.as_ref().unwrap().node_name.is_some());
                assert_eq!(bound.count(), self.proxy.count("POST", BINDING) - before, "sent and answered");
                return self.restart(ALONE);
            }
            Case::LostLease => return self.lose_lease(names).await,
            Case::ClockJumps => return self.jump(names).await,
        }
        self.create(names).await;
    }

    /// The wall clock jumps by decades, in both directions, between the pods of a scheduler that has placed others.
    async fn jump(&mut self, names: &[String]) {
        self.scheduler = None;
        let clock = WallClock::build(self.proxy.kubeconfig().parent().unwrap()).unwrap();
        let process = Process::start(self.proxy.kubeconfig(), Some(&clock));
        for (pair, years) in names.chunks(2).zip([0, 60, -20, 100]) {
            clock.set(years).unwrap();
            self.create(pair).await;
            for name in pair {
                eventually(name, async || node_of(&self.client, name).await).await;
            }
        }
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        eventually("an event of another century: the clock did jump", async || {
            let all = events.list(&ListParams::default()).await.unwrap().items;
            let year = |event: &Event| event.event_time.as_ref().map(|time| time.0.to_string());
            all.iter().filter_map(year).any(|time| time.starts_with("21")).then_some(())
        })
        .await;
        process.kill();
        self.restart(ALONE);
    }

    /// A leader that cannot renew ends in the middle of its bindings, and another one goes on.
    async fn lose_lease(&mut self, names: &[String]) {
        let file = self.proxy.kubeconfig().with_file_name("election.yaml");
        let election = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
            leaderElection: {leaderElect: true, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms, \
            resourceNamespace: default, resourceName: faults}\n\
            profiles:\n- schedulerName: topo-aware-scheduler\n  plugins:\n    multiPoint:\n      enabled:\n      \
            - name: NodeResourceTopologyMatch\n";
        std::fs::write(&file, election).unwrap();
        let config = format!("--config={}", file.display());
        let before = self.proxy.count("POST", BINDING);
        self.restart(&[&config]);
        self.create(&names[..2]).await;
        self.proxy.wait_for("POST", BINDING, before + 1, PATIENCE).await.unwrap();
        let next = Running::start(self.cluster.control().kubeconfig(), &[&config]);
        self.proxy.fail("PUT", "/leases/", u32::MAX, Fault::Status(500));
        self.proxy.fail("POST", BINDING, 2, Fault::Mute);
        self.create(&names[2..]).await;
        let lost = self.scheduler.take().unwrap().ended().await;
        assert!(lost.unwrap_err().to_string().contains("lease"));
        self.scheduler = Some(next);
    }

    /// All pods run, as many on each node, and each was bound once.
    async fn verify(&self, case: Case, names: &[String]) {
        let api = pods(&self.client);
        let mut by_node: BTreeMap<String, usize> = BTreeMap::new();
        for name in names {
            let node = eventually(&format!("{case:?}: {name}"), async || {
                let pod = api.get(name).await.unwrap();
                let status = pod.status.unwrap_or_default();
                assert_ne!(status.phase.as_deref(), Some("Failed"), "{case:?}: {name}: {:?}", status.reason);
                pod.spec?.node_name.filter(|_| status.phase.as_deref() == Some("Running"))
            })
            .await;
            *by_node.entry(node).or_default() += 1;
        }
        assert_eq!(by_node.into_values().collect::<Vec<_>>(), [PODS / 2; 2], "{case:?}");
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        for event in events.list(&ListParams::default()).await.unwrap().items {
            let about = event.regarding.and_then(|pod| pod.name).unwrap_or_default();
            let repeated = event.series.is_some() && event.reason.as_deref() == Some("Scheduled");
            assert!(!(names.contains(&about) && repeated), "{case:?}: {about} is bound twice");
        }
    }

    /// Deletes the pods by force, and waits until they are gone.
    async fn clear(&self, names: &[String]) {
        let api = pods(&self.client);
        for name in names {
            delete(&self.client, name).await;
        }
        eventually("gone", async || {
            api.list_metadata(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_gets_its_place_once_whatever_fails() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (cluster, client, _guard) = exporting(&rig, 2).await;
    let proxy = Proxy::start(cluster.control(), cluster.control().process_group().dir()).await.unwrap();
    let mut rig = Rig { client, cluster, proxy, scheduler: None };
    let began = Instant::now();
    let rounds = std::env::var("FAULT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for round in 0..rounds {
        rig.restart(ALONE);
        for case in CASES {
            let began = Instant::now();
            let names: Vec<String> =
                (0..PODS).map(|at| format!("{}-{round}-{at}", format!("{case:?}").to_lowercase())).collect();
            rig.strike(case, &names).await;
            rig.verify(case, &names).await;
            rig.proxy.heal();
            rig.clear(&names).await;
            let took: Duration = began.elapsed();
            tracing::info!(?case, ?took, "every pod got its place");
        }
    }
    let seconds = began.elapsed().as_secs();
    println!("faults: {rounds} rounds of {} cases, each of {PODS} pods bound once, {seconds} s", CASES.len());
}
