//! Kubernetes: the settings of kubelets from their own endpoints, where no object states them.
//!
//! In: groups and nodes of the cluster state, kubelets' ports. Out: answers in the cluster state. Never: requests to
//! more than three kubelets of a group, or an answer forgotten because its kubelet is away.
//!
//! A kubelet is asked when its node enters the sample, when the node is ready again (the kubelet may have restarted
//! with another configuration), soon after a failure, and every few minutes. An answer holds while the node is in the
//! group.
//!
//! A node's owner can write any address into its object. So the token is sent only to servers whose certificate the
//! cluster's authority signed, unless the check is switched off.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::numaresources::keys;
use deployer::options::{KubeletCertificate, KubeletConfig};
use deployer::platform::Platform;
use futures::StreamExt as _;
use futures::stream;
use runtime::client::{self, Connection, KubeletEndpoint, KubeletTrust};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster_state::{ClusterState, KubeletAnswers, KubeletSettings};
use crate::desired::Controller;
use crate::group::{Group, Groups, Pool};
use crate::kubeletconfig::{self, payload};
use crate::reconcile::{ControllerSet, Shared};

/// The kubelets of a group that are asked, at most.
const SAMPLE: usize = 3;
/// Requests at the same time.
const AT_ONCE: usize = 8;
/// The deadline of a request.
const DEADLINE: Duration = Duration::from_secs(5);
/// The answer is about 5 KiB.
const LIMIT_BYTES: usize = 1 << 20;
/// The pause after a failed request.
const AGAIN: Duration = Duration::from_secs(30);
/// The pause after an answer.
const EVERY: Duration = Duration::from_secs(300);
/// The pause after a change of nodes, in which further changes are gathered.
const CALM: Duration = Duration::from_millis(200);

/// The directory of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The credentials for kubelets. The comments of the fields are the help of the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Trust {
    /// File with the token for kubelets [default: the service account's]
    #[arg(long = "kubelet-token", value_name = "FILE")]
    pub token: Option<PathBuf>,
    /// File with the authority of kubelets' certificates [default: the service account's]
    #[arg(long = "kubelet-authority", value_name = "FILE", conflicts_with = "kubelet_insecure")]
    pub authority: Option<PathBuf>,
}

impl Trust {
    /// The same with a missing token from the service account.
    #[must_use]
    pub fn with_service_account(self) -> Self {
        let token = || Some(Path::new(SERVICE_ACCOUNT).join("token")).filter(|path| path.exists());
        Self { token: self.token.or_else(token), authority: self.authority }
    }

    /// The check of a certificate. Without a token nothing secret is sent, so none is needed.
    fn of(&self, certificate: &KubeletCertificate, cluster: &ClusterState) -> Result<KubeletTrust, String> {
        match certificate {
            KubeletCertificate::Unchecked => Ok(KubeletTrust::Unchecked),
            KubeletCertificate::ConfigMap(name) => {
                let data = kubeletconfig::data(cluster, name);
                let pem = data.and_then(|mut data| data.remove("ca.crt"));
                let missing = || format!("ConfigMap {name:?} with its authority, key ca.crt, is missing");
                pem.map(KubeletTrust::Pem).ok_or_else(missing)
            }
            KubeletCertificate::Cluster => Ok(match &self.authority {
                Some(file) => KubeletTrust::File(file.clone()),
                None if self.token.is_none() => KubeletTrust::Unchecked,
                None => KubeletTrust::default(),
            }),
        }
    }
}

/// Asks kubelets and keeps their answers.
pub struct KubeletPoller {
    shared: Arc<Shared>,
    trust: Trust,
    /// Notified when nodes or groups may have changed.
    changed: Arc<Notify>,
    known: BTreeMap<NodeKey, Known>,
}

/// A group and one of its nodes.
type NodeKey = (String, String);

/// The answer of a node in a sample.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    answer: Result<KubeletSettings, String>,
    /// The time of the next request.
    due: Instant,
    /// Whether the node has been unready since.
    was_away: bool,
}

/// A node that may be in a group's sample.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    node: String,
    ready: bool,
    address: Option<(String, u16)>,
}

