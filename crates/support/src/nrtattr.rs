//! `watchnrtattr`: attributes of NodeResourceTopology objects, each time an object changes.
//!
//! In: a watch. Out: a line on standard error for each change. Never: a line for objects of the first list, or a busy
//! loop when a watch ends, as in the Go tool.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

use api::nrt::NodeResourceTopology;
use kube::{Api, ResourceExt as _};
use runtime::watch::{self, Event};

use crate::call::{self, Call, KUBECONFIG};

/// Runs the tool, for ever.
///
/// # Errors
/// When no cluster is configured. Other errors are waited out.
pub async fn run(call: &Call) -> anyhow::Result<ExitCode> {
    let flags = match call.flags(&[&KUBECONFIG], false) {
        Ok(flags) => flags,
        Err(code) => return Ok(code),
    };
    let connection = call::connect("watchnrtattr", &flags).await?;
    let api = Api::all(connection.watch_client()?);
    call::log("start watching NRT objects");
    let mut known = Known::default();
    let sink = |event| {
        if let Some(line) = known.take(event) {
            call::log(&line);
        }
    };
    let config = kube::runtime::watcher::Config::default();
    match watch::run_guarded::<NodeResourceTopology>(api, config, &watch::Metrics::default(), sink).await {}
}

/// Names of the objects seen so far.
#[derive(Default)]
struct Known(BTreeSet<String>);

impl Known {
    /// The line for an event, if there is one.
    fn take(&mut self, event: Event<NodeResourceTopology>) -> Option<String> {
        match event {
            Event::Reset { objects, vanished, .. } => {
                for key in vanished {
                    self.0.remove(&*key.name);
                }
                self.0.extend(objects.iter().map(kube::ResourceExt::name_any));
                None
            }
            Event::Applied(object) => {
                let name = object.name_any();
                let changed = self.0.contains(&name).then(|| line(&object));
                self.0.insert(name);
                changed
            }
            Event::Deleted(object) => {
                self.0.remove(&object.name_any());
                None
            }
            Event::Unreadable { key, reason } => Some(format!("NRT {:?} cannot be read: {reason}", key.name)),
        }
    }
}

/// The line for an object, with attributes as Go prints a list of structs.
fn line(object: &NodeResourceTopology) -> String {
    let mut text = String::new();
    for attribute in &object.attributes {
        let space = if text.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{space}{{Name:{} Value:{}}}", attribute.name, attribute.value);
    }
    format!("NRT {:?} attrs=[{text}]", object.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, value: &str) -> NodeResourceTopology {
        let attributes = json!([
            { "name": "topologyManagerPolicy", "value": value }, { "name": "b", "value": "2" }
        ]);
        serde_json::from_value(json!({
            "metadata": { "name": name }, "attributes": attributes, "zones": []
        }))
        .unwrap()
    }

    #[test]
    fn only_changes_are_printed() {
        let mut known = Known::default();
        let line = "NRT \"a\" attrs=[{Name:topologyManagerPolicy Value:none} {Name:b Value:2}]".to_owned();
        let reset = Event::Reset { objects: vec![object("a", "none")], vanished: Vec::new(), served: true };
        assert_eq!(known.take(reset), None);
        assert_eq!(known.take(Event::Applied(object("a", "none"))), Some(line.clone()));
        assert_eq!(known.take(Event::Applied(object("b", "none"))), None, "it is new");
        assert!(known.take(Event::Applied(object("b", "x"))).is_some());
        assert_eq!(known.take(Event::Deleted(object("a", "none"))), None);
        assert_eq!(known.take(Event::Applied(object("a", "none"))), None, "it is new again");
        assert_eq!(known.take(Event::Applied(object("a", "none"))), Some(line));
    }
}
