//! The number of scheduler replicas.
//!
//! In: nodes, the requested number. Out: a number, or why there is none. Never: more replicas than nodes, since each
//! runs on a node of its own.

use std::collections::BTreeMap;

use deployer::manifests::pod::CONTROL_PLANE;
use deployer::platform::Platform;

use crate::cluster_state::Node;

/// The label of nodes for users' pods.
pub(crate) const WORKER: &str = "node-role.kubernetes.io/worker";
/// The replicas of a cluster with enough nodes.
const SEVERAL: usize = 3;

/// The number of replicas; `Err`: why there is none.
pub(super) fn of(
    platform: Platform,
    nodes: &BTreeMap<String, Node>,
    asked: Option<i32>,
) -> Result<i32, String> {
    let has = |role: &str| nodes.values().filter(|node| node.labels.contains_key(role)).count();
    let (role, count) = match platform {
        Platform::HyperShift => (Some("worker"), has(WORKER)),
        Platform::OpenShift => (Some("control-plane"), has(CONTROL_PLANE)),
        // Providers may hide the nodes of the control plane.
        Platform::Kubernetes => match has(CONTROL_PLANE) {
            0 => (None, nodes.len()),
            count => (Some("control-plane"), count),
        },
    };
    let of_role = role.map_or_else(String::new, |role| format!(" with the role {role}"));
    match asked {
        Some(asked) if asked < 0 => Err(format!("replicas: {asked} is not allowed; it must be 0 or more")),
        Some(asked) if usize::try_from(asked).unwrap_or(usize::MAX) > count => Err(format!(
            "explicitly set replicas count should not be greater than the number of nodes{of_role}: {asked} > {count}"
        )),
        Some(asked) => Ok(asked),
        None if count == 0 => Err(format!("failed to compute scheduler replicas: there is no node{of_role}")),
        None => Ok(if count >= SEVERAL { 3 } else { 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(control_plane: usize, workers: usize) -> BTreeMap<String, Node> {
        let node = |role: &'static str| Node { labels: [(role.into(), "".into())].into(), ..Node::default() };
        let of =
            |role: &'static str, count: usize| (0..count).map(move |at| (format!("{role}-{at}"), node(role)));
        of(CONTROL_PLANE, control_plane).chain(of(WORKER, workers)).collect()
    }

    /// Nodes of the control plane, workers, the requested number, the result.
    type Row = (Platform, usize, usize, Option<i32>, Result<i32, &'static str>);

    /// S023, S029, S030, B-35
    #[test]
    fn nodes_of_the_role_limit_the_replicas() {
        let none = "failed to compute scheduler replicas";
        let many =
            "explicitly set replicas count should not be greater than the number of nodes with the role ";
        let (open, hyper, plain) = (Platform::OpenShift, Platform::HyperShift, Platform::Kubernetes);
        let table: &[Row] = &[
            (open, 0, 9, None, Err(none)),
            (open, 1, 9, None, Ok(1)),
            (open, 2, 9, None, Ok(1)),
            (open, 3, 0, None, Ok(3)),
            (open, 4, 0, None, Ok(3)),
            (open, 5, 0, None, Ok(3)),
            (hyper, 9, 0, None, Err(none)),
            (hyper, 9, 1, None, Ok(1)),
            (hyper, 9, 2, None, Ok(1)),
            (hyper, 0, 3, None, Ok(3)),
            (hyper, 0, 10, None, Ok(3)),
            (open, 3, 9, Some(3), Ok(3)),
            (open, 3, 9, Some(2), Ok(2)),
            (open, 3, 9, Some(0), Ok(0)),
            (open, 0, 9, Some(0), Ok(0)),
            (open, 3, 9, Some(4), Err(many)),
            (hyper, 9, 2, Some(3), Err(many)),
            (open, 3, 9, Some(-1), Err("replicas: -1 is not allowed; it must be 0 or more")),
            (plain, 0, 0, None, Err(none)),
            (plain, 0, 4, None, Ok(3)),
            (plain, 1, 4, None, Ok(1)),
            (plain, 1, 4, Some(2), Err(many)),
            (plain, 0, 4, Some(4), Ok(4)),
        ];
        for (platform, control_plane, workers, asked, wanted) in table {
            let found = of(*platform, &nodes(*control_plane, *workers), *asked);
            let case = format!("{platform} {control_plane} {workers} {asked:?}: {found:?}");
            match (&found, wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{case}"),
                (Err(found), Err(wanted)) => assert!(found.contains(wanted), "{case}"),
                _ => panic!("{case}"),
            }
        }
    }
}
