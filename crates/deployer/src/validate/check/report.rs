//! The CustomResourceDefinition of NodeResourceTopology, and the content of the objects.

use std::collections::BTreeMap;

use api::keys;
use api::nrt::{self, attribute};
use topology::policy::{Manager, Policy, Rules};
use topology::resource::{ResourceKind, ResourceName};
use topology::zone::NodeTopology;

use super::{Check, Findings};
use crate::validate::evidence::{Area, Evidence, Node, Report};

const REPORTS: &[Area] = &[Area::Nodes, Area::Reports];

pub(super) const TABLE: [Check; 9] = [
    Check {
        id: "crd-missing",
        about: "the CustomResourceDefinition of NodeResourceTopology is installed",
        severity: "error",
        needs: &[Area::Definition],
        why: "exporters cannot publish and schedulers have nothing to read",
        fix: "install the definition with: tholepin deploy api",
        run: crd_missing,
    },
    Check {
        id: "crd-versions",
        about: "the definition is established, serves v1alpha1 and v1alpha2, and stores v1alpha2",
        severity: "error, warning",
        needs: &[Area::Definition],
        why: "schedulers read v1alpha2; older exporters write v1alpha1",
        fix: "reinstall the definition with: tholepin deploy api",
        run: crd_versions,
    },
    Check {
        id: "report-missing",
        about: "every node has its NodeResourceTopology object",
        severity: "error",
        needs: &[Area::Nodes, Area::Reports, Area::Definition],
        why: "without the object the node's zones are unknown: pods that need alignment are not placed there, or placed blindly",
        fix: "check that an exporter runs on the node and may write; its log has the reason",
        run: missing,
    },
    Check {
        id: "report-orphan",
        about: "every NodeResourceTopology object has its node",
        severity: "warning",
        needs: REPORTS,
        why: "the object is left over from a deleted node and misleads its readers",
        fix: "delete the object with: kubectl delete noderesourcetopologies NAME",
        run: orphan,
    },
    Check {
        id: "report-invalid",
        about: "schedulers can read the NodeResourceTopology objects",
        severity: "error, warning",
        needs: REPORTS,
        why: "schedulers ignore a zone or a node that they cannot read",
        fix: "correct the exporter; delete the object to have it written again",
        run: invalid,
    },
    Check {
        id: "report-policy",
        about: "policy and scope in the object are the kubelet's",
        severity: "error",
        needs: &[Area::Nodes, Area::Reports, Area::KubeletConfig],
        why: "schedulers predict the kubelet's decisions from the policy in the object",
        fix: "point the exporter at the kubelet's real configuration; restart an exporter that reads it only once",
        run: policy,
    },
    Check {
        id: "report-totals",
        about: "the zones add up to the node's resources",
        severity: "warning",
        needs: REPORTS,
        why: "wrong sums come from a changed machine, a restarted kubelet or a faulty exporter",
        fix: "restart the exporter on the node; compare the sysfs it reads with the node's",
        run: totals,
    },
    Check {
        id: "report-writers",
        about: "each NodeResourceTopology object has one writer",
        severity: "error",
        needs: REPORTS,
        why: "two writers overwrite each other, so amounts and fingerprint never settle",
        fix: "remove all exporters but one; delete the object if the other writer is gone",
        run: writers,
    },
    Check {
        id: "report-owner",
        about: "the owner of the object is the present node",
        severity: "warning",
        needs: REPORTS,
        why: "the garbage collector deletes an object whose owner no longer exists, again and again",
        fix: "delete the object; the exporter writes it again",
        run: owner,
    },
];

/// The object as findings name it.
pub(super) fn title(name: &str) -> String {
    format!("NodeResourceTopology {name}")
}

fn crd_missing(evidence: &Evidence, findings: &mut Findings<'_>) {
    if evidence.definition.is_none() {
        let what = format!("the CustomResourceDefinition {}.{} is not installed", nrt::PLURAL, nrt::GROUP);
        findings.error("Cluster", what).cluster([nrt::KIND, "installed", "true", "false"]);
    }
}

fn crd_versions(evidence: &Evidence, findings: &mut Findings<'_>) {
    let Some(definition) = &evidence.definition else { return };
    let object = format!("CustomResourceDefinition {}.{}", nrt::PLURAL, nrt::GROUP);
    let served = |wanted: &str| definition.versions.iter().any(|(name, served, _)| name == wanted && *served);
    if !definition.established {
        findings.error(&object, "the API server has not established the definition");
    }
    if !served(nrt::VERSION) {
        findings.error(&object, format!("version {} is not served", nrt::VERSION));
    }
    if !served(nrt::v1alpha1::VERSION) {
        findings.warning(&object, format!("version {} is not served", nrt::v1alpha1::VERSION));
    }
    let stored = definition.versions.iter().find(|(_, _, stored)| *stored);
    if let Some((name, _, _)) = stored.filter(|(name, _, _)| name != nrt::VERSION) {
        findings.warning(&object, format!("objects are stored as {name}, not {}", nrt::VERSION));
    }
}

/// Whether the node's kubelet rejects pods that it cannot align; unknown counts as yes.
pub(super) fn may_enforce(node: &Node) -> bool {
    node.configuration().is_none_or(|configuration| configuration.rules.policy.enforces())
}

fn missing(evidence: &Evidence, findings: &mut Findings<'_>) {
    if evidence.definition.is_none() {
        return;
    }
    for node in evidence.workers() {
        if may_enforce(node) && !evidence.reports.contains_key(&node.name) {
            findings.error(node.title(), "the node has no NodeResourceTopology object");
        }
    }
}