impl KubeletPoller {
    /// A poller that has asked no kubelet yet.
    pub fn new(shared: Arc<Shared>, trust: Trust, changed: Arc<Notify>) -> Self {
        Self { shared, trust, changed, known: BTreeMap::new() }
    }

    /// Asks all kubelets that are due, and publishes the answers in the cluster state.
    pub async fn ask(&mut self) {
        let (samples, trusts) =
            self.shared.read(|cluster| (samples(cluster, &self.known), trusts(cluster, &self.trust)));
        let now = Instant::now();
        self.keep(&samples);
        let due: Vec<_> = samples
            .iter()
            .flat_map(|(group, sample)| sample.iter().map(move |one| (group.clone(), one.clone())))
            .filter(|(group, one)| one.ready && self.is_due(group, &one.node, now))
            .collect();
        let (token, trusts) = (&self.trust.token, &trusts);
        let answers = stream::iter(due).map(async |(group, one)| {
            let trust = trusts.get(&group).cloned().unwrap_or_else(|| Ok(KubeletTrust::default()));
            let answer = match trust {
                Ok(trust) => ask(token.clone(), trust, one.address.as_ref()).await,
                Err(reason) => Err(reason),
            };
            ((group, one.node), answer)
        });
        let answers: Vec<_> = answers.buffer_unordered(AT_ONCE).collect().await;
        for (key, answer) in answers {
            self.learn(key, answer, Instant::now());
        }
        let kubelets = self.kubelets(samples.keys());
        self.shared.update(|cluster| {
            let changed = cluster.kubelets != kubelets;
            cluster.kubelets = kubelets;
            let concerned = [Controller::KubeletConfig, Controller::NumaResourcesOperator];
            if changed { concerned.into() } else { ControllerSet::new() }
        });
    }

    /// Asks kubelets as they become due, without end.
    pub async fn run(&mut self) {
        loop {
            // The watch reports when nodes that are away are back.
            let there = self.known.values().filter(|known| !known.was_away);
            let next = there.map(|known| known.due).min();
            tokio::select! {
                () = self.changed.notified() => tokio::time::sleep(CALM).await,
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
            self.ask().await;
        }
    }

    /// Forgets nodes that left the samples, and marks those that are unready.
    fn keep(&mut self, samples: &BTreeMap<String, Vec<Candidate>>) {
        self.known.retain(|(group, node), known| {
            let sample = samples.get(group).into_iter().flatten().find(|one| one.node == *node);
            known.was_away |= sample.is_some_and(|one| !one.ready);
            sample.is_some()
        });
    }

    fn is_due(&self, group: &str, node: &str, now: Instant) -> bool {
        let known = self.known.get(&(group.to_owned(), node.to_owned()));
        known.is_none_or(|known| known.was_away || known.due <= now)
    }

    /// Takes in an answer. A failure keeps the former answer.
    fn learn(&mut self, key: NodeKey, answer: Result<KubeletSettings, String>, now: Instant) {
        let before = self.known.remove(&key);
        let known = match answer {
            Ok(settings) => Known { answer: Ok(settings), due: now + EVERY, was_away: false },
            Err(reason) => {
                tracing::debug!(
                    group = key.0,
                    node = key.1,
                    reason,
                    "cannot read the configuration of a kubelet"
                );
                let answer = before.and_then(|before| before.answer.ok()).ok_or(reason);
                Known { answer, due: now + AGAIN, was_away: false }
            }
        };
        self.known.insert(key, known);
    }

    fn kubelets<'a>(&self, groups: impl Iterator<Item = &'a String>) -> BTreeMap<String, KubeletAnswers> {
        let of = |group: &String| {
            let own = self.known.iter().filter(|((name, _), _)| name == group);
            let answers = own.map(|((_, node), known)| (node.clone(), known.answer.clone())).collect();
            (group.clone(), answers)
        };
        groups.map(of).collect()
    }
}

