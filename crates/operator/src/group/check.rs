//! What is wrong with node groups, whatever the cluster says.
//!
//! In: node groups, the kind of cluster. Out: the first kind of mistake there is, with every place where it was made, a line each, in the words of
//! the Go operator. Never: a look at pools.

use std::collections::BTreeSet;

use api::numaresources::NodeGroup;
use deployer::platform::Platform;

use super::requirement::Requirement;

/// A kind of mistake: what is wrong with each group.
type Check = fn(&[NodeGroup], Platform) -> Vec<String>;

const CHECKS: [Check; 11] = [
    no_specifier,
    two_specifiers,
    empty_names,
    same_names,
    annotations,
    foreign_to_platform,
    same_selectors,
    selectors,
    bad_names,
    node_selectors,
    periods,
];

/// What is wrong, if something is.
pub(super) fn check(groups: &[NodeGroup], platform: Platform) -> Option<String> {
    let mut mistakes = CHECKS.iter().map(|check| check(groups, platform));
    mistakes.find(|mistakes| !mistakes.is_empty()).map(|mistakes| mistakes.join("\n"))
}

/// One line for each group of which `mistake` finds one.
fn each(groups: &[NodeGroup], mistake: impl Fn(usize, &NodeGroup) -> Option<String>) -> Vec<String> {
    groups.iter().enumerate().filter_map(|(index, group)| mistake(index, group)).collect()
}

fn no_specifier(groups: &[NodeGroup], _: Platform) -> Vec<String> {
    each(groups, |index, group| {
        let none = group.pool_name.is_none() && group.machine_config_pool_selector.is_none();
        none.then(|| format!("node group {index} missing any pool specifier"))
    })
}

fn two_specifiers(groups: &[NodeGroup], _: Platform) -> Vec<String> {
    each(groups, |index, group| {
        let both = group.pool_name.is_some() && group.machine_config_pool_selector.is_some();
        both.then(|| format!("node group {index} must have only a single specifier set"))
    })
}

fn empty_names(groups: &[NodeGroup], _: Platform) -> Vec<String> {
    each(groups, |index, group| {
        let empty = group.pool_name.as_deref() == Some("");
        empty.then(|| format!("pool name for pool #{index} cannot be empty"))
    })
}

/// Those that come up a second time, once each.
fn repeated<T: Ord>(all: impl Iterator<Item = T>) -> BTreeSet<T> {
    let (mut seen, mut again) = (BTreeSet::new(), BTreeSet::new());
    for one in all {
        if seen.contains(&one) {
            again.insert(one);
        } else {
            seen.insert(one);
        }
    }
    again
}

fn same_names(groups: &[NodeGroup], _: Platform) -> Vec<String> {
    let names = groups.iter().filter_map(|group| group.pool_name.as_deref());
    repeated(names).into_iter().map(|name| format!("the pool name {name:?} has duplicates")).collect()
}

fn annotations(groups: &[NodeGroup], _: Platform) -> Vec<String> {
    each(groups, |index, group| {
        let (count, most) = (group.annotations.len(), NodeGroup::MAX_ANNOTATIONS);
        (count > most).then(|| format!("pool #{index} has too many annotations {count} max {most}"))
    })
}

/// What only some kinds of cluster have.
fn foreign_to_platform(groups: &[NodeGroup], platform: Platform) -> Vec<String> {
    let openshift = platform == Platform::OpenShift;
    each(groups, |index, group| {
        if group.machine_config_pool_selector.is_some() && !openshift {
            let name = if platform == Platform::HyperShift { "Hypershift" } else { "Kubernetes" };
            return Some(format!(
                "node group {index} specifies MachineConfigPoolSelector on {name} platform; it must be poolName"
            ));
        }
        let ours = [
            ("nodeSelector", group.node_selector.is_some()),
            ("kubeletConfigMap", group.kubelet_config_map.is_some()),
        ];
        let (field, _) = ours.into_iter().find(|(_, there)| *there && platform.is_openshift())?;
        Some(format!(
            "node group {index} specifies {field} on {platform} platform, where pools say which nodes and which kubelet configuration; \
             it is for Kubernetes"
        ))
    })
}

fn same_selectors(groups: &[NodeGroup], _: Platform) -> Vec<String> {
    let selectors = groups.iter().filter_map(|group| group.machine_config_pool_selector.as_ref());
    // In whatever order the requirements stand.
    let texts = selectors.filter_map(|selector| {
        let mut all: Vec<String> = Requirement::all(selector).ok()?.iter().map(ToString::to_string).collect();
        all.sort_unstable();
        Some(all.join(","))
    });
    repeated(texts)
        .into_iter()
        .map(|text| format!("the machineConfigPoolSelector {text:?} has duplicates"))
        .collect()
}

fn selectors(groups: &[NodeGroup], _: Platform) -> Vec<String> {
    each(groups, |index, group| {
        let selectors = [
            ("machineConfigPoolSelector", &group.machine_config_pool_selector),
            ("nodeSelector", &group.node_selector),
        ];
        let wrong = |(field, selector): (&str, &Option<_>)| {
            let error = Requirement::all(selector.as_ref()?).err()?;
            Some(format!("node group {index}: {field}: {error}"))
        };
        selectors.into_iter().find_map(wrong)
    })
}

/// Names of pools are parts of objects' names and values of labels.
fn bad_names(groups: &[NodeGroup], _: Platform) -> Vec<String> {
    each(groups, |index, group| {
        let name = group.pool_name.as_deref()?;
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = [name.bytes().next(), name.bytes().last()];
        let fine = name.len() <= 63
            && ends.into_iter().flatten().all(inner)
            && name.bytes().all(|byte| inner(byte) || byte == b'-' || byte == b'.');
        let shown: String = name.chars().take(64).collect();
        (!fine).then(|| {
            format!(
                "pool name {shown:?} for pool #{index} is not allowed; it must be lower-case letters, digits, `-` and `.`, at most 63, with a \
                 letter or digit at both ends"
            )
        })
    })
}

/// Kubernetes: of a node that several groups select the first gets it, so one that selects all leaves nothing to others.
fn node_selectors(groups: &[NodeGroup], platform: Platform) -> Vec<String> {
    let everything = |group: &NodeGroup| {
        let requirements = group.node_selector.as_ref().map(Requirement::all);
        requirements.is_none_or(|all| all.is_ok_and(|all| all.is_empty()))
    };
    let last = groups.len().saturating_sub(1);
    each(groups, |index, group| {
        let greedy = platform == Platform::Kubernetes && index < last && everything(group);
        greedy.then(|| {
            format!("node group {index} selects every node, so there are none for the groups after it; it needs a nodeSelector, or to be the last")
        })
    })
}

fn periods(groups: &[NodeGroup], _: Platform) -> Vec<String> {
    each(groups, |index, group| {
        let period = group.config.as_ref()?.info_refresh_period?;
        (period.0 < 0).then(|| {
            format!("node group {index}: infoRefreshPeriod {period} is not allowed; it must be 0s or more")
        })
    })
}