fn orphan(evidence: &Evidence, findings: &mut Findings<'_>) {
    for name in evidence.reports.keys().filter(|name| !evidence.nodes.contains_key(*name)) {
        findings.warning(title(name), "no node has this name");
    }
}

fn invalid(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (name, report) in &evidence.reports {
        match &report.read {
            Err(reason) => {
                findings.error(title(name), format!("schedulers cannot read the object: {reason}"));
            }
            Ok((topology, warnings)) => {
                for warning in warnings {
                    findings.warning(title(name), warning.clone());
                }
                if topology.zones.is_empty() {
                    findings.error(title(name), "the object has no zone");
                }
            }
        }
    }
}

/// Whether the object states a policy.
fn states_policy(report: &Report) -> bool {
    let attribute = |name| attribute::get(&report.object.attributes, name).is_some();
    !report.object.topology_policies.is_empty() || attribute(keys::ATTRIBUTE_POLICY)
}

/// Objects that schedulers can read, with their nodes.
fn readable(evidence: &Evidence) -> impl Iterator<Item = (&Node, &Report, &NodeTopology)> {
    evidence.reports.iter().filter_map(|(name, report)| {
        let (topology, _) = report.read.as_ref().ok()?;
        Some((evidence.nodes.get(name)?, report, topology))
    })
}

fn policy(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, report, topology) in readable(evidence) {
        let said = topology.rules;
        if !states_policy(report) {
            let what = "the object states no kubelet policy, so schedulers assume none and ignore the zones";
            findings.error(title(&node.name), what);
            continue;
        }
        let Some(configuration) = node.configuration() else { continue };
        for (setting, ours, theirs) in differences(said, configuration.rules) {
            let what = format!("the object states {setting} {ours}, but the kubelet has {theirs}");
            findings.error(title(&node.name), what);
        }
    }
}

/// Settings that differ: the name, the value in the object, the kubelet's value.
fn differences(said: Rules, real: Rules) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut list = Vec::new();
    if said.policy != real.policy {
        list.push(("topologyManagerPolicy", said.policy.as_str(), real.policy.as_str()));
    }
    // Without a policy the scope has no effect, and the legacy field cannot express it.
    if said.scope != real.scope && real.policy != Policy::None {
        list.push(("topologyManagerScope", said.scope.as_str(), real.scope.as_str()));
    }
    let word = |manager, none, on| if manager == Manager::Static { on } else { none };
    for (setting, said, real, (none, on)) in [
        ("cpuManagerPolicy", said.cpu_manager, real.cpu_manager, ("none", "static")),
        ("memoryManagerPolicy", said.memory_manager, real.memory_manager, ("None", "Static")),
    ] {
        if said != Manager::Unknown && said != real {
            list.push((setting, word(said, none, on), word(real, none, on)));
        }
    }
    list
}

fn totals(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (node, _, topology) in readable(evidence) {
        let mut sums: BTreeMap<ResourceName, i64> = BTreeMap::new();
        for resource in topology.zones.iter().flat_map(|zone| &zone.resources) {
            let sum = sums.entry(resource.name).or_default();
            *sum = sum.saturating_add(resource.allocatable);
        }
        for (name, sum) in sums {
            let Some(difference) = difference(node, topology.rules, name, sum) else { continue };
            findings.warning(title(&node.name), format!("{name}: {difference}"));
        }
    }
}

/// The difference between the sum of a resource over the zones and the node's amount, if it is too large.
fn difference(node: &Node, rules: Rules, name: ResourceName, sum: i64) -> Option<String> {
    let shown = |amount| topology::reason::Amount(name, amount);
    let (capacity, allocatable) = (node.capacity.get(&name).copied(), node.allocatable.get(&name).copied());
    let (Some(capacity), Some(allocatable)) = (capacity, allocatable) else {
        let lists = sum > 0 && name.kind() == ResourceKind::Device;
        return lists.then(|| format!("the zones have {}, but the node does not list it", shown(sum)));
    };
    // A reserved amount is taken from whole CPUs; kernels keep some memory of each zone.
    let (low, high) = match name.kind() {
        ResourceKind::Cpu if rules.cpu_manager == Manager::Static => {
            (allocatable - 1_000, allocatable + 1_000)
        }
        ResourceKind::Cpu => (allocatable - 1_000, capacity),
        ResourceKind::Memory if rules.memory_manager == Manager::Off => (0, capacity + capacity / 16),
        ResourceKind::Memory => (allocatable - capacity / 16, capacity + capacity / 16),
        // Devices without a zone are listed in none.
        ResourceKind::Device => (0, allocatable.max(capacity)),
        ResourceKind::Host => return None,
    };
    (sum < low || sum > high).then(|| {
        format!(
            "the zones have {} for pods, the node has {} of {}",
            shown(sum),
            shown(allocatable),
            shown(capacity)
        )
    })
}

fn writers(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (name, report) in &evidence.reports {
        if report.writers.len() > 1 {
            let list = report.writers.iter().map(String::as_str).collect::<Vec<_>>().join(" and ");
            findings.error(title(name), format!("the object has more than one writer: {list}"));
        }
    }
}

fn owner(evidence: &Evidence, findings: &mut Findings<'_>) {
    for (name, report) in &evidence.reports {
        let Some(node) = evidence.nodes.get(name) else { continue };
        let owners = report.object.metadata.owner_references.iter().flatten();
        for owner in owners.filter(|owner| owner.kind == "Node" && owner.uid != node.uid) {
            let what = format!(
                "the owner is Node {} with UID {}, but the node has UID {}",
                owner.name, owner.uid, node.uid
            );
            findings.warning(title(name), what);
        }
    }
}
