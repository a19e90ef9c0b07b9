//! The accounting of upstream's NodeResourceTopologyMatch plugin: its cache `OverReserve`.
//!
//! In: the newest report of a node, the pods that the scheduler places there, and the pods that run there at each
//! resync. Out: whether the plugin would let a pod onto the node. Never: a zone of a pod; each is charged to every
//! zone until a report with a matching fingerprint is taken over.
//!
//! It exists to be compared with the ledger. The rules are upstream's but for these: a node whose first report comes
//! late is known from then on; foreign pods are charged as others are, and make no node stale; pods are charged with
//! what the kubelet sums, and admitted as the kubelet does; a node without pods takes its report over, which upstream
//! never does, since the exporter's own pod runs on each node; settings that have changed leave the charges as they
//! were; pods that have ended are in no fingerprint; and no more than `MAX_ENDED` of them are kept of a node.
//!
//! Cost: a check is one admission; a placement, the pods since the last resync; a resync, the pods of the nodes that
//! refused one.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::schedulerconfig::ResyncMethod;
use topology::admit::{self, Scratch};
use topology::fingerprint::{Fingerprint, Method, PodHash};
use topology::policy::Policy;
use topology::reason::Misfit;
use topology::request::PodNeeds;
use topology::score::{MAX_SCORE, Strategy, ZoneScorer};
use topology::zone::{Free, NodeTopology};

use crate::ledger::PodId;

/// Most pods of a node that have ended and are charged until a resync.
const MAX_ENDED: usize = 256;

/// What the plugin keeps of one node.
#[derive(Debug, Default)]
pub struct OverReserve {
    /// The report that the API server has.
    newest: Option<Arc<NodeTopology>>,
    /// The report that counts, and what it leaves when each assumed pod is charged to every zone.
    counted: Option<(Arc<NodeTopology>, Free)>,
    /// Pods placed since the report that counts.
    assumed: BTreeMap<PodId, Arc<PodNeeds>>,
    /// Those of them that have ended.
    ended: BTreeSet<PodId>,
    /// Whether the node has refused a pod since the last resync, and so may be reserved too much of.
    may_be_over_reserved: Cell<bool>,
}

impl OverReserve {
    /// A report has arrived in the API server.
    pub fn report(&mut self, report: Arc<NodeTopology>) {
        // Other settings of the kubelet count at once, as with the plugin's `resyncScope: All`.
        if self.counted.as_ref().is_none_or(|(counted, _)| counted.rules != report.rules) {
            self.count(Arc::clone(&report));
        }
        self.newest = Some(report);
    }

    /// Charges a pod to every zone.
    pub fn reserve(&mut self, pod: PodId, needs: &Arc<PodNeeds>) {
        if self.counted.is_some() {
            self.assumed.insert(pod, Arc::clone(needs));
            self.recount();
        }
    }

    /// The pod has ended. It is charged until a resync, as by upstream, but for those beyond `MAX_ENDED`: a node that
    /// refuses no pod, or whose reports have no fingerprint, is never looked at.
    pub fn ended(&mut self, pod: PodId) {
        if self.assumed.contains_key(&pod) && self.ended.insert(pod) && self.ended.len() > MAX_ENDED {
            self.unreserve(pod);
        }
    }

    /// The pod was not bound.
    pub fn unreserve(&mut self, pod: PodId) {
        self.ended.remove(&pod);
        if self.assumed.remove(&pod).is_some() {
            self.recount();
        }
    }

    /// Whether the plugin lets a pod onto the node. A refusal marks the node for the next resync.
    ///
    /// # Errors
    /// The [`Misfit`].
    pub fn check(&self, needs: &PodNeeds, scratch: &mut Scratch) -> Result<(), Misfit> {
        let Some((report, free)) = &self.counted else { return Ok(()) };
        if report.rules.policy != Policy::SingleNumaNode || !admit::needs_alignment(report.rules, free, needs)
        {
            return Ok(());
        }
        let admitted = admit::admit(report.rules, free, needs, scratch).map(drop);
        self.may_be_over_reserved.set(self.may_be_over_reserved.get() || admitted.is_err());
        admitted
    }

