//! The defects that the suite has to find.
//!
//! In: nothing. Out: each defect as a change of one place of the sources, with the specs that have to notice it. Never:
//! a defect that breaks a program altogether, which any spec would notice.

/// The text of a replacement that stands for the question whether the defect is switched on.
pub(super) const IS_ON: &str = "DEFECT_IS_ON";

/// The program that has the defect, so the pods that start anew when it is switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Program {
    Exporter,
    Scheduler,
    Operator,
}

/// A defect.
#[derive(Debug)]
pub(super) struct Defect {
    /// The name, which switches it on.
    pub(super) name: &'static str,
    pub(super) program: Program,
    /// The file, in the repository.
    pub(super) file: &'static str,
    /// Text that occurs once in the file.
    pub(super) find: &'static str,
    /// Text in its place, with [`IS_ON`] in it.
    pub(super) replace: &'static str,
    /// The ids of the specs of which one has to fail.
    pub(super) specs: &'static [&'static str],
}

use Program::{Exporter, Operator, Scheduler};

/// Exporters that look when their timer says so, and at no other time, as RTE does. It is no defect.
pub(super) const LAGGING: Defect = Defect {
    name: "lagging",
    program: Exporter,
    file: "crates/exporter/src/compat/rte/to_settings.rs",
    find: "release: RELEASE,",
    replace: "release: if DEFECT_IS_ON { Duration::ZERO } else { RELEASE },",
    specs: &[],
};

