//! The changes of a cluster, for pages that follow it.
//!
//! In: the core, a few times a second while a page follows. Out: for each page a stream of events: first all nodes,
//! then those that have changed. Never: a queue that a slow page makes longer; a page gets what is new when it reads
//! on.
//!
//! Cost: a look at the revision of each node at each turn; a row is made and written anew only for a node that has
//! changed. A page that has just come takes a list of all rows, which are shared.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::stream::{self, Stream};
use scheduler::core::Core;
use scheduler::shell::observer::Observer;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::cluster::{NodeRow, Waiting};

/// Time between two looks at the core.
const PERIOD: Duration = Duration::from_millis(200);
/// Time between two questions whether the API server is there.
const PING_PERIOD: Duration = Duration::from_secs(5);
/// Nodes in one event.
const BATCH: usize = 200;
/// Turns after which a page without news hears that the connection is alive.
const QUIET_TURNS: u32 = 50;

/// The last known rows of all nodes.
#[derive(Debug)]
pub(super) struct RowStore {
    /// Whether nothing will change.
    is_dump: bool,
    state: Mutex<Rows>,
    /// Number of the last turn.
    turns: watch::Sender<u64>,
    /// A page has come.
    joined: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    /// Number of the last turn that changed something.
    version: u64,
    /// The last version at which a node went: pages that have an older one start anew.
    restart: u64,
    nodes: BTreeMap<Arc<str>, Row>,
    waiting: (u64, Arc<str>),
    /// Why nothing is known at the moment.
    problem: Option<String>,
    /// Since when the API server does not answer.
    unreached_since: Option<Instant>,
}

#[derive(Debug)]
struct Row {
    version: u64,
    source: RowKey,
    json: Arc<str>,
}

/// What a row depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowKey {
    revision: u64,
    rejected: usize,
}

/// What the core has said in a turn.
struct Delta {
    changed: Vec<(RowKey, NodeRow)>,
    gone: Vec<Arc<str>>,
    waiting: Waiting,
}

impl RowStore {
    pub(super) fn new(is_dump: bool) -> Self {
        Self { is_dump, state: Mutex::default(), turns: watch::Sender::new(0), joined: Notify::new() }
    }