    /// The plugin's score. But for LeastNUMANodes, zones score where the policy is single-numa-node alone.
    #[must_use]
    pub fn score(&self, scorer: &ZoneScorer<'_>) -> i64 {
        if scorer.is_neutral() {
            return MAX_SCORE;
        }
        let Some((report, free)) = &self.counted else { return 0 };
        let scores =
            report.rules.policy == Policy::SingleNumaNode || scorer.strategy() == Strategy::LeastNumaNodes;
        if scores { scorer.score(report, free) } else { 0 }
    }

    /// Whether the next resync looks at the node.
    #[must_use]
    pub fn needs_resync(&self) -> bool {
        self.may_be_over_reserved.get()
    }

    /// Takes the newest report over if its fingerprint is that of the pods that run on the node, counted by this
    /// method; whether it did.
    pub fn resync<'a>(
        &mut self,
        method: ResyncMethod,
        running: impl Iterator<Item = (PodHash, &'a PodNeeds)>,
    ) -> bool {
        let Some(newest) = self.newest.clone() else { return false };
        let Some((expected, stated)) = newest.fingerprint else { return false };
        let method = match method {
            ResyncMethod::Autodetect => stated,
            ResyncMethod::All => Method::All,
            ResyncMethod::OnlyExclusiveResources => Method::WithExclusiveResources,
        };
        let free = newest.available();
        let counts =
            |needs: &PodNeeds| method == Method::All || admit::is_exclusive(newest.rules, &free, needs);
        let mut pods: Vec<PodHash> =
            running.filter(|(_, needs)| counts(needs)).map(|(hash, _)| hash).collect();
        if Fingerprint::of(&mut pods) != expected {
            return false;
        }
        self.assumed.clear();
        self.ended.clear();
        self.may_be_over_reserved.set(false);
        self.count(newest);
        true
    }

    fn count(&mut self, report: Arc<NodeTopology>) {
        let free = report.available();
        self.counted = Some((report, free));
        self.recount();
    }

