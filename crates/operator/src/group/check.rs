//! Mistakes in node groups that need no look at the cluster.
//!
//! In: node groups, the platform. Out: all mistakes of the first kind that occurs, a line each, in the words of the Go
//! operator. Never: a look at pools.

use std::collections::BTreeSet;

use api::numaresources::NodeGroup;
use deployer::platform::Platform;

use super::requirement::Requirement;

/// A kind of mistake.
enum Check {
    /// A mistake in one group, by its index.
    Each(fn(usize, &NodeGroup, Platform) -> Option<String>),
    /// Mistakes in several groups together.
    All(fn(&[NodeGroup], Platform) -> Vec<String>),
}

const CHECKS: [Check; 12] = [
    Check::Each(|index, group, _| {
        let missing = group.pool_name.is_none() && group.machine_config_pool_selector.is_none();
        missing.then(|| format!("node group {index} missing any pool specifier"))
    }),
    Check::Each(|index, group, _| {
        let both = group.pool_name.is_some() && group.machine_config_pool_selector.is_some();
        both.then(|| format!("node group {index} must have only a single specifier set"))
    }),
    Check::Each(|index, group, _| {
        let empty = group.pool_name.as_deref() == Some("");
        empty.then(|| format!("pool name for pool #{index} cannot be empty"))
    }),
    Check::All(|groups, _| {
        let names = groups.iter().filter_map(|group| group.pool_name.as_deref());
        repeated(names).into_iter().map(|name| format!("the pool name {name:?} has duplicates")).collect()
    }),
    Check::Each(|index, group, _| {
        let (count, most) = (group.annotations.len(), NodeGroup::MAX_ANNOTATIONS);
        (count > most).then(|| format!("pool #{index} has too many annotations {count} max {most}"))
    }),
    Check::Each(foreign_to_platform),
    Check::All(same_selectors),
    Check::Each(invalid_selector),
    Check::Each(invalid_name),
    Check::All(greedy_node_selectors),
    Check::Each(invalid_toleration),
    Check::Each(|index, group, _| {
        let period = group.config.as_ref()?.info_refresh_period?;
        (period.0 < 0).then(|| {
            format!("node group {index}: infoRefreshPeriod {period} is not allowed; it must be 0s or more")
        })
    }),
];

/// The mistakes of the first kind that occurs, if there are any.
pub(super) fn check(groups: &[NodeGroup], platform: Platform) -> Option<String> {
    let indexed = || groups.iter().enumerate();
    let mistakes = CHECKS.iter().map(|check| match check {
        Check::Each(mistake) => {
            indexed().filter_map(|(index, group)| mistake(index, group, platform)).collect()
        }
        Check::All(mistakes) => mistakes(groups, platform),
    });
    mistakes
        .into_iter()
        .find(|mistakes: &Vec<String>| !mistakes.is_empty())
        .map(|mistakes| mistakes.join("\n"))
}

/// The values that occur more than once.
fn repeated<T: Ord + Clone>(all: impl Iterator<Item = T>) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    all.filter(|one| !seen.insert(one.clone())).collect()
}

/// Fields that the platform does not have.
fn foreign_to_platform(index: usize, group: &NodeGroup, platform: Platform) -> Option<String> {
    if group.machine_config_pool_selector.is_some() && platform != Platform::OpenShift {
        let name = if platform == Platform::HyperShift { "Hypershift" } else { "Kubernetes" };
        return Some(format!(
            "node group {index} specifies MachineConfigPoolSelector on {name} platform; it must be poolName"
        ));
    }
    let ours = [
        ("nodeSelector", group.node_selector.is_some()),
        ("kubeletConfigMap", group.kubelet_config_map.is_some()),
    ];
    let (field, _) = ours.into_iter().find(|(_, stated)| *stated && platform.is_openshift())?;
    Some(format!(
        "node group {index} specifies {field} on {platform} platform, where pools say which nodes and which kubelet \
         configuration; it is for Kubernetes"
    ))
}

fn same_selectors(groups: &[NodeGroup], _: Platform) -> Vec<String> {
    let selectors = groups.iter().filter_map(|group| group.machine_config_pool_selector.as_ref());
    // The order of the requirements does not matter.
    let texts = selectors.filter_map(|selector| {
        let mut all: Vec<String> = Requirement::all(selector).ok()?.iter().map(ToString::to_string).collect();
        all.sort_unstable();
        Some(all.join(","))
    });
    let message = |text| format!("the machineConfigPoolSelector {text:?} has duplicates");
    repeated(texts).into_iter().map(message).collect()
}

fn invalid_selector(index: usize, group: &NodeGroup, _: Platform) -> Option<String> {
    let selectors = [
        ("machineConfigPoolSelector", &group.machine_config_pool_selector),
        ("nodeSelector", &group.node_selector),
    ];
    selectors.into_iter().find_map(|(field, selector)| {
        let error = Requirement::all(selector.as_ref()?).err()?;
        Some(format!("node group {index}: {field}: {error}"))
    })
}

/// Names of pools are parts of objects' names and values of labels.
fn invalid_name(index: usize, group: &NodeGroup, _: Platform) -> Option<String> {
    let name = group.pool_name.as_deref()?;
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [name.bytes().next(), name.bytes().last()];
    let valid = name.len() <= 63
        && ends.into_iter().flatten().all(inner)
        && name.bytes().all(|byte| inner(byte) || byte == b'-' || byte == b'.');
    let shown: String = name.chars().take(64).collect();
    (!valid).then(|| {
        format!(
            "pool name {shown:?} for pool #{index} is not allowed; it must be lower-case letters, digits, `-` and `.`, \
             at most 63, with a letter or digit at both ends"
        )
    })
}

/// The API server would refuse the DaemonSet. The first word is the Go operator's, which tries all the same.
fn invalid_toleration(index: usize, group: &NodeGroup, _: Platform) -> Option<String> {
    let allowed = [
        ("operator", ["", "Exists", "Equal", "Lt", "Gt"]),
        ("effect", ["", "NoSchedule", "PreferNoSchedule", "NoExecute", ""]),
    ];
    let tolerations = group.config.iter().flat_map(|config| &config.tolerations).enumerate();
    tolerations.into_iter().find_map(|(place, toleration)| {
        let stated = [&toleration.operator, &toleration.effect].map(|text| text.as_deref().unwrap_or_default());
        let (value, (field, values)) =
            stated.into_iter().zip(allowed).find(|(value, (_, values))| !values.contains(value))?;
        let shown: String = value.chars().take(64).collect();
        let values: Vec<&str> = values.into_iter().filter(|value| !value.is_empty()).collect();
        Some(format!(
            "FailedRTESync: node group {index}: config.tolerations[{place}]: {field} {shown:?} is not allowed; it must be one \
             of {}",
            values.join(", ")
        ))
    })
}

/// Kubernetes: a node is in the first group that selects it, so a group that selects all nodes must be the last.
fn greedy_node_selectors(groups: &[NodeGroup], platform: Platform) -> Vec<String> {
    let everything = |group: &NodeGroup| {
        let requirements = group.node_selector.as_ref().map(Requirement::all);
        requirements.is_none_or(|all| all.is_ok_and(|all| all.is_empty()))
    };
    let earlier = groups.iter().take(groups.len().saturating_sub(1)).enumerate();
    let greedy = earlier.filter(|(_, group)| platform == Platform::Kubernetes && everything(group));
    let message = |(index, _)| {
        format!(
            "node group {index} selects every node, so there are none for the groups after it; it needs a \
             nodeSelector, or to be the last"
        )
    };
    greedy.map(message).collect()
}
