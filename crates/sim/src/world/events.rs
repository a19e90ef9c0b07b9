//! What happens in the world, one thing at a time.

use std::sync::Arc;

use scheduler::core::Event;

use super::{SimEvent, Step, World};
use crate::kubelet::Rejection;
use crate::latency::Span;
use crate::machine::cpu_milli;
use crate::workload::End;

impl World<'_> {
    pub(super) fn apply(&mut self, what: SimEvent) {
        match what {
            SimEvent::Heard { life, event } => self.hear(life, event),
            SimEvent::Stored { life, id, pod, node } => {
                let bound = self.pods[pod].node.is_none();
                let at_ms = self.now_ms + self.setup.latency.watch.draw(&mut self.random);
                self.plan(at_ms, SimEvent::Answered { life, id, bound });
                if bound {
                    self.stored(pod, node);
                }
            }
            SimEvent::Answered { life, id, bound } => {
                self.hear(life, if bound { Event::Bound(id) } else { Event::BindFailed(id) });
            }
            SimEvent::Added(pod) => self.added(pod),
            SimEvent::Terminated(pod) => {
                let at_ms = self.now_ms + self.setup.latency.stop.draw(&mut self.random);
                self.plan(at_ms, SimEvent::Released(pod));
            }
            SimEvent::Vanished(pod) => self.release(pod),
            SimEvent::Status(pod, step) => self.status(pod, step),
            SimEvent::LifeOver(pod) => self.life_over(pod),
            SimEvent::Released(pod) => self.released(pod),
            SimEvent::Removed(pod) => self.removed(pod),
            SimEvent::Scan(node) => self.scan(node),
            SimEvent::Published(node, report) => {
                self.nodes[node].stored = Some(Arc::clone(&report));
                self.tell_report(Event::Report(Arc::clone(&self.nodes[node].name), report));
            }
            SimEvent::ExportersBack => {
                for node in 0..self.nodes.len() {
                    self.nodes[node].scan_ms = self.now_ms;
                    self.scan(node);
                }
            }
            SimEvent::SchedulerDies => {
                self.scheduler = None;
                self.life += 1;
            }
            SimEvent::SchedulerStarts => self.start_scheduler(),
        }
    }

    // === the API server ===

    fn stored(&mut self, pod: usize, node: usize) {
        let name = Arc::clone(&self.nodes[node].name);
        let entry = &mut self.pods[pod];
        entry.node = Some(node);
        entry.view.node = Some(name);
        let (view, milli) = (entry.view.clone(), cpu_milli(&entry.view.spec.needs.totals));
        if let Some(count) = self.waiting.get_mut(&milli) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&milli);
            }
        }
        self.tell(Event::Pod(view));
        self.tell_kubelet(node, SimEvent::Added(pod));
    }

    fn status(&mut self, pod: usize, step: Step) {
        let entry = &mut self.pods[pod];
        if !entry.exists {
            return;
        }
        let progress = &mut entry.view.progress;
        progress.admitted = true;
        match step {
            Step::Admitted | Step::Running => {}
            // kubelet 1.36 `SyncTerminatingPod`: the status it writes when the containers have stopped is terminal, also for
            // pods that were deleted.
            Step::Stopped | Step::Finished | Step::Rejected(_) => progress.terminal = true,
        }
        let (view, waited_ms) = (entry.view.clone(), self.now_ms - entry.created_ms);
        match step {
            Step::Running => {
                self.pending -= 1;
                self.record.running(waited_ms);
                if let Some(life_ms) = self.setup.plan.arrivals[pod].life_ms {
                    self.plan(self.now_ms.saturating_add(life_ms), SimEvent::LifeOver(pod));
                }
            }
            Step::Rejected(rejection) => {
                self.pending -= 1;
                self.record.lost(matches!(rejection, Rejection::Topology(_)));
            }
            Step::Admitted | Step::Stopped | Step::Finished => {}
        }
        self.tell(Event::Pod(view));
    }

    fn life_over(&mut self, pod: usize) {
        let Some(node) = self.pods[pod].node else { return };
        match self.setup.plan.arrivals[pod].end {
            End::Deleted => {
                let view = &mut self.pods[pod].view;
                view.progress.deleting = true;
                let view = view.clone();
                self.tell(Event::Pod(view));
                self.tell_kubelet(node, SimEvent::Terminated(pod));
            }
            End::Forced => {
                self.removed(pod);
                self.tell_kubelet(node, SimEvent::Vanished(pod));
            }
            End::Finished => self.apply(SimEvent::Terminated(pod)),
        }
    }

    fn removed(&mut self, pod: usize) {
        self.pods[pod].exists = false;
        let view = self.pods[pod].view.clone();
        self.tell(Event::PodGone(view));
    }

    // === kubelets ===

    fn added(&mut self, pod: usize) {
        let Some(node) = self.pods[pod].node else { return };
        let view = &self.pods[pod].view;
        let (needs, hash) = (Arc::clone(&view.spec.needs), view.hash);
        let latency = self.setup.latency;
        match self.with_kubelet(node, |kubelet| kubelet.admit(pod, &needs, hash)) {
            Ok(()) => {
                self.write_status(pod, Step::Admitted, 0);
                let start_ms = latency.start.draw(&mut self.random);
                self.write_status(pod, Step::Running, start_ms);
                self.poke(node, latency.scan_taken);
            }
            Err(rejection) => self.write_status(pod, Step::Rejected(rejection), 0),
        }
    }

    fn released(&mut self, pod: usize) {
        self.release(pod);
        if self.setup.plan.arrivals[pod].end == End::Finished {
            self.write_status(pod, Step::Finished, 0);
        } else {
            self.write_status(pod, Step::Stopped, 0);
            let gone_ms = self.now_ms + self.setup.latency.cleanup.draw(&mut self.random);
            let gone_ms = gone_ms.max(self.pods[pod].status_ms);
            self.plan(gone_ms, SimEvent::Removed(pod));
        }
    }

    fn release(&mut self, pod: usize) {
        let Some(node) = self.pods[pod].node else { return };
        self.with_kubelet(node, |kubelet| kubelet.release(pod));
        self.poke(node, self.setup.latency.scan_released);
    }

    fn with_kubelet<T>(&mut self, node: usize, change: impl FnOnce(&mut crate::kubelet::Kubelet) -> T) -> T {
        let kubelet = &mut self.nodes[node].kubelet;
        let before = kubelet.used_milli();
        let result = change(kubelet);
        self.used_milli = self.used_milli.saturating_add(kubelet.used_milli() - before);
        result
    }

    // === exporters ===

    /// Something changed in the kubelet: the exporter will look.
    fn poke(&mut self, node: usize, delay: Span) {
        if !self.setup.zones {
            return;
        }
        let at_ms = self.now_ms + delay.draw(&mut self.random);
        if at_ms < self.nodes[node].scan_ms {
            self.nodes[node].scan_ms = at_ms;
            self.plan(at_ms, SimEvent::Scan(node));
        }
    }

    fn scan(&mut self, node: usize) {
        let now_ms = self.now_ms;
        let down = self.setup.faults.exporters_down_ms.is_some_and(|(from, to)| (from..to).contains(&now_ms));
        let state = &mut self.nodes[node];
        if state.scan_ms != now_ms {
            // An earlier scan has been planned since, and seen what this one was to see.
            return;
        }
        state.scan_ms = u64::MAX;
        if down || state.kubelet.changes() == state.scanned {
            return;
        }
        state.scanned = state.kubelet.changes();
        let report = Arc::new(state.kubelet.report(self.setup.fingerprints));
        let delay = self.setup.latency.publish.draw(&mut self.random);
        let at_ms = state.published_ms.max(now_ms + delay);
        state.published_ms = at_ms;
        self.plan(at_ms, SimEvent::Published(node, report));
    }

    // === telling ===

    fn hear(&mut self, life: u32, event: Event) {
        if let Some(core) = self.scheduler.as_mut().filter(|_| life == self.life) {
            core.handle(event, self.now_ms);
        }
    }

    /// The scheduler's pod watch.
    pub(super) fn tell(&mut self, event: Event) {
        if self.scheduler.is_some() {
            let at_ms = self.now_ms + self.setup.latency.watch.draw(&mut self.random);
            self.pod_watch_ms = self.pod_watch_ms.max(at_ms);
            self.plan(self.pod_watch_ms, SimEvent::Heard { life: self.life, event });
        }
    }

    /// The scheduler's watch of reports.
    fn tell_report(&mut self, event: Event) {
        if self.scheduler.is_some() {
            let at_ms = self.now_ms + self.setup.latency.watch.draw(&mut self.random);
            self.report_watch_ms = self.report_watch_ms.max(at_ms);
            self.plan(self.report_watch_ms, SimEvent::Heard { life: self.life, event });
        }
    }

    /// The kubelet's pod watch.
    fn tell_kubelet(&mut self, node: usize, what: SimEvent) {
        let at_ms = self.now_ms + self.setup.latency.kubelet.draw(&mut self.random);
        self.nodes[node].heard_ms = self.nodes[node].heard_ms.max(at_ms);
        self.plan(self.nodes[node].heard_ms, what);
    }

    /// The kubelet's status of a pod, after what it wrote before.
    fn write_status(&mut self, pod: usize, step: Step, after_ms: u64) {
        let at_ms = self.now_ms + after_ms + self.setup.latency.status.draw(&mut self.random);
        let entry = &mut self.pods[pod];
        entry.status_ms = entry.status_ms.max(at_ms);
        let at_ms = entry.status_ms;
        self.plan(at_ms, SimEvent::Status(pod, step));
    }
}