/// All defects; those of one program stand together, so that few pods start anew between two.
pub(super) const DEFECTS: &[Defect] = &[
    Defect {
        name: "zone-over-counted",
        program: Exporter,
        file: "crates/exporter/src/zones.rs",
        find: "cpu.allocatable = here.len() as u64;",
        replace: "cpu.allocatable = here.len() as u64 + 2 * u64::from(DEFECT_IS_ON);",
        specs: &["47575"],
    },
    Defect {
        name: "allocatable-as-available",
        program: Exporter,
        file: "crates/exporter/src/zones.rs",
        find: "available: base(amounts.allocatable.saturating_sub(amounts.held)),",
        replace: "available: base(amounts.allocatable.saturating_sub(if DEFECT_IS_ON { 0 } else { amounts.held })),",
        specs: &["85770"],
    },
    Defect {
        name: "memory-dropped",
        program: Exporter,
        file: "crates/exporter/src/zones.rs",
        find: ".filter(|(_, amounts)| amounts.listed) {",
        replace: ".filter(|(name, amounts)| amounts.listed && !(DEFECT_IS_ON && *name == ResourceName::MEMORY)) {",
        specs: &["84018"],
    },
    Defect {
        name: "huge-pages-never-taken",
        program: Exporter,
        file: "crates/exporter/src/zones.rs",
        find: "let taken = left.min(amounts.allocatable.saturating_sub(amounts.held));",
        replace: "let hidden = DEFECT_IS_ON && block.resource != ResourceName::MEMORY;\n\
                  let taken = if hidden { 0 } else { left.min(amounts.allocatable.saturating_sub(amounts.held)) };",
        specs: &["50158"],
    },
    Defect {
        name: "devices-never-taken",
        program: Exporter,
        file: "crates/exporter/src/zones.rs",
        find: "amounts.held += u64::from(held.contains(&(resource, id)));",
        replace: "amounts.held += u64::from(held.contains(&(resource, id)) && !DEFECT_IS_ON);",
        specs: &["54016"],
    },
    Defect {
        name: "costs-missing",
        program: Exporter,
        file: "crates/exporter/src/zones.rs",
        find: "distances: zone.distances.clone(),",
        replace: "distances: if DEFECT_IS_ON { Vec::new() } else { zone.distances.clone() },",
        specs: &["47574"],
    },
    Defect {
        name: "fingerprint-off-by-one",
        program: Exporter,
        file: "crates/exporter/src/report.rs",
        find: "pods.iter().filter(counts).map(",
        replace: "pods.iter().filter(counts).skip(usize::from(DEFECT_IS_ON)).map(",
        specs: &["85770"],
    },
    Defect {
        name: "fingerprint-without-devices",
        program: Exporter,
        file: "crates/exporter/src/report.rs",
        find: "Some(Method::WithExclusiveResources) => pod.holds_something_local(),",
        replace: "Some(Method::WithExclusiveResources) => pod.holds_something_local()\n\
                  && !(DEFECT_IS_ON && pod.containers.iter().all(|container| container.cpus.is_empty())),",
        specs: &["55431"],
    },
    Defect {
        name: "scope-misreported",
        program: Exporter,
        file: "crates/exporter/src/report.rs",
        find: "add(keys::ATTRIBUTE_SCOPE, scope.as_str());",
        replace: "add(keys::ATTRIBUTE_SCOPE, if DEFECT_IS_ON { \"container\" } else { scope.as_str() });",
        specs: &["84315"],
    },
    Defect {
        name: "policy-misreported",
        program: Exporter,
        file: "crates/exporter/src/report.rs",
        find: "add(keys::ATTRIBUTE_POLICY, policy.as_str());",
        replace: "let misreported = DEFECT_IS_ON && scope == Scope::Container;\n\
                  add(keys::ATTRIBUTE_POLICY, if misreported { \"best-effort\" } else { policy.as_str() });",
        specs: &["84315"],
    },
    Defect {
        name: "updates-stop-after-first",
        program: Exporter,
        file: "crates/exporter/src/scan_loop.rs",
        find: "if desired.as_ref().is_some_and(same) {",
        replace: "if desired.as_ref().is_some_and(|known| DEFECT_IS_ON || same(known)) {",
        specs: &["85770"],
    },
    Defect {
        name: "releases-missed",
        program: Exporter,
        file: "crates/exporter/src/scan_loop.rs",
        find: "let noticed_at = self.first_change.take().unwrap_or(started);",
        replace: "static MOST: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);\n\
                  let holders = scan.listed.holders.len();\n\
                  let fewer = MOST.fetch_max(holders, std::sync::atomic::Ordering::Relaxed) > holders;\n\
                  if DEFECT_IS_ON && fewer {\nreturn Outcome::Same { held: true };\n}\n\
                  let noticed_at = self.first_change.take().unwrap_or(started);",
        specs: &["47594"],
    },
    Defect {
        name: "writes-not-counted",
        program: Exporter,
        file: "crates/exporter/src/metrics.rs",
        find: "self.writes.get_or_create(&self.with([(\"operation\", name), (\"trigger\", trigger)])).inc();",
        replace: "if !DEFECT_IS_ON {\n\
                  self.writes.get_or_create(&self.with([(\"operation\", name), (\"trigger\", trigger)])).inc();\n}",
        specs: &["85770"],
    },
    Defect {
        name: "zones-not-filtered",
        program: Scheduler,
        file: "crates/scheduler/src/cycle/zones.rs",
        find: "let Some(filter) = filter else { return Ok(()) };",
        replace: "let Some(filter) = filter.filter(|_| !DEFECT_IS_ON) else { return Ok(()) };",
        specs: &["85007"],
    },
    Defect {
        name: "scope-ignored",
        program: Scheduler,
        file: "crates/topology/src/admit.rs",
        find: "let pod_zone = match rules.scope {",
        replace: "let pod_zone = match if DEFECT_IS_ON { Scope::Container } else { rules.scope } {",
        specs: &["47616"],
    },
    Defect {
        name: "first-container-alone",
        program: Scheduler,
        file: "crates/topology/src/admit.rs",
        find: "for (at, container) in needs.containers.iter().enumerate() {",
        replace: "for (at, container) in needs.containers.iter().take(if DEFECT_IS_ON { 1 } else { usize::MAX }).enumerate() {",
        specs: &["54023"],
    },
    Defect {
        name: "memory-ignored",
        program: Scheduler,
        file: "crates/topology/src/admit.rs",
        find: "ResourceKind::Memory => match self.rules.memory_manager {",
        replace: "ResourceKind::Memory => match self.rules.memory_manager {\n_ if DEFECT_IS_ON => return Aligned::No,",
        specs: &["85008"],
    },
    Defect {
        name: "devices-ignored",
        program: Scheduler,
        file: "crates/topology/src/admit.rs",
        find: "ResourceKind::Device if column.is_none() => return Aligned::No,",
        replace: "ResourceKind::Device if column.is_none() || DEFECT_IS_ON => return Aligned::No,",
        specs: &["55430"],
    },
    Defect {
        name: "burstable-pods-aligned",
        program: Scheduler,
        file: "crates/topology/src/admit.rs",
        find: "let guaranteed = self.qos == Qos::Guaranteed;",
        replace: "let guaranteed = self.qos == Qos::Guaranteed || (DEFECT_IS_ON && self.qos == Qos::Burstable);",
        specs: &["48686"],
    },
    Defect {
        name: "parts-of-cpus-aligned",
        program: Scheduler,
        file: "crates/topology/src/admit.rs",
        find: "need.amount = needs.pod_scope_whole_cpu;",
        replace: "need.amount = if DEFECT_IS_ON { (need.amount + 999) / 1000 * 1000 } else { needs.pod_scope_whole_cpu };",
        specs: &["74256"],
    },
    Defect {
        name: "init-containers-kept",
        program: Scheduler,
        file: "crates/topology/src/admit.rs",
        find: "scratch.take(free.index(row, column), *need, container.kind);",
        replace: "let kind = if DEFECT_IS_ON { ContainerKind::App } else { container.kind };\n\
                  scratch.take(free.index(row, column), *need, kind);",
        specs: &["85006"],
    },
    Defect {
        name: "overhead-ignored",
        program: Scheduler,
        file: "crates/topology/src/request.rs",
        find: "for need in needs_of(&self.overhead) {",
        replace: "for need in needs_of(&self.overhead).into_iter().filter(|_| !DEFECT_IS_ON) {",
        specs: &["53819"],
    },
    Defect {
        name: "best-effort-refused",
        program: Scheduler,
        file: "crates/scheduler/src/cycle.rs",
        find: "if let Some(resource) = shortages(node, view, (spec, &spanning.delegated), plugins).next() {",
        replace: "if DEFECT_IS_ON && spec.needs.qos == topology::request::Qos::BestEffort {\n\
                  return Err(Reason::StaleTopology(crate::ledger::Doubt::Unexplained));\n}\n\
                  if let Some(resource) = shortages(node, view, (spec, &spanning.delegated), plugins).next() {",
        specs: &["48598"],
    },
    Defect {
        name: "taints-ignored",
        program: Scheduler,
        file: "crates/scheduler/src/cycle.rs",
        find: "if filters.taint_toleration && !affinity::tolerates(&spec.tolerations, &view.taints) {",
        replace: "if !DEFECT_IS_ON && !affinity::tolerates(&spec.tolerations, &view.taints) {",
        specs: &["47594"],
    },
    Defect {
        name: "node-affinity-ignored",
        program: Scheduler,
        file: "crates/scheduler/src/cycle.rs",
        find: "if !spec.affinity.allows(&view.name, &view.labels) {",
        replace: "if !DEFECT_IS_ON && !spec.affinity.allows(&view.name, &view.labels) {",
        specs: &["47598"],
    },
    Defect {
        name: "wrong-reason",
        program: Scheduler,
        file: "crates/scheduler/src/reason.rs",
        find: "Refusal::Misfit(misfit) => Self::Misaligned(misfit),",
        replace: "Refusal::Misfit(_) if DEFECT_IS_ON => Self::StaleTopology(Doubt::Unexplained),\n\
                  Refusal::Misfit(misfit) => Self::Misaligned(misfit),",
        specs: &["47617"],
    },
    Defect {
        name: "release-missed",
        program: Scheduler,
        file: "crates/scheduler/src/core/accounting.rs",
        find: "self.nodes[slot].remove(&charged);",
        replace: "if !DEFECT_IS_ON {\nself.nodes[slot].remove(&charged);\n}",
        specs: &["47620"],
    },
    Defect {
        name: "waiting-pods-forgotten",
        program: Scheduler,
        file: "crates/scheduler/src/core/decision.rs",
        find: "self.end_vain_nomination(pod);\n            self.queue.wake(pod);",
        replace: "if !DEFECT_IS_ON {\nself.end_vain_nomination(pod);\nself.queue.wake(pod);\n}",
        specs: &["85790"],
    },
    Defect {
        name: "toleration-dropped",
        program: Operator,
        file: "crates/operator/src/numaresourcesoperator/daemonset.rs",
        find: "Some(self.group.config.tolerations.clone()).filter(|all| !all.is_empty()),",
        replace: "Some(self.group.config.tolerations.clone()).filter(|all| !all.is_empty() && !DEFECT_IS_ON),",
        specs: &["84303"],
    },
    Defect {
        name: "pause-ignored",
        program: Operator,
        file: "crates/operator/src/numaresourcesoperator/args.rs",
        find: "if config.info_refresh_pause == Some(Switch::Enabled) {",
        replace: "if config.info_refresh_pause == Some(Switch::Enabled) && !DEFECT_IS_ON {",
        specs: &["85012"],
    },
    Defect {
        name: "period-ignored",
        program: Operator,
        file: "crates/operator/src/numaresourcesoperator/args.rs",
        find: "_ => config.info_refresh_period.unwrap_or_default().to_string(),",
        replace: "_ if DEFECT_IS_ON => \"10s\".to_owned(),\n\
                  _ => config.info_refresh_period.unwrap_or_default().to_string(),",
        specs: &["84312"],
    },
    Defect {
        name: "fingerprint-method-ignored",
        program: Operator,
        file: "crates/operator/src/numaresourcesoperator/args.rs",
        find: "match config.pods_fingerprinting {",
        replace: "match config.pods_fingerprinting.filter(|one| !DEFECT_IS_ON || *one == PodsFingerprinting::Disabled) {",
        specs: &["84312"],
    },
    Defect {
        name: "log-level-ignored",
        program: Operator,
        file: "crates/operator/src/numaresourcesoperator/args.rs",
        find: "exporters.request.operator.spec.log_level.verbosity()",
        replace: "if DEFECT_IS_ON { 2 } else { exporters.request.operator.spec.log_level.verbosity() }",
        specs: &["install/log-level"],
    },
    Defect {
        name: "user-image-accepted",
        program: Operator,
        file: "crates/operator/src/numaresourcesoperator.rs",
        find: "if !image.is_empty() && cluster.environment.exporter_image_restricted {",
        replace: "if !image.is_empty() && cluster.environment.exporter_image_restricted && !DEFECT_IS_ON {",
        specs: &["install/image"],
    },
    Defect {
        name: "status-without-configuration",
        program: Operator,
        file: "crates/operator/src/numaresourcesoperator/status.rs",
        find: "            config: group.config.clone(),",
        replace: "config: if DEFECT_IS_ON { Default::default() } else { group.config.clone() },",
        specs: &["84307"],
    },
    Defect {
        name: "status-without-reports",
        program: Operator,
        file: "crates/operator/src/numaresourcesoperator/status.rs",
        find: "all.push(related_object(api::nrt::GROUP, api::nrt::PLURAL, \"\", \"\"));",
        replace: "if !DEFECT_IS_ON {\nall.push(related_object(api::nrt::GROUP, api::nrt::PLURAL, \"\", \"\"));\n}",
        specs: &["84309"],
    },
    Defect {
        name: "never-available",
        program: Operator,
        file: "crates/operator/src/condition.rs",
        find: "(State::Available, AVAILABLE | UPGRADEABLE) => (name",
        replace: "(State::Available, AVAILABLE | UPGRADEABLE) if !DEFECT_IS_ON => (name",
        specs: &["47574"],
    },
    Defect {
        name: "two-selectors-accepted",
        program: Operator,
        file: "crates/operator/src/group/check.rs",
        find: "let both = group.pool_name.is_some() && group.machine_config_pool_selector.is_some();",
        replace: "let both = group.pool_name.is_some() && group.machine_config_pool_selector.is_some() && !DEFECT_IS_ON;",
        specs: &["84311"],
    },
    Defect {
        name: "stale-objects-kept",
        program: Operator,
        file: "crates/operator/src/plan.rs",
        find: "one == controller && !(*desired == Desired::Nothing",
        replace: "one == controller && !DEFECT_IS_ON && !(*desired == Desired::Nothing",
        specs: &["84312"],
    },
    Defect {
        name: "changes-not-put-back",
        program: Operator,
        file: "crates/operator/src/plan.rs",
        find: ".filter_map(|one| plan_object(one,",
        replace: ".filter(|one| !DEFECT_IS_ON || inputs.observed.get(one.object.key()).is_none())\n\
                  .filter_map(|one| plan_object(one,",
        specs: &["sched/owned"],
    },
    Defect {
        name: "replicas-ignored",
        program: Operator,
        file: "crates/operator/src/numaresourcesscheduler/replicas.rs",
        find: "Some(asked) => Ok(asked),",
        replace: "Some(asked) => Ok(if DEFECT_IS_ON { 1 } else { asked }),",
        specs: &["sched/none"],
    },
    Defect {
        name: "resync-period-dropped",
        program: Operator,
        file: "crates/operator/src/numaresourcesscheduler/setup.rs",
        find: "resync_seconds: resync.0 / 1_000_000_000,",
        replace: "resync_seconds: if DEFECT_IS_ON { 0 } else { resync.0 / 1_000_000_000 },",
        specs: &["sched/resync"],
    },
    Defect {
        name: "scheduler-name-ignored",
        program: Operator,
        file: "crates/operator/src/numaresourcesscheduler/setup.rs",
        find: "Some(spec.scheduler_name.clone()).filter(|name| !name.is_empty());",
        replace: "Some(spec.scheduler_name.clone()).filter(|name| !name.is_empty() && !DEFECT_IS_ON);",
        specs: &["54916"],
    },
    Defect {
        name: "configuration-not-rolled-out",
        program: Operator,
        file: "crates/operator/src/numaresourcesscheduler/desired.rs",
        find: "annotations.extend([pod::config_hash(&self.config)]);",
        replace: "annotations.extend((!DEFECT_IS_ON).then(|| pod::config_hash(&self.config)));",
        specs: &["sched/resync"],
    },
    Defect {
        name: "schedulers-not-spread",
        program: Operator,
        file: "crates/operator/src/numaresourcesscheduler/desired.rs",
        find: "topology_spread_constraints: Some(vec![spread()]),",
        replace: "topology_spread_constraints: Some(vec![spread()]).filter(|_| !DEFECT_IS_ON),",
        specs: &["sched/spread"],
    },
    Defect {
        name: "scheduler-metrics-mislabelled",
        program: Operator,
        file: "crates/operator/src/reconcile/metrics.rs",
        find: "let label = [(\"controller\", controller.name())];",
        replace: "let label = [(\"controller\", if DEFECT_IS_ON { Controller::KubeletConfig } else { controller }.name())];",
        specs: &["85769"],
    },
];
