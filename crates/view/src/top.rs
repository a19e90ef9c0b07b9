//! `tholepin top`: the cluster in a terminal, up to date as it changes.
//!
//! In: a cluster or a dump, keys, the mouse. Out: a screen of 80 x 24 cells or more. Never: a write to the cluster; an
//! old picture that looks new: without an answer from the API server the screen says since when.
//!
//! What is shown and what keys do is [`state`], how it looks is [`screen`]; both are pure. This module has the terminal
//! and the time.

use std::io::stdout;
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use prometheus_client::registry::Registry;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{DisableMouseCapture, EnableMouseCapture, Event, KeyEventKind, poll, read};
use ratatui::crossterm::execute;
use runtime::shutdown::Tasks;
use scheduler::cluster_input::ClusterInput;
use scheduler::shell::now_ms;
use scheduler::shell::observer::Observer;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::cluster::ClusterView;
use crate::node::NodeDetail;

pub mod screen;
pub mod state;

use state::{Action, Query, QueryResult, State};

/// Time between two looks at the cluster.
const PERIOD: Duration = Duration::from_millis(500);
/// Time between two questions whether the API server is there.
const PING_PERIOD: Duration = Duration::from_secs(5);
/// How long the reader of keys waits before it looks whether it is to end.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// How long everything may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// Show the cluster in this terminal: nodes and zones, what is free, cores with their pods, why pods wait. Nothing is
/// changed.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    tholepin top\n  \
    tholepin top --cluster must-gather/\n\n\
    Keys: arrows, Enter and Esc move; s sorts, r changes the resource, / filters, w shows the pods that wait, q ends.")]
pub struct Args {
    /// The cluster.
    #[command(flatten)]
    pub input: ClusterInput,
}

/// Runs until a key or `token` ends it.
///
/// # Errors
/// When standard output is no terminal, a dump cannot be read, the cluster cannot be followed, or a task fails.
pub async fn run(args: Args, token: CancellationToken) -> anyhow::Result<()> {
    let mut tasks = Tasks::new(token.clone());
    let observer = args.input.observe("top", (&mut tasks, &mut Registry::default())).await?;
    let is_dump = !args.input.dumps.is_empty();
    let terminal = ratatui::try_init().context("standard output is no terminal")?;
    // Without a mouse the keys do.
    let _ = execute!(stdout(), EnableMouseCapture);
    let ended = token.clone();
    tasks.spawn_draining("screen", async move {
        let shown = show(terminal, &observer, is_dump, &ended).await;
        let _ = execute!(stdout(), DisableMouseCapture);
        ratatui::restore();
        ended.cancel();
        shown
    });
    tasks.run(GRACE).await?;
    Ok(())
}

/// Draws until a key or `token` ends it.
async fn show(
    mut terminal: DefaultTerminal,
    observer: &Observer,
    is_dump: bool,
    token: &CancellationToken,
) -> anyhow::Result<()> {
    let mut keys = keys(token.clone())?;
    let mut state = State { is_dump, ..State::default() };
    let mut period = tokio::time::interval(PERIOD);
    let mut ping = tokio::time::interval(PING_PERIOD);
    for timer in [&mut period, &mut ping] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    let mut pings = futures::stream::FuturesUnordered::new();
    loop {
        terminal.draw(|frame| screen::draw(&state, frame))?;
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            _ = period.tick() => look(&mut state, observer, now_ms()).await,
            // It may take long, and keys should not wait for it.
            _ = ping.tick() => if pings.is_empty() { pings.push(observer.ping()) },
            Some(answer) = pings.next() => state.reached(answer, now_ms()),
            event = keys.recv() => match event {
                None => return Ok(()),
                Some(event) => match state.react(&event, terminal.size()?.height) {
                    Action::End => return Ok(()),
                    Action::Look => look(&mut state, observer, now_ms()).await,
                    Action::Draw => {}
                },
            },
        }
    }
}

/// Asks what the state wants to know. `now_ms`: milliseconds since the epoch.
pub async fn look(state: &mut State, observer: &Observer, now_ms: u64) {
    let answer = match state.query() {
        Query::Cluster => {
            let cluster = observer.ask(|core, now_ms| ClusterView::of(core, now_ms)).await;
            cluster.map(QueryResult::Cluster)
        }
        Query::Node(name) => {
            let of_name = name.clone();
            let page = observer.ask(move |core, _| NodeDetail::of(core, &of_name)).await;
            page.map(|page| QueryResult::Node(name, page.map(Box::new)))
        }
        Query::Pod(namespace, name) => {
            let found = observer.explain(&namespace, &name).await.map_err(|error| format!("{error:#}"));
            Ok(QueryResult::Pod(found.map(Box::new)))
        }
    };
    state.take(answer, now_ms);
}

/// Events of the terminal, read by a thread of their own.
fn keys(token: CancellationToken) -> anyhow::Result<mpsc::Receiver<Event>> {
    let (sender, receiver) = mpsc::channel(64);
    let read_on = move || {
        while !token.is_cancelled() {
            match poll(KEY_WAIT) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => return,
            }
            let Ok(event) = read() else { return };
            let is_release = matches!(&event, Event::Key(key) if key.kind == KeyEventKind::Release);
            if !is_release && sender.blocking_send(event).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("keys".to_owned()).spawn(read_on).context("starting a thread")?;
    Ok(receiver)
}
