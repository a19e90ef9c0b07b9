//! The effect of each event on the simulated cluster.
//!
//! In: one event at a time. Out: changed state, and the events that follow, each after its delay. Never: a decision of
//! the scheduler.

use std::sync::Arc;

use scheduler::core::Event;
use scheduler::ledger::PodId;
use topology::request::PodNeeds;

use super::{Pod, PodStatus, ResizeStage, SimEvent, Simulation};
use crate::kubelet::Resized;
use crate::latency::DelayRange;
use crate::machine::cpu_milli;
use crate::workload::End;

impl Simulation<'_> {
    pub(super) fn process(&mut self, event: SimEvent) {
        match event {
            SimEvent::Delivered { incarnation, event } => self.deliver(incarnation, *event),
            SimEvent::BindingSent { incarnation, id, pod, node, relied_on, takes_ms } => {
                if incarnation != self.incarnation {
                    self.nodes[node].expected.remove(&pod);
                } else if relied_on.into_iter().any(|other| self.has_left(other)) {
                    self.not_sent(id, (pod, node));
                } else {
                    let stored = SimEvent::BindingStored { incarnation, id, pod, node };
                    self.schedule(self.now_ms + takes_ms, stored);
                }
            }
            SimEvent::BindingStored { incarnation, id, pod, node } => {
                let bound = self.pods[pod].node.is_none();
                let at_ms = self.now_ms + self.setup.latency.watch.draw(&mut self.random);
                self.schedule(at_ms, SimEvent::BindingAnswered { incarnation, id, bound });
                if bound {
                    self.stored(pod, node);
                }
            }
            SimEvent::BindingAnswered { incarnation, id, bound } => {
                self.deliver(incarnation, if bound { Event::Bound(id) } else { Event::BindFailed(id) });
            }
            SimEvent::KubeletAdds(pod) => self.added(pod),
            SimEvent::KubeletTerminates(pod) => {
                let at_ms = self.now_ms + self.setup.latency.stop.draw(&mut self.random);
                self.schedule(at_ms, SimEvent::Released(pod));
            }
            SimEvent::KubeletRemoves(pod) => self.release(pod),
            SimEvent::ResizeDesired(pod) => self.desire(pod),
            SimEvent::KubeletResizes(pod) => self.resize(pod),
            SimEvent::StatusStored(pod, step) => self.status(pod, step),
            SimEvent::LifetimeOver(pod) => self.lifetime_over(pod),
            SimEvent::Released(pod) => self.released(pod),
            SimEvent::ObjectRemoved(pod) => self.removed(pod),
            SimEvent::Scan(node) => self.scan(node),
            SimEvent::ReportStored(node, report) => {
                self.nodes[node].stored = Some(Arc::clone(&report));
                self.notify_of_report(Event::Report(Arc::clone(&self.nodes[node].name), report));
            }
            SimEvent::ExportersRestart => {
                for node in 0..self.nodes.len() {
                    self.nodes[node].scan_ms = self.now_ms;
                    self.scan(node);
                }
            }
            SimEvent::SchedulerKilled => {
                self.scheduler = None;
                self.incarnation += 1;
            }
            SimEvent::SchedulerRestarts => self.start_scheduler(),
        }
    }

    // === the scheduler's bindings ===

    /// Whether the API server says that a pod leaves or has left.
    fn has_left(&self, pod: usize) -> bool {
        let Pod { exists, view, .. } = &self.pods[pod];
        !exists || view.progress.is_ending()
    }

    /// A binding is not sent after all.
    pub(super) fn not_sent(&mut self, id: PodId, (pod, node): (usize, usize)) {
        self.withdrawn += 1;
        self.nodes[node].expected.remove(&pod);
        let incarnation = self.incarnation;
        self.schedule(self.now_ms, SimEvent::BindingAnswered { incarnation, id, bound: false });
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
        self.notify_scheduler(Event::Pod(view));
        self.notify_kubelet(node, SimEvent::KubeletAdds(pod));
    }

    fn status(&mut self, pod: usize, step: PodStatus) {
        let second = self.now_ms / 1_000;
        let entry = &mut self.pods[pod];
        if !entry.exists {
            return;
        }
        let view = &mut entry.view;
        view.progress.admitted = true;
        // The kubelet has started it no later than that.
        view.started_s.get_or_insert(second);
        match step {
            PodStatus::Admitted => {}
            PodStatus::Resized(_) => {}
            PodStatus::Running => view.progress.initialized = true,
            // kubelet 1.36 `SyncTerminatingPod`: the status it writes when the containers have stopped is terminal,
            // also for pods that were deleted.
            PodStatus::Stopped | PodStatus::Finished => {
                view.progress.terminal = true;
                view.ended_s = entry.ended_s;
            }
            PodStatus::Rejected(_) => {
                view.progress.terminal = true;
                view.ended_s = Some(u64::MAX);
            }
        }
        if let PodStatus::Resized(resized) = step
            && let Some((_, desired)) = self.setup.workload.arrivals[pod].resized()
        {
            let view = &mut entry.view;
            match resized {
                Resized::Done => {
                    (view.charged, view.allocated) = (Arc::clone(&desired.needs), Arc::clone(&desired.needs));
                }
                Resized::Infeasible => view.charged = Arc::clone(&view.allocated),
                Resized::Deferred => {}
            }
        }
        let (view, waited_ms) = (entry.view.clone(), self.now_ms - entry.created_ms);
        match step {
            PodStatus::Running => {
                self.pending -= 1;
                self.record.running(waited_ms);
                if let Some(resize) = self.setup.workload.arrivals[pod].resize {
                    let at_ms = self.now_ms.saturating_add(resize.after_ms);
                    self.schedule(at_ms, SimEvent::ResizeDesired(pod));
                }
                if let Some(life_ms) = self.setup.workload.arrivals[pod].life_ms {
                    self.schedule(self.now_ms.saturating_add(life_ms), SimEvent::LifetimeOver(pod));
                }
            }
            PodStatus::Rejected(rejection) => {
                self.pending -= 1;
                self.record.rejected(rejection);
            }
            PodStatus::Admitted | PodStatus::Stopped | PodStatus::Finished | PodStatus::Resized(_) => {}
        }
        self.notify_scheduler(Event::Pod(view));
    }

    /// A user resizes a pod: the node's totals count the larger side from now on.
    fn desire(&mut self, pod: usize) {
        let entry = &mut self.pods[pod];
        let (Some(node), Some((_, desired))) = (entry.node, self.setup.workload.arrivals[pod].resized())
        else {
            return;
        };
        let view = &mut entry.view;
        if !entry.exists || view.progress.is_ending() {
            return;
        }
        if cpu_milli(&desired.needs.totals) > cpu_milli(&view.allocated.totals) {
            view.charged = Arc::clone(&desired.needs);
        }
        view.spec = desired;
        entry.resize = Some(ResizeStage::Desired);
        let view = view.clone();
        self.notify_scheduler(Event::Pod(view));
        self.notify_kubelet(node, SimEvent::KubeletResizes(pod));
    }

    fn lifetime_over(&mut self, pod: usize) {
        let Some(node) = self.pods[pod].node else { return };
        match self.setup.workload.arrivals[pod].end {
            End::Deleted => {
                let view = &mut self.pods[pod].view;
                view.progress.deleting = true;
                let view = view.clone();
                self.notify_scheduler(Event::Pod(view));
                self.notify_kubelet(node, SimEvent::KubeletTerminates(pod));
            }
            End::Forced => {
                self.removed(pod);
                self.notify_kubelet(node, SimEvent::KubeletRemoves(pod));
            }
            End::Finished => self.process(SimEvent::KubeletTerminates(pod)),
        }
    }

    fn removed(&mut self, pod: usize) {
        self.pods[pod].exists = false;
        let view = self.pods[pod].view.clone();
        self.notify_scheduler(Event::PodGone(view));
    }

    // === kubelets ===

    fn added(&mut self, pod: usize) {
        let Some(node) = self.pods[pod].node else { return };
        let view = &self.pods[pod].view;
        let (spec, request, hash) = (Arc::clone(&view.spec), Arc::clone(&self.requests[pod]), view.hash);
        let latency = self.setup.latency;
        match self.with_kubelet(node, |kubelet| kubelet.admit(pod, &spec, &request, hash)) {
            Ok(alignment) => {
                self.record.admitted(alignment);
                self.write_status(pod, PodStatus::Admitted, 0);
                let start_ms = latency.start.draw(&mut self.random);
                self.write_status(pod, PodStatus::Running, start_ms);
                self.request_scan(node, latency.scan_taken);
            }
            Err(rejection) => {
                let unforeseen =
                    self.has_lost_unannounced(pod, node) || self.has_grown_unannounced(pod, node);
                self.unforeseen += usize::from(unforeseen);
                self.write_status(pod, PodStatus::Rejected(rejection), 0);
            }
        }
    }

    /// Whether a node has lost pods that the scheduler did not know to leave when it chose the node for this one.
    fn has_lost_unannounced(&self, pod: usize, node: usize) -> bool {
        let there: Vec<usize> = self.nodes[node].kubelet.placements().map(|(other, _)| other).collect();
        self.pods[pod].expected_beside.iter().any(|other| !there.contains(other))
    }

    /// Whether a pod of the node has grown that the scheduler did not know to grow when it chose the node.
    fn has_grown_unannounced(&self, pod: usize, node: usize) -> bool {
        let known = &self.pods[pod].known_to_grow;
        let has_grown = |other: &usize| {
            let pod = &self.pods[*other];
            let cpu = |needs: &PodNeeds| cpu_milli(&needs.totals);
            pod.resize == Some(ResizeStage::Answered(Resized::Done))
                && cpu(&pod.view.charged) > cpu(&self.specs[*other].needs)
                && !known.contains(other)
        };
        self.nodes[node].kubelet.placements().any(|(other, _)| has_grown(&other))
    }

    /// The kubelet sees a resize, or tries it again.
    fn resize(&mut self, pod: usize) {
        let (Some(node), Some((request, spec))) =
            (self.pods[pod].node, self.setup.workload.arrivals[pod].resized())
        else {
            return;
        };
        let answered = self.with_kubelet(node, |kubelet| kubelet.resize(pod, &spec, &request));
        let stage = Some(ResizeStage::Answered(answered));
        if std::mem::replace(&mut self.pods[pod].resize, stage) != stage {
            self.write_status(pod, PodStatus::Resized(answered), 0);
        }
    }

    fn released(&mut self, pod: usize) {
        self.pods[pod].ended_s = Some(self.now_ms / 1_000);
        self.release(pod);
        if self.setup.workload.arrivals[pod].end == End::Finished {
            self.write_status(pod, PodStatus::Finished, 0);
        } else {
            self.write_status(pod, PodStatus::Stopped, 0);
            let gone_ms = self.now_ms + self.setup.latency.cleanup.draw(&mut self.random);
            let gone_ms = gone_ms.max(self.pods[pod].status_ms);
            self.schedule(gone_ms, SimEvent::ObjectRemoved(pod));
        }
    }

    fn release(&mut self, pod: usize) {
        let Some(node) = self.pods[pod].node else { return };
        self.with_kubelet(node, |kubelet| kubelet.release(pod));
        let there = self.nodes[node].kubelet.placements().map(|(other, _)| other);
        let deferred = Some(ResizeStage::Answered(Resized::Deferred));
        let waiting: Vec<usize> = there.filter(|other| self.pods[*other].resize == deferred).collect();
        waiting.into_iter().for_each(|other| self.resize(other));
        self.request_scan(node, self.setup.latency.scan_released);
    }

    fn with_kubelet<T>(&mut self, node: usize, change: impl FnOnce(&mut crate::kubelet::Kubelet) -> T) -> T {
        let kubelet = &mut self.nodes[node].kubelet;
        let before = kubelet.used_milli();
        let result = change(kubelet);
        self.used_milli = self.used_milli.saturating_add(kubelet.used_milli() - before);
        result
    }

    // === exporters ===

    /// Schedules a scan after a change in the kubelet, unless an earlier one is due.
    fn request_scan(&mut self, node: usize, delay: DelayRange) {
        if self.setup.accounting.is_none() {
            return;
        }
        let at_ms = match self.setup.scan_period_ms {
            None => self.now_ms + delay.draw(&mut self.random),
            Some(period_ms) => self.next_look(node, period_ms.max(1)),
        };
        if at_ms < self.nodes[node].scan_ms {
            self.nodes[node].scan_ms = at_ms;
            self.schedule(at_ms, SimEvent::Scan(node));
        }
    }

    /// The next moment at which an exporter that looks periodically looks at a node. The looks of the nodes are spread
    /// evenly over the period.
    fn next_look(&self, node: usize, period_ms: u64) -> u64 {
        let phase = period_ms * node as u64 / self.nodes.len().max(1) as u64;
        let since = (self.now_ms + period_ms - phase) % period_ms;
        self.now_ms + period_ms - since
    }

    fn scan(&mut self, node: usize) {
        let now_ms = self.now_ms;
        let down = self.setup.faults.exporters_down_ms.is_some_and(|(from, to)| (from..to).contains(&now_ms));
        let state = &mut self.nodes[node];
        if state.scan_ms != now_ms {
            // An earlier scan was scheduled since, and has seen the same change.
            return;
        }
        state.scan_ms = u64::MAX;
        if down || state.kubelet.changes() == state.scanned {
            return;
        }
        state.scanned = state.kubelet.changes();
        let report = Arc::new(state.kubelet.report(self.setup.fingerprints, self.setup.ids));
        let delay = self.setup.latency.publish.draw(&mut self.random);
        let at_ms = state.published_ms.max(now_ms + delay);
        state.published_ms = at_ms;
        self.schedule(at_ms, SimEvent::ReportStored(node, report));
    }

    // === watches and statuses ===

    fn deliver(&mut self, incarnation: u32, event: Event) {
        let told = match &event {
            Event::Pod(view) if view.progress.is_ending() => Some(view),
            Event::PodGone(view) => Some(view),
            _ => None,
        };
        if let Some(pod) = told.and_then(|view| self.number(view))
            && let Some(node) = self.pods[pod].node
        {
            self.nodes[node].expected.remove(&pod);
        }
        if let Event::Pod(view) = &event
            && view.charged != view.allocated
            && let Some(pod) = self.number(view)
        {
            self.pods[pod].is_growth_known = true;
        }
        if let Some(core) = self.scheduler.as_mut().filter(|_| incarnation == self.incarnation) {
            core.handle(event, self.now_ms);
        }
    }

    /// Sends an event through the scheduler's watch of pods.
    pub(super) fn notify_scheduler(&mut self, event: Event) {
        if self.scheduler.is_some() {
            let at_ms = self.now_ms + self.setup.latency.watch.draw(&mut self.random);
            self.pod_watch_ms = self.pod_watch_ms.max(at_ms);
            let (incarnation, event) = (self.incarnation, Box::new(event));
            self.schedule(self.pod_watch_ms, SimEvent::Delivered { incarnation, event });
        }
    }

    /// Sends an event through the scheduler's watch of reports.
    fn notify_of_report(&mut self, event: Event) {
        if self.scheduler.is_some() {
            let at_ms = self.now_ms + self.setup.latency.watch.draw(&mut self.random);
            self.report_watch_ms = self.report_watch_ms.max(at_ms);
            let (incarnation, event) = (self.incarnation, Box::new(event));
            self.schedule(self.report_watch_ms, SimEvent::Delivered { incarnation, event });
        }
    }

    /// Sends an event through the kubelet's watch of pods.
    fn notify_kubelet(&mut self, node: usize, event: SimEvent) {
        let at_ms = self.now_ms + self.setup.latency.kubelet.draw(&mut self.random);
        self.nodes[node].notified_ms = self.nodes[node].notified_ms.max(at_ms);
        self.schedule(self.nodes[node].notified_ms, event);
    }

    /// Schedules the kubelet's write of a status, after its earlier writes.
    fn write_status(&mut self, pod: usize, step: PodStatus, after_ms: u64) {
        let at_ms = self.now_ms + after_ms + self.setup.latency.status.draw(&mut self.random);
        let entry = &mut self.pods[pod];
        entry.status_ms = entry.status_ms.max(at_ms);
        let at_ms = entry.status_ms;
        self.schedule(at_ms, SimEvent::StatusStored(pod, step));
    }
}
