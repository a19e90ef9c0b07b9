//! Kubernetes: asks kubelets what they were told, where no object says it.
//!
//! In: groups and nodes of the world, kubelets' ports. Out: answers, in the world. Never: more than three kubelets of a group; an
//! answer forgotten because its kubelet is away.
//!
//! A kubelet is asked when its node comes into the sample, when the node has become ready again (it may have been started anew with
//! something else), soon after it did not answer, and now and then. What a node said holds as long as it is in the group and says
//! nothing else.
//!
//! Whoever owns a node can have any address in its object. So the token is shown only to who has a certificate that the
//! cluster's authority signed, unless somebody said that it need not be checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::numaresources::keys;
use deployer::platform::Platform;
use futures::StreamExt as _;
use futures::stream;
use runtime::client::{self, Connection, KubeletEndpoint};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Fact, change};
use crate::group::Groups;
use crate::kubeletconfig::payload;
use crate::reconcile::Shared;
use crate::world::{KubeletSettings, Kubelets, World};

/// Of a group, at most.
const SAMPLE: usize = 3;
/// How many are asked at the same time.
const AT_ONCE: usize = 8;
/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// The answer is about 5 KiB.
const LIMIT_BYTES: usize = 1 << 20;
/// How soon one that did not answer is asked again.
const AGAIN: Duration = Duration::from_secs(30);
/// How often all are asked.
const EVERY: Duration = Duration::from_secs(300);
/// How long nodes may go on changing before one looks at them.
const CALM: Duration = Duration::from_millis(200);

/// How kubelets are spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// A file with the token to show; `None`: none is shown.
    pub token: Option<PathBuf>,
    /// PEM file of the authority that signed their certificates; `None`: they are not checked.
    pub authority: Option<PathBuf>,
}

/// Where a pod's service account is.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Trust {
    /// What was said; what was not is the service account's. Where there is no token there is nothing to lose, and certificates are
    /// checked only if an authority was named.
    #[must_use]
    pub fn of(token: Option<PathBuf>, authority: Option<PathBuf>, insecure: bool) -> Self {
        let own = |file: &str| Some(Path::new(SERVICE_ACCOUNT).join(file)).filter(|path| path.exists());
        let token = token.or_else(|| own("token"));
        let usual = || token.is_some().then(|| Path::new(SERVICE_ACCOUNT).join("ca.crt"));
        let authority = if insecure { None } else { authority.or_else(usual) };
        Self { token, authority }
    }
}

/// Asks.
pub struct Asker {
    shared: Arc<Shared>,
    trust: Trust,
    /// Nodes or groups may have changed.
    changed: Arc<Notify>,
    known: BTreeMap<Place, Known>,
}

/// A group and one of its nodes.
type Place = (String, String);

/// What is known of a node in a sample.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    said: Result<KubeletSettings, String>,
    /// When it is asked again.
    due: Instant,
    /// It has been unready since.
    was_away: bool,
}

/// A node that could be in a group's sample.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    node: String,
    ready: bool,
    at: Option<(String, u16)>,
}

impl Asker {
    /// Asks nobody yet.
    pub fn new(shared: Arc<Shared>, trust: Trust, changed: Arc<Notify>) -> Self {
        Self { shared, trust, changed, known: BTreeMap::new() }
    }

    /// Asks those whose turn it is, all groups at once, and says how it is then.
    pub async fn ask(&mut self) {
        let samples = self.shared.read(|world| samples(world, &self.known));
        let now = Instant::now();
        self.keep(&samples);
        let due: Vec<_> = samples
            .iter()
            .flat_map(|(group, sample)| sample.iter().map(move |one| (group.clone(), one.clone())))
            .filter(|(group, one)| one.ready && self.is_due(group, &one.node, now))
            .collect();
        let trust = &self.trust;
        let answers = stream::iter(due).map(async |(group, one)| {
            let said = ask(trust, one.at.as_ref()).await;
            ((group, one.node), said)
        });
        let answers: Vec<_> = answers.buffer_unordered(AT_ONCE).collect().await;
        for (place, said) in answers {
            self.learn(place, said, Instant::now());
        }
        let kubelets = self.kubelets(samples.keys());
        change(&self.shared, Fact::Kubelet, |world| {
            let changed = world.kubelets != kubelets;
            world.kubelets = kubelets;
            changed
        });
    }

    /// Goes on asking, for ever.
    pub async fn run(&mut self) {
        loop {
            // Of those that are away the watch tells when they are back.
            let there = self.known.values().filter(|known| !known.was_away);
            let next = there.map(|known| known.due).min();
            tokio::select! {
                () = self.changed.notified() => tokio::time::sleep(CALM).await,
                () = sleep_until(next) => {}
            }
            self.ask().await;
        }
    }

    /// Forgets who is in no sample any more, and notes who is away.
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

    fn learn(&mut self, place: Place, said: Result<KubeletSettings, String>, now: Instant) {
        let before = self.known.remove(&place);
        let known = match said {
            Ok(settings) => Known { said: Ok(settings), due: now + EVERY, was_away: false },
            Err(reason) => {
                tracing::debug!(
                    group = place.0,
                    node = place.1,
                    reason,
                    "a kubelet did not say what it was told"
                );
                let said = before.and_then(|before| before.said.ok()).ok_or(reason);
                Known { said, due: now + AGAIN, was_away: false }
            }
        };
        self.known.insert(place, known);
    }

