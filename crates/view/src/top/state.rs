//! What the terminal shows, and what keys and the mouse do to it. Pure: time goes in as a value.
//!
//! In: events of the terminal, answers about the cluster. Out: the state, and what is to be asked next. Never: drawing.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEventKind};
use scheduler::explain::Explanation;

use crate::cluster::{ClusterView, NodeRow, WaitingPod};
use crate::node::NodeDetail;
use crate::totals::resources;

/// Lines above the first row of a list, and those around lists in all.
pub(super) const ABOVE: u16 = 3;
pub(super) const AROUND: u16 = 4;

/// The state of the screen.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Whether the objects of a dump are shown.
    pub is_dump: bool,
    /// The cluster, once it is known.
    pub cluster: Option<ClusterView>,
    /// The node that is looked at.
    pub node: Option<Box<NodeDetail>>,
    /// What is said about the pod that is looked at.
    pub pod: Option<Result<Box<Explanation>, String>>,
    /// What is looked at.
    pub zoom: Zoom,
    /// The order of nodes.
    pub sort: Sort,
    /// The resource, as its place among all that zones have.
    pub resource: usize,
    /// Only nodes and pods with this in their names.
    pub filter: String,
    /// Whether keys go into the filter.
    pub is_typing: bool,
    /// Whether the pods that wait are listed, in place of nodes.
    pub lists_waiting: bool,
    /// The chosen row of the list.
    pub selected: usize,
    /// The first line that is shown of a node or pod.
    pub scroll: usize,
    /// Why nothing new is known.
    pub problem: Option<String>,
    /// Since when the API server does not answer, milliseconds since the epoch.
    pub unreached_since_ms: Option<u64>,
    /// When an answer came last.
    pub updated_ms: u64,
}

/// What is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Zoom {
    /// All nodes.
    #[default]
    Cluster,
    /// The node of this name.
    Node(String),
    /// The pod of this namespace and name.
    Pod(String, String),
}

/// The order of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By name.
    #[default]
    Name,
    /// The most free first.
    Free,
    /// The largest free zone first.
    LargestZone,
    /// The most that is free beside the best zone first.
    Scattered,
    /// The most rejected pods first.
    Rejected,
}

/// What is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The cluster.
    Cluster,
    /// A node.
    Node(String),
    /// A pod that waits, by namespace and name.
    Pod(String, String),
}

/// An answer.
#[derive(Clone, Debug)]
pub enum QueryResult {
    /// The cluster.
    Cluster(ClusterView),
    /// The node of this name, if there is one.
    Node(String, Option<Box<NodeDetail>>),
    /// A pod, or why nothing is said about it.
    Pod(Result<Box<Explanation>, String>),
}

/// What an event asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To end.
    End,
    /// To ask, since something else is looked at.
    Look,
    /// To draw.
    Draw,
}

impl Sort {
    const ALL: [Self; 5] = [Self::Name, Self::Free, Self::LargestZone, Self::Scattered, Self::Rejected];

    /// The next one.
    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or_default();
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Free => "most free",
            Self::LargestZone => "largest free zone",
            Self::Scattered => "most beside the best zone",
            Self::Rejected => "rejected pods",
        }
    }
}

// === reading ===

impl State {
    /// All resources that zones have, CPUs first.
    #[must_use]
    pub fn resources(&self) -> Vec<&'static str> {
        self.cluster.as_ref().map(|cluster| resources(&cluster.nodes)).unwrap_or_default()
    }

    /// The resource that is shown.
    #[must_use]
    pub fn resource(&self) -> &'static str {
        let names = self.resources();
        if names.is_empty() { "cpu" } else { names[self.resource % names.len()] }
    }

    /// The nodes in their order. Cost: nodes x zones, and a sort.
    #[must_use]
    pub fn nodes(&self) -> Vec<&NodeRow> {
        let all = self.cluster.iter().flat_map(|cluster| &cluster.nodes);
        let mut nodes: Vec<&NodeRow> = all.filter(|node| node.name.contains(&self.filter)).collect();
        let resource = self.resource();
        let key = |node: &NodeRow| match self.sort {
            Sort::Name => 0,
            Sort::Free => node.free(resource).sum(),
            Sort::LargestZone => node.free(resource).max().unwrap_or_default(),
            Sort::Scattered => {
                node.free(resource).sum::<i64>() - node.free(resource).max().unwrap_or_default()
            }
            Sort::Rejected => i64::try_from(node.rejected).unwrap_or(i64::MAX),
        };
        nodes.sort_by_cached_key(|node| std::cmp::Reverse(key(node)));
        nodes
    }

    /// The pods that wait.
    #[must_use]
    pub fn waiting(&self) -> Vec<&WaitingPod> {
        let all = self.cluster.iter().flat_map(|cluster| &cluster.waiting.pods);
        all.filter(|pod| pod.name.contains(&self.filter) || pod.namespace.contains(&self.filter)).collect()
    }

    /// What is to be asked now.
    #[must_use]
    pub fn query(&self) -> Query {
        match &self.zoom {
            Zoom::Cluster => Query::Cluster,
            Zoom::Node(name) => Query::Node(name.clone()),
            Zoom::Pod(namespace, name) => Query::Pod(namespace.clone(), name.clone()),
        }
    }

    fn rows(&self) -> usize {
        if self.lists_waiting { self.waiting().len() } else { self.nodes().len() }
    }
}