/// The sampled nodes of each group whose kubelets have to be asked.
fn samples(cluster: &ClusterState, known: &BTreeMap<NodeKey, Known>) -> BTreeMap<String, Vec<Candidate>> {
    let kubernetes = cluster.environment.platform == Platform::Kubernetes;
    let operator = cluster.operators.get(keys::OPERATOR).filter(|_| kubernetes);
    let Some(Ok(groups)) = operator.map(|operator| Groups::new(cluster, operator)) else {
        return BTreeMap::new();
    };
    let asking = groups.pools().filter(|(group, _)| {
        let stated = matches!(group.kubelet.config, KubeletConfig::Stated { .. });
        group.spec.kubelet_config_map.is_none() && !stated
    });
    let empty = |(_, pool): (_, &Pool<'_>)| (pool.name.to_owned(), Vec::new());
    let mut samples: BTreeMap<String, Vec<Candidate>> = asking.map(empty).collect();
    for (name, node) in &cluster.nodes {
        let pool = groups.pool_of(|key| node.label(key));
        if let Some(sample) = pool.and_then(|pool| samples.get_mut(pool.name)) {
            let address = node.kubelet.clone();
            sample.push(Candidate { node: name.clone(), ready: node.ready, address });
        }
    }
    for (group, sample) in &mut samples {
        choose(sample, |node| {
            known.get(&(group.clone(), node.to_owned())).is_some_and(|known| known.answer.is_ok())
        });
    }
    samples
}

/// The check of certificates in each group.
fn trusts(cluster: &ClusterState, trust: &Trust) -> BTreeMap<String, Result<KubeletTrust, String>> {
    let operator = cluster.operators.get(keys::OPERATOR);
    let Some(Ok(groups)) = operator.map(|operator| Groups::new(cluster, operator)) else {
        return BTreeMap::new();
    };
    let of = |(group, pool): (&Group<'_>, &Pool<'_>)| {
        (pool.name.to_owned(), trust.of(&group.kubelet.certificate, cluster))
    };
    groups.pools().map(of).collect()
}

/// Keeps the best nodes: ready ones that have answered, then other ready ones, then unready ones that have answered.
fn choose(sample: &mut Vec<Candidate>, answered: impl Fn(&str) -> bool) {
    let rank = |one: &Candidate| match (one.ready, answered(&one.node)) {
        (true, true) => 0,
        (true, false) => 1,
        (false, true) => 2,
        (false, false) => 3,
    };
    sample.sort_by_cached_key(rank);
    sample.truncate(SAMPLE);
    sample.retain(|one| rank(one) < 3);
}

/// Reads the configuration of a kubelet.
async fn ask(
    token: Option<PathBuf>,
    trust: KubeletTrust,
    address: Option<&(String, u16)>,
) -> Result<KubeletSettings, String> {
    let (address, port) = address.ok_or("its node has no internal address")?;
    let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
    let kubelet = KubeletEndpoint { url: format!("https://{host}:{port}"), token, trust };
    let agent = concat!("tholepin-operator/", env!("CARGO_PKG_VERSION"));
    let connection = Connection::for_kubelet(&kubelet, agent);
    let client = connection.and_then(|connection| connection.client_with_timeout(DEADLINE));
    let client = client.map_err(|error| error.to_string())?;
    let text = client::get_text(&client, "/configz", LIMIT_BYTES);
    let text =
        tokio::time::timeout(DEADLINE, text).await.map_err(|_| format!("no answer within {DEADLINE:?}"))?;
    payload::configz(&text.map_err(|error| client::brief(&error))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` is ready, `!` has answered.
    #[track_caller]
    fn check(nodes: &str, wanted: &str) {
        let mut sample: Vec<_> = nodes
            .split_whitespace()
            .map(|word| Candidate {
                node: word.trim_end_matches(['+', '!']).to_owned(),
                ready: word.contains('+'),
                address: None,
            })
            .collect();
        let answered: Vec<_> = nodes
            .split_whitespace()
            .filter(|word| word.contains('!'))
            .map(|word| word.trim_end_matches(['+', '!']))
            .collect();
        choose(&mut sample, |node| answered.contains(&node));
        let got: Vec<_> = sample.iter().map(|one| one.node.as_str()).collect();
        assert_eq!(got.join(" "), wanted, "{nodes}");
    }

    #[test]
    fn a_sample_has_three_nodes_and_keeps_those_that_answered() {
        check("", "");
        check("a+ b+", "a b");
        check("a+ b+ c+ d+", "a b c");
        check("a b+ c+ d+ e+", "b c d");
        check("a+ b+ c+ d+! e+!", "d e a");
        // Away, but it has answered.
        check("a! b+", "b a");
        check("a! b+ c+ d+", "b c d");
        check("a b", "");
    }

    #[test]
    fn a_token_needs_an_authority_unless_the_check_is_off() {
        let [token, file] = ["token", "ca"].map(|file| Some(PathBuf::from(file)));
        let mut cluster = ClusterState::default();
        let map = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "there", "namespace": "" },
            "data": { "ca.crt": "PEM" },
        });
        let key = objects::ObjectKey::of::<k8s_openapi::api::core::v1::ConfigMap>(Some(""), "there");
        cluster.observed.insert(key, map);
        let map = |name: &str| KubeletCertificate::ConfigMap(name.to_owned());
        let (checked, own) = (KubeletTrust::default(), KubeletTrust::File("ca".into()));
        // No test runs in a pod.
        assert_eq!(Trust::default().with_service_account(), Trust::default());
        for (token, authority, certificate, wanted) in [
            (&token, &None, KubeletCertificate::Cluster, Ok(checked)),
            (&token, &file, KubeletCertificate::Cluster, Ok(own)),
            (&None, &None, KubeletCertificate::Cluster, Ok(KubeletTrust::Unchecked)),
            (&token, &file, KubeletCertificate::Unchecked, Ok(KubeletTrust::Unchecked)),
            (&token, &file, map("there"), Ok(KubeletTrust::Pem("PEM".to_owned()))),
            (
                &token,
                &file,
                map("gone"),
                Err("ConfigMap \"gone\" with its authority, key ca.crt, is missing"),
            ),
        ] {
            let trust = Trust { token: token.clone(), authority: authority.clone() };
            let wanted = wanted.map_err(str::to_owned);
            assert_eq!(trust.of(&certificate, &cluster), wanted, "{trust:?} {certificate:?}");
        }
    }

    fn poller() -> KubeletPoller {
        let shared = Shared::new(crate::watch::tests::cluster());
        KubeletPoller::new(shared, Trust::default(), Arc::default())
    }

    fn settings(policy: &str) -> KubeletSettings {
        KubeletSettings { policy: Some(policy.to_owned()), scope: None }
    }

    #[test]
    fn an_answer_holds_until_the_next_answer() {
        let mut poller = poller();
        let key = ("g".to_owned(), "n".to_owned());
        let mut now = Instant::now();
        let is_due = |poller: &KubeletPoller, now: Instant| poller.is_due("g", "n", now);
        let known = |poller: &KubeletPoller| poller.known[&key].answer.clone();
        assert!(is_due(&poller, now));
        poller.learn(key.clone(), Err("refused".to_owned()), now);
        assert_eq!(known(&poller), Err("refused".to_owned()));
        assert!(!is_due(&poller, now));
        now += AGAIN;
        assert!(is_due(&poller, now));
        poller.learn(key.clone(), Ok(settings("restricted")), now);
        now += AGAIN;
        assert!(!is_due(&poller, now));
        // Away and back.
        let sample = |ready| {
            let one = Candidate { node: "n".to_owned(), ready, address: None };
            BTreeMap::from([("g".to_owned(), vec![one])])
        };
        poller.keep(&sample(false));
        poller.keep(&sample(true));
        assert!(is_due(&poller, now));
        poller.learn(key.clone(), Err("refused".to_owned()), now);
        assert_eq!(known(&poller), Ok(settings("restricted")));
        poller.learn(key.clone(), Ok(settings("none")), now);
        assert_eq!(known(&poller), Ok(settings("none")));
        now += EVERY;
        assert!(is_due(&poller, now));
        // In no sample any more.
        poller.keep(&BTreeMap::new());
        assert!(poller.known.is_empty());
    }

    #[test]
    fn a_group_without_nodes_has_no_answers() {
        let poller = poller();
        let kubelets = poller.kubelets([&"g".to_owned()].into_iter());
        assert_eq!(kubelets, BTreeMap::from([("g".to_owned(), KubeletAnswers::new())]));
    }
}