    fn kubelets<'a>(&self, groups: impl Iterator<Item = &'a String>) -> BTreeMap<String, Kubelets> {
        let of = |group: &String| {
            let own = self.known.iter().filter(|((name, _), _)| name == group);
            let answers = own.map(|((_, node), known)| (node.clone(), known.said.clone())).collect();
            (group.clone(), Kubelets { answers })
        };
        groups.map(of).collect()
    }
}

/// The nodes of each group that has to ask its kubelets.
fn samples(world: &World, known: &BTreeMap<Place, Known>) -> BTreeMap<String, Vec<Candidate>> {
    let mut samples = BTreeMap::<String, Vec<Candidate>>::new();
    let operator = world.operators.get(keys::OPERATOR);
    let Some(operator) = operator.filter(|_| world.place.platform == Platform::Kubernetes) else {
        return samples;
    };
    let Ok(groups) = Groups::new(world, operator) else { return samples };
    let asking = groups.pools().filter(|(group, _)| group.spec.kubelet_config_map.is_none());
    let asking: BTreeSet<&str> = asking.map(|(_, pool)| pool.name).collect();
    samples.extend(asking.iter().map(|name| ((*name).to_owned(), Vec::new())));
    for (name, node) in &world.nodes {
        let label = |key: &str| node.labels.get(key).map(|value| &**value);
        let Some(sample) = groups.pool_of(label).and_then(|pool| samples.get_mut(pool.name)) else {
            continue;
        };
        let at = node.kubelet.clone();
        sample.push(Candidate { node: name.clone(), ready: node.ready, at });
    }
    for (group, sample) in &mut samples {
        choose(sample, |node| {
            known.get(&(group.clone(), node.to_owned())).is_some_and(|known| known.said.is_ok())
        });
    }
    samples
}

/// Keeps the best: those that have answered and are there, then others that are there, then those that have answered and are away.
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

/// What a kubelet says.
async fn ask(trust: &Trust, at: Option<&(String, u16)>) -> Result<KubeletSettings, String> {
    let (address, port) = at.ok_or("its node has no internal address")?;
    let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
    let kubelet = KubeletEndpoint {
        url: format!("https://{host}:{port}"),
        token: trust.token.clone(),
        authority: trust.authority.clone(),
    };
    let agent = concat!("tholepin-operator/", env!("CARGO_PKG_VERSION"));
    let connection = Connection::for_kubelet(&kubelet, agent);
    let client = connection.and_then(|connection| connection.client_with_timeout(DEADLINE));
    let client = client.map_err(|error| error.to_string())?;
    let text = client::get_text(&client, "/configz", LIMIT_BYTES);
    let text =
        tokio::time::timeout(DEADLINE, text).await.map_err(|_| format!("no answer within {DEADLINE:?}"))?;
    payload::configz(&text.map_err(|error| client::brief(&error))?)
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
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
                at: None,
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
    fn three_are_asked_and_those_who_know_are_kept() {
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
    fn a_token_is_shown_only_to_who_is_known() {
        let [token, authority] = ["token", "ca"].map(|file| Some(PathBuf::from(file)));
        let usual = Some(Path::new(SERVICE_ACCOUNT).join("ca.crt"));
        // No test runs in a pod.
        assert_eq!(Trust::of(None, None, false), Trust::default());
        assert_eq!(Trust::of(token.clone(), None, false).authority, usual);
        assert_eq!(Trust::of(token.clone(), authority.clone(), false).authority, authority);
        assert_eq!(Trust::of(token.clone(), None, true), Trust { token, authority: None });
    }

    fn asker() -> Asker {
        let shared = Shared::new(crate::watch::tests::world());
        Asker::new(shared, Trust::default(), Arc::default())
    }

    fn said(policy: &str) -> KubeletSettings {
        KubeletSettings { policy: Some(policy.to_owned()), scope: None }
    }

    #[test]
    fn what_a_kubelet_said_holds_until_it_says_something_else() {
        let mut asker = asker();
        let place = ("g".to_owned(), "n".to_owned());
        let mut now = Instant::now();
        let is_due = |asker: &Asker, now: Instant| asker.is_due("g", "n", now);
        let known = |asker: &Asker| asker.known[&place].said.clone();
        assert!(is_due(&asker, now));
        asker.learn(place.clone(), Err("refused".to_owned()), now);
        assert_eq!(known(&asker), Err("refused".to_owned()));
        assert!(!is_due(&asker, now));
        now += AGAIN;
        assert!(is_due(&asker, now));
        asker.learn(place.clone(), Ok(said("restricted")), now);
        now += AGAIN;
        assert!(!is_due(&asker, now));
        // Away and back.
        let sample = |ready| {
            let one = Candidate { node: "n".to_owned(), ready, at: None };
            BTreeMap::from([("g".to_owned(), vec![one])])
        };
        asker.keep(&sample(false));
        asker.keep(&sample(true));
        assert!(is_due(&asker, now));
        asker.learn(place.clone(), Err("refused".to_owned()), now);
        assert_eq!(known(&asker), Ok(said("restricted")));
        asker.learn(place.clone(), Ok(said("none")), now);
        assert_eq!(known(&asker), Ok(said("none")));
        now += EVERY;
        assert!(is_due(&asker, now));
        // In no sample any more.
        asker.keep(&BTreeMap::new());
        assert!(asker.known.is_empty());
    }

    #[test]
    fn a_group_without_nodes_has_been_asked_and_said_nothing() {
        let asker = asker();
        let kubelets = asker.kubelets([&"g".to_owned()].into_iter());
        assert_eq!(kubelets, BTreeMap::from([("g".to_owned(), Kubelets::default())]));
    }
}