// === events ===

impl State {
    /// Takes an answer, or why there is none.
    pub fn take(&mut self, answer: Result<QueryResult, String>, now_ms: u64) {
        self.problem = None;
        self.updated_ms = now_ms;
        match answer {
            Ok(QueryResult::Cluster(cluster)) => self.cluster = Some(cluster),
            Ok(QueryResult::Node(name, None)) => {
                self.zoom = Zoom::Cluster;
                self.problem = Some(format!("node {name} is gone"));
            }
            Ok(QueryResult::Node(_, page)) => self.node = page,
            Ok(QueryResult::Pod(found)) => self.pod = Some(found),
            Err(problem) => self.problem = Some(problem),
        }
        self.selected = self.selected.min(self.rows().saturating_sub(1));
    }

    /// Takes whether the API server has answered.
    pub fn reached(&mut self, answer: Result<(), String>, now_ms: u64) {
        self.unreached_since_ms = answer.err().map(|_| self.unreached_since_ms.unwrap_or(now_ms));
    }

    /// What an event of the terminal does. `height`: the lines of the terminal.
    pub fn react(&mut self, event: &Event, height: u16) -> Action {
        match event {
            Event::Key(key) => self.press(*key, height),
            Event::Mouse(mouse) => match mouse.kind {
                MouseEventKind::ScrollDown => self.step(1),
                MouseEventKind::ScrollUp => self.step(-1),
                MouseEventKind::Down(MouseButton::Left) if self.zoom == Zoom::Cluster => {
                    let row = usize::from(mouse.row.saturating_sub(ABOVE)) + self.first_row(height);
                    if mouse.row < ABOVE || row >= self.rows() {
                        return Action::Draw;
                    }
                    let is_again = self.selected == row;
                    self.selected = row;
                    if is_again { self.open() } else { Action::Draw }
                }
                _ => Action::Draw,
            },
            _ => Action::Draw,
        }
    }

    /// The first row of the list on a terminal of this height: the chosen one is always there.
    #[must_use]
    pub fn first_row(&self, height: u16) -> usize {
        let visible = usize::from(height.saturating_sub(AROUND)).max(1);
        (self.selected + 1).saturating_sub(visible)
    }

    fn press(&mut self, key: KeyEvent, height: u16) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Action::End;
        }
        if self.is_typing {
            match key.code {
                KeyCode::Enter => self.is_typing = false,
                KeyCode::Esc => (self.is_typing, self.filter) = (false, String::new()),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(c) => self.filter.push(c),
                _ => {}
            }
            self.selected = 0;
            return Action::Draw;
        }
        let page = isize::try_from(height.saturating_sub(AROUND)).unwrap_or(1);
        match key.code {
            KeyCode::Char('q') => Action::End,
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(page),
            KeyCode::PageUp => self.step(-page),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN / 2),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX / 2),
            KeyCode::Enter | KeyCode::Right => self.open(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.close(),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                Action::Draw
            }
            KeyCode::Char('r') => {
                self.resource = (self.resource + 1) % self.resources().len().max(1);
                Action::Draw
            }
            KeyCode::Char('w') if self.zoom == Zoom::Cluster => {
                (self.lists_waiting, self.selected) = (!self.lists_waiting, 0);
                Action::Draw
            }
            KeyCode::Char('/') if self.zoom == Zoom::Cluster => {
                self.is_typing = true;
                Action::Draw
            }
            _ => Action::Draw,
        }
    }

    fn step(&mut self, by: isize) -> Action {
        if self.zoom == Zoom::Cluster {
            self.selected = self.selected.saturating_add_signed(by).min(self.rows().saturating_sub(1));
        } else {
            self.scroll = self.scroll.saturating_add_signed(by).min(usize::from(u16::MAX));
        }
        Action::Draw
    }

    fn open(&mut self) -> Action {
        if self.zoom != Zoom::Cluster {
            return Action::Draw;
        }
        let zoom = if self.lists_waiting {
            let pods = self.waiting();
            pods.get(self.selected).map(|pod| Zoom::Pod(pod.namespace.to_string(), pod.name.to_string()))
        } else {
            self.nodes().get(self.selected).map(|node| Zoom::Node(node.name.to_string()))
        };
        let Some(zoom) = zoom else { return Action::Draw };
        (self.zoom, self.node, self.pod, self.scroll) = (zoom, None, None, 0);
        Action::Look
    }

    fn close(&mut self) -> Action {
        if self.zoom == Zoom::Cluster {
            self.filter.clear();
            return Action::Draw;
        }
        self.zoom = Zoom::Cluster;
        Action::Look
    }
}