    /// Keeps the rows up to date while pages follow, until `token` is cancelled.
    pub(super) async fn keep(
        self: Arc<Self>,
        observer: Observer,
        token: CancellationToken,
    ) -> Result<(), Infallible> {
        while !token.is_cancelled() {
            if self.turns.receiver_count() == 0 {
                tokio::select! {
                    () = token.cancelled() => return Ok(()),
                    () = self.joined.notified() => {}
                }
            }
            self.turn(&observer).await;
            tokio::select! {
                () = token.cancelled() => {}
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
        Ok(())
    }

    /// Asks now and then whether the API server is there, while pages follow, until `token` is cancelled.
    pub(super) async fn ping(
        self: Arc<Self>,
        observer: Observer,
        token: CancellationToken,
    ) -> Result<(), Infallible> {
        let ask_on = async {
            loop {
                tokio::time::sleep(PING_PERIOD).await;
                if self.turns.receiver_count() > 0 {
                    let answer = observer.ping().await;
                    let mut rows = self.rows();
                    rows.unreached_since =
                        answer.err().map(|_| rows.unreached_since.unwrap_or_else(Instant::now));
                }
            }
        };
        token.run_until_cancelled(ask_on).await;
        Ok(())
    }

    async fn turn(&self, observer: &Observer) {
        let known: BTreeMap<Arc<str>, RowKey> =
            self.rows().nodes.iter().map(|(name, row)| (Arc::clone(name), row.source)).collect();
        let news = observer.ask(move |core, _| Delta::since(&known, core)).await;
        self.rows().take(news);
        self.turns.send_modify(|turn| *turn += 1);
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The events for one page.
    pub(super) fn follow(self: Arc<Self>) -> impl Stream<Item = Result<String, Infallible>> + Send + 'static {
        let turns = self.turns.subscribe();
        self.joined.notify_one();
        let page =
            Subscriber { store: self, turns, has: 0, quiet_turns: 0, problem: None, events: VecDeque::new() };
        stream::unfold(page, |mut page| async move {
            let event = page.next().await?;
            Some((Ok(event), page))
        })
    }
}

impl Delta {
    /// What differs from these rows. Cost: nodes, and all pods for those that wait.
    fn since(known: &BTreeMap<Arc<str>, RowKey>, core: &Core) -> Self {
        let rejected = core.rejected_pods();
        let mut changed = Vec::new();
        let mut number = 0;
        for (node, revision) in core.nodes_with_revision() {
            number += 1;
            let rejected = rejected.get(&node.name).copied().unwrap_or_default();
            let source = RowKey { revision, rejected };
            if known.get(&node.name) != Some(&source) {
                changed.push((source, NodeRow::of(node, rejected)));
            }
        }
        let is_new = |(_, row): &&(RowKey, NodeRow)| !known.contains_key(&row.name);
        let gone = match known.len() + changed.iter().filter(is_new).count() == number {
            true => Vec::new(),
            false => known.keys().filter(|name| core.node_named(name).is_none()).cloned().collect(),
        };
        Self { changed, gone, waiting: Waiting::of(core) }
    }
}

impl Rows {
    /// Why what is known may be old, or is nothing.
    fn problem(&self) -> Option<String> {
        let unreached = |since: Instant| {
            format!(
                "no answer from the API server for {} s; what is shown may be old",
                since.elapsed().as_secs()
            )
        };
        self.problem.clone().or_else(|| self.unreached_since.map(unreached))
    }

    fn take(&mut self, news: Result<Delta, String>) {
        let next = self.version + 1;
        let Delta { changed, gone, waiting } = match news {
            Ok(news) => news,
            Err(problem) => {
                self.problem = Some(problem);
                return;
            }
        };
        self.problem = None;
        if !gone.is_empty() {
            gone.iter().for_each(|name| drop(self.nodes.remove(name)));
            (self.version, self.restart) = (next, next);
        }
        for (source, row) in changed {
            self.version = next;
            let json = serde_json::to_string(&row).unwrap_or_default().into();
            self.nodes.insert(row.name, Row { version: next, source, json });
        }
        let waiting = serde_json::to_string(&waiting).unwrap_or_default();
        if *self.waiting.1 != *waiting {
            self.version = next;
            self.waiting = (next, waiting.into());
        }
    }
}

/// One page that follows.
struct Subscriber {
    store: Arc<RowStore>,
    turns: watch::Receiver<u64>,
    /// The version that it has; 0: nothing yet.
    has: u64,
    quiet_turns: u32,
    /// The problem that it has been told.
    problem: Option<String>,
    events: VecDeque<Event>,
}

/// An event that is written when the page reads it.
enum Event {
    Nodes(Vec<Arc<str>>),
    Waiting(Arc<str>),
    Text(&'static str, String),
}

impl Event {
    fn write(self) -> String {
        match self {
            Self::Nodes(rows) => format!("event: nodes\ndata: [{}]\n\n", rows.join(",")),
            Self::Waiting(pods) => format!("event: waiting\ndata: {pods}\n\n"),
            Self::Text(name, text) => format!("event: {name}\ndata: {text}\n\n"),
        }
    }
}

impl Subscriber {
    /// The next event; `None` at the end of the process.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(event) = self.events.pop_front() {
                self.quiet_turns = 0;
                return Some(event.write());
            }
            self.turns.changed().await.ok()?;
            self.collect();
            self.quiet_turns += 1;
            if self.events.is_empty() && self.quiet_turns >= QUIET_TURNS {
                self.quiet_turns = 0;
                return Some(": alive\n\n".to_owned());
            }
        }
    }

    /// Lists what the page has not got.
    fn collect(&mut self) {
        let store = Arc::clone(&self.store);
        let rows = store.rows();
        let problem = rows.problem();
        let is_new_problem = problem != self.problem;
        if let Some(problem) = problem.as_ref().filter(|_| is_new_problem) {
            self.events.push_back(Event::Text("problem", serde_json::to_string(problem).unwrap_or_default()));
        }
        self.problem = problem;
        let is_over = is_new_problem && self.problem.is_none();
        if self.has >= rows.version && !is_over {
            return;
        }
        if self.has < rows.restart || self.has == 0 {
            self.has = 0;
            let start = serde_json::json!({ "nodes": rows.nodes.len(), "isDump": store.is_dump });
            self.events.push_back(Event::Text("restart", start.to_string()));
        }
        let new = rows.nodes.values().filter(|row| row.version > self.has);
        let new: Vec<Arc<str>> = new.map(|row| Arc::clone(&row.json)).collect();
        self.events.extend(new.chunks(BATCH).map(|rows| Event::Nodes(rows.to_vec())));
        if rows.waiting.0 > self.has {
            self.events.push_back(Event::Waiting(Arc::clone(&rows.waiting.1)));
        }
        self.has = rows.version;
        self.events.push_back(Event::Text("version", rows.version.to_string()));
    }
}