    /// Computes what the report leaves. Cost: assumed pods x zones x resources.
    fn recount(&mut self) {
        let Some((report, free)) = &mut self.counted else { return };
        *free = report.available();
        let zones = free.layout().zones().len();
        for need in self.assumed.values().flat_map(|needs| &needs.totals) {
            let Some(column) = free.layout().column(need.name) else { continue };
            for row in 0..zones {
                let taken = need.amount.min(free.get(row, column).max(0));
                free.add(free.index(row, column), -taken);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use topology::policy::{Manager, Rules, Scope};
    use topology::quantity::{Format, Quantity};
    use topology::request::{ContainerKind, ContainerRequest, PodRequest};
    use topology::resource::ResourceName;
    use topology::zone::{Zone, ZoneId, ZoneResource};

    use super::*;

    fn report(available: [i64; 2], pods: &[PodHash]) -> Arc<NodeTopology> {
        let zone = |(id, available): (u32, i64)| Zone {
            id: ZoneId(id),
            distances: Vec::new(),
            resources: vec![ZoneResource {
                name: ResourceName::CPU,
                capacity: 8_000,
                allocatable: 8_000,
                available: available * 1_000,
            }],
        };
        let rules = Rules {
            policy: Policy::SingleNumaNode,
            scope: Scope::Container,
            cpu_manager: Manager::Static,
            memory_manager: Manager::Off,
        };
        Arc::new(NodeTopology {
            rules,
            zones: (0..).zip(available).map(zone).collect(),
            fingerprint: Some((Fingerprint::of(&mut pods.to_vec()), Method::All)),
            ..NodeTopology::default()
        })
    }

    fn needs(cpus: i64) -> Arc<PodNeeds> {
        let list = vec![
            (ResourceName::CPU, Quantity::from_i64(cpus, Format::DecimalSI)),
            (ResourceName::MEMORY, Quantity::from_i64(1, Format::BinarySI)),
        ];
        let container = ContainerRequest {
            name: "c".into(),
            kind: ContainerKind::App,
            requests: list.clone(),
            limits: list,
        };
        Arc::new(PodRequest { containers: vec![container], ..PodRequest::default() }.needs())
    }

    fn fits(node: &OverReserve, cpus: i64) -> bool {
        node.check(&needs(cpus), &mut Scratch::default()).is_ok()
    }

    #[test]
    fn every_zone_is_charged_until_a_report_matches() {
        let pod = PodHash::of("a", "a");
        let mut node = OverReserve::default();
        assert!(fits(&node, 99), "a node without a report takes everything");
        node.report(report([8, 8], &[]));
        node.reserve(PodId(1), &needs(6));
        assert!(fits(&node, 2) && !node.needs_resync());
        assert!(!fits(&node, 3) && node.needs_resync());
        // The report of the pod is there, but it counts only after a resync with the same pods.
        node.report(report([2, 8], &[pod]));
        assert!(!fits(&node, 3));
        let running = needs(6);
        assert!(!node.resync(ResyncMethod::Autodetect, std::iter::empty()));
        assert!(!node.resync(ResyncMethod::Autodetect, [(PodHash::of("a", "b"), &*running)].into_iter()));
        assert!(node.resync(ResyncMethod::Autodetect, [(pod, &*running)].into_iter()));
        assert!(fits(&node, 8) && !node.needs_resync());
    }

    #[test]
    fn other_settings_count_at_once_and_the_charges_stay() {
        let mut node = OverReserve::default();
        node.report(report([8, 8], &[]));
        node.reserve(PodId(1), &needs(6));
        let mut changed = (*report([8, 8], &[PodHash::of("a", "a")])).clone();
        changed.rules.scope = Scope::Pod;
        node.report(Arc::new(changed));
        assert_eq!(node.counted.as_ref().unwrap().0.rules.scope, Scope::Pod);
        assert!(fits(&node, 2) && !fits(&node, 3));
    }

    #[test]
    fn the_profile_says_which_pods_a_fingerprint_counts() {
        let (exclusive, other) = (PodHash::of("a", "a"), PodHash::of("a", "b"));
        let (with, without) = (needs(6), Arc::new(PodRequest::default().needs()));
        let resync = |method, named: &[PodHash]| {
            let mut node = OverReserve::default();
            node.report(report([2, 8], named));
            node.resync(method, [(exclusive, &*with), (other, &*without)].into_iter())
        };
        assert!(resync(ResyncMethod::Autodetect, &[exclusive, other]), "the report says so");
        assert!(resync(ResyncMethod::All, &[exclusive, other]));
        assert!(!resync(ResyncMethod::All, &[exclusive]));
        assert!(resync(ResyncMethod::OnlyExclusiveResources, &[exclusive]));
        assert!(!resync(ResyncMethod::OnlyExclusiveResources, &[exclusive, other]));
    }

    #[test]
    fn pods_that_have_gone_are_charged_until_a_resync() {
        let mut node = OverReserve::default();
        node.report(report([8, 8], &[]));
        node.reserve(PodId(1), &needs(6));
        assert!(!fits(&node, 8));
        assert!(node.resync(ResyncMethod::Autodetect, std::iter::empty()) && fits(&node, 8));
        node.reserve(PodId(2), &needs(6));
        node.unreserve(PodId(2));
        assert!(fits(&node, 8), "a pod that was not bound is charged no longer");
    }

    #[test]
    fn pods_that_have_gone_do_not_pile_up() {
        let mut node = OverReserve::default();
        node.report(report([8, 8], &[]));
        for at in 0..1_000 {
            node.reserve(PodId(at), &needs(1));
            node.ended(PodId(at));
            node.ended(PodId(0));
            node.ended(PodId(5_000));
        }
        assert_eq!(node.assumed.len(), MAX_ENDED);
        assert!(node.resync(ResyncMethod::Autodetect, std::iter::empty()) && node.assumed.is_empty());
        node.reserve(PodId(1), &needs(1));
        node.ended(PodId(1));
        assert!(!fits(&node, 8), "charged until the next resync");
    }
}
