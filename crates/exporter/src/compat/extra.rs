//! The configuration file beside the flags: the kubelet's settings, and what is left out.
//!
//! In: YAML, as RTE's `--config` (`kubelet`, `resourceExclude`, `podExclude`) and NFD's `-config` (`excludeList`) have
//! it. Out: typed values; unknown keys as warnings. Never: a conversion from another type.
//!
//! Keys match in any case, as in Go's decoders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value};

use super::{Environment, Note, Problem};
use crate::settings::PodPattern;

/// Resources to leave out, by node; `*` stands for all nodes.
pub type Excludes = BTreeMap<String, BTreeSet<String>>;

/// The content of such a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// The section `kubelet`, if there is one: an empty one means the kubelet's defaults.
    pub kubelet: Option<Kubelet>,
    /// `resourceExclude` and `excludeList`.
    pub resources: Option<Excludes>,
    /// `podExclude`.
    pub pods: Option<Vec<PodPattern>>,
}

/// The kubelet's settings as numaresources-operator extracts them; unchecked, empty if missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// `topologyManagerPolicy`.
    pub policy: String,
    /// `topologyManagerScope`.
    pub scope: String,
}

impl Extra {
    /// Reads the file; mistakes in it go to `problems`. `None` when it does not exist.
    pub(crate) fn read(
        path: &Path,
        env: &Environment,
        notes: &mut Vec<Note>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let file = path.display().to_string();
        match env.resolve(path) {
            Ok(Some(_)) => {}
            Ok(None) => {
                notes.push(Note::Info(format!("{file} does not exist")));
                return None;
            }
            Err(problem) => {
                problems.push(problem);
                return None;
            }
        }
        match env.map(path) {
            Ok(map) => {
                let mut reader = Reader { file: &file, notes, problems };
                Some(reader.extra(map))
            }
            Err(problem) => {
                problems.push(problem);
                None
            }
        }
    }

    /// Overrides these values by those of a later file.
    pub(crate) fn overlay(&mut self, later: Self) {
        if let Some(later) = later.kubelet {
            let mine = self.kubelet.get_or_insert_default();
            for (mine, later) in [(&mut mine.policy, later.policy), (&mut mine.scope, later.scope)] {
                if !later.is_empty() {
                    *mine = later;
                }
            }
        }
        self.resources = later.resources.or(self.resources.take());
        self.pods = later.pods.or(self.pods.take());
    }

    /// The resources to leave out on this node.
    pub(crate) fn resources_of(&self, node: &str) -> BTreeSet<String> {
        self.resources.as_ref().map(|all| of_node(all, node)).unwrap_or_default()
    }
}

/// The resources to leave out on all nodes and on this one.
pub(crate) fn of_node(all: &Excludes, node: &str) -> BTreeSet<String> {
    ["*", node].iter().filter_map(|key| all.get(*key)).flatten().cloned().collect()
}

/// Reads the parts of one file.
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    pub(super) notes: &'a mut Vec<Note>,
    pub(super) problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn extra(&mut self, map: Map<String, Value>) -> Extra {
        let mut extra = Extra::default();
        for (key, value) in map {
            match key.to_lowercase().as_str() {
                "kubelet" => extra.kubelet = self.kubelet(&key, value),
                "resourceexclude" | "excludelist" => {
                    // Both keys in one file are merged.
                    let more = self.excludes(&key, value);
                    let all = extra.resources.get_or_insert_default();
                    for (node, names) in more {
                        all.entry(node).or_default().extend(names);
                    }
                }
                "podexclude" => extra.pods = Some(self.patterns(&key, value)),
                _ => self.unknown(&key),
            }
        }
        extra
    }

    fn kubelet(&mut self, at: &str, value: Value) -> Option<Kubelet> {
        let mut kubelet = Kubelet::default();
        for (key, value) in self.map(at, value)? {
            let path = format!("{at}.{key}");
            match key.to_lowercase().as_str() {
                "topologymanagerpolicy" => kubelet.policy = self.text(&path, value),
                "topologymanagerscope" => kubelet.scope = self.text(&path, value),
                _ => self.unknown(&path),
            }
        }
        Some(kubelet)
    }

    /// Reads node names, each with resource names.
    pub(super) fn excludes(&mut self, at: &str, value: Value) -> Excludes {
        let mut excludes = Excludes::new();
        for (node, names) in self.map(at, value).unwrap_or_default() {
            let path = format!("{at}.{node}");
            let names = self.list(&path, names).into_iter().enumerate();
            let names = names.map(|(at, name)| self.text(&format!("{path}[{at}]"), name)).collect();
            excludes.insert(node, names);
        }
        excludes
    }

    /// Reads pairs of patterns. A missing one is empty and so matches nothing, as in RTE.
    pub(super) fn patterns(&mut self, at: &str, value: Value) -> Vec<PodPattern> {
        let mut patterns = Vec::new();
        for (number, item) in self.list(at, value).into_iter().enumerate() {
            let at = format!("{at}[{number}]");
            let mut pattern = PodPattern { namespace: String::new(), name: String::new() };
            for (key, value) in self.map(&at, item).unwrap_or_default() {
                let path = format!("{at}.{key}");
                match key.to_lowercase().as_str() {
                    "namespacepattern" => pattern.namespace = self.text(&path, value),
                    "namepattern" => pattern.name = self.text(&path, value),
                    _ => self.unknown(&path),
                }
            }
            patterns.push(pattern);
        }
        patterns
    }

    fn unknown(&mut self, key: &str) {
        self.notes.push(Note::Warning(format!("{}: unknown key {key:?} has no effect", self.file)));
    }

    /// Null is an empty map; `None` if the value is not a map.
    fn map(&mut self, at: &str, value: Value) -> Option<Map<String, Value>> {
        match value {
            Value::Object(map) => Some(map),
            Value::Null => Some(Map::new()),
            other => {
                self.wrong(at, &other, "a map");
                None
            }
        }
    }

    fn list(&mut self, at: &str, value: Value) -> Vec<Value> {
        match value {
            Value::Array(list) => list,
            Value::Null => Vec::new(),
            other => {
                self.wrong(at, &other, "a list");
                Vec::new()
            }
        }
    }

    fn text(&mut self, at: &str, value: Value) -> String {
        match value {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => {
                self.wrong(at, &other, "a text");
                String::new()
            }
        }
    }

    fn wrong(&mut self, at: &str, value: &Value, allowed: &str) {
        let shown: String = value.to_string().chars().take(80).collect();
        self.problems.push(Problem::value(format!("{}: {at}", self.file), shown, allowed));
    }
}
